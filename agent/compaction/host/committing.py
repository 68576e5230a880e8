"""Owns one compression from its lease to its commit: paid for once, whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent import pressure
from agent.compaction.host import telemetry
from agent.compaction.host.ahead import Ahead, Taken
from agent.compaction.host.announcing import Announcer
from agent.compaction.host.detaching import Detachable
from agent.compaction.host.leasing import leased
from agent.compaction.host.remembering import StateMemory
from agent.compaction.host.running import EngineRunner, Order, Run
from agent.compaction.plan.adoption import Adopted
from agent.compaction.plan.policy import after_compression, after_progress, gained_since
from agent.errors import StoreError
from agent.messages import Entry
from agent.model_metadata import Measurement
from agent.ports import Clock, CompactionOutcome, CompactionResult, IdSource
from agent.sessions import (
    ChangeResult,
    CompressionState,
    LoadedSession,
    RewriteRequest,
    Session,
    SplitRequest,
)
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

Notify = Callable[[str], None]
Job = Detachable[CompactionResult]


@dataclass(frozen=True, slots=True)
class Finished:
    """A compression that is only left to be stored."""

    base: LoadedSession
    """What it was made from: it counts only while that is the tip, in that revision."""
    entries: tuple[Entry, ...]
    tokens: int
    """Of the new list, by estimate, with system prompt and tools."""
    state: CompressionState
    manifest: dict[str, Any] | None
    cost: dict[str, Any] = field(default_factory=dict)
    prepared_at: float | None = None
    """When it was made ahead of time, in Unix seconds; None: it was made just now."""


class Committer:
    """Carries out compressions of one conversation, one at a time."""

    def __init__(
        self,
        runner: EngineRunner,
        memory: StateMemory,
        store: SessionStore,
        clock: Clock,
        ids: IdSource,
        ahead: Ahead,
        announcer: Announcer,
        *,
        in_place: bool,
        lease_ttl_seconds: float,
    ) -> None:
        self._runner = runner
        self._memory = memory
        self._store = store
        self._clock = clock
        self._ids = ids
        self._ahead = ahead
        self._announcer = announcer
        self._in_place = in_place
        self._lease_ttl_seconds = lease_ttl_seconds
        self._unstored: Finished | None = None
        """Paid for and not stored: it outlived its turn, and the next one had begun already; or the
        store could not take it."""

    async def carry_out(self, order: Order, job: Job, notify: Notify | None) -> CompactionResult:
        """Under the conversation's lease, in the task of ``job``."""
        result = await leased(
            lambda holder: self._under_lease(order, job, notify, holder),
            self._store,
            self._ids,
            order.loaded.session.conversation_id,
            self._lease_ttl_seconds,
        )
        return result or order.unchanged("aborted", "the conversation is being compressed already")

    async def _under_lease(
        self, order: Order, job: Job, notify: Notify | None, holder: str
    ) -> CompactionResult:
        started = self._clock.monotonic()
        tip = await self._store.tip(order.loaded.session.id)
        if tip.id != order.loaded.session.id:
            adopted = await self._store.load(tip.id)
            done = order.unchanged("not_needed", "it has just been compressed")
            return replace(done, loaded=adopted)
        if (unstored := self._take_unstored(order)) is not None:
            result = await self._commit(order, unstored, holder, started)
            if result.outcome == "compressed":
                return result
        if (taken := await self._ahead.take(order)) is not None:
            if job.detached:  # it stays prepared; the next turn may be in the middle of its tools
                return order.unchanged("not_needed", "nobody waited for it")
            return await self._commit(order, self._swapped(order, taken), holder, started)
        if order.trigger == "expired":
            return order.unchanged("not_needed", "nothing that fits is prepared")
        run = await self._runner.run(order)
        if run.adopted is None:
            told = None if job.detached else notify
            return await self._not_applied(order, run, told, started)
        finished = self._finished(order, run)
        # Who stopped what they had asked for themselves does not want it any more.
        if job.detached and (order.force or not await self._unmoved(finished)):
            self._unstored = finished
            log.info("compression kept for the next chance", extra=_facts(order, finished.cost))
            return order.unchanged("not_needed", "nobody waited for it")
        return await self._commit(order, finished, holder, started)

    def _finished(self, order: Order, run: Run, *, base: LoadedSession | None = None) -> Finished:
        """The result with its aftermath: how this compression is judged, and what is remembered.

        ``base``: what it was made from, where more was said since.
        """
        assert run.adopted is not None
        base = base or order.loaded
        now, threshold = self._clock.now(), self._runner.threshold_tokens
        later = sum(row.tokens for row in order.loaded.rows[len(base.rows) :])
        after = run.adopted.tokens + order.prefix_tokens
        gained = gained_since(order.loaded, order.size, order.prefix_tokens)
        state = after_progress(
            run.state,
            now,
            gained_tokens=None if order.force else gained,
            threshold_tokens=threshold,
            after=Measurement(after + later, "estimate"),
            seen_row_id=max(row.root_id for row in base.rows),
        )
        state = pressure.after_compression(state, after + later, threshold)
        return Finished(base, run.adopted.entries, after, state, run.manifest, cost=run.cost)

    def _swapped(self, order: Order, taken: Taken) -> Finished:
        """What was made ahead of time, with its aftermath as of now: nothing noted is lost."""
        prepared, now = taken.prepared, self._clock.now()
        mode = prepared.manifest.get("mode", "summary")
        state = after_compression(order.state, now, mode=mode)
        manifest = {
            **prepared.manifest,
            "at": now,
            "prepared": True,
            "prepared_at": prepared.created_at,
        }
        adopted = Adopted(prepared.entries, prepared.tokens)
        run = Run(adopted, state, manifest, cost=prepared.cost)
        finished = self._finished(order, run, base=taken.base)
        return replace(finished, prepared_at=prepared.created_at)

    def keeps(self, session: Session) -> bool:
        """Is a compression of this list paid for and not stored yet?"""
        kept = self._unstored.base.session if self._unstored is not None else None
        return kept is not None and (kept.id, kept.revision) == (session.id, session.revision)

    def _take_unstored(self, order: Order) -> Finished | None:
        """What was paid for already, unless something else is wanted by now."""
        unstored, self._unstored = self._unstored, None
        if unstored is None or order.focus:
            return None
        base, session = unstored.base.session, order.loaded.session
        return unstored if (base.id, base.revision) == (session.id, session.revision) else None

    async def _unmoved(self, finished: Finished) -> bool:
        """Is nothing there that the compression has not seen?

        The turn that would come upon a new tip has already begun otherwise, and may be in the
        middle of its tools.
        """
        base = finished.base
        tip = await self._store.tip(base.session.id)
        return (tip.id, tip.revision, tip.message_count) == (
            base.session.id,
            base.session.revision,
            len(base.rows),
        )

    async def _commit(
        self, order: Order, finished: Finished, holder: str, started: float
    ) -> CompactionResult:
        try:
            return await self._committed(order, finished, holder, started)
        except StoreError:
            self._unstored = finished  # paid for: where it was not stored, the next try stores it
            raise

    async def _committed(
        self, order: Order, finished: Finished, holder: str, started: float
    ) -> CompactionResult:
        base = finished.base
        finished = replace(finished, state=self._memory.rebased(base, finished.state))
        change = await self._store_it(finished, holder)
        current = await self._store.load(change.tip.id)
        if not change.applied:
            log.info(
                "compression discarded, the conversation moved on",
                extra=_facts(order, finished.cost),
            )
            self._tell(order, "discarded", started)
            moved = order.unchanged("not_needed", "the conversation moved on meanwhile")
            return replace(moved, loaded=current)
        self._memory.adopt(current.session.id, finished.state)
        later = sum(row.tokens for row in order.loaded.rows if row.id > base.last_row_id)
        age = {}
        if finished.prepared_at is not None:
            age["prepared_seconds_ago"] = round(self._clock.now() - finished.prepared_at, 1)
        log.info(
            "compression swapped in" if age else "compression done",
            extra=_facts(order, finished.cost)
            | age
            | {
                "parent_session_id": base.session.id,
                "child_session_id": current.session.id,
                "tokens_after": finished.tokens + later,
                "rows_before": len(order.loaded.rows),
                "rows_after": len(current.rows),
                "seconds": round(self._clock.monotonic() - started, 3),
            },
        )
        self._tell(
            order,
            "swapped_in" if age else "compressed",
            started,
            rows_after=len(current.rows),
            tokens_after=finished.tokens + later,
        )
        await self._announcer.at(current.session)
        return CompactionResult(
            "compressed",
            current,
            order.size.tokens,
            finished.tokens + later,
            prepared=finished.prepared_at is not None,
        )

    async def _store_it(self, finished: Finished, holder: str) -> ChangeResult:
        base, session = finished.base, finished.base.session
        if self._in_place:
            return await self._store.rewrite(
                RewriteRequest(
                    session_id=session.id,
                    expected_revision=session.revision,
                    covered_row_id=base.last_row_id,
                    entries=finished.entries,
                    compression=finished.state,
                    manifest=finished.manifest,
                )
            )
        return await self._store.split(
            SplitRequest(
                conversation_id=session.conversation_id,
                parent_id=session.id,
                expected_revision=session.revision,
                covered_row_id=base.last_row_id,
                entries=finished.entries,
                compression=finished.state,
                manifest=finished.manifest,
                lease_holder=holder,
            )
        )

    async def not_wanted(self, order: Order, run: Run, notify: Notify | None) -> CompactionResult:
        """The engine was asked and does not want to; somebody is told only what is new to them."""
        known = run.refused == order.state.told_block and not run.failed
        if known or not (run.reason or run.failed):
            return order.unchanged("not_needed", run.reason)
        return await self._not_applied(order, run, notify, self._clock.monotonic())

    async def _not_applied(
        self, order: Order, run: Run, notify: Notify | None, started: float
    ) -> CompactionResult:
        """Remember why, and tell the user once for each reason."""
        wanted = run.failed or order.trigger in ("overflow", "hygiene")
        state = self._memory.rebased(order.loaded, run.state)
        told = (state.cooldown_reason if run.failed else "") or run.reason
        if notify is not None and wanted and told != state.told_reason:
            notify(abort_text(told))
            state = state.changed(told_reason=told)
        if notify is not None and run.refused and run.refused != state.told_block:
            notify(blocked_text(run.reason))
            state = state.changed(told_block=run.refused)
        log.log(  # whoever asks for it is told; a failure behind it has its own line
            logging.INFO if order.force else logging.WARNING,
            "compression not applied",
            extra=_facts(order, run.cost) | {"reason": run.reason},
        )
        loaded = await self._memory.store(order.loaded, state)
        outcome: CompactionOutcome = "aborted" if wanted else "not_needed"
        self._tell(order, "failed" if run.failed else outcome, started)
        return replace(order.unchanged(outcome, run.reason), loaded=loaded)

    def _tell(
        self,
        order: Order,
        outcome: str,
        started: float,
        *,
        rows_after: int | None = None,
        tokens_after: int | None = None,
    ) -> None:
        """The line for scripts; None: as before."""
        session, rows = order.loaded.session, len(order.loaded.rows)
        builtin, before = self._runner.builtin, order.size.tokens
        after = before if tokens_after is None else tokens_after
        threshold = self._runner.threshold_tokens
        telemetry.write_batch(
            log,
            {
                "event": "context_compression",
                "session_id": session.id,
                "outcome": outcome,
                "trigger": order.trigger,
                "messages_before": rows,
                "messages_after": rows if rows_after is None else rows_after,
                "tokens_before": before,
                "tokens_after": after,
                "tokens_delta": after - before,
                "compressions_total": session.compression.count + (tokens_after is not None),
                "duration_ms": round(1000 * (self._clock.monotonic() - started)),
                "threshold_tokens": threshold,
                "context_limit": self._runner.window_tokens or None,
                "occupancy_pct": telemetry.occupancy_pct(after, threshold),
                "main_model": session.prefix.model,
                "aux_model": (builtin and builtin.summary_model) or session.prefix.model,
            },
        )


def _facts(order: Order, cost: dict[str, Any]) -> dict[str, Any]:
    """For every log line about a compression; what was paid in vain is in it too."""
    facts: dict[str, Any] = {"trigger": order.trigger, "tokens_before": order.size.tokens}
    return facts | {f"summary_{name}": value for name, value in cost.items()}


def abort_text(reason: str) -> str:
    """What the user reads once when a compression could not be done."""
    return (
        f"⚠ This conversation could not be compressed: {reason}. Nothing was dropped. "
        "It is tried again later; /compress tries now, /new starts afresh."
    )


def blocked_text(reason: str) -> str:
    """What the user reads once when a conversation is full and not compressed by itself."""
    return (
        f"⚠ This conversation is over its compression threshold and is not compressed now: "
        f"{reason}. Nothing was dropped; /compress tries now, /new starts afresh."
    )
