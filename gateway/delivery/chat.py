"""Owns sending to one chat: in order, part by part, each marked before and after."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.mail import NOT_AWAITED, OutboxItem, OutboxPart
from gateway.delivery.beside import Beside
from gateway.delivery.booking import Booking
from gateway.delivery.late import late_note
from gateway.delivery.parts import Means, NotAwaited, PartSender, Pending
from gateway.delivery.tries import Fate
from gateway.delivery.waiting import BotKey, Leaving, Waiting
from gateway.platforms.contract import Platform

log = logging.getLogger(__name__)

MOST_DOUBTS = 2
"""Parts of one answer that may be in doubt before the parts behind them wait as well."""


SAID_AT_MOST = 4
"""So often it is tried to say that a part is missing."""


@dataclass(slots=True)
class _Progress:
    """How far an answer is."""

    item: OutboxItem
    pending: list[Pending]
    before: str | None = None
    """The message that the part before became."""
    failed: list[tuple[OutboxPart, str]] = field(default_factory=list)


class ChatSender:
    """The owed answers of one chat, oldest first.

    An answer in doubt steps aside after a while, so that it holds up no newer one, and is asked
    again in its own time: see ADR 45.
    """

    def __init__(self, platform: Platform, bot: BotKey, means: Means) -> None:
        self.items: deque[OutboxItem] = deque()
        self._platform = platform
        self._bot = bot
        self._means = means
        self._clock = means.clock
        self._waiting = Waiting(means.clock)
        self._booking = Booking(means.mailbox, self._waiting, self._backoff)
        self._parts = PartSender(platform, bot, means, self._waiting, self._booking)
        self._beside = Beside(platform, means.chats)
        self._aside: list[_Progress] = []
        self._at_work: int | None = None
        """The answer (its id) that is being sent."""

    def put(self, item: OutboxItem) -> None:
        """Behind those that wait."""
        self.items.append(item)
        self._waiting.wake()

    def take_out(self, outbox_id: int) -> bool:
        """Leave this one to somebody else, if it has not begun; was it so?"""
        found = next((item for item in self.items if item.id == outbox_id), None)
        if found is None or outbox_id == self._at_work:
            return False
        self.items.remove(found)
        return True

    def __len__(self) -> int:
        return len(self.items) + len(self._aside)

    def nudge(self) -> None:
        """The platform is back: try now."""
        self._waiting.nudge()

    def leave(self) -> None:
        """Send what can be sent at once, and end instead of waiting for anything."""
        self._waiting.leave()

    def halt(self) -> None:
        """End before the next send."""
        self._waiting.halt()

    async def run(self, settle: Callable[[int, bool], None]) -> None:
        """Until nothing is left to send; ``settle`` hears of each: its id, and if a bug kept it."""
        try:
            while self.items or self._aside:
                due = next((one for one in self._aside if self._wait_seconds(one) <= 0), None)
                if due is not None:
                    self._aside.remove(due)
                    await self._attend(due.item, due, settle)
                elif self.items:
                    item = self.items[0]
                    await self._attend(item, None, settle)
                    self.items.popleft()
                else:
                    wait_seconds = min(map(self._wait_seconds, self._aside))
                    with self._means.queues.listens(self._bot, self._waiting):
                        await self._waiting.wait(wait_seconds)
        except Leaving:
            return

    async def _attend(
        self, item: OutboxItem, progress: _Progress | None, settle: Callable[[int, bool], None]
    ) -> None:
        self._at_work, crashed = item.id, False
        try:
            if not await self._go_on(item, progress):
                return
        except Leaving:
            raise
        except Exception:  # the supervised border: the answers behind this one still go out
            log.exception("delivery crashed; the answer stays owed", extra={"outbox_id": item.id})
            crashed = True
        finally:
            self._at_work = None
        self._parts.over(item)
        settle(item.id, crashed)

    async def _go_on(self, item: OutboxItem, progress: _Progress | None) -> bool:
        """False: it has stepped aside."""
        first = progress is None
        try:
            self._parts.still_awaited(item)
            progress = progress or await self._begin(item)
            done = await self._deliver(progress, first=first)
        except NotAwaited:
            log.info("a question was not sent: it is over", extra={"outbox_id": item.id})
            await self._booking.give_up(item, NOT_AWAITED)
            return True
        if not done:
            self._aside.append(progress)
        return done

    async def _begin(self, item: OutboxItem) -> _Progress:
        progress = _Progress(item, [])
        for part in await self._planned(item):
            if part.state in ("sent", "failed"):
                if not progress.pending:
                    progress.before = part.platform_message_id or progress.before
                continue
            progress.pending.append(self._parts.taken_up(part))
        return progress

    async def _planned(self, item: OutboxItem) -> tuple[OutboxPart, ...]:
        if item.parts:
            return item.parts
        draft = item.draft
        note = late_note(item, self._clock.now(), self._means.settings.zone())
        if note is not None:
            # Nobody would see it in the place of a message of the day before.
            draft = replace(draft, text=f"{note}\n\n{draft.text}", edits_message_id=None)
            self._parts.known_late(item)
            await self._beside.take_away_preview(item)
        return await self._booking.plan(self._platform, item, draft)

    async def _deliver(self, progress: _Progress, *, first: bool) -> bool:
        """Send what is left of it; False: parts of it are in doubt, to be asked again later."""
        item, doubts = progress.item, 0
        # Where sends are deduped, the parts behind one in doubt are found by it.
        most_doubts = 1 if self._platform.dedupes_sends else MOST_DOUBTS
        for pending in tuple(progress.pending):
            if doubts >= most_doubts:
                return False
            tried = not first and pending.tries.pause is not None
            if tried and self._parts.due_in(pending) > 0:
                doubts += 1
                continue
            pending.part = replace(pending.part, follows_message_id=progress.before)
            fate, told = await self._parts.send(item, pending, hold=not tried)
            match fate:
                case Fate.SENT:
                    progress.before = told
                case Fate.GONE:
                    log.warning("answer refused", extra={"outbox_id": item.id, "reason": told})
                    await self._booking.give_up(item, told)
                    return True
                case Fate.REFUSED:
                    extra = {"part_id": pending.part.id, "reason": told}
                    log.warning("part refused", extra=extra)
                    progress.failed.append((pending.part, told))
                    if item.draft.kind != "notice":
                        await self._say_refused(item, pending.part)
                case Fate.DOUBT:
                    self._tell_of_doubt(item, pending)
                    doubts += 1
                    continue
            progress.pending.remove(pending)
        if progress.pending:
            return False
        # Only now: a failed part ends its answer, and the parts behind it were still to go.
        for part, why in progress.failed:
            await self._booking.mark(part, "failed", error=why)
        return True

    async def _say_refused(self, item: OutboxItem, part: OutboxPart) -> None:
        """Within the chat's budget; what floods again and again is let be."""
        for _ in range(SAID_AT_MOST):
            while (wait := self._means.chats.budget(item.draft.address).wait_seconds) > 0:
                await self._waiting.pause(wait, nudged=False)
            if await self._beside.refused(item, part):
                return

    def _tell_of_doubt(self, item: OutboxItem, pending: Pending) -> None:
        extra = {
            "outbox_id": item.id,
            "part_id": pending.part.id,
            "seconds": round(self._parts.due_in(pending)),
        }
        log.warning("fate of a part is unknown; asked again later", extra=extra)

    def _wait_seconds(self, progress: _Progress) -> float:
        tried = [one for one in progress.pending if one.tries.pause is not None]
        return min(map(self._parts.due_in, tried), default=0.0)

    def _backoff(self, failures: int) -> float:
        settings = self._means.settings
        longest = settings.store_backoff_seconds
        return settings.backoff_seconds(failures, self._means.jitter(), longest)
