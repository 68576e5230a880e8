"""Owns the order in which a channel's messages are handed in: first what was missed, then live."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping

from agent.ports import Clock
from gateway.platforms.discord.channel import Channel, is_edit
from gateway.platforms.discord.handing import HandIn, Progress, is_ahead
from gateway.platforms.discord.source import (
    PAGE_MESSAGES,
    ChannelGone,
    HistoryUnavailable,
    Item,
    OpenThread,
    Source,
    pause_seconds,
)
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

MAX_WAITING = 1_000
"""Live messages of one channel that are kept in memory; what is more is read from its history."""
MAX_QUIET = 1_000
"""So many channels in which nothing is going on are kept in mind; those heard last."""
PAGES_AT_ONCE = 4
MAX_BROKEN_READS = 5
"""Of one history, by a bug; then the channel goes on with what is live."""
STOP_SECONDS = 5.0


class ChannelFeed:
    """Every channel in its own order, none waiting for another.

    While Discord's session is new (from `hold` to `release`) nothing live is handed in: it would
    move the cursor over what the gap swallowed.
    """

    def __init__(
        self, source: Source, hand_in: HandIn, clock: Clock, left: Mapping[int, int] | None = None
    ) -> None:
        """``left``: what the feed of an earlier connection had not got done (`unfinished`)."""
        self._source = source
        self._hand_in = hand_in
        self._clock = clock
        self._left = dict(left or {})
        self._channels: dict[int, Channel] = {}
        self._quiet: OrderedDict[int, Channel] = OrderedDict()
        """Those whose work ended last, the newest at the end; they may be at work again."""
        self._held = True
        self._generation = 0
        self._tasks = TaskOwner(clock)
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)

    # --- called by the gateway, in the order of its events; nothing here waits

    def hold(self) -> None:
        """A new session is about to begin: events may have been lost."""
        self._held = True
        self._generation += 1

    def release(self) -> None:
        """The new session is there: read what was missed, then let the live messages through."""
        self._tasks.spawn(self._begin(self._generation), name="discord backfill")

    def live(self, item: Item) -> None:
        """A message came in, or an edit."""
        channel = self._channel(item.channel_id)
        channel.waiting.append(item)
        if len(channel.waiting) > MAX_WAITING:
            self._shed(channel)
        self._work(channel)

    async def stop(self) -> None:
        """End; what was not handed in lies behind the stored cursors."""
        self._held = True
        await self._tasks.cancel(STOP_SECONDS)

    def unfinished(self) -> dict[int, int]:
        """Channel id → the message behind which it has to be read; also without a cursor."""
        found, now = dict(self._left), self._clock.now()
        for channel in self._channels.values():
            after = channel.unfinished_after(now)
            if channel.id and after > 0:
                found[channel.id] = after
        return found

    # --- work

    def _channel(self, channel_id: int) -> Channel:
        known = self._channels.get(channel_id)
        if known is None:
            known = self._channels[channel_id] = Channel(Progress(channel_id))
        return known

    def _shed(self, channel: Channel) -> None:
        """All messages stand in the history as well, and as they were edited."""
        first = channel.waits_after(self._clock.now())
        if first is not None:
            known = channel.missed_after
            channel.missed_after = first if known is None else min(first, known)
        channel.waiting.clear()
        log.warning("too many messages wait", extra={"channel_id": channel.id})

    async def _begin(self, generation: int) -> None:
        cursors, threads = await self._known()
        if generation != self._generation:
            return  # the session was lost again meanwhile; its successor begins anew
        for channel_id, newest in {**self._left, **cursors}.items():
            channel = self._channel(channel_id)
            channel.missed_after = newest
            channel.progress.seen_to = max(channel.progress.seen_to, newest)
            channel.progress.stored_to = cursors.get(channel_id, 0)
        self._left.clear()
        for channel in self._channels.values():
            # What was passed over in this process need not be read again; and where anything was
            # heard, the gap is looked at, cursor or not.
            if channel.id and channel.progress.seen_to:
                channel.missed_after = channel.progress.seen_to
        for thread_id, after in _new_threads(cursors, threads).items():
            thread = self._channel(thread_id)
            if thread.missed_after is None:
                thread.missed_after = after
        self._held = False
        # Where something was said last, somebody is waiting most likely.
        for channel in sorted(self._channels.values(), key=lambda one: one.newest, reverse=True):
            self._work(channel)

    async def _known(self) -> tuple[Mapping[int, int], Mapping[int, OpenThread]]:
        """The stored cursors, and the threads that are open."""
        failures = 0
        while True:
            try:
                return await self._hand_in.cursors(), self._source.active_threads()
            except Exception:  # behind a bug here every channel would stay shut, and look well
                failures += 1
                log.exception("what was read before is not known")
                await self._clock.sleep(pause_seconds(failures))

    def _holding(self, generation: int | None = None) -> bool:
        return self._held or generation not in (None, self._generation)

    def _work(self, channel: Channel) -> None:
        if self._held or channel.working:
            return
        if channel.missed_after is None and not channel.waiting:
            return
        channel.working = True
        self._tasks.spawn(self._run(channel), name=f"discord channel {channel.id}")

    async def _run(self, channel: Channel) -> None:
        try:
            while not self._holding():
                if channel.missed_after is not None:
                    await self._backfill(channel)
                    channel.reading_after = None
                elif channel.waiting:
                    await self._take_first(channel)
                else:
                    return
        finally:
            channel.working = False
            self._rest(channel)

    def _rest(self, channel: Channel) -> None:
        self._quiet[channel.id] = channel
        self._quiet.move_to_end(channel.id)
        if len(self._quiet) > MAX_QUIET:
            _, oldest = self._quiet.popitem(last=False)
            if oldest.is_quiet and not self._held:
                oldest.working = True
                self._tasks.spawn(
                    self._forget(oldest), name=f"discord channel {oldest.id} forgotten"
                )

    async def _forget(self, channel: Channel) -> None:
        """Forget a channel as soon as the store's cursor knows as much; or keep it."""
        try:
            await self._hand_in.pass_over(channel.progress)
        finally:
            channel.working = False
        if channel.is_quiet and channel.progress.is_stored and not self._held:
            del self._channels[channel.id]
        self._work(channel)

    async def _take_first(self, channel: Channel) -> None:
        item = channel.waiting[0]
        await self._hand_in.take(channel.progress, item)
        if channel.waiting and channel.waiting[0] is item:
            channel.waiting.popleft()

    async def _backfill(self, channel: Channel) -> None:
        """Read the history to its end. A failure in the middle goes on from where it came to."""
        after, channel.missed_after = channel.missed_after, None
        assert after is not None
        channel.reading_after = handed_to = after
        generation = self._generation
        read: set[int] = set()
        failures = broken = 0
        while not self._holding(generation):
            try:
                async with self._pages:  # page by page: a long history makes no other one wait
                    page = await self._source.page(channel.id, after)
            except ChannelGone as exc:
                log.info("channel is gone", extra={"channel_id": channel.id, "reason": str(exc)})
                return
            except HistoryUnavailable as exc:
                failures += 1
                log.warning(
                    "history is not available",
                    extra={"channel_id": channel.id, "reason": str(exc)},
                )
                await self._clock.sleep(max(pause_seconds(failures), exc.retry_after_seconds))
                continue
            except Exception:  # what waits behind a bug must not wait for ever
                broken += 1
                log.exception("history could not be read", extra={"channel_id": channel.id})
                if broken == MAX_BROKEN_READS:
                    return
                await self._clock.sleep(pause_seconds(broken))
                continue
            failures, before = 0, after
            # What was there before is left out: nobody goes round in circles.
            fresh = {item.id: item for item in page if item.id > after and item.id not in read}
            for id_ in sorted(fresh):
                if self._holding(generation):
                    break
                await self._hand_in.take(channel.progress, fresh[id_])
                read.add(id_)
                if not is_ahead(id_, self._clock.now()):
                    channel.reading_after = handed_to = after = id_
            else:
                if len(page) < PAGE_MESSAGES or not fresh:
                    await self._caught_up(channel, read)
                    return
                if after == before:  # all ahead: it is our clock that is wrong
                    after = max(fresh)
        # Everything up to here was handed in, whatever the next session wants to begin with.
        channel.missed_after = max(handed_to, channel.missed_after or 0)

    async def _caught_up(self, channel: Channel, read: set[int]) -> None:
        # What came in meanwhile was read as well, at least in part.
        fresh = [item for item in channel.waiting if is_edit(item) or item.id not in read]
        channel.waiting = deque(fresh)
        await self._hand_in.pass_over(channel.progress)
        log.info("caught up", extra={"channel_id": channel.id, "messages": len(read)})


def _new_threads(
    cursors: Mapping[int, int], threads: Mapping[int, OpenThread]
) -> Mapping[int, int]:
    """Threads in which the first words may have been missed, and behind which id they stand.

    Something was said there since anything was heard from their channel or its threads; what was
    said before that is no news, or else they had a cursor.
    """
    newest: dict[int, int] = {}
    for channel_id, cursor in cursors.items():
        home = threads[channel_id].home_id if channel_id in threads else channel_id
        newest[home] = max(newest.get(home, 0), cursor)
    return {
        thread_id: max(thread_id - 1, heard)
        for thread_id, thread in threads.items()
        if thread_id not in cursors
        and (heard := newest.get(thread.home_id)) is not None
        and max(thread_id, thread.newest_id) > heard
    }
