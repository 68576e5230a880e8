"""Owns the poll loop: fetch a batch, hand every update in, and only then let Telegram forget it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.ports import Clock
from gateway.liveness import done_in_time
from gateway.platforms.contract import PlatformState, PlatformUnavailable, Report
from gateway.platforms.telegram.convert import PLATFORM, update_id
from gateway.platforms.telegram.incoming import (
    FIRST_PAUSE_SECONDS,
    Incoming,
    pause_seconds,
)
from gateway.tasks import wait_all

log = logging.getLogger(__name__)

MAX_FAILED_POLLS = 10
"""In a row; then a new start asks who we are, and may learn that the token is gone."""
RECOVERY_SECONDS = 4.0
"""The longest pause of our own, on average: with a connection that takes its seven seconds to fail,
updates come again within ten seconds of the network's return."""
IDLE_SECONDS = 30.0
"""Between two signs of life of a long wait, and before a useless batch is asked for again."""
LONGEST_WAIT_SECONDS = 3600.0
"""The most that a server may make us wait."""
HASTY_SECONDS = 0.5
"""Whoever was asked to wait and has nothing to say sooner than this does not wait at all."""
ABANDON_SECONDS = 2.0
"""What a cancelled poll may take to end before it is left behind."""


class PollConflict(Exception):
    """Somebody else works with this token. ``healed``: what stood in the way is removed."""

    def __init__(self, reason: str, *, healed: bool = False) -> None:
        super().__init__(reason)
        self.healed = healed


class PollFailed(Exception):
    """A poll brought nothing; the next one may. ``retry_after_seconds``: the server's wish."""

    def __init__(self, reason: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class PollStuck(PollFailed):
    """A poll did not come back: its connection is good for nothing, the next one may be."""


class Source(Protocol):
    """Where updates are asked for."""

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        """The updates from this number on (None: whatever is unconfirmed), as raw JSON values.

        ``wait``: until there are some, for `PollTimes.poll_seconds` at most; else answer at once.

        Raises:
            PollConflict, PollFailed: this poll brought nothing.
            PlatformError: what a new start has to decide.
        """
        ...

    async def renew_polling(self) -> None:
        """Forget the connections of before, whatever state they are in; takes a moment at most."""
        ...


@dataclass(frozen=True, slots=True)
class PollTimes:
    """How long a poll takes, and when it has taken too long.

    Both together stay far below a minute: that is how long a dead connection may go unnoticed.
    """

    poll_seconds: float
    """Telegram answers after so long if there is nothing."""
    grace_seconds: float
    """Beyond that, for everything else: connecting, a slow network, the answer's way."""
    conflict_quiet_seconds: float = 60.0
    """Without a conflict for so long, the other program is gone. One answered poll proves nothing:
    two programs that poll push each other out in turn, and each sees its own polls answered."""

    def stuck_after_seconds(self, *, wait: bool) -> float:
        """After which a poll is stuck."""
        return self.grace_seconds + (self.poll_seconds if wait else 0.0)


class PollLoop:
    """Runs until it is cancelled or has failed too often in a row."""

    def __init__(
        self,
        source: Source,
        incoming: Incoming,
        report: Report,
        clock: Clock,
        times: PollTimes,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._incoming = incoming
        self._report = report
        self._clock = clock
        self._times = times
        self._jitter = jitter
        self._offset: int | None = None
        self._failures = 0
        self._failure = ""
        self._conflicts = 0
        self._conflict = ""
        self._conflict_at: float | None = None
        self._healed_at: float | None = None
        self._waited = False
        self._asked_at = 0.0
        self._proven = False
        """The connection works. If not, a poll does not wait for updates: on a quiet day it would
        take the whole poll to learn that."""

    async def run(self) -> None:
        """Poll for ever.

        Raises:
            PlatformUnavailable: too many failures in a row.
        """
        while True:
            try:
                batch = await self._poll()
            except PollConflict as exc:
                await self._contested(exc)
                continue
            except PollFailed as exc:
                await self._failed(exc)
                continue
            self._succeeded()
            await self._handle(batch)

    async def _poll(self) -> Sequence[Any]:
        wait, self._proven = self._proven, False
        self._waited, self._asked_at = wait, self._clock.monotonic()
        poll = asyncio.ensure_future(self._source.updates(self._offset, wait=wait))
        poll.add_done_callback(_forget)
        seconds = self._times.stuck_after_seconds(wait=wait)
        try:
            # A time limit of its own around everything: those of the client begin anew with every
            # byte that drips in, and know nothing of a suspended machine.
            in_time = await done_in_time(poll, self._clock, seconds)
        except asyncio.CancelledError:
            await self._abandon(poll)
            raise
        if in_time:
            return poll.result()
        await self._abandon(poll)
        raise PollStuck(f"the poll was stuck: no answer within {seconds:g} s")

    async def _abandon(self, poll: asyncio.Future[Any]) -> None:
        poll.cancel()
        if not await wait_all((poll,), self._clock, ABANDON_SECONDS):
            log.warning("a stuck poll was left behind", extra={"platform": PLATFORM})

    async def _contested(self, error: PollConflict) -> None:
        reason, now = str(error), self._clock.monotonic()
        log.warning("poll refused", extra={"platform": PLATFORM, "reason": reason})
        if error.healed and not self._is_recent(self._healed_at):
            self._healed_at = now
            self._report(PlatformState.DEGRADED, reason)
            return
        self._conflicts += 1
        self._conflict, self._conflict_at = reason, now
        await self._pause(pause_seconds(self._conflicts), reason)

    def _is_recent(self, at: float | None) -> bool:
        quiet_seconds = self._times.conflict_quiet_seconds
        return at is not None and self._clock.monotonic() - at < quiet_seconds

    async def _failed(self, error: PollFailed) -> None:
        self._failures += 1
        count, reason = self._failures, str(error)
        level = logging.WARNING if reason != self._failure else logging.DEBUG  # not each time
        self._failure = reason
        log.log(
            level, "poll failed", extra={"platform": PLATFORM, "reason": reason, "count": count}
        )
        self._report(PlatformState.DEGRADED, reason)
        if count >= MAX_FAILED_POLLS:
            raise PlatformUnavailable(f"{count} failed polls in a row, the last one: {reason}")
        await self._source.renew_polling()
        at_once = isinstance(error, PollStuck) and count == 1  # it has been waited for already
        asked_seconds = min(error.retry_after_seconds, LONGEST_WAIT_SECONDS)
        pause = min(pause_seconds(count), RECOVERY_SECONDS) * (0.75 + self._jitter() / 2)
        await self._pause(0.0 if at_once else max(asked_seconds, pause), reason)

    async def _pause(self, seconds: float, reason: str) -> None:
        """Wait, and say now and then that this is all that goes on."""
        while True:
            self._report(PlatformState.DEGRADED, reason)
            if seconds <= 0:
                return
            await self._clock.sleep(min(seconds, IDLE_SECONDS))
            seconds -= IDLE_SECONDS

    def _succeeded(self) -> None:
        # Only an answered poll proves anything: a call that merely started does not.
        if self._failures:
            log.info("polling again", extra={"platform": PLATFORM})
        self._failures, self._failure = 0, ""
        self._proven = True
        if self._conflicts and not self._is_recent(self._conflict_at):
            log.info("nobody else polls any more", extra={"platform": PLATFORM})
            self._conflicts = 0
        self._well()

    def _well(self) -> None:
        """A sign of life."""
        if self._conflicts:
            self._report(PlatformState.DEGRADED, self._conflict)
        else:
            self._report(PlatformState.RUNNING, "")

    async def _handle(self, batch: Sequence[Any]) -> None:
        """Store every update; the offset moves behind the last one when all of them are stored."""
        await self._incoming.hand_in_all(batch, self._well)
        before = self._offset
        numbers = [number for number in map(update_id, batch) if number is not None]
        if numbers:
            self._offset = max(numbers) + 1
            if self._offset == before:  # confirmed already; a server that lies is not hammered
                await self._clock.sleep(FIRST_PAUSE_SECONDS)
        elif batch:
            # Nothing that could be confirmed: asked again at once, it would come for ever.
            await self._clock.sleep(IDLE_SECONDS)
        else:
            # An empty answer has confirmed all that was before. Without an offset the next poll
            # also sees updates with lower numbers: they begin anew after a week without any.
            self._offset = None
            if self._waited and self._clock.monotonic() - self._asked_at < HASTY_SECONDS:
                await self._clock.sleep(FIRST_PAUSE_SECONDS)  # it should have waited


def _forget(poll: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; what it raises was to be expected."""
    if not poll.cancelled():
        poll.exception()
