"""Owns the noun for what a store holds that is not done: counts and ages, nobody's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    turns: Mapping[str, int] = field(default_factory=dict)
    """Of the day, by state."""
    compressions: int = 0
    """Of the day."""
    compressed_at: float | None = None
    """The newest one of all."""
    cooling_down: int = 0
    """Conversations whose compression waits for a while after a failure."""
