"""Owns what fills the window of a session, by part, and what that leaves room for. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from agent.compaction.plan.boundary import TAIL_SLACK
from agent.messages import THINKING_TYPES, Message, Row, wire_message
from agent.model_metadata import (
    IMAGE_PART_TYPES,
    IMAGE_TOKENS,
    Measurement,
    Triggers,
    estimate_message_tokens,
    estimate_prefix_tokens,
    estimate_tools_tokens,
    images_in,
    measure,
)
from agent.native_block import is_readable_summary
from agent.sessions import LoadedSession, SessionPrefix

PartName = Literal[
    "system",
    "tools",
    "summary",
    "user",
    "assistant",
    "tool_calls",
    "tool_results",
    "pictures",
    "thinking",
]
PARTS: tuple[PartName, ...] = get_args(PartName)
"""In the order in which they are shown. ``summary``: the batch summary, the micro marker and the
notes of compactions; ``user`` and ``assistant``: their texts."""

LARGEST = 3
_OF_ROLE: Mapping[str, PartName] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool_results",
}
_MORE_THAN_TEXT = frozenset({"tool_calls", "anthropic_content_blocks"})
_SAID_BY_NOBODY = frozenset({"summary", "micro", "note", "notice"})


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """One of the messages that take the most room."""

    row_id: int
    """As in recall references and `sessions show`."""
    role: str
    part: PartName
    """What most of it counts as."""
    tokens: int
    tool_name: str = ""


@dataclass(frozen=True, slots=True)
class Composition:
    """What a session's next prompt is made of, in estimated tokens."""

    parts: Mapping[PartName, int]
    """Every part of `PARTS`, in that order; they add up to `tokens`."""
    messages: int
    largest: tuple[LargeMessage, ...] = ()
    """The largest first."""

    @property
    def tokens(self) -> int:
        """The whole estimate: system prompt, tools and every message."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class MeasuredPrompt:
    """The last size that the provider told."""

    prompt_tokens: int
    output_tokens: int
    at: float
    """Unix seconds: when the answer to that prompt was stored."""
    rows_since: int


@dataclass(frozen=True, slots=True)
class Filling:
    """How full a session's window is."""

    composition: Composition
    measurement: Measurement
    """What the triggers go by."""
    measured: MeasuredPrompt | None
    """What the measurement rests on; None: nothing real is known."""
    triggers: Triggers

    @property
    def room_tokens(self) -> int:
        """What is left of the window behind the next prompt, the answer included."""
        return max(0, self.triggers.window_tokens - self.measurement.tokens)

    @property
    def before_tail_tokens(self) -> int:
        """What stands in front of the newest messages, which always stay; 0: nothing to compress.

        An estimate: the plan of a compression has further rules. The tail counts at its longest.
        """
        parts = self.composition.parts
        messages = self.composition.tokens - parts["system"] - parts["tools"]
        return max(0, messages - int(TAIL_SLACK * self.triggers.tail_tokens))

    @property
    def answer_tokens(self) -> int:
        """How long the next answer can be."""
        limit = self.triggers.max_tokens or self.room_tokens
        return min(limit, self.room_tokens)


def fill(loaded: LoadedSession, triggers: Triggers, *, image_tokens: int = IMAGE_TOKENS) -> Filling:
    """How full the window of a session is, for these triggers and this price of a picture."""
    prefix = loaded.session.prefix
    prefix_tokens = estimate_prefix_tokens(prefix)
    return Filling(
        composition=compose(prefix, loaded.rows, image_tokens=image_tokens),
        measurement=measure(loaded, prefix_tokens=prefix_tokens, image_tokens=image_tokens),
        measured=_measured(loaded),
        triggers=triggers,
    )


def compose(
    prefix: SessionPrefix,
    rows: Sequence[Row],
    *,
    image_tokens: int = IMAGE_TOKENS,
    largest: int = LARGEST,
) -> Composition:
    """Tokens by part: a prefix and the active rows behind it.

    Every row counts as what the store noted for it, its pictures at their price of today, as in
    `measure`: the parts add up to exactly what the triggers see where nothing real is known.
    """
    parts: dict[PartName, int] = dict.fromkeys(PARTS, 0)
    parts["tools"] = estimate_tools_tokens(prefix.tools)
    parts["system"] = estimate_prefix_tokens(prefix) - parts["tools"]
    sized: list[LargeMessage] = []
    for row in rows:
        found = _parts_of(row, image_tokens)
        for name, tokens in found.items():
            parts[name] += tokens
        total = sum(found.values())
        if total:
            most = max(found, key=lambda name: found[name])
            sized.append(
                LargeMessage(
                    row.id, row.message["role"], most, total, row.message.get("name") or ""
                )
            )
    biggest = heapq.nlargest(largest, sized, key=lambda message: (message.tokens, message.row_id))
    return Composition(parts, len(rows), tuple(biggest))


def _parts_of(row: Row, image_tokens: int) -> dict[PartName, int]:
    """One row's tokens by part: what is beside the text is asked for, the text gets the rest."""
    main = _main_part(row)
    message = wire_message(row)
    if isinstance(message["content"], str) and not message.keys() & _MORE_THAN_TEXT:
        return {main: row.tokens}
    found: dict[PartName, int] = {}
    dearer = images_in(message["content"]) * (image_tokens - IMAGE_TOKENS)
    left = max(0, row.tokens + dearer)
    for name, alone in _beside_text(message):
        bare = cast(Message, {"role": message["role"], "content": None})
        tokens = estimate_message_tokens(alone) - estimate_message_tokens(bare)
        if name == "pictures":
            tokens += dearer
        tokens = min(left, tokens)
        found[name] = found.get(name, 0) + tokens
        left -= tokens
    found[main] = found.get(main, 0) + left
    return found


def _main_part(row: Row) -> PartName:
    if row.kind in _SAID_BY_NOBODY:
        return "summary"
    return _OF_ROLE.get(row.message["role"], "assistant")


def _beside_text(message: Message) -> list[tuple[PartName, Message]]:
    """What a message holds beside its text, each as a message that holds nothing else.

    The one estimator prices them, so that nothing here has to know how it counts.
    """

    def alone(**fields: Any) -> Message:
        return cast(Message, {"role": message["role"], "content": None, **fields})

    found: list[tuple[PartName, Message]] = []
    if calls := message.get("tool_calls"):
        found.append(("tool_calls", alone(tool_calls=calls)))
    content = message.get("content")
    if isinstance(content, list):
        pictures = [part for part in content if part.get("type") in IMAGE_PART_TYPES]
        if pictures:
            found.append(("pictures", alone(content=pictures)))
    blocks = message.get("anthropic_content_blocks") or ()
    thinking = [block for block in blocks if block.get("type") in THINKING_TYPES]
    if thinking:
        found.append(("thinking", alone(anthropic_content_blocks=thinking)))
    compacted = [block for block in blocks if block.get("type") == "compaction"]
    if is_readable_summary(message):
        compacted = []  # what the provider wrote is the text, and is sent once
    if compacted:  # the provider's own summary of what came before
        found.append(("summary", alone(anthropic_content_blocks=compacted)))
    return found


def _measured(loaded: LoadedSession) -> MeasuredPrompt | None:
    anchor = loaded.session.anchor
    if anchor is None:
        return None
    for since, row in enumerate(reversed(loaded.rows)):
        if row.id == anchor.through_row_id:
            return MeasuredPrompt(anchor.prompt_tokens, anchor.output_tokens, row.created_at, since)
    return None
