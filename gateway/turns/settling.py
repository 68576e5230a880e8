"""Owns how rows and turns are settled: stored with what is owed for them, then handed over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agent.errors import SessionEnded, StaleTurn, StoreError, StoreUnavailable
from agent.loop import TurnResult
from agent.mail import Address, InboxItem, OutboxDraft, OutboxItem, OutboxKind
from agent.mail_ports import Mailbox
from agent.messages import without_thinking
from agent.ports import Clock, Usage, entry_of
from agent.sessions import TurnOutcome, TurnTicket
from agent.store_ports import SessionStore
from gateway import texts
from gateway.delivery.outbox import Delivery
from gateway.tasks import StopSignal
from gateway.turns.storing import GaveUp, until_stored
from gateway.turns.task import Collected

log = logging.getLogger(__name__)

MAX_ADOPTIONS = 3
"""How often one turn follows a tip that somebody else moved."""
MARK_PAUSES_SECONDS = (0.2, 0.6)
"""Before the mark of a turn that is interrupted is tried again: the way down waits three seconds
for all of them together."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn is over, and what is owed for it."""

    outcome: TurnOutcome
    session_id: str
    text: str | None
    result: TurnResult | None = None
    error: str = ""


class Settling:
    """Writes down what came of rows and turns; patient with the store, and never twice."""

    def __init__(
        self, sessions: SessionStore, mailbox: Mailbox, delivery: Delivery, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._mailbox = mailbox
        self._delivery = delivery
        self._clock = clock
        self._outage_told = False
        """Of the way down, which comes once."""

    async def answer(
        self, items: Sequence[InboxItem], draft: OutboxDraft, stop: StopSignal
    ) -> None:
        """Answer rows that begin no turn; those that were answered before stay as they are."""
        ids = [item.id for item in items]
        await self.owe(lambda: self._mailbox.answer_inbox(ids, [draft]), stop)

    async def dismiss(self, items: Sequence[InboxItem], stop: StopSignal) -> None:
        """Answer rows without a word: their senders were shut out while they waited."""
        log.info("not answered: shut out meanwhile", extra={"rows": len(items)})
        ids = [item.id for item in items]
        await self.owe(lambda: self._mailbox.answer_inbox(ids), stop)

    async def owe(
        self, call: Callable[[], Awaitable[Sequence[OutboxItem]]], stop: StopSignal
    ) -> None:
        """Store something and hand over what it owes; given up only when the daemon goes down."""
        try:
            owed = await until_stored(call, self._clock, stop, only_shutdown=True)
        except GaveUp:
            return  # the row stays as it is, and is taken up at the next start
        if owed:
            self._delivery.hand_over(owed)
        else:
            await self.refresh()

    async def refresh(self) -> None:
        """A commit whose outcome nobody learned may have settled it: look what is owed."""
        try:
            await self._delivery.refresh()
        except StoreError:
            log.warning("owed answers not read; they go out at the next start", exc_info=True)

    async def interrupt(self, ticket: TurnTicket, address: Address, notices: Sequence[str]) -> None:
        """Leave a turn to the next start; what its user should know is told now.

        A store that takes nothing holds up no way down. A turn without its mark is found at the
        next start all the same, as one that a crash cut off.
        """
        try:
            await self._marked(ticket)
            for notice in notices:
                draft = OutboxDraft(address, notice, "notice")
                self._delivery.hand_over([await self._mailbox.owe(draft, ticket.conversation_id)])
                notices = notices[1:]
        except StoreError as exc:
            for notice in notices:
                self._delivery.say_now(address, notice)
            self._tell_of_outage(exc)
            return
        log.info("turn interrupted")

    async def _marked(self, ticket: TurnTicket) -> None:
        for pause_seconds in MARK_PAUSES_SECONDS:
            try:
                return await self._sessions.interrupt_turn(ticket)
            except StoreUnavailable:
                await self._clock.sleep(pause_seconds)
        await self._sessions.interrupt_turn(ticket)

    def _tell_of_outage(self, exc: StoreError) -> None:
        """Once for all turns: they go down together."""
        if not self._outage_told:
            self._outage_told = True
            log.warning(
                "the store takes nothing at the end; unmarked turns are found at the next start",
                extra={"reason": str(exc)},
            )

    async def abandon(
        self, ticket: TurnTicket, address: Address | None, outcome: TurnOutcome, text: str | None
    ) -> None:
        """End a turn that was cut off and is not resumed.

        Without a text nothing is said, unless half an answer stands in the chat.
        """
        try:
            if text is None and await self._sessions.preview_of(ticket) is not None:
                text = texts.STOPPED_HERE
            outbox = [OutboxDraft(address, text, "notice")] if address and text else []
            await self._sessions.resume_turn(ticket)
            items = await self._sessions.finish_turn(
                ticket, ticket.session_id, outcome, outbox=outbox
            )
        except StaleTurn:
            return
        self._delivery.hand_over(items)

    async def end(
        self,
        ticket: TurnTicket,
        address: Address,
        owner: str,
        ending: Ending,
        beside: Collected,
        stop: StopSignal,
    ) -> None:
        """The second atomic step of a turn; ``beside``: what goes out with the answer.

        ``owner``: who asked; of kept files only theirs go out.

        Raises:
            StaleTurn: the turn is over; nothing was written.
            GaveUp: the daemon goes down first.
        """
        outbox: list[OutboxDraft] = []
        if ending.text is not None:
            kind: OutboxKind = "reply" if ending.outcome == "done" else "notice"
            files = tuple(beside.files)
            outbox.append(OutboxDraft(address, ending.text, kind, files=files, files_owner=owner))
        outbox.extend(OutboxDraft(address, notice, "notice") for notice in beside.notices)
        session_id = ending.session_id
        final = ending.result.final if ending.result else None
        usage = ending.result.usage if ending.result else None
        adoptions = 0
        while True:
            store_it = partial(
                self._sessions.finish_turn,
                ticket,
                session_id,
                ending.outcome,
                final=final,
                anchor_usage=usage,
                outbox=outbox,
            )
            try:
                items = await until_stored(store_it, self._clock, stop, only_shutdown=True)
            except SessionEnded:
                # Somebody split behind the last model call: the answer belongs to the child, where
                # its thinking stands behind another prefix and its usage measures another list.
                tip = await self._sessions.tip(session_id)
                if usage is not None:  # it measures nothing here, but it was paid for
                    await self._enter(usage, ticket)
                session_id, usage = tip.id, None
                adoptions += 1
                if tip.ended_at is not None or adoptions > MAX_ADOPTIONS:
                    # Ended on purpose, or it would not stand still: said, but not kept. A turn
                    # that stayed open would be in the way of everything that comes after it.
                    log.warning("an answer has no place in its conversation")
                    final = None
                elif final is not None:
                    final = replace(final, message=without_thinking(final.message))
                continue
            self._delivery.hand_over(items)
            return

    async def _enter(self, usage: Usage, ticket: TurnTicket) -> None:
        try:
            await self._sessions.enter_request(entry_of(usage, "turn", ticket.conversation_id))
        except StoreError:
            log.warning("an answer is missing in the ledger", exc_info=True)


def report(ending: Ending, seconds: float) -> None:
    """The one line of a turn."""
    result = ending.result
    total = result.total if result else Usage()
    log.info(
        "turn",
        extra={
            "session_id": ending.session_id,
            "outcome": ending.outcome,
            "error": ending.error,
            "seconds": round(seconds, 3),
            "model_calls": result.model_calls if result else 0,
            "tool_calls": result.tool_calls if result else 0,
            "compactions": result.compactions if result else 0,
            "prompt_tokens": total.prompt_tokens,
            "cache_read_tokens": total.cache_read_tokens,
            "output_tokens": total.output_tokens,
            "reply_chars": len(ending.text or ""),
        },
    )
