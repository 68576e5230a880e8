"""Owns the poll loop: fetch a batch, hand every update in, and only then let Telegram forget it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway.platforms.contract import (
    InboundMessage,
    Intake,
    PlatformState,
    PlatformUnavailable,
    Report,
)
from gateway.platforms.telegram.convert import PLATFORM, update_id

log = logging.getLogger(__name__)

MAX_CONFLICTS = 5
"""In a row; then another instance is really there, and the supervisor has to know."""
MAX_FAILED_POLLS = 10
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
MAX_RAW_CHARS = 100_000


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
Convert = Callable[[Mapping[str, Any]], InboundMessage | None]


class PollLoop:
    """Runs until it is cancelled or has failed too often in a row."""

    def __init__(
        self,
        fetch: Fetch,
        convert: Convert,
        bot_id: str,
        intake: Intake,
        report: Report,
        clock: Clock,
        *,
        stuck_after_seconds: float,
    ) -> None:
        self._fetch = fetch
        self._convert = convert
        self._bot_id = bot_id
        self._intake = intake
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
        await self._clock.sleep(max(wait_seconds, _pause_seconds(count)))

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
            await self._hand_in(update)
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

    async def _hand_in(self, update: Any) -> None:
        number = update_id(update)
        try:
            message = self._convert(update)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with it, the next ones must come
            log.warning(
                "update could not be read",
                extra={"platform": PLATFORM, "update_id": number, "error": type(exc).__name__},
            )
            await self._quarantine(update, f"unreadable: {type(exc).__name__}: {exc}")
            return
        if message is None:
            return
        try:
            await self._until_stored(lambda: self._intake.receive(message))
        except Exception as exc:  # one message that breaks the intake must not block all the others
            log.exception("update broke the intake", extra={"update_id": number})
            await self._quarantine(update, f"intake failed: {type(exc).__name__}")

    async def _quarantine(self, update: Any, reason: str) -> None:
        number = update_id(update)
        shown = "?" if number is None else str(number)
        raw = json.dumps(update, ensure_ascii=True, default=repr)[:MAX_RAW_CHARS]
        await self._until_stored(
            lambda: self._intake.quarantine(PLATFORM, self._bot_id, shown, raw, reason)
        )

    async def _until_stored(self, store: Callable[[], Awaitable[None]]) -> None:
        """Try until the store takes it. Telegram keeps the update as long as we do not move on."""
        count = 0
        while True:
            try:
                await store()
            except StoreUnavailable:
                count += 1
                self._report(PlatformState.DEGRADED, "the store is not available")
                await self._clock.sleep(_pause_seconds(count))
                continue
            if count:
                self._report(PlatformState.RUNNING, "")
            return


def _pause_seconds(count: int) -> float:
    pause: float = FIRST_PAUSE_SECONDS * 2 ** min(count - 1, 10)
    return min(LONGEST_PAUSE_SECONDS, pause)
