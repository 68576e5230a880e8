"""Owns a turn: user message stored, hygiene, agent, and the answer owed from its commit on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from agent.brought import onto
from agent.errors import ModelError, SessionEnded, StaleTurn, StoreError
from agent.lineages import Lineages
from agent.loop import TurnResult
from agent.mail import Address, InboxItem
from agent.mail_ports import Mailbox
from agent.messages import Draft
from agent.ports import Clock, Compactor, IdSource, Steering
from agent.sessions import (
    InterruptedTurn,
    LoadedSession,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)
from agent.store_ports import SessionStore
from gateway import texts
from gateway.accounts import Accounts
from gateway.delivery.outbox import Delivery
from gateway.delivery.preview import Preview, Previews
from gateway.logs import about
from gateway.tasks import Completed, StopReason, StopSignal, finish, run_stoppable
from gateway.turns.aftermath import Aftermath
from gateway.turns.beginning import Beginning
from gateway.turns.compactors import CompactorCache
from gateway.turns.companions import Companions
from gateway.turns.enclosures import Enclosures
from gateway.turns.failures import failed
from gateway.turns.refreeze import Refreezer
from gateway.turns.resetting import SessionResets
from gateway.turns.settling import MAX_ADOPTIONS, Ending, Settling
from gateway.turns.sheltering import ShelteredCompactor
from gateway.turns.storing import GaveUp
from gateway.turns.task import (
    AgentLoop,
    ApproverFor,
    Collected,
    Hygiene,
    PrefixFor,
    Task,
    TurnSettings,
)
from gateway.turns.words import said

log = logging.getLogger(__name__)

Load = Callable[[], Awaitable[LoadedSession]]


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
        prefix_for: PrefixFor,
        delivery: Delivery,
        clock: Clock,
        ids: IdSource,
        accounts: Accounts | None = None,
        enclosures: Enclosures | None = None,
        companions: Companions | None = None,
        previews: Previews | None = None,
        settings: TurnSettings | None = None,
        approver_for: ApproverFor | None = None,
        resets: SessionResets | None = None,
        on_over: Callable[[str], None] = lambda conversation_id: None,
        on_ended: Callable[[Task, Ending, float], None] = lambda task, ending, seconds: None,
        on_answered: Callable[[str, TurnResult], None] = lambda conversation_id, result: None,
        shown_as_running: Callable[[Task], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Take the parts.

        ``accounts``: who may begin a turn, and what they are told about money; None: anybody.
        ``enclosures``: takes in the files on messages; None: they are not looked at.
        ``companions``: what rides along with turns; None: nothing does.
        ``approver_for``: whom tools ask before they act; None: nobody, so they do not.
        ``resets``: lets conversations start anew by themselves; None: none does.
        ``previews``: shows answers while they are written; None: nothing does.
        ``on_over``, ``on_ended``, ``on_answered``: see `Aftermath`.
        ``shown_as_running``: entered while a turn runs.
        """
        self._sessions = sessions
        self._lineages = lineages
        self._loop = loop
        self._hygiene = hygiene
        self._compactors = compactors
        self._prefix_for = prefix_for
        self._refreeze = Refreezer(sessions, prefix_for)
        self._delivery = delivery
        self._clock = clock
        self._ids = ids
        self._settling = Settling(sessions, mailbox, delivery, clock)
        self._accounts = accounts
        self._previews = previews
        self._approver_for = approver_for
        self._resets = resets
        companions = companions or Companions((), sessions, prefix_for)
        self._aftermath = Aftermath(companions, on_over, on_ended, on_answered)
        self._settings = settings or TurnSettings()
        self._shown_as_running = shown_as_running
        self._beginning = Beginning(
            sessions,
            mailbox,
            self._settling,
            delivery,
            clock,
            accounts=accounts,
            enclosures=enclosures,
            companions=companions,
            stop_grace_seconds=self._settings.stop_grace_seconds,
        )

    async def run(
        self, items: Sequence[InboxItem], stop: StopSignal, steering: Steering | None = None
    ) -> None:
        """Answer one message: one inbox row, or the pieces of it in order."""
        if await self._beginning.is_refused(items, stop):
            return
        observer = Collected()
        if self._resets is not None:
            record = items[0].record
            notice = await self._resets.before_turn(record.session_key, record.owner)
            observer.on_notice(notice)
        turn_id = self._ids.new("t")  # drawn here: who brings something along is told of it before
        found = await self._beginning.filled(items, stop, turn_id)
        if found is None:
            return  # rows that stay new have their files fetched again at the next start
        items, enclosed, brought = found
        for notice in enclosed.notices:
            observer.on_notice(notice)
        opening = self._opening(items, onto(enclosed.on(said(items)), brought), turn_id)
        ticket = await self._beginning.begun(
            items, stop, lambda: self._sessions.begin_turn(opening)
        )
        if ticket is not None:
            task = self._task(ticket, items, stop, observer, steering)
            await self._carry(task, self._loaded(ticket))

    async def retry(
        self, item: InboxItem, stop: StopSignal, steering: Steering | None = None
    ) -> None:
        """Take the last turn back and ask its message again; this row is the new turn's own."""
        items, turn_id = (item,), self._ids.new("t")
        if await self._beginning.is_refused(items, stop):
            return
        brought = await self._beginning.brought_again(items, stop, turn_id)
        if brought is None:
            return
        opening = replace(self._opening(items, said(items), turn_id), brought=brought)
        ticket = await self._beginning.begun(
            items, stop, lambda: self._lineages.retry(opening), texts.STILL_RUNNING
        )
        if ticket is not None:
            task = self._task(ticket, items, stop, Collected(), steering)
            await self._carry(task, self._loaded(ticket))

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
        observer = Collected()

        async def taken_up() -> LoadedSession:
            loaded = await self._sessions.resume_turn(ticket)
            observer.on_results(await self._sessions.results_of_turn(ticket))
            return loaded

        task = self._task(ticket, items, stop, observer, steering)
        await self._carry(replace(task, resumed=True), taken_up)

    async def abandon(
        self, turn: InterruptedTurn, address: Address | None, outcome: TurnOutcome, text: str | None
    ) -> None:
        """End a turn that was cut off and is not resumed (see `Settling.abandon`)."""
        await self._settling.abandon(turn.ticket, address, outcome, text)

    # one turn

    def _task(
        self,
        ticket: TurnTicket,
        items: Sequence[InboxItem],
        stop: StopSignal,
        observer: Collected,
        steering: Steering | None,
    ) -> Task:
        approver = None
        if self._approver_for is not None and items:
            record, conversation_id = items[-1].record, ticket.conversation_id
            approver = self._approver_for(record, conversation_id, stop, observer.make_way)
        return Task(ticket, items, stop, observer, steering, approver)

    async def _carry(self, task: Task, load: Load) -> None:
        ticket, platform = task.ticket, task.address.platform
        with (
            about(
                conversation_id=ticket.conversation_id, turn_id=ticket.turn_id, platform=platform
            ),
            self._shown_as_running(task),
        ):
            await self._carry_on(task, load)

    async def _carry_on(self, task: Task, load: Load) -> None:
        started = self._clock.monotonic()
        ticket, observer, stop = task.ticket, task.observer, task.stop
        try:
            async with self._delivery.typing(task.address), self._shown(task) as preview:
                if preview is not None:
                    observer.show, observer.stand = preview.on_text, preview.stand
                ending = await self._work_until_stopped(task, load)
            if ending is None:
                await finish(self._interrupt(task, preview))
                return
            if ending.outcome == "stopped" and preview is not None and preview.is_shown:
                ending = replace(ending, text=texts.stopped_here(preview.text))
            await self._mind_the_budget(task.owner, ending, observer)
            settled = self._settling.end(ticket, task.address, task.owner, ending, observer, stop)
            await finish(settled)
        except StaleTurn:
            # The fence: this run lost its turn, so nothing of it may be written or said.
            log.warning("turn was over already")
            await self._settling.refresh()
            return
        except GaveUp:
            return  # it stays a running turn, and is resumed at the next start
        await self._aftermath.of(task, ending, self._clock.monotonic() - started)

    def _shown(self, task: Task) -> AbstractAsyncContextManager[Preview | None]:
        if self._previews is None:
            return nullcontext()
        return self._previews.of(task.ticket, task.address, resumed=task.resumed)

    async def _interrupt(self, task: Task, preview: Preview | None) -> None:
        if preview is not None:
            await preview.rest(texts.GOES_ON)
        await self._settling.interrupt(task.ticket, task.address, task.observer.notices)

    async def _mind_the_budget(self, owner: str, ending: Ending, observer: Collected) -> None:
        """The person hears of it with the answer that took them there."""
        if self._accounts is not None:
            pending = ending.result.usage if ending.result is not None else None
            warning = await self._accounts.warning(owner, pending)
            observer.on_notice(warning or "")

    async def _work_until_stopped(self, task: Task, load: Load) -> Ending | None:
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
        except (ModelError, StoreError) as error:
            return failed(error, ticket.session_id)
        except Exception as error:  # the supervised border: the lane goes on, the user is told
            log.exception("turn crashed")
            return failed(error, ticket.session_id)
        if isinstance(outcome, Completed):
            result = outcome.value
            text = result.text if result.text.strip() else texts.NOTHING_SAID
            return Ending("done", result.session_id, text, result)
        if outcome.reason is StopReason.SHUTDOWN:
            return None
        if outcome.reason is StopReason.OVERDUE:
            return Ending("failed", ticket.session_id, texts.JOB_TOO_LONG, error="too long")
        return Ending("stopped", ticket.session_id, None)

    async def _work(self, task: Task, load: Load) -> TurnResult:
        ticket = task.ticket
        loaded = await load()
        if loaded.session.ended_at is not None:
            raise SessionEnded(loaded.session.id)  # on purpose: it is not begun anew by itself
        loaded = await self._refreeze(loaded, ticket)
        async with self._compactors.using(ticket.conversation_id) as compactor:
            return await self._answered(task, loaded, compactor)

    async def _answered(
        self, task: Task, loaded: LoadedSession, compactor: Compactor
    ) -> TurnResult:
        ticket = task.ticket
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

    def _loaded(self, ticket: TurnTicket) -> Load:
        return lambda: self._sessions.load(ticket.session_id, ticket=ticket)

    def _opening(self, items: Sequence[InboxItem], message: Draft, turn_id: str) -> TurnOpening:
        record = items[0].record
        return TurnOpening(
            session_key=record.session_key,
            owner=record.owner,
            inbox_ids=tuple(item.id for item in items),
            message=message,
            prefix=self._prefix_for(record.address.platform),
            turn_id=turn_id,
        )
