"""Owns how a stored conversation becomes a trace: from sizes and times, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.messages import Role
from agent.model_metadata import CHARS_PER_TOKEN, TOOL_CALL_TOKENS
from agent.simulation.trace import MAX_EVENT_TOKENS, MAX_EVENTS, MAX_GAP_SECONDS, Event, EventKind


@dataclass(frozen=True, slots=True)
class RowSize:
    """An original message of a conversation without what it says."""

    role: Role
    tokens: int
    created_at: float
    """Unix seconds."""
    speaks: bool = True
    """Has it text, beside its calls?"""
    call_chars: tuple[int, ...] = ()
    """Of each call: its name and arguments."""


class SizeReader(Protocol):
    """Reading how large the messages of a conversation are."""

    async def row_sizes(self, session_id: str) -> list[RowSize]:
        """Of every original of the conversation that this session belongs to, in order.

        What was taken back is not there, neither are copies, summaries and notices.

        Raises:
            SessionNotFound: never existed.
        """
        ...


def events_of(rows: Sequence[RowSize]) -> tuple[Event, ...]:
    """The events of a conversation; of a very long one the newest."""
    events: list[Event] = []
    before: float | None = None
    open_calls = 0
    for row in rows:
        gap = 0.0 if before is None else min(MAX_GAP_SECONDS, max(0.0, row.created_at - before))
        parts = list(_parts(row))
        match row.role:
            case "assistant":
                open_calls = len(row.call_chars)
            case "tool" if open_calls > 0:
                open_calls -= 1
            case "tool" | "system":  # whatever it answers is not there
                continue
            case _:
                open_calls = 0
        before = row.created_at
        for event in parts:
            events.append(Event(gap, event.kind, event.tokens))
            gap = 0.0
    return tuple(_whole_from(events[-MAX_EVENTS:]))


def _parts(row: RowSize) -> Iterator[Event]:
    """An answer's text and each of its calls; anything else is one event."""
    if row.role != "assistant":
        yield _event("user" if row.role == "user" else "result", row.tokens)
        return
    calls = [
        TOOL_CALL_TOKENS + (chars + CHARS_PER_TOKEN - 1) // CHARS_PER_TOKEN
        for chars in row.call_chars
    ]
    rest = row.tokens - sum(calls)
    if row.speaks or not calls:
        yield _event("text", rest)
    else:
        calls[0] += max(0, rest)
    for tokens in calls:
        yield _event("call", tokens)


def _event(kind: EventKind, tokens: int) -> Event:
    return Event(0.0, kind, max(1, min(tokens, MAX_EVENT_TOKENS)))


def _whole_from(events: Iterable[Event]) -> Iterator[Event]:
    """From the first event on that is no result of something that was cut off."""
    begun = False
    for event in events:
        begun = begun or event.kind == "user"
        if begun:
            yield event
