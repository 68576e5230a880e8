"""Owns how a turn begins: budget, files, its row in the store; or the words why it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from agent.errors import StaleTurn
from agent.mail import InboxItem, OutboxDraft, OutboxItem, OutboxKind
from agent.mail_ports import Mailbox
from agent.ports import Clock
from agent.sessions import TurnTicket
from agent.store_ports import SessionStore
from gateway import texts
from gateway.accounts import Accounts
from gateway.delivery.outbox import Delivery
from gateway.tasks import Completed, StopReason, StopSignal, run_stoppable
from gateway.turns.companions import Companions
from gateway.turns.enclosed import NOTHING, Enclosed
from gateway.turns.enclosures import Enclosures, has_enclosures
from gateway.turns.failures import words_for
from gateway.turns.rereading import as_they_are
from gateway.turns.settling import Settling
from gateway.turns.storing import GaveUp, until_stored

log = logging.getLogger(__name__)

_MAX_LOADINGS = 3
"""Of one message whose files are changed while they are loaded."""


class Beginning:
    """What comes before a turn. Rows that begin none are answered here."""

    def __init__(
        self,
        sessions: SessionStore,
        mailbox: Mailbox,
        settling: Settling,
        delivery: Delivery,
        clock: Clock,
        *,
        accounts: Accounts | None,
        enclosures: Enclosures | None,
        companions: Companions,
        stop_grace_seconds: float,
    ) -> None:
        self._sessions = sessions
        self._mailbox = mailbox
        self._settling = settling
        self._delivery = delivery
        self._clock = clock
        self._accounts = accounts
        self._enclosures = enclosures
        self._companions = companions
        self._stop_grace_seconds = stop_grace_seconds

    async def is_refused(self, items: Sequence[InboxItem], stop: StopSignal) -> bool:
        """Said, where it is so."""
        if self._accounts is None:
            return False
        refusal = await self._accounts.refusal(items[-1].record.owner)
        if refusal is not None:
            await self._answer(items, refusal, "notice", stop)
        return refusal is not None

    async def filled(
        self, items: Sequence[InboxItem], stop: StopSignal, turn_id: str
    ) -> tuple[Sequence[InboxItem], Enclosed, str] | None:
        """`enclosed`, and beside it what the companions of turns bring along, fenced."""
        async with self._companions.asked(items, turn_id) as brought:
            found = await self.enclosed(items, stop)
            if found is None:
                return None
            words = await self._waited_for(brought, stop)
            return None if words is None else (*found, words)

    async def brought_again(
        self, items: Sequence[InboxItem], stop: StopSignal, turn_id: str
    ) -> str | None:
        """What companions bring along for the message that a retry asks again; None: go down."""
        async with self._companions.asked(items, turn_id, again=True) as brought:
            return await self._waited_for(brought, stop)

    async def _waited_for(self, brought: asyncio.Future[str], stop: StopSignal) -> str | None:
        """Who says stop does not wait for it; None: the daemon goes down."""
        if brought.done():
            return brought.result()
        waited = await run_stoppable(
            lambda: _result_of(brought),
            stop,
            self._clock,
            name="what rides along with a message",
            grace_seconds=self._stop_grace_seconds,
        )
        if isinstance(waited, Completed):
            return waited.value
        return None if stop.shutdown else ""

    async def enclosed(
        self, items: Sequence[InboxItem], stop: StopSignal
    ) -> tuple[Sequence[InboxItem], Enclosed] | None:
        """The messages, and what hangs on them.

        Loading takes its time: meanwhile they may be edited, or their chat may move.

        None: there is nothing to begin (they are answered in another way, or the daemon goes down).
        """
        enclosures = self._enclosures
        if enclosures is None or not has_enclosures(items):
            return items, NOTHING
        taken: Enclosed | None = NOTHING
        for _ in range(_MAX_LOADINGS):
            taken = await self._taken(enclosures, items, stop)
            if taken is None:
                return None
            before, items = items, await as_they_are(self._mailbox, items)
            if not items:
                return None
            if _files(items) == _files(before):
                break
        return items, taken or NOTHING

    async def _taken(
        self, enclosures: Enclosures, items: Sequence[InboxItem], stop: StopSignal
    ) -> Enclosed | None:
        async with self._delivery.typing(items[-1].record.address):
            taken = await run_stoppable(
                lambda: enclosures.take(items),
                stop,
                self._clock,
                name="files of a message",
                grace_seconds=self._stop_grace_seconds,
            )
        if isinstance(taken, Completed):
            return taken.value
        # Who said stop does not wait for them any more: what the message says is kept.
        return None if stop.shutdown else enclosures.left_out(items)

    async def begun(
        self,
        items: Sequence[InboxItem],
        stop: StopSignal,
        begin: Callable[[], Awaitable[TurnTicket | None]],
        if_stale: str | None = None,
    ) -> TurnTicket | None:
        """The turn; None: there is none, and what there was to say about that is said."""
        ids = [item.id for item in items]
        try:
            ticket = await until_stored(
                begin,
                self._clock,
                stop,
                on_trouble=lambda: self._say_trouble(items),
            )
        except GaveUp as gave_up:
            if gave_up.reason is StopReason.USER:
                await self._settling.owe(lambda: self._stop_unbegun(ids, begin), stop)
            return None
        except StaleTurn:
            log.info("message was answered before", extra={"inbox_ids": ids})
            if if_stale is not None:  # or else it is another turn that is in the way
                await self._answer(items, if_stale, "command", stop)
            return None
        except Exception as error:  # the supervised border: nobody is left without a word
            log.exception("turn could not begin", extra={"inbox_ids": ids})
            await self._answer(items, words_for(error), "notice", stop)
            return None
        if ticket is None:
            await self._answer(items, texts.NOTHING_TO_RETRY, "command", stop)
        return ticket

    async def _stop_unbegun(
        self, ids: Sequence[int], begin: Callable[[], Awaitable[TurnTicket | None]]
    ) -> Sequence[OutboxItem]:
        """End a turn of which nobody knows whether it has begun: so that it is not resumed.

        One that has not is not begun for that: a retry would take the last answer back for nothing.
        """
        if all(row.state == "new" for row in await self._mailbox.inbox_items(ids)):
            return await self._mailbox.answer_inbox(ids)
        try:
            ticket = await begin()
            if ticket is not None:
                return await self._sessions.finish_turn(ticket, ticket.session_id, "stopped")
        except StaleTurn:
            log.info("there was no turn to stop", extra={"inbox_ids": ids})
        return await self._mailbox.answer_inbox(ids)

    async def _answer(
        self, items: Sequence[InboxItem], text: str, kind: OutboxKind, stop: StopSignal
    ) -> None:
        """Answer rows that begin no turn."""
        await self._settling.answer(items, OutboxDraft(items[-1].record.address, text, kind), stop)

    async def _say_trouble(self, items: Sequence[InboxItem]) -> None:
        self._delivery.say_now(items[-1].record.address, texts.STORE_TROUBLE)


def _files(items: Sequence[InboxItem]) -> list[object]:
    return [item.record.payload.get("attachments") for item in items]


async def _result_of(future: asyncio.Future[str]) -> str:
    return await asyncio.shield(future)
