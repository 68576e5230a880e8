"""Owns how often a part is tried: what happened to it so far, and when it is tried again (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How patient delivery is."""

    first_backoff_seconds: float = 1.0
    longest_backoff_seconds: float = 60.0
    foreign_seconds: float = 3600.0
    """Before what another bot owes is tried again: it takes a new token, so a new start."""
    recovery_seconds: float = 7.0
    """In which one of all chats that wait for a bot asks again, on average; that wakes the rest."""
    store_backoff_seconds: float = 5.0
    """The longest pause before the store is asked again, which costs nobody anything."""
    least_backoff_seconds: float = 1.0
    """Whatever arrives elsewhere."""
    unknown_pause_seconds: float = 10.0
    """Before a part that may have arrived is sent again, marked, where sends are not deduped."""
    unknown_growth: float = 3.0
    """What that pause is multiplied by each time: every try may be one more copy in the chat."""
    longest_unknown_pause_seconds: float = 24 * 3600.0
    sign_share: float = 0.25
    """Of that pause, once something has arrived since."""
    trouble_pause_seconds: float = 300.0
    """The least such pause while the platform is in trouble."""
    hold_seconds: float = 15.0
    """How long a part in doubt holds up what is behind it in its chat."""
    overtake_seconds: float = 0.25
    """How long a command's words wait behind what is being sent in their chat."""
    max_attempts: int = 5
    """At a part that crashes left in doubt; then a new process lets it wait (no deduped sends)."""
    typing_delay_seconds: float = 0.5
    typing_every_seconds: float = 4.5
    zone: Callable[[], tzinfo] = lambda: UTC
    """For the date on late answers."""

    def backoff_seconds(self, failures: int, dice: float, longest: float | None = None) -> float:
        """After so many failures; ``dice``: 0 to 1."""
        pause = self.first_backoff_seconds * 2.0 ** min(failures - 1, 16)
        most = self.longest_backoff_seconds
        return min(most if longest is None else min(most, longest), pause) * (0.75 + dice / 2)

    def flood_seconds(self, floods: int) -> float:
        """The least silence after so many floods in a row, whatever the platform says."""
        if floods < 2:
            return 0.0
        return min(self.longest_backoff_seconds, 2.0 ** min(floods - 2, 16))

    def doubt_seconds(self, unknowns: int) -> float:
        """After so many tries of which each may have arrived."""
        pause = self.unknown_pause_seconds * self.unknown_growth ** min(max(unknowns, 1) - 1, 16)
        return min(self.longest_unknown_pause_seconds, pause)


class Fate(StrEnum):
    """What became of a part."""

    SENT = "sent"
    REFUSED = "refused"
    GONE = "gone"
    """Refused, as everything in this chat is."""
    DOUBT = "doubt"
    """It may have arrived; to be asked again later, and what is behind it goes first."""


@dataclass(frozen=True, slots=True)
class Signs:
    """How often was heard that a platform works."""

    arrivals: int = 0
    """Something was taken there."""
    nudges: int = 0
    """It recovered."""


@dataclass(frozen=True, slots=True)
class Pause:
    """From the end of one try to the next."""

    since: float
    seconds: float
    signed_seconds: float
    """Once something arrived meanwhile."""
    nudged_seconds: float
    """Once the platform recovered meanwhile."""
    troubled_seconds: float
    """While the platform is in trouble, without a sign."""
    signs: Signs
    """As of its beginning."""

    def ends_at(self, signs: Signs, *, works: bool) -> float:
        """When it is over, by what is known now."""
        if signs.nudges != self.signs.nudges:
            return self.since + min(self.seconds, self.nudged_seconds)
        if signs.arrivals != self.signs.arrivals:
            return self.since + min(self.seconds, self.signed_seconds)
        return self.since + (self.seconds if works else max(self.seconds, self.troubled_seconds))


@dataclass(slots=True)
class Tries:
    """What happened to one part so far."""

    attempts: int
    unknowns: int
    """Of them, those after which it may have arrived."""
    growth: int = 0
    """Of those, the ones that count for the next pause: made while the platform worked."""
    failures: int = 0
    floods: int = 0
    """In a row."""
    crashes: int = 0
    inherited: bool = False
    """It was in doubt before this process tried it."""
    pause: Pause | None = None
    """Before the next one."""

    @property
    def repeat(self) -> bool:
        """Would the next one be a possible repeat?"""
        return self.unknowns > 0

    def only_edits_so_far(self) -> None:
        """Nothing but edits was tried, so nothing was sent; unless a run before did it."""
        if not self.inherited:
            self.unknowns = self.growth = 0

    def not_before(self, settings: DeliverySettings, now: float, seconds: float, at: Signs) -> None:
        """A try more does no harm; after so long."""
        self.pause = Pause(now, seconds, settings.least_backoff_seconds, 0.0, 0.0, at)

    def in_doubt(
        self, settings: DeliverySettings, now: float, at: Signs, *, works: bool = True
    ) -> None:
        """It may have arrived, and would be there twice."""
        self.growth += int(works or self.growth == 0)
        seconds, least = settings.doubt_seconds(self.growth), settings.unknown_pause_seconds
        signed = max(least, seconds * settings.sign_share)
        self.pause = Pause(now, seconds, signed, signed, settings.trouble_pause_seconds, at)

    def begin_in_doubt(self, settings: DeliverySettings, now: float, at: Signs) -> None:
        """A run before has left it so: tried at once, but not at the end of a row of crashes."""
        self.growth = 1
        if self.attempts >= settings.max_attempts:
            self.in_doubt(settings, now, at)
        else:
            self.pause = Pause(now, 0.0, 0.0, 0.0, settings.trouble_pause_seconds, at)
