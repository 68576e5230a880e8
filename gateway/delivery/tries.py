"""Owns how often a part is tried: what happened to it so far, and when it is given up (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How patient delivery is."""

    first_backoff_seconds: float = 1.0
    longest_backoff_seconds: float = 60.0
    unknown_pause_seconds: float = 10.0
    """Before a part that may have arrived is sent again, marked, where sends are not deduped."""
    repeat_wait_seconds: float = 3600.0
    """The longest that it waits for a platform in trouble, and all behind it in its chat."""
    max_attempts: int = 5
    """At a part that crashes left in doubt, before its fate stays open (no deduped sends)."""
    typing_delay_seconds: float = 0.5
    typing_every_seconds: float = 4.5
    zone: tzinfo = UTC
    """For the date on late answers."""

    def backoff_seconds(self, failures: int, dice: float) -> float:
        """After so many failures; ``dice``: 0 to 1."""
        pause = self.first_backoff_seconds * 2.0 ** min(failures - 1, 16)
        return min(self.longest_backoff_seconds, pause) * (0.75 + dice / 2)


class Fate(StrEnum):
    """What became of a part."""

    SENT = "sent"
    REFUSED = "refused"
    GONE = "gone"
    """Refused, as everything in this chat is."""
    OPEN = "open"
    """It may have arrived, and asking again would only make it worse."""


@dataclass(slots=True)
class Tries:
    """What happened to one part so far."""

    attempts: int
    unknowns: int
    """Of them, those after which it may have arrived."""
    failures: int = 0
    crashes: int = 0
    inherited: bool = False
    """It was in doubt before this process tried it."""

    @property
    def repeat(self) -> bool:
        """Would the next one be a possible repeat?"""
        return self.unknowns > 0

    def only_edits_so_far(self) -> None:
        """Nothing but edits was tried, so nothing was sent; unless a run before did it."""
        if not self.inherited:
            self.unknowns = 0

    def hopeless(self, max_attempts: int) -> bool:
        """Sent again once already, or at the end of a row of crashes."""
        return self.unknowns > 1 or (self.repeat and self.attempts >= max_attempts)
