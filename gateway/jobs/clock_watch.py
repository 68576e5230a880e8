"""Owns what is believed of the wall clock: can it be, was it set back, is it far ahead of all?"""

from __future__ import annotations

import logging

from agent.jobs.schedules import LAST_INSTANT
from agent.ports import Clock
from gateway.delivery.late import FIRST_DAY

log = logging.getLogger(__name__)

JUMP_SECONDS = 2.0
"""It was set back by at least this."""
FAR_SECONDS = 180 * 86_400.0
"""Further ahead than this it is doubted: a machine whose clock has no battery begins somewhere, and
is told the time a moment later. What was missed by then would be lost for good."""
HOLD_SECONDS = 600.0
"""For so long: then it was the machine that was away."""


class ClockWatch:
    """Looked at before anything is decided by the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._drift: float | None = None
        """Wall clock minus lived time, at the last look; None: nobody has looked yet."""
        self._believed: tuple[float, float] | None = None
        """(wall clock, lived time) when it was last believed."""
        self._doubted_since: float | None = None
        self._absurd_told = False

    def is_absurd(self) -> bool:
        """Is it a time that can not be: before there was this program, or after its last year?

        Nothing is begun by such a one: what is known is compared with the first that may be right.
        """
        now = self._clock.now()
        absurd = not FIRST_DAY <= now <= LAST_INSTANT
        if absurd and not self._absurd_told:
            log.warning("the clock can not be right: jobs wait until it is", extra={"time": now})
        self._absurd_told = absurd
        return absurd

    @property
    def is_new(self) -> bool:
        """Is nothing known yet to compare it with?"""
        return self._believed is None

    def begin(self, known_at: float | None) -> None:
        """``known_at``: the latest that is known to have happened; None: nothing is."""
        now = self._clock.now()
        self._believed = (now if known_at is None else min(known_at, now), self._clock.monotonic())

    def is_doubtful(self) -> bool:
        """Had better nothing be decided by it now, although it may be right?"""
        assert self._believed is not None
        now, lived = self._clock.now(), self._clock.monotonic()
        wall_then, lived_then = self._believed
        ahead = now - wall_then - (lived - lived_then)
        if ahead > FAR_SECONDS:
            if self._doubted_since is None:
                self._doubted_since = lived
                log.warning(
                    "the clock is far ahead of all that is known: jobs wait for a while",
                    extra={"days": round(ahead / 86_400)},
                )
            if lived - self._doubted_since < HOLD_SECONDS:
                return True
        self._believed, self._doubted_since = (now, lived), None
        return False

    def was_set_back(self) -> bool:
        """Since the last time this was asked, or is this the first?"""
        before, self._drift = self._drift, self._clock.now() - self._clock.monotonic()
        if before is None:
            return True
        if self._drift > before - JUMP_SECONDS:
            return False
        log.warning("the clock was set back", extra={"seconds": round(before - self._drift)})
        return True
