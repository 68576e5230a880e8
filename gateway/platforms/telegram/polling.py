"""Owns the poll loop: fetch a batch, hand every update in, and only then let Telegram forget it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent.ports import Clock
from gateway.platforms.contract import PlatformState, PlatformUnavailable, Report
from gateway.platforms.telegram.convert import PLATFORM, update_id
from gateway.platforms.telegram.incoming import LONGEST_PAUSE_SECONDS, Incoming, pause_seconds

log = logging.getLogger(__name__)

MAX_CONFLICTS = 5
"""In a row; then another instance is really there, and the supervisor has to know."""
MAX_FAILED_POLLS = 10


class PollConflict(Exception):
    """Somebody else polls with this token."""


class PollFailed(Exception):
    """A poll brought nothing; the next one may. ``retry_after_seconds``: the server's wish."""

    def __init__(self, reason: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


Fetch = Callable[[int | None], Awaitable[Sequence[Any]]]
"""Ask for updates from this number on (None: whatever is unconfirmed), as raw JSON values.

Raises `PollConflict` or `PollFailed`; what a new start has to decide, as a `PlatformError`.
"""


class PollLoop:
    """Runs until it is cancelled or has failed too often in a row."""

    def __init__(
        self,
        fetch: Fetch,
        incoming: Incoming,
        report: Report,
        clock: Clock,
        *,
        stuck_after_seconds: float,
    ) -> None:
        self._fetch = fetch
        self._incoming = incoming
        self._report = report
        self._clock = clock
        self._stuck_after_seconds = stuck_after_seconds
        self._offset: int | None = None
        self._conflicts = 0
        self._failures = 0
        self._healthy = False

    async def run(self) -> None:
        """Poll for ever.

        Raises:
            PlatformUnavailable: too many failures in a row.
        """
        while True:
            try:
                batch = await self._poll()
            except PollConflict as exc:
                self._conflicts += 1
                await self._failed(f"conflict: {exc}", self._conflicts, MAX_CONFLICTS, 0.0)
                continue
            except PollFailed as exc:
                self._failures += 1
                wait = exc.retry_after_seconds
                await self._failed(str(exc), self._failures, MAX_FAILED_POLLS, wait)
                continue
            self._succeeded()
            await self._handle(batch)

    async def _poll(self) -> Sequence[Any]:
        try:
            async with asyncio.timeout(self._stuck_after_seconds):
                return await self._fetch(self._offset)
        except TimeoutError as exc:
            raise PollFailed("the poll was stuck") from exc

    async def _failed(self, reason: str, count: int, limit: int, wait_seconds: float) -> None:
        self._healthy = False
        self._report(PlatformState.DEGRADED, reason)
        log.warning("poll failed", extra={"platform": PLATFORM, "reason": reason, "count": count})
        if count >= limit:
            raise PlatformUnavailable(f"{count} failed polls in a row, the last one: {reason}")
        await self._clock.sleep(max(wait_seconds, pause_seconds(count)))

    def _succeeded(self) -> None:
        # Only an answered poll proves anything: a call that merely started does not.
        if not self._healthy and self._conflicts + self._failures:
            log.info("polling again", extra={"platform": PLATFORM})
        self._conflicts = self._failures = 0
        self._healthy = True
        self._report(PlatformState.RUNNING, "")

    async def _handle(self, batch: Sequence[Any]) -> None:
        """Store every update; the offset moves behind the last one when all of them are stored."""
        for update in batch:
            await self._incoming.hand_in(update)
        numbers = [number for number in map(update_id, batch) if number is not None]
        if numbers:
            self._offset = max(numbers) + 1
        elif batch:
            # Nothing that could be confirmed: asked again at once, it would come for ever.
            await self._clock.sleep(LONGEST_PAUSE_SECONDS)
        else:
            # An empty answer has confirmed all that was before. Without an offset the next poll
            # also sees updates with lower numbers: they begin anew after a week without any.
            self._offset = None
