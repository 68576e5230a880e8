"""Owns the host's side of compaction: when it is due, lease, engine, commit, aftermath."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent import pressure
from agent.compaction.committing import Finished, commit
from agent.compaction.policy import after_usage, cooldown_left, verdict
from agent.compaction.remembering import StateMemory
from agent.compaction.running import EngineRunner, Order, Run
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.model_metadata import HYGIENE_RATIO, Measurement
from agent.ports import (
    Clock,
    CompactionDecision,
    CompactionOutcome,
    CompactionResult,
    CompactionTrigger,
    IdSource,
    SessionStore,
    Usage,
)
from agent.sessions import LoadedSession

log = logging.getLogger(__name__)

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How the host compacts."""

    enabled: bool = True
    """False: only ``/compress`` does."""
    in_place: bool = False
    compress_timeout_seconds: float = 600.0
    lease_ttl_seconds: float = 900.0
    """Longer than the time-out, so that a lease outlives the call that it announces."""


class SessionCompactor:
    """Keeps the sessions of one conversation inside the window (`agent.ports.Compactor`)."""

    def __init__(
        self,
        engine: ContextEngine,
        store: SessionStore,
        clock: Clock,
        ids: IdSource,
        settings: CompactionSettings | None = None,
        *,
        threads: DaemonThreads | None = None,
        fallback: ContextCompressor | None = None,
        on_limit: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        """Take the parts of one conversation.

        Args:
            engine: This conversation's own instance, `update_model` done.
            store: Where sessions are.
            clock: Time.
            ids: Names of leases.
            settings: How to compact.
            threads: Where engines run; shared by all conversations.
            fallback: Steps in for a third-party engine, only after a proven overflow.
            on_limit: Told when the provider named a smaller window than was assumed.
        """
        self._settings = settings or CompactionSettings()
        self._runner = EngineRunner(
            engine,
            clock,
            threads=threads,
            fallback=fallback,
            timeout_seconds=self._settings.compress_timeout_seconds,
        )
        self._memory = StateMemory(store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._on_limit = on_limit

    # --- deciding -------------------------------------------------------------------------------

    @property
    def engine(self) -> ContextEngine:
        """The conversation's engine."""
        return self._runner.engine

    @property
    def enabled(self) -> bool:
        """Does it compress by itself?"""
        return self._settings.enabled

    @property
    def hygiene_tokens(self) -> int:
        """Prompt size at which the net before the agent fires; 0: the window is not known."""
        if self._runner.builtin is not None:
            return self._runner.builtin.triggers.hygiene_tokens
        return int(self.engine.context_length * HYGIENE_RATIO)

    @property
    def threshold_tokens(self) -> int:
        """Prompt size at which the loop compresses; 0: the engine never wants to."""
        return max(0, self.engine.threshold_tokens)

    def measure(self, loaded: LoadedSession) -> Measurement:
        """The size of the session's next prompt, and how far to trust it."""
        return self._memory.measure(loaded)

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        size = self.measure(loaded)
        threshold = self.threshold_tokens
        if not self._settings.enabled:
            return CompactionDecision(False, size.tokens, threshold, "compression is off")
        if threshold <= 0 or not size.reaches(threshold):
            return CompactionDecision(False, size.tokens, threshold)
        found = verdict(self._memory.state(loaded), self._clock.now())
        if not found.allowed:
            return CompactionDecision(
                False, size.tokens, threshold, self._in_words(loaded, found.reason or "")
            )
        return CompactionDecision(True, size.tokens, threshold)

    def blocked_for_hygiene(self, loaded: LoadedSession) -> str:
        """Why the last net may not fire: cool-downs count there, anti-thrash does not; "" if so."""
        found = verdict(self._memory.state(loaded), self._clock.now(), ignore_block=True)
        return "" if found.allowed else self._in_words(loaded, found.reason or "")

    def _in_words(self, loaded: LoadedSession, reason: str) -> str:
        state = self._memory.state(loaded)
        if reason.startswith("cooldown:"):
            left = int(cooldown_left(state, self._clock.now())) + 1
            return f"{state.cooldown_reason or 'the last try failed'} (next try in {left} s)"
        if reason == "ineffective":
            return "the last compressions made too little room (tried again after five minutes)"
        return reason or "compression is blocked"

    # --- compressing ----------------------------------------------------------------------------

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Notify | None = None,
    ) -> CompactionResult:
        loaded = self._memory.current(loaded)
        before = self.measure(loaded).tokens
        if trigger != "manual" and not self._settings.enabled:
            return CompactionResult("aborted", loaded, before, before, "compression is off")
        if not loaded.rows:
            return CompactionResult("not_needed", loaded, before, before, "there is nothing yet")
        if trigger in ("preflight", "loop") and not (decision := self.due(loaded)).due:
            outcome: CompactionOutcome = "aborted" if decision.reason else "not_needed"
            return CompactionResult(outcome, loaded, before, before, decision.reason)
        conversation_id = loaded.session.conversation_id
        holder = self._ids.new("lease")
        ttl = self._settings.lease_ttl_seconds
        if not await self._store.acquire_lease(conversation_id, holder, ttl):
            reason = "the conversation is being compressed already"
            return CompactionResult("aborted", loaded, before, before, reason)
        order = Order(
            loaded=loaded,
            trigger=trigger,
            tokens=before,
            prefix_tokens=self._memory.prefix_tokens(loaded.session.prefix),
            focus=focus,
            overflow_proven=overflow_proven,
        )
        try:
            tip = await self._store.tip(loaded.session.id)
            if tip.id != loaded.session.id:
                adopted = await self._store.load(tip.id)
                return CompactionResult("not_needed", adopted, before, before, "done by another")
            return await self._carry_out(order, notify, holder)
        finally:
            await self._store.release_lease(conversation_id, holder)

    async def _carry_out(
        self, order: Order, notify: Notify | None, holder: str
    ) -> CompactionResult:
        started = self._clock.monotonic()
        loaded, before = order.loaded, order.tokens
        run = await self._runner.run(order)
        if run.adopted is None:
            wanted = run.failed or order.trigger in ("overflow", "hygiene")
            loaded = await self._not_applied(loaded, run, notify if wanted else None)
            log.log(  # whoever asks for it is told; a failure behind it has its own line
                logging.INFO if order.force else logging.WARNING,
                "compression not applied",
                extra={"trigger": order.trigger, "tokens_before": before, "reason": run.reason},
            )
            outcome: CompactionOutcome = "aborted" if wanted else "not_needed"
            return CompactionResult(outcome, loaded, before, before, run.reason)
        after = run.adopted.tokens + order.prefix_tokens
        state = pressure.after_compression(run.state, after, self.threshold_tokens)
        finished = Finished(loaded, run.adopted.entries, state, run.manifest)
        change = await commit(
            self._store, finished, in_place=self._settings.in_place, lease_holder=holder
        )
        current = await self._store.load(change.tip.id)
        if not change.applied:
            log.info(
                "compression discarded, the conversation moved on", extra={"trigger": order.trigger}
            )
            reason = "the conversation moved on meanwhile"
            return CompactionResult("not_needed", current, before, before, reason)
        self._memory.adopt(current.session.id, state)
        log.info(
            "compression done",
            extra={
                "trigger": order.trigger,
                "parent_session_id": loaded.session.id,
                "child_session_id": current.session.id,
                "tokens_before": before,
                "tokens_after": after,
                "rows_before": len(loaded.rows),
                "rows_after": len(current.rows),
                "seconds": round(self._clock.monotonic() - started, 3),
            },
        )
        await self._announce(loaded, current)
        return CompactionResult("compressed", current, before, after)

    async def _not_applied(
        self, loaded: LoadedSession, run: Run, notify: Notify | None
    ) -> LoadedSession:
        """Remember why, and tell the user once for each reason."""
        state = run.state
        told = (state.cooldown_reason if run.failed else "") or run.reason
        if notify is not None and told != state.told_reason:
            notify(abort_text(told))
            state = state.changed(told_reason=told)
        return await self._memory.store(loaded, state)

    async def _announce(self, old: LoadedSession, new: LoadedSession) -> None:
        """Tell somebody else's engine where the conversation goes on."""
        if old.session.id == new.session.id or self._runner.builtin is not None:
            return
        conversation = await self._store.conversation(new.session.conversation_id)
        key = conversation.session_key if conversation is not None else ""
        await self._runner.tell_split(old, new, key)

    # --- what comes back ------------------------------------------------------------------------

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage, *, notify: Notify | None = None
    ) -> LoadedSession:
        loaded = self._memory.current(loaded)
        state = loaded.session.compression
        prompt, threshold, now = usage.prompt_tokens, self.threshold_tokens, self._clock.now()
        await self._runner.tell_usage(usage_dict(usage))
        state = after_usage(state, prompt, threshold, now)
        if prompt > 0 and threshold > 0:
            state, tell = pressure.after_size(state, prompt, threshold, now)
            if tell:
                self._warn(prompt, notify)
        return await self._memory.store(loaded, state)

    def _warn(self, prompt_tokens: int, notify: Notify | None) -> None:
        threshold, window = self.threshold_tokens, self.engine.context_length
        log.warning(
            "context pressure",
            extra={"prompt_tokens": prompt_tokens, "threshold_tokens": threshold},
        )
        if notify is not None:
            automatic = self._settings.enabled
            notify(pressure.pressure_text(prompt_tokens, threshold, window, automatic=automatic))

    def note_limit(self, limit_tokens: int) -> None:
        lowered = self._runner.lower_window(limit_tokens)
        if lowered is not None:
            self._on_limit(lowered)


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Usage as engines know it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": 0,
    }


def abort_text(reason: str) -> str:
    """What the user reads once when a compression could not be done."""
    return (
        f"⚠ This conversation could not be compressed: {reason}. Nothing was dropped. "
        "It is tried again later; /compress tries now, /new starts afresh."
    )
