"""Owns the message: its OpenAI shape, its stored row, and pure questions about lists of them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Required, TypedDict, cast

Role = Literal["system", "user", "assistant", "tool"]
MessageKind = Literal["summary", "micro", "note", "stub", "notice"]
"""What a row is when nobody said it: a batch summary, a micro-compaction marker, the note that a
compression happened, a stand-in (for a missing or a pruned tool result), a notice of the host."""

Part = dict[str, Any]
"""One part of list content: ``{"type": "text", "text": …}`` or ``{"type": "image_url", …}``."""
Content = str | list[Part] | None

SUMMARY_HEADER = "[Earlier conversation, summarised: for reference only]"
SUMMARY_END = "[End of summary]"
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})


class FunctionCall(TypedDict):
    """The call itself; ``arguments`` is a JSON object as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call of an assistant message."""

    id: str
    type: NotRequired[Literal["function"]]
    function: FunctionCall


class Message(TypedDict, total=False):
    """An OpenAI-shaped message: the contract that context engines know.

    Keys that begin with ``_`` are private to this process and never reach a provider.
    """

    role: Required[Role]
    content: Required[Content]
    tool_calls: list[ToolCall]
    tool_call_id: str
    name: str
    """On a tool message: the tool's name."""
    anthropic_content_blocks: list[dict[str, Any]]
    """On an assistant message: the provider's blocks as raw JSON, in their order, kept where the
    visible fields alone can not rebuild them. Replayed as long as the visible fields agree."""
    cache_control: dict[str, str]
    """Only ever on the copy that becomes a request."""
    _row: int
    """The row that this message was read from; on a changed message: the row it stands for."""
    _origin: int
    """The original behind that row, where the row is a copy: what a recall reference names."""
    _kind: MessageKind
    """Set by an engine on messages that nobody said."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored message, with what the store knows about it."""

    id: int
    session_id: str
    seq: int
    """Its place; unique among the active rows of a session, rising, with gaps allowed."""
    message: Message
    """As said: for recall, export and engines. Holds no private key."""
    created_at: float
    """Unix seconds."""
    wire_content: Content = None
    """The content as sent, where it differs from what was said; None: as said."""
    kind: MessageKind | None = None
    origin_id: int | None = None
    """The first original that this row copies or stands for; None: this is an original."""
    tokens: int = 0
    """Estimate of the form as sent."""

    @property
    def root_id(self) -> int:
        """The original behind this row (its own id if it is one)."""
        return self.id if self.origin_id is None else self.origin_id


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is not stored yet."""

    message: Message
    wire_content: Content = None
    kind: MessageKind | None = None
    origin_id: int | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """In a plan for a new list: this row as it is (copied, without its thinking)."""

    row_id: int
    with_thinking: bool = False
    """Its thinking stays valid: the provider itself wrote what replaces the rows before it."""


Entry = Keep | Draft


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the model sees it. ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


# --- one message --------------------------------------------------------------------------------


def text_of(content: Content) -> str:
    """The text of a content value; parts that are no text are left out."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(str(p.get("text", "")) for p in content if p.get("type") == "text")


def visible(message: Message) -> tuple[Any, ...]:
    """The fields that say what a message says, comparable with ``==``."""
    calls = tuple(
        (c["id"], c["function"]["name"], c["function"]["arguments"])
        for c in message.get("tool_calls") or ()
    )
    return (message["role"], message["content"], calls, message.get("tool_call_id"))


def public(message: Message) -> Message:
    """A copy without private keys."""
    return cast(Message, {k: v for k, v in message.items() if not k.startswith("_")})


def without_thinking(message: Message) -> Message:
    """A copy without thinking blocks; the same object if it has none.

    Thinking is bound to the exact prefix it was made behind, so a copy behind another prefix has to
    go without it.
    """
    blocks = message.get("anthropic_content_blocks")
    if not blocks or not any(b.get("type") in THINKING_TYPES for b in blocks):
        return message
    kept = [b for b in blocks if b.get("type") not in THINKING_TYPES]
    stripped = cast(Message, dict(message))
    if any(b.get("type") not in ("text", "tool_use") for b in kept):
        stripped["anthropic_content_blocks"] = kept
    else:
        del stripped["anthropic_content_blocks"]
    return stripped


def wire_message(row: Row) -> Message:
    """The message of a row as it is sent."""
    if row.wire_content is None:
        return row.message
    return cast(Message, {**row.message, "content": row.wire_content})


def tool_call_ids(message: Message) -> list[str]:
    """The ids of the calls that an assistant message makes, in order."""
    return [c["id"] for c in message.get("tool_calls") or ()]


def is_real_user(message: Message, kind: MessageKind | None = None) -> bool:
    """Did a person say this?

    What the store knows decides; the summary's marker only counts on a message without a row, so
    that nobody's own words are taken for a summary because they begin like one.
    """
    if message["role"] != "user" or (kind or message.get("_kind")) is not None:
        return False
    return "_row" in message or not text_of(message["content"]).startswith(SUMMARY_HEADER)


def real_users(messages: Iterable[Message]) -> list[Message]:
    """Those that a person said (`is_real_user`)."""
    return [
        message
        for message in messages
        if message["role"] == "user"
        # a plain stored row is the usual case, and needs no call
        and (("_row" in message and "_kind" not in message) or is_real_user(message))
    ]


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """A call's arguments as an object; anything else than an object becomes ``{}``."""
    try:
        value = json.loads(call["function"]["arguments"] or "{}")
    except (ValueError, RecursionError):  # the latter: nested deeper than anybody means
        return {}
    return value if isinstance(value, dict) else {}


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced, so that every border can encode it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_BLANK_LETTERS = frozenset("\u2800\u3164\u115f\u1160\uffa0")


def is_blank(text: str) -> bool:
    """Is there nothing to see? White space, controls, invisible and blank letters are nothing."""
    return all(
        ch.isspace() or ch in _BLANK_LETTERS or unicodedata.category(ch) in ("Cc", "Cf")
        for ch in text
    )


# --- lists of messages --------------------------------------------------------------------------


def tool_groups(messages: Sequence[Message]) -> Iterator[range]:
    """Yield the atomic groups of a list in order; together they cover it exactly.

    A group is an assistant message with calls and the tool messages directly behind it, or else a
    single message. Cutting anywhere but at a group's border makes a request invalid.
    """
    start = 0
    while start < len(messages):
        end = start + 1
        if messages[start]["role"] == "assistant" and messages[start].get("tool_calls"):
            while end < len(messages) and messages[end]["role"] == "tool":
                end += 1
        yield range(start, end)
        start = end


def unanswered_calls(messages: Sequence[Message]) -> list[tuple[int, ToolCall]]:
    """Calls without a result in their group, as (index of the assistant message, call)."""
    missing: list[tuple[int, ToolCall]] = []
    for group in tool_groups(messages):
        head = messages[group.start]
        answered = {messages[i].get("tool_call_id") for i in group[1:]}
        missing.extend(
            (group.start, call)
            for call in head.get("tool_calls") or ()
            if call["id"] not in answered
        )
    return missing


def orphan_results(messages: Sequence[Message]) -> list[int]:
    """Indexes of tool messages that answer no call of their group, or answer one twice."""
    orphans: list[int] = []
    for group in tool_groups(messages):
        head = messages[group.start]
        if head["role"] == "tool":
            orphans.append(group.start)
            continue
        waiting = set(tool_call_ids(head))
        for i in group[1:]:
            call_id = messages[i].get("tool_call_id")
            if call_id in waiting:
                waiting.discard(call_id)
            else:
                orphans.append(i)
    return orphans


def pairs_are_whole(messages: Sequence[Message]) -> bool:
    """Has every call its one result in its group, and every result its call? In one pass."""
    waiting: set[str | None] = set()
    for message in messages:
        if message["role"] == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.discard(call_id)
        elif waiting:
            return False
        elif "tool_calls" in message and (calls := message["tool_calls"]):
            waiting = {call["id"] for call in calls}
            if len(waiting) != len(calls) or message["role"] != "assistant":
                return False
    return not waiting


def newest_real_user(messages: Sequence[Message]) -> int | None:
    """Index of the newest message that a person said, or None."""
    for i in range(len(messages) - 1, -1, -1):
        if is_real_user(messages[i]):
            return i
    return None


def to_engine(rows: Iterable[Row]) -> list[Message]:
    """Rows as an engine sees them: as said, each a fresh dict with its private ``_row`` key."""
    view: list[Message] = []
    for row in rows:
        message = cast(Message, {**row.message, "_row": row.id})
        if row.origin_id is not None:
            message["_origin"] = row.origin_id
        if row.kind is not None:
            message["_kind"] = row.kind
        view.append(message)
    return view


def from_engine(messages: Sequence[Message], rows: Sequence[Row]) -> list[Entry]:
    """What an engine gave back, as a plan: known and unchanged rows are kept, all else is new.

    A message is only believed to be a row if its ``_row`` names one *and* it still says the same;
    a row may come back once. A changed message with a ``_row`` is a stand-in for that row.
    """
    known = {row.id: row for row in rows}
    entries: list[Entry] = []
    for message in messages:
        row = known.get(message.get("_row", -1))
        if row is not None and visible(row.message) == visible(message):
            del known[row.id]
            entries.append(Keep(row.id))
            continue
        kind = message.get("_kind")
        if row is not None and kind is None:
            kind = "stub" if message["role"] == "tool" else row.kind
        entries.append(
            Draft(public(message), kind=kind, origin_id=row.root_id if row is not None else None)
        )
    return entries
