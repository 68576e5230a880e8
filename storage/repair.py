"""Owns the repair of a list that a crash left behind (pure), and other decisions about lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.mail import SendState
from agent.messages import (
    Draft,
    Entry,
    Keep,
    Message,
    Row,
    ToolCall,
    orphan_results,
    tool_call_ids,
    tool_groups,
    unanswered_calls,
)
from agent.sessions import EndReason

INTERRUPTED_RESULT = (
    "[interrupted, outcome unknown: work was stopped before this call's result was stored;"
    " the call was not run again]"
)
"""What the model reads in place of a result that a crash or a stop swallowed."""

DELIBERATE_ENDS: frozenset[EndReason] = frozenset({"reset", "idle", "daily"})
"""Ends that somebody wanted: such a session is not reopened by a message."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What has to happen to a list so that every call of it has exactly one result."""

    entries: tuple[Entry, ...]
    """The whole list as it should be."""
    stubs: tuple[Draft, ...] = ()
    """If only the end lacks results: these, behind the list as it is."""

    @property
    def is_append(self) -> bool:
        """Nothing but results at the end is missing, so the prefix stays as it is."""
        return bool(self.stubs)


def stub_result(call: ToolCall) -> Draft:
    """The stand-in for a result that will never come."""
    message: Message = {
        "role": "tool",
        "content": INTERRUPTED_RESULT,
        "tool_call_id": call["id"],
        "name": call["function"]["name"],
    }
    return Draft(message, kind="stub")


def plan_repair(rows: Sequence[Row]) -> Repair | None:
    """None if the list is sound. Repairing a repaired list is None again."""
    if is_sound(rows):
        return None
    messages = [row.message for row in rows]
    missing = unanswered_calls(messages)
    orphans = set(orphan_results(messages))
    entries: list[Entry] = []
    for group in tool_groups(messages):
        entries.extend(Keep(rows[i].id) for i in group if i not in orphans)
        entries.extend(stub_result(call) for index, call in missing if index == group.start)
    if orphans or entries[: len(rows)] != [Keep(row.id) for row in rows]:
        return Repair(tuple(entries))
    stubs = tuple(entry for entry in entries[len(rows) :] if isinstance(entry, Draft))
    return Repair(tuple(entries), stubs)


def is_sound(rows: Sequence[Row]) -> bool:
    """Has every call one result in its group, and every result a call? One pass, for each load."""
    waiting: set[str] = set()
    for row in rows:
        message = row.message
        role = message["role"]
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.discard(call_id)
        elif waiting:
            return False
        elif role == "assistant" and "tool_calls" in message:
            waiting.update(tool_call_ids(message))
    return not waiting


def repaired_in_memory(rows: Sequence[Row], repair: Repair) -> tuple[Row, ...]:
    """The repaired list of a session that takes no more changes; its stubs have ids below zero."""
    known = {row.id: row for row in rows}
    result: list[Row] = []
    for entry in repair.entries:
        if isinstance(entry, Keep):
            result.append(known[entry.row_id])
            continue
        before = result[-1]
        result.append(
            Row(
                id=-len(result),
                session_id=before.session_id,
                seq=before.seq,
                message=entry.message,
                created_at=before.created_at,
                kind=entry.kind,
            )
        )
    return tuple(result)


def check_plan(entries: Sequence[Entry], covered_ids: Sequence[int], *, later: int) -> None:
    """Refuse a plan that would lose or double a message.

    Raises:
        ValueError: a kept row is not one of the covered ones or is kept twice, or the new list
            would be empty.
    """
    allowed = set(covered_ids)
    for entry in entries:
        if isinstance(entry, Keep):
            if entry.row_id not in allowed:
                raise ValueError(
                    f"row {entry.row_id} is kept twice, or is none that the plan covers"
                )
            allowed.discard(entry.row_id)
    if not entries and not later:
        raise ValueError("a plan without a single message")


OVER: Final = ("sent", "failed")
"""States of an answer that gets no parts any more."""


def state_of_item(parts: Sequence[SendState]) -> SendState:
    """What the parts of an answer say about it."""
    states = set(parts)
    if "failed" in states:
        return "failed"
    if states <= {"sent"}:
        return "sent"
    if states <= {"sent", "unknown"}:
        return "unknown"
    return "planned" if states == {"planned"} else "sending"


def is_newer(candidate: str, current: str) -> bool:
    """Is this message id behind that one in its channel? Numbers compare as numbers."""
    if all(text.isascii() and text.isdigit() for text in (candidate, current)):
        candidate, current = candidate.lstrip("0"), current.lstrip("0")
    return (len(candidate), candidate) > (len(current), current)


def is_older_edit(update_id: str | None, newest: str | None) -> bool:
    """Is this an edit that was made before the one which a waiting message shows already?"""
    return update_id is not None and newest is not None and is_newer(newest, update_id)
