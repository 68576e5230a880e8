"""Owns a pass of micro-compaction from the finished turn to its commit: one at a time, whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from agent.compaction.calls.spending import Spending
from agent.compaction.calls.summary import SummaryRejected
from agent.compaction.host import telemetry
from agent.compaction.host.remembering import StateMemory
from agent.compaction.micro.condensing import (
    MAX_OUTPUT_TOKENS,
    Condenser,
    DigestOrder,
    asked_before,
)
from agent.compaction.micro.marker import Digest
from agent.compaction.micro.progress import (
    MicroSettings,
    after_call,
    after_failure,
    after_pass,
    given_up,
    is_on,
)
from agent.compaction.micro.splice import Splice, absorb, defragment, rolling_digest
from agent.compaction.micro.window import (
    MIN_MESSAGES,
    find_cursor,
    find_exchange,
    find_window,
    is_said,
)
from agent.compaction.plan.boundary import CutRules
from agent.compaction.plan.phases import MIN_HEAD_RATIO
from agent.compaction.plan.policy import cooldown_left
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.errors import ModelError
from agent.messages import Draft, Row
from agent.model_metadata import estimate_message_tokens, estimate_tokens_rough
from agent.ports import Clock, SideModel
from agent.sessions import CompressionState, LoadedSession, RewriteRequest
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

Outcome = Literal["absorbed", "defrag", "defrag_failed", "summarize_failed", "exchange_skipped"]


@dataclass(frozen=True, slots=True)
class MicroParts:
    """What all conversations share."""

    settings: MicroSettings
    side_model: SideModel
    threads: DaemonThreads
    """Where the calls wait: not those of the engines."""
    may_spend: Callable[[str], Awaitable[bool]] | None = None
    """May this owner's money be spent now?"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass would do to a list."""

    digest: Digest
    """So far."""
    cursor: int
    exchange: range | None
    """To be absorbed; None: the digest is to be shortened."""
    place: int
    """What failures are counted by: the original that begins the exchange; where the digest is to
    be shortened: the newest original in it."""

    @property
    def key(self) -> tuple[object, ...]:
        """Two plans of one revision with the same key ask for the same."""
        return (self.digest, self.place, self.exchange is None)


@dataclass(frozen=True, slots=True)
class _Bought:
    """A digest that is paid for and not stored: a message came first."""

    session_id: str
    revision: int
    key: tuple[object, ...]
    body: str


@dataclass(frozen=True, slots=True)
class _Looked:
    """How far a list was looked at: within one revision it only grows at its end."""

    basis: tuple[str, int, int] = ("", 0, 0)
    """Session, its revision, what was skipped."""
    cursor: int = 0
    rows: int = 0
    last_row_id: int = 0
    tokens: int = 0
    """Of the rows from the cursor on."""

    def holds_for(self, basis: tuple[str, int, int], rows: Sequence[Row]) -> bool:
        """Does the list begin with what was looked at?"""
        if self.basis != basis or not 0 < self.rows <= len(rows):
            return False
        return rows[self.rows - 1].id == self.last_row_id


class MicroCompactor:
    """Micro-compaction in one conversation. What it has to know is in the list and its state."""

    def __init__(
        self,
        parts: MicroParts,
        engine: ContextCompressor,
        memory: StateMemory,
        store: SessionStore,
        clock: Clock,
        *,
        held: Callable[[LoadedSession], bool] = lambda loaded: False,
    ) -> None:
        """Take the parts.

        Args:
            parts: Shared with other conversations.
            engine: Whose rules and models count.
            memory: What is remembered about the conversation's sessions.
            store: Where they are.
            clock: Time.
            held: Is a batch compression at work, or paid for? It takes all of this in.
        """
        self._engine = engine
        self._condenser = Condenser(parts.side_model, clock)
        self._memory = memory
        self._store = store
        self._clock = clock
        self._settings = parts.settings
        self._threads = parts.threads
        self._may_spend = parts.may_spend
        self._held = held
        self._at_work = False
        self._committing = asyncio.Lock()
        self._bought: _Bought | None = None
        self._looked = _Looked()

    async def after_turn(self, seen: LoadedSession, final: Draft) -> Outcome | None:
        """Do what is due after a finished turn; None: nothing was.

        Args:
            seen: The list as the turn knew it, before its answer.
            final: The answer.
        """
        session = seen.session
        if not is_on(session.prefix.model_config, self._settings):
            return None
        state, due = after_call(self._memory.state(seen), self._settings.every_n_turns)
        if due and self._at_work:
            return None  # it stays due
        if not due:
            await self._memory.store(seen, state)
            return None
        self._at_work = True
        try:
            await self._memory.store(seen, state)
            if self.plan(seen, estimate_message_tokens(final.message)) is None:
                return None
            loaded = await self._store.load(session.id)
            return await self._pass(self._memory.current(loaded))
        finally:
            self._at_work = False

    async def settled(self, loaded: LoadedSession) -> LoadedSession:
        """The session once nothing is being stored here: the same one, or as it was made."""
        async with self._committing:
            pass
        session = await self._store.session(loaded.session.id)
        if session.revision == loaded.session.revision or session.ended_at is not None:
            return loaded
        return self._memory.current(await self._store.load(session.id))

    # --- what there is to do --------------------------------------------------------------------

    def plan(self, loaded: LoadedSession, coming_tokens: int | None = None) -> Plan | None:
        """What a pass would do now.

        While nothing is to do, the time that it takes depends only on what is new.

        Args:
            loaded: The session.
            coming_tokens: Estimate of an answer that is about to stand behind its rows.
        """
        rows, session = loaded.rows, loaded.session
        state = self._memory.state(loaded)
        count = len(rows) + (coming_tokens is not None)
        if count < MIN_MESSAGES or not rows or session.ended_at is not None:
            return None
        looked = self._look(loaded, state.micro_skipped_row)
        if looked.tokens + (coming_tokens or 0) <= self._engine.triggers.tail_tokens:
            return None  # all of it is in the tail
        window = find_window(rows, self._rules(state), coming_tokens)
        exchange = find_exchange(rows, looked.cursor, window)
        if exchange is None:
            return None
        digest = rolling_digest(rows)
        too_long = estimate_tokens_rough(digest.body) >= self._settings.defrag_threshold_tokens
        if too_long and not given_up(state, digest.last_row):
            return Plan(digest, looked.cursor, None, digest.last_row)
        return Plan(digest, looked.cursor, exchange, rows[exchange.start].root_id)

    def _look(self, loaded: LoadedSession, skipped_row: int) -> _Looked:
        """Where the cursor is and what lies behind it; only what is new is looked at."""
        rows, session = loaded.rows, loaded.session
        basis = (session.id, session.revision, skipped_row)
        looked = self._looked
        if not looked.holds_for(basis, rows):
            cursor = find_cursor(rows, skipped_row)
            looked = _Looked(basis, cursor, rows=cursor)
        elif looked.rows == len(rows):
            return looked
        tokens = looked.tokens + sum(row.tokens for row in rows[looked.rows :])
        self._looked = _Looked(basis, looked.cursor, len(rows), rows[-1].id, tokens)
        return self._looked

    def _rules(self, state: CompressionState) -> CutRules:
        triggers = self._engine.triggers
        return CutRules(
            protect_first_n=0 if state.count else self._engine.protect_first_n,
            protect_last_n=self._engine.protect_last_n,
            tail_tokens=triggers.tail_tokens,
            head_tokens=int(triggers.threshold_tokens * MIN_HEAD_RATIO),
        )

    # --- one pass -------------------------------------------------------------------------------

    async def _pass(self, loaded: LoadedSession) -> Outcome | None:
        plan = self.plan(loaded)
        if plan is None or await self._is_kept_back(loaded):
            return None
        started = self._clock.monotonic()
        body = self._already_bought(loaded, plan)
        if body is None:
            try:
                body = await self._condense(loaded, plan)
            except Exception as exc:  # whatever it was, it counts: not tried there for ever
                expected = isinstance(exc, ModelError | SummaryRejected | OSError)
                log.log(
                    logging.WARNING if expected else logging.ERROR,
                    "micro compaction failed",
                    extra={"error": type(exc).__name__},
                    exc_info=None if expected else exc,
                )
                return await self._failed(loaded, plan, started)
        return await self._commit(loaded, plan, body, started)

    async def _is_kept_back(self, loaded: LoadedSession) -> bool:
        """Would it only be in somebody's way? Then the batch compression takes it all in."""
        if any(row.id < 0 for row in loaded.rows) or is_said(loaded.rows[-1]):
            return True  # a turn has begun again
        if self._held(loaded) or cooldown_left(loaded.session.compression, self._clock.now()):
            return True
        prepared = await self._store.prepared(loaded.session.id)
        if prepared is not None and prepared.revision == loaded.session.revision:
            return True
        if self._may_spend is None:
            return False
        conversation = await self._store.conversation(loaded.session.conversation_id)
        return conversation is None or not await self._may_spend(conversation.owner)

    def _already_bought(self, loaded: LoadedSession, plan: Plan) -> str | None:
        bought, self._bought = self._bought, None
        session = loaded.session
        wanted = (session.id, session.revision, plan.key)
        if bought is None or (bought.session_id, bought.revision, bought.key) != wanted:
            return None
        return bought.body

    async def _condense(self, loaded: LoadedSession, plan: Plan) -> str:
        limit = min(MAX_OUTPUT_TOKENS, self._engine.triggers.summary_ceiling_tokens)
        rows: Sequence[Row] = ()
        asked = None
        if plan.exchange is None:
            limit = min(limit, max(64, self._settings.defrag_threshold_tokens))
        else:
            rows = loaded.rows[plan.exchange.start : plan.exchange.stop]
            asked = asked_before(loaded.rows, plan.exchange)
        today = datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat()
        order = DigestOrder(rows, asked, plan.digest.body, limit, today)
        models, spending = self._engine.summary_models(), Spending()
        call = self._threads.submit(lambda: self._condenser.condense(order, models, spending))
        return await asyncio.wrap_future(call)

    async def _commit(
        self, loaded: LoadedSession, plan: Plan, body: str, started: float
    ) -> Outcome | None:
        rows, exchange = loaded.rows, plan.exchange
        if exchange is None:
            splice = defragment(rows, replace(plan.digest, body=body))
        else:
            absorbed = rows[exchange.start : exchange.stop]
            splice = absorb(rows, exchange, plan.digest.grown(body, absorbed))
        saved = splice.tokens_before - splice.tokens_after
        session = loaded.session
        async with self._committing:
            # Nothing is awaited between this look and the store's queue.
            newest = self._memory.state(loaded)
            state = after_pass(newest, saved)
            applied = (
                not self._held(loaded)
                and (
                    await self._store.rewrite(
                        RewriteRequest(
                            session_id=session.id,
                            expected_revision=session.revision,
                            covered_row_id=loaded.last_row_id,
                            entries=splice.entries,
                            compression=state,
                            at_rest=True,
                        )
                    )
                ).applied
            )
            if applied:
                self._memory.adopt(session.id, state)
        if not applied:
            # Paid for: while the list only grows, the next chance stores it without a call.
            self._bought = _Bought(session.id, session.revision, plan.key, body)
            log.info("micro compaction kept for the next chance")
            return None
        outcome: Outcome = "defrag" if exchange is None else "absorbed"
        self._tell(loaded, plan, outcome, splice, started, state, estimate_tokens_rough(body))
        return outcome

    async def _failed(self, loaded: LoadedSession, plan: Plan, started: float) -> Outcome:
        """Nothing is changed; at the third failure in a row the exchange is left to the batch."""
        state = after_failure(self._memory.state(loaded), plan.place)
        outcome: Outcome = "summarize_failed" if plan.exchange is not None else "defrag_failed"
        if plan.exchange is not None and given_up(state, plan.place):
            outcome = "exchange_skipped"
            ends_with = loaded.rows[plan.exchange.stop - 1].root_id
            state = state.changed(micro_skipped_row=ends_with, micro_failures=0, micro_failed_row=0)
        await self._memory.store(loaded, state)
        tokens = estimate_tokens_rough(plan.digest.body)
        self._tell(loaded, plan, outcome, None, started, state, tokens)
        return outcome

    def _tell(
        self,
        loaded: LoadedSession,
        plan: Plan,
        outcome: Outcome,
        splice: Splice | None,
        started: float,
        state: CompressionState,
        digest_tokens: int,
    ) -> None:
        rows, engine = loaded.rows, self._engine
        prefix = self._memory.prefix_tokens(loaded.session.prefix)
        before = sum(row.tokens for row in rows)
        after = splice.tokens_after if splice is not None else before
        cursor = plan.cursor
        if splice is not None:
            cursor = splice.cursor
        elif outcome == "exchange_skipped" and plan.exchange is not None:
            cursor = plan.exchange.stop
        threshold = max(0, engine.threshold_tokens)
        telemetry.write_micro(
            log,
            {
                "event": "micro_compaction",
                "session_id": loaded.session.id,
                "outcome": outcome,
                "messages_before": len(rows),
                "messages_after": len(rows) if splice is None else len(splice.entries),
                "tokens_before": prefix + before,
                "tokens_after": prefix + after,
                "tokens_delta": after - before,
                "exchange_tokens": sum(rows[i].tokens for i in plan.exchange or ()),
                "rolling_summary_tokens": digest_tokens,
                "cursor": cursor,
                "passes_total": state.micro_passes,
                "tokens_saved_total": state.micro_saved_tokens,
                "duration_ms": round(1000 * (self._clock.monotonic() - started)),
                "threshold_tokens": threshold,
                "context_limit": engine.context_length or None,
                "occupancy_pct": telemetry.occupancy_pct(prefix + after, threshold),
                "main_model": loaded.session.prefix.model,
                "aux_model": engine.summary_model or loaded.session.prefix.model,
            },
        )
