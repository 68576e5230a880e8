"""Owns the order in which a channel's messages are handed in: first what was missed, then live."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from agent.errors import StoreUnavailable
from agent.mail import Cursor
from agent.ports import Clock
from gateway.platforms.contract import InboundMessage, Intake, PlatformState, Report
from gateway.platforms.discord.convert import PLATFORM, Facts, is_blank_for_lack_of_intent
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_WAITING = 1_000
"""Live messages of one channel that are kept in memory; what is more is read from its history."""
BACKFILLS_AT_ONCE = 4
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
MAX_BROKEN_READS = 5
"""Of one history, by a bug; then the channel goes on with what is live."""
STOP_SECONDS = 5.0


class ChannelGone(Exception):
    """The channel can not be read any more: deleted, or the bot may not see it."""


class HistoryUnavailable(Exception):
    """Discord does not answer now."""


class Source(Protocol):
    """What the feed has to ask Discord."""

    def history(self, channel_id: int, after: int) -> AsyncGenerator[Facts, None]:
        """Every message behind this id, oldest first, to the end.

        Raises:
            ChannelGone, HistoryUnavailable
        """
        ...

    async def complete(self, facts: Facts) -> Facts:
        """The same with its place and roles known; unchanged where Discord does not tell.

        Raises:
            HistoryUnavailable
        """
        ...


@dataclass(slots=True)
class _Channel:
    """One channel: ``missed_after`` is the id behind which its history has to be read first."""

    id: int
    waiting: deque[Facts] = field(default_factory=deque)
    missed_after: int | None = None
    seen_to: int = 0
    """The newest message that was handed in or is of no interest."""
    working: bool = False


class ChannelFeed:
    """Every channel in its own order, none waiting for another.

    While Discord's session is new (from `hold` to `release`) nothing live is handed in: it would
    move the cursor over what the gap swallowed.
    """

    def __init__(
        self,
        source: Source,
        convert: Callable[[Facts], InboundMessage | None],
        bot_id: str,
        intake: Intake,
        report: Report,
        clock: Clock,
    ) -> None:
        self._source = source
        self._convert = convert
        self._bot_id = bot_id
        self._intake = intake
        self._report = report
        self._clock = clock
        self._channels: dict[int, _Channel] = {}
        self._held = True
        self._generation = 0
        self._tasks = TaskOwner(clock)
        self._backfills = asyncio.Semaphore(BACKFILLS_AT_ONCE)
        self._warned_of_blank = False
        self._store_failed = False

    # --- called by the gateway, in the order of its events; nothing here waits

    def hold(self) -> None:
        """A new session is about to begin: events may have been lost."""
        self._held = True
        self._generation += 1

    def release(self) -> None:
        """The new session is there: read what was missed, then let the live messages through."""
        self._tasks.spawn(self._begin(self._generation), name="discord backfill")

    def live(self, facts: Facts) -> None:
        """A message came in."""
        channel = self._channel(facts.channel_id)
        channel.waiting.append(facts)
        if len(channel.waiting) > MAX_WAITING:
            # All of it stands in the history as well.
            first = channel.waiting[0].id - 1
            known = channel.missed_after
            channel.missed_after = first if known is None else min(first, known)
            channel.waiting.clear()
            log.warning("too many messages wait", extra={"channel_id": channel.id})
        self._work(channel)

    async def stop(self) -> None:
        """End; what was not handed in lies behind the stored cursors."""
        self._held = True
        await self._tasks.cancel(STOP_SECONDS)

    # --- work

    def _channel(self, channel_id: int) -> _Channel:
        return self._channels.setdefault(channel_id, _Channel(channel_id))

    async def _begin(self, generation: int) -> None:
        cursors = await self._until_stored(lambda: self._intake.cursors(PLATFORM, self._bot_id))
        if generation != self._generation:
            return  # the session was lost again meanwhile; its successor begins anew
        for channel_id, newest in cursors.items():
            if newest.isdecimal() and channel_id.isdecimal():
                self._channel(int(channel_id)).missed_after = int(newest)
        self._held = False
        self._say_healed()
        for channel in list(self._channels.values()):
            self._work(channel)

    def _holding(self) -> bool:
        return self._held

    def _work(self, channel: _Channel) -> None:
        if self._held or channel.working:
            return
        channel.working = True
        self._tasks.spawn(self._run(channel), name=f"discord channel {channel.id}")

    async def _run(self, channel: _Channel) -> None:
        try:
            while not self._holding():
                if channel.missed_after is not None:
                    async with self._backfills:
                        await self._backfill(channel)
                elif channel.waiting:
                    await self._hand_in(channel, channel.waiting.popleft())
                else:
                    return
        finally:
            channel.working = False

    async def _backfill(self, channel: _Channel) -> None:
        """Read the history to its end. A failure in the middle goes on from where it came to."""
        after, channel.missed_after = channel.missed_after, None
        assert after is not None
        read: set[int] = set()
        failures = broken = 0
        while not self._holding():
            try:
                async with aclosing(self._source.history(channel.id, after)) as history:
                    async for facts in history:
                        await self._hand_in(channel, facts)
                        read.add(facts.id)
                        after = max(after, facts.id)
                        if self._holding():
                            break
            except ChannelGone as exc:
                log.info("channel is gone", extra={"channel_id": channel.id, "reason": str(exc)})
                return
            except HistoryUnavailable as exc:
                failures += 1
                log.warning(
                    "history is not available",
                    extra={"channel_id": channel.id, "reason": str(exc)},
                )
                await self._clock.sleep(_pause_seconds(failures))
                continue
            except Exception:  # what waits behind a bug must not wait for ever
                broken += 1
                log.exception("history could not be read", extra={"channel_id": channel.id})
                if broken == MAX_BROKEN_READS:
                    return
                await self._clock.sleep(_pause_seconds(broken))
                continue
            if not self._holding():
                # What came in meanwhile was read as well, at least in part.
                fresh = [facts for facts in channel.waiting if facts.id not in read]
                channel.waiting = deque(fresh)
                log.info("caught up", extra={"channel_id": channel.id, "messages": len(read)})
                return
        channel.missed_after = after

    async def _hand_in(self, channel: _Channel, facts: Facts) -> None:
        channel.seen_to = max(channel.seen_to, facts.id)
        if is_blank_for_lack_of_intent(facts):
            self._warn_of_blank()
            return
        if not facts.is_person or not facts.is_ordinary:
            return
        facts = await self._complete(facts)
        try:
            message = self._convert(facts)
            if message is None:
                return
            # Never back: events may come out of order.
            cursor = Cursor(PLATFORM, self._bot_id, str(channel.id), str(channel.seen_to))
            stored = message
            await self._until_stored(lambda: self._intake.receive(stored, cursor))
        except Exception as exc:  # one message that breaks something must not block its channel
            log.exception("message could not be taken", extra={"message_id": facts.id})
            reason = f"{type(exc).__name__}: {exc}"
            await self._until_stored(
                lambda: self._intake.quarantine(
                    PLATFORM, self._bot_id, str(facts.id), repr(facts), reason
                )
            )

    async def _complete(self, facts: Facts) -> Facts:
        failures = 0
        while True:
            try:
                return await self._source.complete(facts)
            except HistoryUnavailable:
                failures += 1
                await self._clock.sleep(_pause_seconds(failures))

    async def _until_stored(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                result = await call()
            except StoreUnavailable:
                failures += 1
                self._store_failed = True
                self._report(PlatformState.DEGRADED, "the store is not available")
                await self._clock.sleep(_pause_seconds(failures))
                continue
            self._say_healed()
            return result

    def _say_healed(self) -> None:
        if self._store_failed and not self._held:
            self._store_failed = False
            self._report(PlatformState.RUNNING, "")

    def _warn_of_blank(self) -> None:
        if not self._warned_of_blank:
            self._warned_of_blank = True
            log.warning(
                "messages come without their text: switch on the Message Content intent for the "
                "bot in Discord's developer portal"
            )


def _pause_seconds(failures: int) -> float:
    pause: float = FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)
    return min(LONGEST_PAUSE_SECONDS, pause)
