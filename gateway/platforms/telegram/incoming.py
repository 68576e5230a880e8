"""Owns the way of one raw update into the intake: converted, handed in, kept until it is stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway.platforms.contract import Intake, PlatformState, Report
from gateway.platforms.telegram.convert import (
    PLATFORM,
    Edited,
    Moved,
    News,
    Said,
    update_id,
)

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
MAX_RAW_CHARS = 100_000

Convert = Callable[[Mapping[str, Any]], News | None]


class Incoming:
    """Where every update of one bot goes, however it came."""

    def __init__(
        self, convert: Convert, bot_id: str, intake: Intake, report: Report, clock: Clock
    ) -> None:
        self._convert = convert
        self._bot_id = bot_id
        self._intake = intake
        self._report = report
        self._clock = clock

    async def hand_in(self, update: Any) -> None:
        """Any JSON value at all. When this returns, Telegram may forget the update.

        Never fails: what can not be read, or breaks the intake, is put into quarantine, and while
        the store takes nothing this waits (and says so).
        """
        number = update_id(update)
        try:
            news = self._convert(update)
        except Exception as exc:  # noqa: BLE001 - whatever is wrong with it, the next ones must come
            log.warning(
                "update could not be read",
                extra={"platform": PLATFORM, "update_id": number, "error": type(exc).__name__},
            )
            await self._quarantine(update, f"unreadable: {type(exc).__name__}: {exc}")
            return
        if news is None:
            return
        try:
            await self._until_stored(lambda: self._take(news))
        except Exception as exc:  # one message that breaks the intake must not block all the others
            log.exception("update broke the intake", extra={"update_id": number})
            await self._quarantine(update, f"intake failed: {type(exc).__name__}")

    async def _take(self, news: News) -> None:
        match news:
            case Said(message):
                await self._intake.receive(message)
            case Edited(message):
                await self._intake.edited(message)
            case Moved(old_chat_id, new_chat_id):
                await self._intake.moved(PLATFORM, self._bot_id, old_chat_id, new_chat_id)

    async def _quarantine(self, update: Any, reason: str) -> None:
        number = update_id(update)
        shown = "?" if number is None else str(number)
        raw = _raw(update)
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
                await self._clock.sleep(pause_seconds(count))
                continue
            if count:
                self._report(PlatformState.RUNNING, "")
            return


def pause_seconds(count: int) -> float:
    """How long to wait after the n-th failure in a row."""
    pause: float = FIRST_PAUSE_SECONDS * 2 ** min(count - 1, 10)
    return min(LONGEST_PAUSE_SECONDS, pause)


def _raw(update: Any) -> str:
    """The update as text; what the JSON reader took, but its writer refuses, as Python shows it."""
    try:
        return json.dumps(update, ensure_ascii=True, default=repr)[:MAX_RAW_CHARS]
    except (ValueError, RecursionError):
        return repr(type(update))
