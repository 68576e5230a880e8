"""Owns a turn: user message stored, hygiene, agent, and the answer owed from its commit on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agent.errors import ModelError, SessionEnded, StaleTurn, StoreError
from agent.lineages import Lineages
from agent.loop import TurnResult
from agent.mail import Address, InboxItem, OutboxDraft, OutboxItem, OutboxKind
from agent.messages import Draft
from agent.ports import Clock, Compactor, Steering, ToolContext, TurnObserver
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
from gateway.logs import about
from gateway.tasks import Completed, StopReason, StopSignal, finish, run_stoppable
from gateway.turns.compactors import CompactorCache
from gateway.turns.enclosures import NOTHING, Enclosed, Enclosures, has_enclosures
from gateway.turns.failures import level_of, reason_of, words_for
from gateway.turns.refreeze import Refreezer
from gateway.turns.settling import MAX_ADOPTIONS, Ending, Settling, report
from gateway.turns.sheltering import ShelteredCompactor
from gateway.turns.storing import GaveUp, until_stored
from gateway.turns.words import said

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
        steering: Steering | None,
    ) -> TurnResult:
        """Go on from the stored rows; between two steps, ``steering`` is asked for more of them.

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


@dataclass(frozen=True, slots=True)
class _Task:
    """One turn that has begun."""

    ticket: TurnTicket
    items: Sequence[InboxItem]
    stop: StopSignal
    observer: _Observer
    steering: Steering | None

    @property
    def address(self) -> Address:
        """The answer replies to the last piece, which stands next to it."""
        return self.items[-1].record.address

    @property
    def owner(self) -> str:
        """Who asked: the pieces of a message are of one person."""
        return self.items[-1].record.owner

    @property
    def context(self) -> ToolContext:
        """Where its tools are called."""
        return ToolContext(
            conversation_id=self.ticket.conversation_id,
            owner=self.owner,
            direct_chat=self.items[-1].record.payload.get("chat_kind") == "direct",
            turn_id=self.ticket.turn_id,
            user_row_id=self.ticket.user_row_id,
        )


_Load = Callable[[], Awaitable[LoadedSession]]


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
        enclosures: Enclosures | None = None,
        settings: TurnSettings | None = None,
        on_over: Callable[[str], None] = lambda conversation_id: None,
        on_ended: Callable[[str, float], None] = lambda outcome, seconds: None,
        on_answered: Callable[[str, TurnResult], None] = lambda conversation_id, result: None,
    ) -> None:
        """Take the parts.

        ``accounts``: who may begin a turn, and what they are told about money; None: anybody.
        ``enclosures``: takes in the files on messages; None: they are not looked at.
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
        self._enclosures = enclosures
        self._on_over = on_over
        self._on_ended = on_ended
        self._on_answered = on_answered
        self._settings = settings or TurnSettings()

    async def run(
        self, items: Sequence[InboxItem], stop: StopSignal, steering: Steering | None = None
    ) -> None:
        """Answer one message: one inbox row, or the pieces of it in order."""
        if await self._is_refused(items, stop):
            return
        observer = _Observer()
        enclosed = await self._enclosed(items, stop)
        if enclosed is None:
            return  # the rows stay new: their files are fetched again at the next start
        for notice in enclosed.notices:
            observer.on_notice(notice)
        opening = self._opening(items, enclosed.on(said(items)))
        ticket = await self._begun(items, stop, lambda: self._sessions.begin_turn(opening))
        if ticket is not None:
            await self._carry(_Task(ticket, items, stop, observer, steering), self._loaded(ticket))

    async def retry(
        self, item: InboxItem, stop: StopSignal, steering: Steering | None = None
    ) -> None:
        """Take the last turn back and ask its message again; this row is the new turn's own."""
        items = (item,)
        if await self._is_refused(items, stop):
            return
        opening = self._opening(items, said(items))
        ticket = await self._begun(
            items, stop, lambda: self._lineages.retry(opening), texts.STILL_RUNNING
        )
        if ticket is not None:
            await self._carry(
                _Task(ticket, items, stop, _Observer(), steering), self._loaded(ticket)
            )

    async def resume(
        self,
        turn: InterruptedTurn,
        items: Sequence[InboxItem],
        stop: StopSignal,
        steering: Steering | None = None,
    ) -> None:
        """Go on with a turn that was cut off, from its stored rows."""
        ticket = turn.ticket
        with about(conversation_id=ticket.conversation_id, turn_id=ticket.turn_id):
            log.info("turn resumed", extra={"crashes": turn.crashes})
        await self._carry(
            _Task(ticket, items, stop, _Observer(), steering),
            lambda: self._sessions.resume_turn(ticket),
        )

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

    # before it begins

    async def _is_refused(self, items: Sequence[InboxItem], stop: StopSignal) -> bool:
        """Said, where it is so."""
        if self._accounts is None:
            return False
        refusal = await self._accounts.refusal(items[-1].record.owner)
        if refusal is not None:
            await self._answer(items, refusal, "notice", stop)
        return refusal is not None

    async def _enclosed(self, items: Sequence[InboxItem], stop: StopSignal) -> Enclosed | None:
        """What hangs on the messages; None: the daemon goes down first."""
        enclosures = self._enclosures
        if enclosures is None or not has_enclosures(items):
            return NOTHING
        async with self._delivery.typing(items[-1].record.address):
            taken = await run_stoppable(
                lambda: enclosures.take(items),
                stop,
                self._clock,
                name="files of a message",
                grace_seconds=self._settings.stop_grace_seconds,
            )
        if isinstance(taken, Completed):
            return taken.value
        # Who said stop does not wait for them any more: what the message says is kept.
        return None if stop.shutdown else enclosures.left_out(items)

    async def _begun(
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

    # one turn

    async def _carry(self, task: _Task, load: _Load) -> None:
        ticket = task.ticket
        with about(conversation_id=ticket.conversation_id, turn_id=ticket.turn_id):
            await self._carry_on(task, load)

    async def _carry_on(self, task: _Task, load: _Load) -> None:
        started = self._clock.monotonic()
        ticket, observer, stop = task.ticket, task.observer, task.stop
        try:
            async with self._delivery.typing(task.address):
                ending = await self._work_until_stopped(task, load)
            if ending is None:
                await finish(self._settling.interrupt(ticket, task.address, observer.notices))
                return
            await self._mind_the_budget(task.owner, ending, observer)
            await finish(self._settling.end(ticket, task.address, ending, observer.notices, stop))
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

    async def _mind_the_budget(self, owner: str, ending: Ending, observer: _Observer) -> None:
        """The person hears of it with the answer that took them there."""
        if self._accounts is not None:
            pending = ending.result.usage if ending.result is not None else None
            warning = await self._accounts.warning(owner, pending)
            observer.on_notice(warning or "")

    async def _work_until_stopped(self, task: _Task, load: _Load) -> Ending | None:
        """How the turn ends; None: it does not, the daemon goes down."""
        ticket = task.ticket
        try:
            with task.stop.yielding():
                outcome = await run_stoppable(
                    lambda: self._work(task, load),
                    task.stop,
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

    async def _work(self, task: _Task, load: _Load) -> TurnResult:
        ticket = task.ticket
        loaded = await load()
        if loaded.session.ended_at is not None:
            raise SessionEnded(loaded.session.id)  # on purpose: it is not begun anew by itself
        loaded = await self._refreeze(loaded, ticket)
        compactor = self._compactors.get(ticket.conversation_id)
        call = partial(
            self._loop,
            ticket,
            compactor=ShelteredCompactor(compactor, task.stop),
            context=task.context,
            observer=task.observer,
            steering=task.steering,
        )
        for _ in range(MAX_ADOPTIONS):
            with task.stop.sheltered():
                loaded = await self._hygiene(loaded, compactor, task.observer.on_notice)
            try:
                return await call(loaded)
            except SessionEnded:
                log.info("tip adopted")
                tip = await self._sessions.tip(loaded.session.id)
                loaded = await self._sessions.load(tip.id, ticket=ticket)
        return await call(loaded)

    def _loaded(self, ticket: TurnTicket) -> _Load:
        return lambda: self._sessions.load(ticket.session_id, ticket=ticket)

    async def _answer(
        self, items: Sequence[InboxItem], text: str, kind: OutboxKind, stop: StopSignal
    ) -> None:
        """Answer rows that begin no turn."""
        await self._settling.answer(items, OutboxDraft(items[-1].record.address, text, kind), stop)

    async def _say_trouble(self, items: Sequence[InboxItem]) -> None:
        self._delivery.say_now(items[-1].record.address, texts.STORE_TROUBLE)

    def _opening(self, items: Sequence[InboxItem], message: Draft) -> TurnOpening:
        record = items[0].record
        return TurnOpening(
            session_key=record.session_key,
            owner=record.owner,
            inbox_ids=tuple(item.id for item in items),
            message=message,
            prefix=self._prefix_for(record.address.platform),
        )
