"""Owns a turn: user message stored, hygiene, agent, and the answer owed from its commit on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from agent.errors import ModelError, SessionEnded, StaleTurn, StoreError
from agent.lineages import Lineages
from agent.loop import TurnResult
from agent.mail import Address, InboxItem, OutboxDraft, OutboxItem, OutboxKind
from agent.messages import without_thinking
from agent.ports import Clock, Compactor, Mailbox, SessionStore, ToolContext, TurnObserver, Usage
from agent.sessions import (
    InterruptedTurn,
    LoadedSession,
    SessionPrefix,
    TurnOpening,
    TurnOutcome,
    TurnTicket,
)
from gateway import texts
from gateway.commands.lineage_text import NOTHING_TO_RETRY, STILL_RUNNING
from gateway.compactors import CompactorCache
from gateway.delivery.outbox import Delivery
from gateway.intake.records import is_shared
from gateway.intake.wording import user_draft
from gateway.logs import about
from gateway.refreeze import Refreezer
from gateway.storing import GaveUp, until_stored
from gateway.tasks import Completed, StopReason, StopSignal, finish, run_stoppable
from gateway.turn_failures import words_for

log = logging.getLogger(__name__)

MAX_ADOPTIONS = 3
"""How often one turn follows a tip that somebody else moved."""


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


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a turn is over, and what is owed for it."""

    outcome: TurnOutcome
    session_id: str
    text: str | None
    result: TurnResult | None = None
    error: str = ""


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
        settings: TurnSettings | None = None,
    ) -> None:
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
        self._settings = settings or TurnSettings()

    async def run(self, item: InboxItem, stop: StopSignal) -> None:
        """Answer one inbox row."""
        opening = self._opening(item)
        await self._begin(item, stop, lambda: self._sessions.begin_turn(opening))

    async def retry(self, item: InboxItem, stop: StopSignal) -> None:
        """Take the last turn back and ask its message again; this row is the new turn's own."""
        opening = self._opening(item)
        await self._begin(item, stop, lambda: self._lineages.retry(opening), STILL_RUNNING)

    async def _begin(
        self,
        item: InboxItem,
        stop: StopSignal,
        begin: Callable[[], Awaitable[TurnTicket | None]],
        if_stale: str | None = None,
    ) -> None:
        try:
            ticket = await until_stored(
                begin,
                self._clock,
                stop,
                on_trouble=lambda: self._say_unstored(item),
            )
        except GaveUp as gave_up:
            if gave_up.reason is StopReason.USER:
                await self._owe(lambda: self._stop_unbegun(begin), stop)
            return
        except StaleTurn:
            log.info("message was answered before", extra={"inbox_id": item.id})
            if if_stale is not None:  # or else it is another turn that is in the way
                await self._answer(
                    item, stop, OutboxDraft(item.record.address, if_stale, "command")
                )
            return
        except Exception as error:  # the supervised border: nobody is left without a word
            log.exception("turn could not begin", extra={"inbox_id": item.id})
            await self._answer(
                item, stop, OutboxDraft(item.record.address, words_for(error), "notice")
            )
            return
        if ticket is None:
            await self._answer(
                item, stop, OutboxDraft(item.record.address, NOTHING_TO_RETRY, "command")
            )
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
                await finish(self._interrupt(ticket, item, observer))
                return
            await finish(self._end(ticket, item, stop, ending, observer))
        except StaleTurn:
            # The fence: this run lost its turn, so nothing of it may be written or said.
            log.warning("turn was over already")
            await self._refresh()
            return
        except GaveUp:
            return  # it stays a running turn, and is resumed at the next start
        _report(ending, self._clock.monotonic() - started)

    async def _work_until_stopped(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        stop: StopSignal,
        load: Callable[[], Awaitable[LoadedSession]],
        observer: _Observer,
    ) -> _Ending | None:
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
        except (ModelError, StoreError) as error:
            log.warning("turn failed", extra={"error": type(error).__name__}, exc_info=error)
            return _Ending(
                "failed", ticket.session_id, words_for(error), error=type(error).__name__
            )
        except Exception as error:  # the supervised border: the lane goes on, the user is told
            log.exception("turn crashed")
            return _Ending(
                "failed", ticket.session_id, words_for(error), error=type(error).__name__
            )
        if isinstance(outcome, Completed):
            result = outcome.value
            text = result.text if result.text.strip() else texts.NOTHING_SAID
            return _Ending("done", result.session_id, text, result)
        if outcome.reason is StopReason.SHUTDOWN:
            return None
        return _Ending("stopped", ticket.session_id, None)

    async def _work(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        load: Callable[[], Awaitable[LoadedSession]],
        observer: _Observer,
    ) -> TurnResult:
        loaded = await self._refreeze(await load(), ticket)
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

    # its end

    async def _interrupt(self, ticket: TurnTicket, item: InboxItem, observer: _Observer) -> None:
        await self._sessions.interrupt_turn(ticket)
        for notice in observer.notices:
            draft = OutboxDraft(item.record.address, notice, "notice")
            self._delivery.hand_over([await self._mailbox.owe(draft, ticket.conversation_id)])
        log.info("turn interrupted")

    async def _end(
        self,
        ticket: TurnTicket,
        item: InboxItem,
        stop: StopSignal,
        ending: _Ending,
        observer: _Observer,
    ) -> None:
        address = item.record.address
        outbox: list[OutboxDraft] = []
        if ending.text is not None:
            kind: OutboxKind = "reply" if ending.outcome == "done" else "notice"
            outbox.append(OutboxDraft(address, ending.text, kind))
        outbox.extend(OutboxDraft(address, notice, "notice") for notice in observer.notices)
        session_id = ending.session_id
        final = ending.result.final if ending.result else None
        usage = ending.result.usage if ending.result else None
        for _ in range(MAX_ADOPTIONS + 1):
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
                session_id, usage = (await self._sessions.tip(session_id)).id, None
                if final is not None:
                    final = replace(final, message=without_thinking(final.message))
                continue
            self._delivery.hand_over(items)
            return
        raise SessionEnded(f"the tip of {ticket.conversation_id} would not stand still")

    async def _answer(self, item: InboxItem, stop: StopSignal, draft: OutboxDraft) -> None:
        """Answer a row that begins no turn; one that was answered before stays as it is."""
        await self._owe(lambda: self._mailbox.answer_inbox([item.id], [draft]), stop)

    async def _owe(
        self, call: Callable[[], Awaitable[Sequence[OutboxItem]]], stop: StopSignal
    ) -> None:
        try:
            self._delivery.hand_over(
                await until_stored(call, self._clock, stop, only_shutdown=True)
            )
        except GaveUp:
            return

    async def _stop_unbegun(
        self, begin: Callable[[], Awaitable[TurnTicket | None]]
    ) -> Sequence[OutboxItem]:
        """End a turn of which nobody knows whether it has begun: so that it is not resumed."""
        try:
            ticket = await begin()
            if ticket is None:
                return ()
            return await self._sessions.finish_turn(ticket, ticket.session_id, "stopped")
        except StaleTurn:
            return ()

    async def _refresh(self) -> None:
        """The turn may have ended in a commit whose outcome nobody learned: look what it owes."""
        try:
            await self._delivery.refresh()
        except StoreError:
            log.warning("owed answers not read; they go out at the next start", exc_info=True)

    async def _say_unstored(self, item: InboxItem) -> None:
        await self._delivery.say_unstored(item.record.address, texts.STORE_TROUBLE, item.id)

    # values

    def _opening(self, item: InboxItem) -> TurnOpening:
        record = item.record
        quoted = record.payload.get("quoted_text")
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


def _report(ending: _Ending, seconds: float) -> None:
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
