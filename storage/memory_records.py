"""Owns the nouns of the in-memory store: a session with all its rows, a turn, a kept list."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from agent.mail import Address
from agent.messages import Row
from agent.sessions import (
    Session,
    TurnTicket,
)

TurnState = Literal["running", "interrupted", "crashed", "done", "failed", "stopped"]
OPEN_STATES: tuple[TurnState, ...] = ("running", "interrupted", "crashed")


@dataclass(slots=True)
class Segment:
    """A session with everything ever stored in it."""

    session: Session
    rows: list[Row] = field(default_factory=list)
    """The list, in order."""
    replaced: list[Row] = field(default_factory=list)
    taken_back: list[Row] = field(default_factory=list)
    last_seq: int = 0
    carried_row_id: int = 0
    """The newest row that was put here when the session was made."""
    replaced_lists: list[ReplacedList] = field(default_factory=list)
    """By the compressions inside the session, oldest first."""


@dataclass(frozen=True, slots=True)
class ReplacedList:
    """What a compression inside a session replaced."""

    row_ids: tuple[int, ...]
    carried_row_id: int
    made_at: float


@dataclass(frozen=True, slots=True)
class KeptList:
    """A list that was prepared, in the form in which it is kept."""

    revision: int
    covered_row_id: int
    payload: str
    created_at: float


@dataclass(slots=True)
class Turn:
    """A turn and what became of it."""

    ticket: TurnTicket
    session_key: str
    owner: str
    started_at: float
    state: TurnState = "running"
    crashes: int = 0
    crash_row_id: int = 0
    preview: tuple[Address, str] | None = None
    """Where it shows what it has so far, and in which message."""


def own(rows: Iterable[Row]) -> list[Row]:
    """Rows that the caller may do anything with."""
    return [
        replace(
            row, message=copy.deepcopy(row.message), wire_content=copy.deepcopy(row.wire_content)
        )
        for row in rows
    ]
