"""Owns sizes: token estimates, windows of models, the triggers that follow from them, measuring."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.messages import THINKING_TYPES, Content, Message, Row, ToolSchema, wire_message
from agent.native_block import is_readable_summary
from agent.sessions import LoadedSession, SessionPrefix

log = logging.getLogger(__name__)

# --- estimates ----------------------------------------------------------------------------------

CHARS_PER_TOKEN = 4
IMAGE_TOKENS = 1500
"""Flat cost of a picture, until `agent.image_tokens` has learned the model's own."""
IMAGE_PART_TYPES = ("image_url", "image", "input_image")
MESSAGE_TOKENS = 4
"""What a message costs beside its text."""
TOOL_CALL_TOKENS = 8
"""What a call or a result costs beside its texts: the id and the envelope."""

_DENSE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]+"
)
_LONG_CHARS = 500
_DENSE_PAGES = bytes((0x11, *range(0x2F, 0xA0), *range(0xAC, 0xD7), 0xF9, 0xFA))
"""Where all 256 characters of a page (the upper byte of a UTF-16 unit) are dense."""
_MIXED_PAGES = (0xFF, 0x2E, 0xA9, 0xD7, 0xD8)
_DENSE_IN_MIXED = re.compile(
    "[\u2e80-\u2eff\ua960-\ua97f\ud700-\ud7af\uff00-\uffef\U00020000-\U0003ffff]"
)


def estimate_tokens_rough(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters, but one for each CJK one.

    Takes no time that depends on the length if the text is ASCII.
    """
    if text.isascii():
        return (len(text) + 3) // CHARS_PER_TOKEN
    dense = _dense_chars(text)
    return dense + (len(text) - dense + 3) // CHARS_PER_TOKEN


def _dense_chars(text: str) -> int:
    """How many of them cost a token each; in a long text whole pages are counted at once."""
    if len(text) <= _LONG_CHARS:
        return len("".join(_DENSE.findall(text)))
    pages = text.encode("utf-16-le", "surrogatepass")[1::2]
    dense = len(pages) - len(pages.translate(None, _DENSE_PAGES))
    if any(page in pages for page in _MIXED_PAGES):
        dense += sum(1 for _ in _DENSE_IN_MIXED.finditer(text))
    return dense


def _content_tokens(content: Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return estimate_tokens_rough(content)
    total = 0
    for part in content:
        kind = part.get("type")
        if kind == "text":
            total += estimate_tokens_rough(str(part.get("text") or ""))
        elif kind in IMAGE_PART_TYPES:
            total += IMAGE_TOKENS
        else:
            total += estimate_tokens_rough(json.dumps(part, ensure_ascii=False, default=str))
    return total


def _hidden_tokens(blocks: Iterable[Mapping[str, Any]]) -> int:
    """Of the blocks that the visible fields do not show."""
    total = 0
    for block in blocks:
        kind = block.get("type")
        if kind in THINKING_TYPES:
            total += sum(
                estimate_tokens_rough(str(block.get(key) or ""))
                for key in ("thinking", "signature", "data")
            )
        elif kind not in ("text", "tool_use"):
            total += estimate_tokens_rough(json.dumps(block, ensure_ascii=False, default=str))
    return total


def estimate_message_tokens(message: Message) -> int:
    """About how many tokens one message takes in a prompt."""
    content = message.get("content")
    total = MESSAGE_TOKENS
    if not isinstance(content, str):
        total += _content_tokens(content)
    elif content.isascii():  # nearly all: no call for them, this runs often
        total += (len(content) + 3) // CHARS_PER_TOKEN
    else:
        total += estimate_tokens_rough(content)
    if "tool_calls" in message:
        for call in message["tool_calls"] or ():
            function: Any = call.get("function", {})  # lists of plugins are not always whole
            said = f"{function.get('name') or ''}{function.get('arguments') or ''}"
            total += TOOL_CALL_TOKENS + estimate_tokens_rough(said)
    if message.get("role") == "tool":
        total += TOOL_CALL_TOKENS
    if "anthropic_content_blocks" in message and not is_readable_summary(message):
        total += _hidden_tokens(message["anthropic_content_blocks"] or ())
    return total


def estimate_messages_tokens_rough(messages: Iterable[Message]) -> int:
    """About how many tokens a list of messages takes in a prompt."""
    return sum(map(estimate_message_tokens, messages))


def estimate_tools_tokens(tools: Iterable[ToolSchema]) -> int:
    """About how many tokens the tool list takes in a prompt."""
    return sum(
        TOOL_CALL_TOKENS
        + estimate_tokens_rough(tool.name)
        + estimate_tokens_rough(tool.description)
        + estimate_tokens_rough(
            json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"))
        )
        for tool in tools
    )


def estimate_prefix_tokens(prefix: SessionPrefix) -> int:
    """About how many tokens every request of a session takes before its first message."""
    return estimate_tokens_rough(prefix.system_prompt) + estimate_tools_tokens(prefix.tools)


# --- windows ------------------------------------------------------------------------------------

DEFAULT_WINDOW_TOKENS = 256_000
"""Of a model that nobody knows anything about."""

WINDOW_TABLE: Mapping[str, int] = {
    "claude": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-4-7": 1_000_000,
    "claude-sonnet-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-fable": 1_000_000,
    "offline": 200_000,
}
"""Part of a model's name → its window; the longest part that fits wins."""

WindowSource = Literal["config", "provider", "table", "default", "error"]
MIN_STATED_TOKENS = 1024
MAX_STATED_TOKENS = 10_000_000
"""A limit outside these was misread."""


@dataclass(frozen=True, slots=True)
class Window:
    """A model's context length, and who says so."""

    tokens: int
    source: WindowSource

    def lowered_to(self, stated_tokens: int | None) -> Window:
        """The window after a provider's error named this limit: smaller, or the same object."""
        if stated_tokens is None or not MIN_STATED_TOKENS <= stated_tokens <= MAX_STATED_TOKENS:
            return self
        if stated_tokens >= self.tokens:
            return self
        return Window(stated_tokens, "error")


def resolve_window(
    model: str, *, configured: int | None = None, provider: int | None = None
) -> Window:
    """The window of a model: configuration, else the provider, else the table, else the default."""
    if configured is not None:
        return Window(configured, "config")
    if provider is not None and MIN_STATED_TOKENS <= provider <= MAX_STATED_TOKENS:
        return Window(provider, "provider")
    name = model.lower()
    parts = [part for part in WINDOW_TABLE if part in name]
    if parts:
        return Window(WINDOW_TABLE[max(parts, key=len)], "table")
    log.warning(
        "window of the model is unknown: set model.context_length",
        extra={"model": model, "assumed_tokens": DEFAULT_WINDOW_TOKENS},
    )
    return Window(DEFAULT_WINDOW_TOKENS, "default")


# --- triggers -----------------------------------------------------------------------------------

HYGIENE_RATIO = 0.85
SMALL_WINDOW_TOKENS = 512_000
SUMMARY_WINDOW_RATIO = 0.05
SUMMARY_CEILING_TOKENS = 12_000
SUMMARY_MIN_TOKENS = 2_000
SUMMARY_RATIO = 0.20


@dataclass(frozen=True, slots=True)
class TriggerRules:
    """The configured rules; field names are the configuration's."""

    threshold: float = 0.50
    max_threshold_tokens: int | None = 200_000
    small_window_floor: float | None = None
    model_thresholds: Mapping[str, float] = field(default_factory=dict)
    target_ratio: float = 0.20

    def ratio_for(self, model: str, provider: str, window_tokens: int) -> float:
        """The share of the window at which a model's conversations are compressed."""
        ratio = self.threshold
        best: tuple[int, bool] | None = None
        for key, value in self.model_thresholds.items():
            owner, colon, part = key.partition(":")
            if not colon:
                owner, part = "", key
            if not part or part not in model or (colon and owner != provider):
                continue
            rank = (len(part), bool(colon))
            if best is None or rank > best:
                best, ratio = rank, value
        if self.small_window_floor is not None and window_tokens < SMALL_WINDOW_TOKENS:
            ratio = max(ratio, self.small_window_floor)
        return ratio


@dataclass(frozen=True, slots=True)
class Triggers:
    """The numbers that follow from a window and the rules."""

    window_tokens: int
    max_tokens: int
    """Of an answer: the configured one, reduced to a quarter of a small window."""
    threshold_tokens: int
    """Prompt size from which on the loop compresses."""
    hygiene_tokens: int
    """Prompt size from which on the net before the agent compresses."""
    tail_tokens: int
    summary_ceiling_tokens: int

    @property
    def hygiene_rules(self) -> bool:
        """The net fires before the loop's own trigger; start-up says so."""
        return self.threshold_tokens >= self.hygiene_tokens

    @property
    def effective_tokens(self) -> int:
        """Where a conversation is compressed in fact."""
        return min(self.threshold_tokens, self.hygiene_tokens)

    def summary_budget(self, middle_tokens: int) -> int:
        """How long the summary of so much should be; on a small window the ceiling wins."""
        wanted = max(SUMMARY_MIN_TOKENS, int(SUMMARY_RATIO * middle_tokens))
        return min(wanted, self.summary_ceiling_tokens)


def triggers_for(
    window_tokens: int,
    rules: TriggerRules,
    *,
    max_tokens: int = 0,
    model: str = "",
    provider: str = "",
) -> Triggers:
    """Every trigger for a window. None of them lies where the answer would not fit any more."""
    window = max(1, window_tokens)
    reserved = min(max(0, max_tokens), window // 4)
    usable = window - reserved
    threshold = int(window * rules.ratio_for(model, provider, window))
    if rules.max_threshold_tokens is not None:
        threshold = min(threshold, rules.max_threshold_tokens)
    threshold = max(1, min(threshold, usable))
    target_ratio = min(0.80, max(0.10, rules.target_ratio))
    return Triggers(
        window_tokens=window,
        max_tokens=reserved,
        threshold_tokens=threshold,
        hygiene_tokens=max(1, min(int(window * HYGIENE_RATIO), usable)),
        tail_tokens=int(threshold * target_ratio),
        summary_ceiling_tokens=max(
            1, min(int(window * SUMMARY_WINDOW_RATIO), SUMMARY_CEILING_TOKENS)
        ),
    )


def start_warnings(triggers: Triggers, prefix_tokens: int) -> list[str]:
    """What an operator should know about these numbers before the first message."""
    lines: list[str] = []
    if triggers.hygiene_rules:
        lines.append(
            f"compression.threshold lies at {triggers.threshold_tokens} tokens, not below the "
            f"hygiene limit of {triggers.hygiene_tokens}: at the start of a turn hygiene rules"
        )
    if prefix_tokens * 2 > triggers.threshold_tokens:
        lines.append(
            f"system prompt and tools take about {prefix_tokens} tokens, more than half of the "
            f"compression threshold of {triggers.threshold_tokens}"
        )
    return lines


# --- measuring ----------------------------------------------------------------------------------

MeasurementSource = Literal["usage", "estimate", "unknown"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The size of a session's next prompt, and how far to trust it.

    ``unknown``: a compression happened and no response came since. ``tokens`` is an estimate for
    people to read then; decisions go by ``added_tokens``, which was certainly added since.
    """

    tokens: int
    source: MeasurementSource
    added_tokens: int = 0

    def reaches(self, limit_tokens: int) -> bool:
        """Is the prompt at or over a limit, as far as is really known?"""
        size = self.added_tokens if self.source == "unknown" else self.tokens
        return size >= limit_tokens


def images_in(content: Content) -> int:
    """How many pictures there are in a content value."""
    if not isinstance(content, list):
        return 0
    return sum(part.get("type") in IMAGE_PART_TYPES for part in content)


def _row_tokens(row: Row, image_tokens: int) -> int:
    """Of a row as it is sent, its pictures at their price of today."""
    if image_tokens == IMAGE_TOKENS:
        return row.tokens
    return row.tokens + images_in(wire_message(row)["content"]) * (image_tokens - IMAGE_TOKENS)


def count_rows(rows: Iterable[Row], image_tokens: int = IMAGE_TOKENS) -> tuple[int, int]:
    """Estimate of stored rows: of all of them, and of those that are said and no copies."""
    total = fresh = 0
    for row in rows:
        tokens = _row_tokens(row, image_tokens)
        total += tokens
        if row.origin_id is None and row.kind is None:
            fresh += tokens
    return total, fresh


def measure(
    loaded: LoadedSession,
    *,
    prefix_tokens: int,
    image_tokens: int = IMAGE_TOKENS,
    count: Callable[[LoadedSession, int], tuple[int, int]] | None = None,
) -> Measurement:
    """How large the next prompt of a session is.

    The usage anchor and an estimate of what came after it; without an anchor an estimate of
    everything; after a compression: unknown. With an anchor the time it takes depends on what came
    after it only, not on the length of the history.

    Args:
        loaded: The session.
        prefix_tokens: Estimate of its system prompt and tools.
        image_tokens: What a picture takes; the estimates of stored rows hold the flat price.
        count: `count_rows` by somebody who remembers what was counted before.
    """
    session, rows = loaded.session, loaded.rows
    if (anchor := session.anchor) is not None:
        added = 0
        for row in reversed(rows):
            if row.id == anchor.through_row_id:
                return Measurement(
                    anchor.prompt_tokens + anchor.output_tokens + added, "usage", added
                )
            added += _row_tokens(row, image_tokens)
    said, fresh = count(loaded, image_tokens) if count else count_rows(rows, image_tokens)
    total = prefix_tokens + said
    if session.compression.awaiting_usage:
        return Measurement(total, "unknown", fresh)
    return Measurement(total, "estimate", total)


def messages_tokens(messages: Sequence[Message], *, image_tokens: int = IMAGE_TOKENS) -> list[int]:
    """The estimate of each message, in order."""
    if image_tokens == IMAGE_TOKENS:
        return list(map(estimate_message_tokens, messages))
    more = image_tokens - IMAGE_TOKENS
    return [
        estimate_message_tokens(message) + images_in(message.get("content")) * more
        for message in messages
    ]
