"""Owns the noun for what a store holds that is not done: counts and ages, nobody's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RefusingChat:
    """A chat that took none of the newest answers: it blocks the bot, or is gone."""

    platform: str
    chat_id: str
    answers: int
    """Given up, one after the other, without one that arrived in between."""
    since: float
    """When the first of those was owed."""
    reason: str
    """Why the newest one was given up, in the platform's words."""


@dataclass(frozen=True, slots=True)
class Census:
    """How much waits, how long already, and what a day brought."""

    inbox_new: int = 0
    inbox_oldest_at: float | None = None
    """When the oldest that nobody has begun to answer came in."""
    quarantined: int = 0
    """Updates that could not be read."""
    owed: int = 0
    owed_oldest_at: float | None = None
    in_doubt: int = 0
    """Of the owed: perhaps they have arrived."""
    refusing: tuple[RefusingChat, ...] = ()
    """As far as they were owed answers of late; those with most first."""
    turns: Mapping[str, int] = field(default_factory=dict)
    """Of the day, by state."""
    compressions: int = 0
    """Of the day."""
    compressed_at: float | None = None
    """The newest one of all."""
    cooling_down: int = 0
    """Conversations whose compression waits for a while after a failure."""
