"""Owns a turn: user message stored, hygiene, agent, and the answer owed from its commit on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.errors import ModelError, SessionEnded, StaleTurn, StoreError
from agent.lineages import Lineages
from agent.loop import TurnResult
from agent.mail import Address, InboxItem, OutboxDraft, OutboxItem, OutboxKind
from agent.ports import Clock, Compactor, ToolContext, TurnObserver
from agent.sessions import (
    InterruptedTurn,
    LoadedSession,
    SessionPrefix,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)
from agent.store_ports import Mailbox, SessionStore
from gateway import texts
from gateway.accounts import Accounts
from gateway.delivery.outbox import Delivery
from gateway.intake.records import is_shared
from gateway.intake.wording import user_draft
from gateway.logs import about
from gateway.tasks import Completed, StopReason, StopSignal, finish, run_stoppable
from gateway.turns.compactors import CompactorCache
from gateway.turns.failures import level_of, reason_of, words_for
from gateway.turns.refreeze import Refreezer
from gateway.turns.settling import MAX_ADOPTIONS, Ending, Settling, report
from gateway.turns.storing import GaveUp, until_stored

log = logging.getLogger(__name__)


class AgentLoop(Protocol):
    """Model and tools until the reply (`agent.loop.TurnLoop`)."""

    async def __call__(
        self,
        ticket: TurnTicket,
        loaded: LoadedSession,
        *,
        compactor: Compactor,
        context: ToolContext,
        observer: TurnObserver,
    ) -> TurnResult:
        """Go on from the stored rows.

        Raises:
            ModelError: no usable answer.
            StaleTurn: the turn is over; nothing more was written.
            SessionEnded: somebody else moved the tip.
        """
        ...


Hygiene = Callable[
    [LoadedSession, Compactor, Callable[[str], None]], Coroutine[None, None, LoadedSession]
]
"""The net before the agent: gives back the session that the turn goes on in."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """How patient a turn is."""

    stop_grace_seconds: float = 0.7
    """What cancelled work may take before it is left behind: a stop acts within a second."""


@dataclass(slots=True)
class _Observer:
    """Collects what the user should read beside the answer."""

    notices: list[str] = field(default_factory=list)

    def on_text(self, delta: str) -> None:
        """Nothing is streamed yet."""

    def on_tool(self, name: str) -> None:
        log.debug("tool", extra={"tool": name})

    def on_notice(self, text: str) -> None:
        if text and text not in self.notices:
            self.notices.append(text)


class TurnRunner:
    """Runs turns, one per call; whoever calls sees to it that a conversation has one at a time."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        lineages: Lineages,
        mailbox: Mailbox,
        loop: AgentLoop,
        hygiene: Hygiene,
        compactors: CompactorCache,
        prefix_for: Callable[[str], SessionPrefix],
        delivery: Delivery,
        clock: Clock,
        accounts: Accounts | None = None,
        settings: TurnSettings | None = None,
        on_over: Callable[[str], None] = lambda conversation_id: None,
        on_ended: Callable[[str, float], None] = lambda outcome, seconds: None,
        on_answered: Callable[[str, TurnResult], None] = lambda conversation_id, result: None,
    ) -> None:
        """Take the parts.

        ``accounts``: who may begin a turn, and what they are told about money; None: anybody.
        ``on_over``: told of each conversation whose turn has ended.
        ``on_ended``: told how each turn ended, and how many seconds it took.
        ``on_answered``: told of each that came to its normal end, when its answer is handed over.
        """
        self._sessions = sessions
        self._lineages = lineages
        self._mailbox = mailbox
        self._loop = loop
        self._hygiene = hygiene
        self._compactors = compactors
        self._prefix_for = prefix_for
        self._refreeze = Refreezer(sessions, prefix_for)
        self._delivery = delivery
        self._clock = clock
        self._settling = Settling(sessions, mailbox, delivery, clock)
        self._accounts = accounts
        self._on_over = on_over
        self._on_ended = on_ended
        self._on_answered = on_answered
        self._settings = settings or TurnSettings()

    async def run(self, item: InboxItem, stop: StopSignal) -> None:
        """Answer one inbox row, as it is by now: it may have been edited, or its chat has moved."""
        item = await self._as_it_waits(item)
        opening = self._opening(item)
        await self._begin(item, stop, lambda: self._sessions.begin_turn(opening))

    async def _as_it_waits(self, item: InboxItem) -> InboxItem:
        try:
            rows = await self._mailbox.inbox_items([item.id])
        except StoreError:  # beginning will wait for the store, and say so
            log.warning("row was not read again", extra={"inbox_id": item.id}, exc_info=True)
            return item
        return rows[0] if rows else item

    async def retry(self, item: InboxItem, stop: StopSignal) -> None:
        """Take the last turn back and ask its message again; this row is the new turn's own."""
        opening = self._opening(item)
        await self._begin(item, stop, lambda: self._lineages.retry(opening), texts.STILL_RUNNING)

    async def _begin(
        self,
        item: InboxItem,
        stop: StopSignal,
        begin: Callable[[], Awaitable[TurnTicket | None]],
        if_stale: str | None = None,
    ) -> None:
        if self._accounts is not None:
            refusal = await self._accounts.refusal(item.record.owner)
            if refusal is not None:
                await self._answer(item, refusal, "notice", stop)
                return
        try:
            ticket = await until_stored(
                begin,
                self._clock,
                stop,
                on_trouble=lambda: self._say_unstored(item),
            )
        except GaveUp as gave_up:
            if gave_up.reason is StopReason.USER:
                await self._settling.owe(lambda: self._stop_unbegun(item, begin), stop)
            return
        except StaleTurn:
            log.info("message was answered before", extra={"inbox_id": item.id})
            if if_stale is not None:  # or else it is another turn that is in the way
                await self._answer(item, if_stale, "command", stop)
            return
        except Exception as error:  # the supervised border: nobody is left without a word
            log.exception("turn could not begin", extra={"inbox_id": item.id})
            await self._answer(item, words_for(error), "notice", stop)
            return
        if ticket is None:
            await self._answer(item, texts.NOTHING_TO_RETRY, "command", stop)
            return
        with about(conversation_id=ticket.conversation_id, turn_id=ticket.turn_id):
            await self._carry(
                ticket, item, stop, lambda: self._sessions.load(ticket.session_id, ticket=ticket)
            )

    async def resume(self, turn: InterruptedTurn, item: InboxItem, stop: StopSignal) -> None:
        """Go on with a turn that was cut off, from its stored rows."""
        ticket = turn.ticket
        with about(conversation_id=ticket.conversation_id, turn_id=ticket.turn_id):
            log.info("turn resumed", extra={"crashes": turn.crashes})
            await self._carry(ticket, item, stop, lambda: self._sessions.resume_turn(ticket))

    async def abandon(
        self, turn: InterruptedTurn, address: Address | None, outcome: TurnOutcome, text: str | None
    ) -> None:
        """End a turn that was cut off and is not resumed."""
        outbox = [OutboxDraft(address, text, "notice")] if address and text else []
        try:
            await self._sessions.resume_turn(turn.ticket)
            items = await self._sessions.finish_turn(
                turn.ticket, turn.ticket.session_id, outcome, outbox=outbox
            )
        except StaleTurn:
            return
        self._delivery.hand_over(items)

    # one turn

    async def _carry(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        stop: StopSignal,
        load: Callable[[], Awaitable[LoadedSession]],
    ) -> None:
        started = self._clock.monotonic()
        observer = _Observer()
        try:
            async with self._delivery.typing(item.record.address):
                ending = await self._work_until_stopped(ticket, item, stop, load, observer)
            if ending is None:
                await finish(self._settling.interrupt(ticket, item, observer.notices))
                return
            await self._mind_the_budget(item, ending, observer)
            await finish(self._settling.end(ticket, item, ending, observer.notices, stop))
        except StaleTurn:
            # The fence: this run lost its turn, so nothing of it may be written or said.
            log.warning("turn was over already")
            await self._settling.refresh()
            return
        except GaveUp:
            return  # it stays a running turn, and is resumed at the next start
        seconds = self._clock.monotonic() - started
        report(ending, seconds)
        self._on_ended(ending.outcome, seconds)
        self._on_over(ticket.conversation_id)
        if ending.outcome == "done" and ending.result is not None:
            self._on_answered(ticket.conversation_id, ending.result)

    async def _mind_the_budget(self, item: InboxItem, ending: Ending, observer: _Observer) -> None:
        """The person hears of it with the answer that took them there."""
        if self._accounts is not None:
            pending = ending.result.usage if ending.result is not None else None
            warning = await self._accounts.warning(item.record.owner, pending)
            observer.on_notice(warning or "")

    async def _work_until_stopped(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        stop: StopSignal,
        load: Callable[[], Awaitable[LoadedSession]],
        observer: _Observer,
    ) -> Ending | None:
        """How the turn ends; None: it does not, the daemon goes down."""
        try:
            outcome = await run_stoppable(
                lambda: self._work(ticket, item, load, observer),
                stop,
                self._clock,
                name=f"turn {ticket.turn_id}",
                grace_seconds=self._settings.stop_grace_seconds,
            )
        except StaleTurn:
            raise
        except ModelError as error:  # of the outside world: where in the code tells nobody anything
            told = {"error": type(error).__name__, "reason": reason_of(error)}
            log.log(level_of(error), "turn failed", extra=told)
            return Ending("failed", ticket.session_id, words_for(error), error=type(error).__name__)
        except StoreError as error:
            log.warning("turn failed", extra={"error": type(error).__name__}, exc_info=error)
            return Ending("failed", ticket.session_id, words_for(error), error=type(error).__name__)
        except Exception as error:  # the supervised border: the lane goes on, the user is told
            log.exception("turn crashed")
            return Ending("failed", ticket.session_id, words_for(error), error=type(error).__name__)
        if isinstance(outcome, Completed):
            result = outcome.value
            text = result.text if result.text.strip() else texts.NOTHING_SAID
            return Ending("done", result.session_id, text, result)
        if outcome.reason is StopReason.SHUTDOWN:
            return None
        return Ending("stopped", ticket.session_id, None)

    async def _work(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        load: Callable[[], Awaitable[LoadedSession]],
        observer: _Observer,
    ) -> TurnResult:
        loaded = await load()
        if loaded.session.ended_at is not None:
            raise SessionEnded(loaded.session.id)  # on purpose: it is not begun anew by itself
        loaded = await self._refreeze(loaded, ticket)
        compactor = self._compactors.get(ticket.conversation_id)
        context = self._context(ticket, item)
        for _ in range(MAX_ADOPTIONS):
            loaded = await self._hygiene(loaded, compactor, observer.on_notice)
            try:
                return await self._loop(
                    ticket, loaded, compactor=compactor, context=context, observer=observer
                )
            except SessionEnded:
                log.info("tip adopted")
                tip = await self._sessions.tip(loaded.session.id)
                loaded = await self._sessions.load(tip.id, ticket=ticket)
        return await self._loop(
            ticket, loaded, compactor=compactor, context=context, observer=observer
        )

    async def _stop_unbegun(
        self, item: InboxItem, begin: Callable[[], Awaitable[TurnTicket | None]]
    ) -> Sequence[OutboxItem]:
        """End a turn of which nobody knows whether it has begun: so that it is not resumed.

        One that has not is not begun for that: a retry would take the last answer back for nothing.
        """
        if all(row.state == "new" for row in await self._mailbox.inbox_items([item.id])):
            return await self._mailbox.answer_inbox([item.id])
        try:
            ticket = await begin()
            if ticket is not None:
                return await self._sessions.finish_turn(ticket, ticket.session_id, "stopped")
        except StaleTurn:
            log.info("there was no turn to stop", extra={"inbox_id": item.id})
        return await self._mailbox.answer_inbox([item.id])

    async def _answer(self, item: InboxItem, text: str, kind: OutboxKind, stop: StopSignal) -> None:
        """Answer a row that begins no turn."""
        await self._settling.answer(item, OutboxDraft(item.record.address, text, kind), stop)

    async def _say_unstored(self, item: InboxItem) -> None:
        await self._delivery.say_unstored(item.record.address, texts.STORE_TROUBLE, item.id)

    # values

    def _opening(self, item: InboxItem) -> TurnOpening:
        record = item.record
        quoted = record.payload.get("quoted_text")
        forwarded = record.payload.get("forwarded_from")
        return TurnOpening(
            session_key=record.session_key,
            owner=record.owner,
            inbox_ids=(item.id,),
            message=user_draft(
                record.text,
                sender_id=str(record.payload.get("sender_id") or ""),
                sender_name=str(record.payload.get("sender_name") or ""),
                signed=is_shared(record),
                quoted_text=quoted if isinstance(quoted, str) else None,
                forwarded_from=forwarded if isinstance(forwarded, str) else None,
            ),
            prefix=self._prefix_for(record.address.platform),
        )

    def _context(self, ticket: TurnTicket, item: InboxItem) -> ToolContext:
        return ToolContext(
            conversation_id=ticket.conversation_id,
            owner=item.record.owner,
            direct_chat=item.record.payload.get("chat_kind") == "direct",
            turn_id=ticket.turn_id,
            user_row_id=ticket.user_row_id,
        )
