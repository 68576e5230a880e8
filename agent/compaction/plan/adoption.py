"""Owns what the host makes of a list that an engine gave back: checked, repaired, planned. Pure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agent.compaction.plan.assemble import NOTE, repair_pairs
from agent.errors import EngineError
from agent.messages import (
    Entry,
    Keep,
    Message,
    Row,
    from_engine,
    is_real_user,
    wire_message,
    without_thinking,
)
from agent.model_metadata import estimate_message_tokens

log = logging.getLogger(__name__)

_ROLES = frozenset({"system", "user", "assistant", "tool"})


@dataclass(frozen=True, slots=True)
class Adopted:
    """A plan for the new list, with its size by our own count."""

    entries: tuple[Entry, ...]
    tokens: int


def adopt(result: object, rows: Sequence[Row]) -> Adopted:
    """What an engine gave back, as a plan that can be stored.

    Tool pairs are made whole, a system message becomes a note (the system prompt is frozen), a list
    that would begin with the assistant gets an opening note, and the newest message of a person is
    put back if it is missing. Everything that is no stored row is marked as said by nobody.

    Raises:
        EngineError: It is no list of messages.
    """
    try:
        return _adopted(result, rows)
    except EngineError:
        raise
    except Exception as exc:  # somebody else's data: whatever is wrong with it, it is not taken
        log.warning("a result of the context engine has an unknown shape", exc_info=True)
        raise EngineError("the context engine gave back messages of an unknown shape") from exc


def _adopted(result: object, rows: Sequence[Row]) -> Adopted:
    messages = _checked(result)
    messages = [_as_note(m) if m["role"] == "system" else m for m in messages]
    messages = _with_newest_user(messages, rows)
    messages = repair_pairs(messages)
    if messages and messages[0]["role"] != "user":
        messages.insert(0, cast(Message, {"role": "user", "content": NOTE, "_kind": "note"}))
    entries = tuple(_marked(entry) for entry in from_engine(messages, rows))
    by_id = {row.id: row for row in rows}
    tokens = sum(_entry_tokens(entry, by_id) for entry in entries)
    return Adopted(entries, tokens)


@dataclass(frozen=True, slots=True)
class Checked:
    """What an engine gave back, looked at."""

    adopted: Adopted | EngineError | None
    """None: it changed nothing. An error: it is no list of messages."""
    tokens_before: int
    """Of the list that it was given."""


def check(result: object, given: Sequence[Message], rows: Sequence[Row]) -> Checked:
    """All that is to be known of a result, at once: for the worker thread.

    With a long list it takes longer than an event loop may be held up.

    Args:
        result: What the engine gave back.
        given: What it was given.
        rows: What that was made from.
    """
    if same_list(result, given):
        return Checked(None, 0)
    try:
        return Checked(adopt(result, rows), rows_tokens(rows))
    except EngineError as exc:
        return Checked(exc, 0)


def same_list(result: object, given: Sequence[Message]) -> bool:
    """Did the engine give back what it was given?"""
    return isinstance(result, list) and list(result) == list(given)


def rows_tokens(rows: Sequence[Row]) -> int:
    """The size of a stored list by the same count, thinking left out on both sides."""
    by_id = {row.id: row for row in rows}
    return sum(_entry_tokens(Keep(row.id), by_id) for row in rows)


def _checked(result: object) -> list[Message]:
    if not isinstance(result, list) or not result:
        raise EngineError("the context engine gave back no messages")
    return [checked_message(item) for item in result]


def checked_message(item: Any) -> Message:
    """One message as an engine gave it back.

    Raises:
        EngineError: It is none.
    """
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        raise EngineError("the context engine gave back something that is no message")
    content = item.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise EngineError("the context engine gave back a message with unknown content")
    if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
        raise EngineError("the context engine gave back a message with unknown content")
    calls = item.get("tool_calls") or []
    if not isinstance(calls, list):
        raise EngineError("the context engine gave back a broken tool call")
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not (
            isinstance(function, dict)
            and isinstance(call.get("id"), str)
            and isinstance(function.get("name"), str)
            and isinstance(function.get("arguments"), str)
        ):
            raise EngineError("the context engine gave back a broken tool call")
    message = cast(Message, dict(item))
    message["content"] = content
    if not isinstance(message.get("_row", 0), int):
        del message["_row"]
    return message


def _as_note(message: Message) -> Message:
    return cast(Message, {"role": "user", "content": message["content"], "_kind": "note"})


def _with_newest_user(messages: list[Message], rows: Sequence[Row]) -> list[Message]:
    """The list with the newest message of a person in it, verbatim or in a form that names it."""
    newest = next((row for row in reversed(rows) if is_real_user(row.message, row.kind)), None)
    if newest is None or any(message.get("_row") == newest.id for message in messages):
        return messages
    same = [
        message
        for message in messages
        if message["role"] == "user" and message["content"] == newest.message["content"]
    ]
    if same:
        return messages
    place = {row.id: i for i, row in enumerate(rows)}
    at = next(
        (
            i
            for i, message in enumerate(messages)
            if place.get(message.get("_row", -1), -1) > place[newest.id]
        ),
        len(messages),
    )
    said = cast(Message, {**newest.message, "_row": newest.id})
    return [*messages[:at], said, *messages[at:]]


def _marked(entry: Entry) -> Entry:
    """An engine's own message never counts as said by somebody."""
    if isinstance(entry, Keep) or entry.kind is not None or entry.origin_id is not None:
        return entry
    return replace(entry, kind="stub" if entry.message["role"] == "tool" else "summary")


def _entry_tokens(entry: Entry, rows: dict[int, Row]) -> int:
    if isinstance(entry, Keep):
        row = rows[entry.row_id]
        if row.tokens and not row.message.get("anthropic_content_blocks"):
            return row.tokens
        return estimate_message_tokens(without_thinking(wire_message(row)))
    return estimate_message_tokens(entry.message)
