"""Owns sending to one chat: in order, part by part, each marked before and after."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import TypeVar

from agent.errors import StoreUnavailable
from agent.mail import OutboxDraft, OutboxItem, OutboxPart, PartDraft, SendState
from agent.ports import Clock
from agent.store_ports import Mailbox
from gateway import texts
from gateway.delivery.late import late_note
from gateway.platforms.contract import (
    Platform,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.tasks import wait_all

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_SILENCE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How patient delivery is."""

    first_backoff_seconds: float = 1.0
    longest_backoff_seconds: float = 60.0
    unknown_pause_seconds: float = 10.0
    """Before a part that may have arrived is sent again, marked, where sends are not deduped."""
    max_attempts: int = 5
    """At a part that crashes left in doubt, before its fate stays open (no deduped sends)."""
    typing_delay_seconds: float = 0.5
    typing_every_seconds: float = 4.5
    zone: tzinfo = UTC
    """For the date on late answers."""


class FloodBudget:
    """One chat's silence: everything that is sent there asks here, typing included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def silence(self, seconds: float) -> None:
        """The platform wants quiet for this long."""
        if not math.isfinite(seconds):
            seconds = LONGEST_SILENCE_SECONDS
        seconds = min(max(seconds, 0.0), LONGEST_SILENCE_SECONDS)
        self._until = max(self._until, self._clock.monotonic() + seconds)

    @property
    def wait_seconds(self) -> float:
        """How long nothing may be sent; 0: go."""
        return max(0.0, self._until - self._clock.monotonic())


class _Fate(StrEnum):
    SENT = "sent"
    REFUSED = "refused"
    OPEN = "open"
    """It may have arrived, and asking again would only make it worse."""


@dataclass(slots=True)
class _Tries:
    """What happened to one part so far."""

    attempts: int
    unknowns: int
    """Of them, those after which it may have arrived."""
    failures: int = 0
    crashes: int = 0

    @property
    def repeat(self) -> bool:
        """Would the next one be a possible repeat?"""
        return self.unknowns > 0


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
    budget: FloodBudget
    settings: DeliverySettings
    jitter: Callable[[], float]
    awaited: Callable[[int], bool]
    """Does anybody still wait for an answer to this question (by its id in the outbox)?"""
    items: deque[OutboxItem] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: bool = False
    _halted: bool = False
    _told_late: int = 0
    """The answer that everybody knows to be late."""

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

    async def run(self, on_crash: Callable[[OutboxItem], None]) -> None:
        """Until nothing is left to send; ``on_crash`` gets what stays owed because of a bug."""
        try:
            while self.items:
                item = self.items[0]
                if not await self._supervised(item):
                    on_crash(item)
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
        doubtful: list[OutboxPart] = []
        before: str | None = None
        for planned in parts:
            if planned.state in ("sent", "failed"):
                before = planned.platform_message_id or before
                continue
            part = replace(planned, follows_message_id=before)
            fate, told = await self._send(item, part)
            if fate is _Fate.REFUSED:
                log.warning("answer refused", extra={"outbox_id": item.id, "reason": told})
                await self._give_up(item, told)
                return
            if fate is _Fate.SENT:
                before = told
            if fate is _Fate.OPEN:
                doubtful.append(part)
        # Only now: a failed part ends its answer, and the parts behind it were still to go.
        for part in doubtful:
            log.warning("fate of a part stays unknown", extra={"part_id": part.id})
            await self._mark(part, "failed", error="it may have arrived")

    async def _planned(self, item: OutboxItem) -> tuple[OutboxPart, ...]:
        if item.parts:
            return item.parts
        text = item.draft.text
        note = late_note(item, self.clock.now(), self.settings.zone)
        if note is not None:
            text = f"{note}\n\n{text}"
            self._told_late = item.id
        plan = self._render(item, text)
        return await self._stored(lambda: self.mailbox.plan_parts(item.id, plan))

    async def _say_late(self, item: OutboxItem) -> None:
        """Ahead of a part that was planned while the answer was young: its text is fixed.

        The note stands in no row: at worst it is said twice, never without its answer.
        """
        note = late_note(item, self.clock.now(), self.settings.zone)
        if note is None or self._told_late == item.id:
            return
        for draft in self.platform.render(OutboxDraft(item.draft.address, note, "notice")):
            part = OutboxPart(-item.id, item.id, 0, "sending", draft.payload)
            with contextlib.suppress(SendUnknown):  # once is enough
                await self.platform.send(item.draft.address, part)
        self._told_late = item.id

    def _render(self, item: OutboxItem, text: str) -> list[PartDraft]:
        try:
            return self.platform.render(replace(item.draft, text=text))
        except Exception:  # the supervised border of a platform: say so rather than say nothing
            log.exception("answer could not be rendered", extra={"outbox_id": item.id})
            return self.platform.render(OutboxDraft(item.draft.address, texts.UNRENDERABLE))

    async def _send(self, item: OutboxItem, part: OutboxPart) -> tuple[_Fate, str]:
        """Send one part until its fate is known; with it the message's id, or why not."""
        # A part that a crash left in the middle of its send may have arrived.
        tries = _Tries(part.attempts, unknowns=int(part.state in ("sending", "unknown")))
        while not self._is_hopeless(tries):
            while (wait := self.budget.wait_seconds) > 0:
                await self._pause(wait, nudged=False)
            if self._halted:
                raise _Leaving
            self._still_awaited(item)
            await self._mark(part, "sending")
            tries.attempts += 1
            try:
                await self._say_late(item)
                message_id = await self.platform.send(item.draft.address, part, repeat=tries.repeat)
            except SendRefused as exc:
                return _Fate.REFUSED, str(exc) or "refused"
            except SendFlood as exc:
                self.budget.silence(exc.retry_after_seconds)
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
                    return _Fate.REFUSED, "sending it crashed, see the log"
                await self._note_unknown(part, tries)
            else:
                await self._mark(part, "sent", platform_message_id=message_id)
                return _Fate.SENT, message_id
        return _Fate.OPEN, ""

    def _is_hopeless(self, tries: _Tries) -> bool:
        """Sent again once already, or at the end of a row of crashes."""
        if self.platform.dedupes_sends:
            return False
        return tries.unknowns > 1 or (tries.repeat and tries.attempts >= self.settings.max_attempts)

    async def _note_unknown(self, part: OutboxPart, tries: _Tries) -> None:
        tries.unknowns += 1
        tries.failures += 1
        await self._mark(part, "unknown")
        if self._is_hopeless(tries):
            return
        pause = self._backoff(tries.failures)
        if not self.platform.dedupes_sends:
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
        settings = self.settings
        pause = settings.first_backoff_seconds * 2.0 ** min(failures - 1, 16)
        return min(settings.longest_backoff_seconds, pause) * (0.75 + self.jitter() / 2)

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
