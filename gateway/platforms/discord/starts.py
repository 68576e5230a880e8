"""Owns how often a new session is asked for: quickly once, never in a loop, within the day's sum.

Discord takes one IDENTIFY in five seconds and about a thousand in a day, then it resets the token.
Only those that reach the gateway count: an outage in which nothing can be dialled costs none.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable

from agent.ports import Clock
from gateway.platforms.contract import PlatformUnavailable

log = logging.getLogger(__name__)

SPACING_SECONDS = 5.0
INVALID_SESSION_SECONDS = (1.0, 4.0)
"""After one that Discord ended, drawn anew each time; it wants something between one and five."""
LIVED_SECONDS = 60.0
"""A session that lived for so long was one."""
FREE_TRIES = 4
"""Sessions in a row that end soon, before the pauses grow."""
LONGEST_PAUSE_SECONDS = 300.0
DAY_SECONDS = 86_400.0
MANY_A_DAY = 400
"""From here on each waits for the longest pause: 288 of them in a day."""
FEW_LEFT = 200
PATIENCE_SECONDS = 20.0
"""So long a connection is kept open for it; a longer pause is made without one."""


class SessionStarts:
    """Of one bot, over all its logins."""

    def __init__(
        self,
        clock: Clock,
        *,
        spacing_seconds: float = SPACING_SECONDS,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock = clock
        self._spacing_seconds = spacing_seconds
        self._draw = draw
        self._asked_at: deque[float] = deque(maxlen=MANY_A_DAY)
        self._fruitless: dict[int, int] = {}
        """By shard: those in a row that no session of some length came of."""
        self._begun_at: dict[int, float] = {}
        self._least_seconds = 0.0

    def left(self, remaining: int, reset_seconds: float) -> None:
        """What Discord says is left of the day's sum."""
        few = remaining < FEW_LEFT
        self._least_seconds = max(0.0, reset_seconds) / max(1, remaining) if few else 0.0

    def begun(self, shard_id: int) -> None:
        """A session is there."""
        self._begun_at[shard_id] = self._clock.monotonic()

    async def turn(self, shard_id: int, *, initial: bool) -> None:
        """Wait until one may be asked for; it is asked for then.

        Raises:
            PlatformUnavailable: not within the time that a connection is kept open for it.
        """
        wait = self._wait_seconds(shard_id, initial=initial)
        if wait > PATIENCE_SECONDS:
            log.warning(
                "sessions end at once; asked for less often", extra={"seconds": round(wait)}
            )
            raise PlatformUnavailable(
                f"discord: its sessions end at once; the next one in {wait:.0f} s",
                retry_after_seconds=wait - PATIENCE_SECONDS / 2,
            )
        if wait > 0:
            await self._clock.sleep(wait)
        self._asked_at.append(self._clock.monotonic())
        self._fruitless[shard_id] = self._fruitless.get(shard_id, 0) + 1

    def _wait_seconds(self, shard_id: int, *, initial: bool) -> float:
        now = self._clock.monotonic()
        begun_at = self._begun_at.pop(shard_id, None)
        if begun_at is not None and now - begun_at >= LIVED_SECONDS:
            self._fruitless[shard_id] = 0
        drawn = 0.0 if initial else self._draw(*INVALID_SESSION_SECONDS)
        drawn *= self._spacing_seconds / SPACING_SECONDS
        since = now - self._asked_at[-1] if self._asked_at else math.inf
        return max(drawn, self._pause_seconds(shard_id, now) - since)

    def _pause_seconds(self, shard_id: int, now: float) -> float:
        """Between two of them."""
        if len(self._asked_at) == MANY_A_DAY and now - self._asked_at[0] < DAY_SECONDS:
            return LONGEST_PAUSE_SECONDS
        fruitless = self._fruitless.get(shard_id, 0) - FREE_TRIES
        grown = self._spacing_seconds * 2.0 ** min(max(fruitless, 0), 16)
        return max(min(grown, LONGEST_PAUSE_SECONDS), self._least_seconds)
