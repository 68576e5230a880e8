"""Owns one part on its way: tried until its fate is known, or in doubt for too long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.mail import Address, OutboxItem, OutboxPart, SendState
from agent.mail_ports import Mailbox
from agent.ports import Clock
from gateway.delivery.beside import Beside
from gateway.delivery.booking import Booking
from gateway.delivery.chats import Chats
from gateway.delivery.late import late_note
from gateway.delivery.tries import DeliverySettings, Fate, Tries
from gateway.delivery.waiting import BotKey, Leaving, Queues, Waiting
from gateway.platforms.contract import (
    ChatGone,
    EditRefused,
    Platform,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)

log = logging.getLogger(__name__)

LONG_SILENCE_SECONDS = 300.0
"""The operator is told of longer ones."""
_NEXT_TO_NOTHING = 1e-6


class NotAwaited(Exception):
    """A question that nobody waits for an answer to any more."""


@dataclass(slots=True)
class Pending:
    """A part whose fate is open."""

    part: OutboxPart
    tries: Tries


@dataclass(frozen=True, slots=True)
class Means:
    """What every chat is served with."""

    mailbox: Mailbox
    clock: Clock
    chats: Chats
    queues: Queues
    settings: DeliverySettings
    jitter: Callable[[], float]
    awaited: Callable[[int], bool]
    """Does anybody still wait for an answer to this question (by its id in the outbox)?"""
    works: Callable[[str], bool]
    """Is this platform in no trouble, as far as is known?"""
    stands: Callable[[int, str], None]
    """Told of a question that was sent: its id in the outbox, and the message with its buttons."""
    take_buttons: Callable[[Address, str], None]
    """Off this message, when its chat takes that; nobody waits for it."""


class PartSender:
    """Sends the parts of one chat's answers, one after another.

    ``waiting`` and ``booking`` are the chat's own.
    """

    def __init__(
        self, platform: Platform, bot: BotKey, means: Means, waiting: Waiting, booking: Booking
    ) -> None:
        self._platform = platform
        self._bot = bot
        self._means = means
        self._clock = means.clock
        self._settings = means.settings
        self._chats = means.chats
        self._waiting = waiting
        self._booking = booking
        self._beside = Beside(platform, means.chats)
        self._told_late: set[int] = set()
        """The answers that everybody knows to be late."""

    def taken_up(self, part: OutboxPart) -> Pending:
        """A part as the store knows it."""
        # One that a crash left in the middle of its send may have arrived.
        doubtful = part.state in ("sending", "unknown")
        tries = Tries(part.attempts, unknowns=int(doubtful), inherited=doubtful)
        if doubtful and not self._stays_one(part):
            tries.begin_in_doubt(self._settings, self._clock.monotonic(), self._waiting.signs)
        return Pending(part, tries)

    def known_late(self, item: OutboxItem) -> None:
        """The answer itself says that it is late."""
        self._told_late.add(item.id)

    def over(self, item: OutboxItem) -> None:
        """Nothing more is asked about this one."""
        self._told_late.discard(item.id)

    def still_awaited(self, item: OutboxItem) -> None:
        """Is it of use to send this?

        Raises:
            NotAwaited: it is a question that is over.
        """
        if item.draft.asks and not self._means.awaited(item.id):
            raise NotAwaited

    async def send(self, item: OutboxItem, pending: Pending, *, hold: bool) -> tuple[Fate, str]:
        """Send it until its fate is known, or in doubt for so long that others go first.

        With the fate comes the message's id, or why there is none.
        """
        tries, address = pending.tries, item.draft.address
        held_since: float | None = None
        hold_seconds = self._settings.hold_seconds if hold else 0.0
        try:
            while True:
                while (wait := self._chats.budget(address).wait_seconds) > 0:
                    await self._waiting.pause(wait, nudged=False)
                if tries.repeat and held_since is None:
                    held_since = self._clock.monotonic()
                until = None if held_since is None else held_since + hold_seconds
                if not await self._comes_round(pending, until):
                    return Fate.DOUBT, ""
                if self._waiting.halted:
                    raise Leaving
                self.still_awaited(item)
                done = await self._try(item, pending)
                if done is not None:
                    return done
        finally:
            self._means.queues.lead_no_more(self._bot, self._waiting)

    async def _try(self, item: OutboxItem, pending: Pending) -> tuple[Fate, str] | None:
        """Send it once; None: again, at the end of its pause."""
        tries, address = pending.tries, item.draft.address
        await self._booking.mark(pending.part, "sending")
        tries.attempts += 1
        part = pending.part = replace(pending.part, attempts=tries.attempts)
        try:
            await self._say_late(item)
            self._chats.budget(address).called()
            message_id = await self._platform.send(address, part, repeat=tries.repeat)
        except EditRefused:
            if "edits" not in part.payload:
                return Fate.REFUSED, "refused as an edit, which it is not"
            # The message whose place it should take is gone: then it is one of its own.
            payload = {key: value for key, value in part.payload.items() if key != "edits"}
            tries.only_edits_so_far()
            tries.pause = None
            await self._not_sent(pending)
            pending.part = replace(part, payload=payload)
        except SendRefused as exc:
            if isinstance(exc, ChatGone):
                self._chats.lost(address)
                return Fate.GONE, str(exc) or "gone"
            return Fate.REFUSED, str(exc) or "refused"
        except SendFlood as exc:
            self._silence(item, tries, exc.retry_after_seconds)
            self._means.queues.lead_no_more(self._bot, self._waiting)
            tries.pause = None
            await self._not_sent(pending)
        except SendUnavailable:
            tries.failures += 1
            tries.floods = 0
            await self._not_sent(pending)
            self._soon(tries)
        except SendUnknown:
            await self._note_unknown(pending)
        except Exception:  # the supervised border of a platform: who knows how far it came
            log.exception("send crashed", extra={"part_id": part.id})
            tries.crashes += 1
            if tries.crashes > 1:
                return Fate.REFUSED, "sending it crashed, see the log"
            await self._note_unknown(pending)
        else:
            self._chats.heard(address)
            await self._booking.mark(part, "sent", platform_message_id=message_id)
            if item.draft.asks:
                self._means.stands(item.id, message_id)
            # Behind the mark: nothing that follows an answer may make it one in doubt.
            if (spent := part.payload.get("spent_buttons")) is not None:
                self._means.take_buttons(address, str(spent))
            self._waiting.arrived()
            self._means.queues.arrived(self._bot)
            return Fate.SENT, message_id
        return None

    def _silence(self, item: OutboxItem, tries: Tries, seconds: float) -> None:
        """As long as the platform wants, and longer each time: some name no time, and flood on."""
        tries.floods += 1
        seconds = max(seconds, self._settings.flood_seconds(tries.floods))
        budget = self._chats.budget(item.draft.address)
        budget.silence(seconds)
        if (wait := budget.wait_seconds) > LONG_SILENCE_SECONDS:
            extra = {"platform": self._bot[0], "outbox_id": item.id, "seconds": round(wait)}
            log.warning("the platform wants silence in a chat: its answers wait", extra=extra)

    async def _not_sent(self, pending: Pending) -> None:
        state: SendState = "unknown" if pending.tries.repeat else "planned"
        await self._booking.mark(pending.part, state)

    async def _note_unknown(self, pending: Pending) -> None:
        tries = pending.tries
        tries.unknowns += 1
        tries.failures += 1
        await self._booking.mark(pending.part, "unknown")
        if self._stays_one(pending.part):
            self._soon(tries)
        else:
            now, signs = self._clock.monotonic(), self._waiting.signs
            tries.in_doubt(self._settings, now, signs, works=self._works())

    def _soon(self, tries: Tries) -> None:
        """It may be tried as often as one likes: one chat asks often, the others follow it."""
        settings, queues = self._settings, self._means.queues
        leads = not self._is_foreign() and queues.leads(self._bot, self._waiting)
        longest = settings.recovery_seconds if leads else None
        seconds = settings.backoff_seconds(tries.failures, self._means.jitter(), longest)
        if self._is_foreign():
            seconds = settings.foreign_seconds
        tries.not_before(settings, self._clock.monotonic(), seconds, self._waiting.signs)

    # --- when

    async def _comes_round(self, pending: Pending, until: float | None) -> bool:
        """Wait for the end of its pause; False: it is longer than that."""
        while (left := self.due_in(pending)) > 0:
            if until is not None:
                left = min(left, until - self._clock.monotonic())
                if left <= _NEXT_TO_NOTHING:
                    return False
            with self._means.queues.listens(self._bot, self._waiting):
                await self._waiting.wait(left)
        return True

    def due_in(self, pending: Pending) -> float:
        """How long it still waits for its next try."""
        pause = pending.tries.pause
        if pause is None:
            return 0.0
        left = pause.ends_at(self._waiting.signs, works=self._works()) - self._clock.monotonic()
        return left if left > _NEXT_TO_NOTHING else 0.0

    def _works(self) -> bool:
        return self._means.works(self._bot[0])

    def _is_foreign(self) -> bool:
        """Is this owed by another bot than the one that runs? It may be away for good."""
        bot_id = self._platform.bot_id
        return bot_id is not None and bot_id != self._bot[1]

    def _stays_one(self, part: OutboxPart) -> bool:
        """Is it the same message, however often it is sent?"""
        return self._platform.dedupes_sends or "edits" in part.payload

    async def _say_late(self, item: OutboxItem) -> None:
        """The note stands in no row: at worst it is said twice, never without its answer."""
        note = late_note(item, self._clock.now(), self._settings.zone())
        if note is None or item.id in self._told_late:
            return
        await self._beside.late(item, note)
        self._told_late.add(item.id)
