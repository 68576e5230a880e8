"""Owns sending to one chat: in order, part by part, each marked before and after."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.errors import StoreUnavailable
from agent.mail import OutboxDraft, OutboxItem, OutboxPart, PartDraft, SendState
from agent.ports import Clock
from agent.store_ports import Mailbox
from gateway import texts
from gateway.delivery.beside import Beside
from gateway.delivery.chats import Chats
from gateway.delivery.late import late_note
from gateway.delivery.rendering import rendered
from gateway.delivery.tries import DeliverySettings, Fate, Tries
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    Platform,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.tasks import wait_all

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Leaving(Exception):
    """The daemon stops; what is not sent stays owed."""


class _NotAwaited(Exception):
    """A question that nobody waits for an answer to any more."""


@dataclass(slots=True)
class ChatSender:
    """The owed answers of one chat, oldest first."""

    platform: Platform
    mailbox: Mailbox
    clock: Clock
    chats: Chats
    settings: DeliverySettings
    jitter: Callable[[], float]
    awaited: Callable[[int], bool]
    """Does anybody still wait for an answer to this question (by its id in the outbox)?"""
    works: Callable[[], bool]
    """Is the platform in no trouble, as far as is known?"""
    items: deque[OutboxItem] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: bool = False
    _halted: bool = False
    _told_late: int = 0
    """The answer that everybody knows to be late."""

    @property
    def _beside(self) -> Beside:
        return Beside(self.platform, self.chats)

    def nudge(self) -> None:
        """The platform is back: try now."""
        self._wake.set()

    def leave(self) -> None:
        """Send what can be sent at once, and end instead of waiting for anything."""
        self._leaving = True
        self._wake.set()

    def halt(self) -> None:
        """End before the next send."""
        self._halted = True
        self.leave()

    async def run(self, settle: Callable[[int, bool], None]) -> None:
        """Until nothing is left to send; ``settle`` hears of each: its id, and if a bug kept it."""
        try:
            while self.items:
                item = self.items[0]
                crashed = not await self._supervised(item)
                settle(item.id, crashed)
                self.items.popleft()
        except _Leaving:
            return

    async def _supervised(self, item: OutboxItem) -> bool:
        try:
            await self._deliver(item)
        except _Leaving:
            raise
        except _NotAwaited:
            log.info("a question was not sent: it is over", extra={"outbox_id": item.id})
            await self._give_up(item, "it is over")
        except Exception:  # the supervised border: the answers behind this one still go out
            log.exception("delivery crashed; the answer stays owed", extra={"outbox_id": item.id})
            return False
        return True

    def _still_awaited(self, item: OutboxItem) -> None:
        if item.draft.asks and not self.awaited(item.id):
            raise _NotAwaited

    async def _deliver(self, item: OutboxItem) -> None:
        self._still_awaited(item)
        parts = await self._planned(item)
        failed: list[tuple[OutboxPart, str]] = []
        before: str | None = None
        for planned in parts:
            if planned.state in ("sent", "failed"):
                before = planned.platform_message_id or before
                continue
            part = replace(planned, follows_message_id=before)
            fate, told = await self._send(item, part)
            match fate:
                case Fate.SENT:
                    before = told
                case Fate.GONE:
                    log.warning("answer refused", extra={"outbox_id": item.id, "reason": told})
                    await self._give_up(item, told)
                    return
                case Fate.REFUSED:
                    log.warning("part refused", extra={"part_id": part.id, "reason": told})
                    failed.append((part, told))
                case Fate.OPEN:
                    log.warning("fate of a part stays unknown", extra={"part_id": part.id})
                    failed.append((part, "it may have arrived"))
            if fate is Fate.REFUSED and item.draft.kind != "notice":
                await self._beside.refused(item, part)
        # Only now: a failed part ends its answer, and the parts behind it were still to go.
        for part, why in failed:
            await self._mark(part, "failed", error=why)

    async def _planned(self, item: OutboxItem) -> tuple[OutboxPart, ...]:
        if item.parts:
            return item.parts
        draft = item.draft
        note = late_note(item, self.clock.now(), self.settings.zone)
        if note is not None:
            # Nobody would see it in the place of a message of the day before.
            draft = replace(draft, text=f"{note}\n\n{draft.text}", edits_message_id=None)
            self._told_late = item.id
            await self._beside.take_away_preview(item)
        plan = await self._render(item, draft)
        return await self._stored(lambda: self.mailbox.plan_parts(item.id, plan))

    async def _say_late(self, item: OutboxItem) -> None:
        """The note stands in no row: at worst it is said twice, never without its answer."""
        note = late_note(item, self.clock.now(), self.settings.zone)
        if note is None or self._told_late == item.id:
            return
        await self._beside.late(item, note)
        self._told_late = item.id

    async def _render(self, item: OutboxItem, draft: OutboxDraft) -> list[PartDraft]:
        try:
            return await rendered(self.platform, draft)
        except Exception:  # the supervised border of a platform: say so rather than say nothing
            log.exception("answer could not be rendered", extra={"outbox_id": item.id})
            plain = OutboxDraft(draft.address, texts.UNRENDERABLE)
            return self.platform.render(plain)

    async def _send(self, item: OutboxItem, part: OutboxPart) -> tuple[Fate, str]:
        """Send one part until its fate is known; with it the message's id, or why not."""
        # A part that a crash left in the middle of its send may have arrived.
        doubtful = part.state in ("sending", "unknown")
        tries = Tries(part.attempts, unknowns=int(doubtful), inherited=doubtful)
        address = item.draft.address
        while not self._is_hopeless(part, tries):
            while (wait := self.chats.budget(address).wait_seconds) > 0:
                await self._pause(wait, nudged=False)
            if self._halted:
                raise _Leaving
            if tries.repeat and not self._stays_one(part):
                await self._wait_for_platform()
            self._still_awaited(item)
            await self._mark(part, "sending")
            tries.attempts += 1
            try:
                await self._say_late(item)
                self.chats.budget(address).called()
                message_id = await self.platform.send(address, part, repeat=tries.repeat)
            except EditRefused:
                part = await self._sent_anew(part, tries)
            except SendRefused as exc:
                if isinstance(exc, ChatGone):
                    self.chats.lost(address)
                    return Fate.GONE, str(exc) or "gone"
                return Fate.REFUSED, str(exc) or "refused"
            except SendFlood as exc:
                self.chats.budget(address).silence(exc.retry_after_seconds)
                await self._mark(part, "unknown" if tries.repeat else "planned")
            except SendUnavailable:
                tries.failures += 1
                await self._mark(part, "unknown" if tries.repeat else "planned")
                await self._pause(self._backoff(tries.failures))
            except SendUnknown:
                await self._note_unknown(part, tries)
            except Exception:  # the supervised border of a platform: who knows how far it came
                log.exception("send crashed", extra={"part_id": part.id})
                tries.crashes += 1
                if tries.crashes > 1:
                    return Fate.REFUSED, "sending it crashed, see the log"
                await self._note_unknown(part, tries)
            else:
                self.chats.heard(address)
                await self._mark(part, "sent", platform_message_id=message_id)
                return Fate.SENT, message_id
        return Fate.OPEN, ""

    async def _wait_for_platform(self) -> None:
        """There is one repeat: sent into the trouble that cost the first try, it would be lost."""
        deadline = self.clock.monotonic() + self.settings.repeat_wait_seconds
        while not self.works() and (left := deadline - self.clock.monotonic()) > 0:
            await self._pause(min(left, self.settings.unknown_pause_seconds))

    async def _sent_anew(self, part: OutboxPart, tries: Tries) -> OutboxPart:
        """The message whose place it should take is gone: then it is one of its own."""
        payload = {key: value for key, value in part.payload.items() if key != "edits"}
        tries.only_edits_so_far()
        await self._mark(part, "unknown" if tries.repeat else "planned")
        return replace(part, payload=payload)

    def _stays_one(self, part: OutboxPart) -> bool:
        """Is it the same message, however often it is sent?"""
        return self.platform.dedupes_sends or "edits" in part.payload

    def _is_hopeless(self, part: OutboxPart, tries: Tries) -> bool:
        return not self._stays_one(part) and tries.hopeless(self.settings.max_attempts)

    async def _note_unknown(self, part: OutboxPart, tries: Tries) -> None:
        tries.unknowns += 1
        tries.failures += 1
        await self._mark(part, "unknown")
        if self._is_hopeless(part, tries):
            return
        pause = self._backoff(tries.failures)
        if not self._stays_one(part):
            pause = max(pause, self.settings.unknown_pause_seconds)
        await self._pause(pause)

    async def _give_up(self, item: OutboxItem, reason: str) -> None:
        await self._stored(lambda: self.mailbox.fail_outbox(item.id, reason))

    async def _mark(
        self,
        part: OutboxPart,
        state: SendState,
        *,
        platform_message_id: str | None = None,
        error: str | None = None,
    ) -> None:
        await self._stored(
            lambda: self.mailbox.mark_part(
                part.id, state, platform_message_id=platform_message_id, error=error
            )
        )

    async def _stored(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do it on the store, as often as it takes."""
        failures = 0
        while True:
            try:
                return await call()
            except StoreUnavailable:
                failures += 1
                log.warning("store unavailable to delivery", extra={"failures": failures})
                await self._pause(self._backoff(failures))

    def _backoff(self, failures: int) -> float:
        return self.settings.backoff_seconds(failures, self.jitter())

    async def _pause(self, seconds: float, *, nudged: bool = True) -> None:
        """Wait; a nudge ends it early, unless the platform itself asked for the wait."""
        deadline = self.clock.monotonic() + seconds
        while not self._leaving:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return
            wake = asyncio.ensure_future(self._wake.wait())
            try:
                woken = await wait_all((wake,), self.clock, left)
            finally:
                wake.cancel()
            self._wake.clear()
            if woken and nudged and not self._leaving:
                return
        raise _Leaving
