"""Owns how one message gets from Discord into the intake, however often that fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agent.errors import StoreUnavailable
from agent.mail import Cursor
from agent.ports import Clock
from gateway.platforms.contract import InboundMessage, Intake
from gateway.platforms.discord.convert import (
    PLATFORM,
    Facts,
    is_blank_for_lack_of_intent,
    passed_over,
)
from gateway.platforms.discord.reading import Unreadable, id_at, sent_at
from gateway.platforms.discord.source import HistoryUnavailable, Item, Source, pause_seconds

log = logging.getLogger(__name__)
T = TypeVar("T")

PASS_EVERY_MESSAGES = 100
"""After so many messages of no interest the cursor is moved over them."""
AHEAD_SECONDS = 3_600.0
"""What claims to be sent this long after now moves no cursor: all that follows would be old."""


@dataclass(slots=True)
class Progress:
    """How far one channel has come."""

    channel_id: int
    seen_to: int = 0
    """The newest message that was handed in or is of no interest."""
    stored_to: int = 0
    """Where the store's cursor is at least."""
    passed: list[Facts] = field(default_factory=list)
    """Of no interest, and the cursor stands before them."""

    def see(self, message_id: int, now: float) -> None:
        """Move on to this one, unless it lies about its time; never back."""
        if not is_ahead(message_id, now):
            self.seen_to = max(self.seen_to, message_id)
        elif not self.seen_to:
            self.seen_to = id_at(now)  # whatever follows is sent later than this

    @property
    def is_stored(self) -> bool:
        """The store's cursor says as much as this."""
        return not self.passed and self.seen_to <= self.stored_to


def is_ahead(message_id: int, now: float) -> bool:
    """It claims to be sent later than any clock of Discord's and ours can differ."""
    return sent_at(message_id) > now + AHEAD_SECONDS


class HandIn:
    """Messages of all channels; each call returns when nothing of it can get lost any more."""

    def __init__(
        self,
        source: Source,
        convert: Callable[[Facts], InboundMessage | None],
        bot_id: str,
        intake: Intake,
        store_is: Callable[[bool], None],
        clock: Clock,
    ) -> None:
        """``store_is`` is told whether the store takes messages."""
        self._source = source
        self._convert = convert
        self._bot_id = bot_id
        self._intake = intake
        self._store_is = store_is
        self._clock = clock
        self._warned_of_blank = False

    async def cursors(self) -> dict[int, int]:
        """Channel id → newest stored message id."""
        told = await self._until_stored(lambda: self._intake.cursors(PLATFORM, self._bot_id))
        return {
            int(channel_id): int(newest)
            for channel_id, newest in told.items()
            if newest.isdecimal() and channel_id.isdecimal()
        }

    async def take(self, progress: Progress, item: Item) -> None:
        """One message, or an edit, of a channel."""
        if isinstance(item, Unreadable):
            progress.see(item.id, self._clock.now())
            await self._quarantine(item.id, item.raw, item.reason)
            return
        if not item.is_edit:
            progress.see(item.id, self._clock.now())
        if is_blank_for_lack_of_intent(item):
            self._warn_of_blank()
            return
        if not item.is_person or not item.is_ordinary:
            await self._skip(progress, item)
            return
        try:
            await self._hand_over(progress, await self._complete(item))
        except Exception as exc:  # one message that breaks something must not block its channel
            log.exception("message could not be taken", extra={"message_id": item.id})
            await self._quarantine(item.id, repr(item), f"{type(exc).__name__}: {exc}")

    async def pass_over(self, progress: Progress) -> None:
        """Move the cursor over what is of no interest.

        Or else a talkative webhook is read again at each start.
        """
        if not progress.passed:
            return
        newest = max(progress.passed, key=lambda facts: facts.id)
        progress.passed.clear()
        try:
            message = passed_over(await self._complete(newest), int(self._bot_id))
            await self._receive(progress, message)
        except Exception:  # it is read again at the next start, no more than that
            log.exception("cursor could not be moved", extra={"channel_id": progress.channel_id})

    async def _skip(self, progress: Progress, facts: Facts) -> None:
        if facts.is_edit:
            return
        progress.passed.append(facts)
        if len(progress.passed) >= PASS_EVERY_MESSAGES:
            await self.pass_over(progress)

    async def _hand_over(self, progress: Progress, facts: Facts) -> None:
        message = self._convert(facts)
        if message is None:
            return
        if facts.is_edit:
            await self._until_stored(lambda: self._intake.edited(message))
            return
        await self._receive(progress, message)
        progress.passed.clear()

    async def _receive(self, progress: Progress, message: InboundMessage) -> None:
        """With a cursor that never goes back: events may come out of order."""
        to = progress.seen_to
        cursor = Cursor(PLATFORM, self._bot_id, str(progress.channel_id), str(to))
        await self._until_stored(lambda: self._intake.receive(message, cursor))
        progress.stored_to = max(progress.stored_to, to)

    async def _quarantine(self, message_id: int, raw: str, reason: str) -> None:
        await self._until_stored(
            lambda: self._intake.quarantine(PLATFORM, self._bot_id, str(message_id), raw, reason)
        )

    async def _complete(self, facts: Facts) -> Facts:
        failures = 0
        while True:
            try:
                return await self._source.complete(facts)
            except HistoryUnavailable as exc:
                failures += 1
                await self._clock.sleep(max(pause_seconds(failures), exc.retry_after_seconds))

    async def _until_stored(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                result = await call()
            except StoreUnavailable:
                failures += 1
                self._store_is(False)
                await self._clock.sleep(pause_seconds(failures))
                continue
            self._store_is(True)
            return result

    def _warn_of_blank(self) -> None:
        if not self._warned_of_blank:
            self._warned_of_blank = True
            log.warning(
                "messages come without their text: switch on the Message Content intent for the "
                "bot in Discord's developer portal"
            )
