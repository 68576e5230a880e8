"""Owns the host's side of compaction: when it is due, lease, engine, check, commit, aftermath."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from agent import pressure
from agent.compaction.adoption import Adopted, adopt, rows_tokens, same_list
from agent.compaction.policy import (
    after_compression,
    after_failure,
    after_nothing,
    after_usage,
    cooldown_left,
    verdict,
)
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.engine_host import EngineHost, accepted_keywords
from agent.errors import EngineError
from agent.messages import Message, to_engine
from agent.model_metadata import (
    HYGIENE_RATIO,
    Measurement,
    Window,
    estimate_prefix_tokens,
    measure,
)
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
from agent.sessions import (
    ChangeResult,
    CompressionState,
    LoadedSession,
    RewriteRequest,
    SessionPrefix,
    SplitRequest,
)

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


@dataclass(frozen=True, slots=True)
class _Run:
    """What one engine made of a list."""

    adopted: Adopted | None
    """None: nothing is to be changed."""
    state: CompressionState
    manifest: dict[str, Any] | None = None
    reason: str = ""
    failed: bool = False
    """It was wanted and could not be done: the user is told."""


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
        self._engine = engine
        self._builtin = engine if isinstance(engine, ContextCompressor) else None
        self._host = EngineHost(engine, threads or DaemonThreads(), clock)
        self._threads = threads
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings or CompactionSettings()
        self._fallback = fallback
        self._on_limit = on_limit
        self._states: tuple[str, CompressionState] | None = None
        self._prefix: tuple[SessionPrefix, int] | None = None
        self._lowered_window: int | None = None

    # --- deciding -------------------------------------------------------------------------------

    @property
    def engine(self) -> ContextEngine:
        """The conversation's engine."""
        return self._engine

    @property
    def enabled(self) -> bool:
        """Does it compress by itself?"""
        return self._settings.enabled

    @property
    def hygiene_tokens(self) -> int:
        """Prompt size at which the net before the agent fires; 0: the window is not known."""
        if self._builtin is not None:
            return self._builtin.triggers.hygiene_tokens
        return int(self._engine.context_length * HYGIENE_RATIO)

    @property
    def threshold_tokens(self) -> int:
        """Prompt size at which the loop compresses; 0: the engine never wants to."""
        return max(0, self._engine.threshold_tokens)

    def measure(self, loaded: LoadedSession) -> Measurement:
        """The size of the session's next prompt, and how far to trust it."""
        return measure(
            self._current(loaded), prefix_tokens=self._prefix_tokens(loaded.session.prefix)
        )

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        size = self.measure(loaded)
        threshold = self.threshold_tokens
        if not self._settings.enabled:
            return CompactionDecision(False, size.tokens, threshold, "compression is off")
        if threshold <= 0 or not size.reaches(threshold):
            return CompactionDecision(False, size.tokens, threshold)
        found = verdict(self._state(loaded), self._clock.now())
        if not found.allowed:
            return CompactionDecision(
                False, size.tokens, threshold, self._in_words(loaded, found.reason or "")
            )
        return CompactionDecision(True, size.tokens, threshold)

    def blocked_for_hygiene(self, loaded: LoadedSession) -> str:
        """Why the last net may not fire: cool-downs count there, anti-thrash does not; "" if so."""
        found = verdict(self._state(loaded), self._clock.now(), ignore_block=True)
        return "" if found.allowed else self._in_words(loaded, found.reason or "")

    def _in_words(self, loaded: LoadedSession, reason: str) -> str:
        state = self._state(loaded)
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
        notify: Callable[[str], None] | None = None,
    ) -> CompactionResult:
        loaded = self._current(loaded)
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
        try:
            tip = await self._store.tip(loaded.session.id)
            if tip.id != loaded.session.id:
                adopted = await self._store.load(tip.id)
                return CompactionResult("not_needed", adopted, before, before, "done by another")
            return await self._compact(
                loaded, trigger, before, focus, overflow_proven, notify, holder
            )
        finally:
            await self._store.release_lease(conversation_id, holder)

    async def _compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        before: int,
        focus: str | None,
        overflow_proven: bool,
        notify: Notify | None,
        holder: str,
    ) -> CompactionResult:
        started = self._clock.monotonic()
        run = await self._run(loaded, trigger, before, focus, overflow_proven)
        if run.adopted is None:
            wanted = run.failed or trigger in ("overflow", "hygiene")
            loaded = await self._not_applied(loaded, run, notify if wanted else None)
            log.log(  # whoever asks for it is told; a failure behind it has its own line
                logging.INFO if trigger == "manual" else logging.WARNING,
                "compression not applied",
                extra={"trigger": trigger, "tokens_before": before, "reason": run.reason},
            )
            outcome: CompactionOutcome = "aborted" if wanted else "not_needed"
            return CompactionResult(outcome, loaded, before, before, run.reason)
        after = run.adopted.tokens + self._prefix_tokens(loaded.session.prefix)
        state = pressure.after_compression(run.state, after, self.threshold_tokens)
        change = await self._commit(loaded, run, state, holder)
        current = await self._store.load(change.tip.id)
        if not change.applied:
            log.info("compression discarded, the conversation moved on", extra={"trigger": trigger})
            reason = "the conversation moved on meanwhile"
            return CompactionResult("not_needed", current, before, before, reason)
        self._states = (current.session.id, state)
        log.info(
            "compression done",
            extra={
                "trigger": trigger,
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

    async def _run(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        before: int,
        focus: str | None,
        overflow_proven: bool,
    ) -> _Run:
        """The engine, and the built-in one behind it if the history is proven not to fit."""
        force = trigger == "manual"
        current = before
        if overflow_proven:
            current = max(before, self._engine.context_length)
        if self._builtin is not None:
            return await self._run_builtin(
                self._builtin, self._host, loaded, current, focus, force, overflow_proven
            )
        run = await self._run_foreign(loaded, trigger, current, focus, force)
        if run.adopted is None and overflow_proven and self._fallback is not None:
            log.warning("the built-in engine steps in", extra={"engine_failure": run.reason})
            host = EngineHost(self._fallback, self._threads or DaemonThreads(1), self._clock)
            return await self._run_builtin(
                self._fallback, host, loaded, current, focus, force, overflow_proven
            )
        return run

    async def _run_builtin(
        self,
        engine: ContextCompressor,
        host: EngineHost,
        loaded: LoadedSession,
        current: int,
        focus: str | None,
        force: bool,
        overflow_proven: bool,
    ) -> _Run:
        state = self._state(loaded)
        given = to_engine(loaded.rows)

        def work() -> Any:
            engine.restore(state)
            engine.fixed_tokens = self._prefix_tokens(loaded.session.prefix)
            engine.overflow_proven = overflow_proven
            result = engine.compress([dict(message) for message in given], current, focus, force)
            return result, engine.state, engine.last_attempt

        try:
            result, new_state, attempt = await host.run(
                work, "compress", self._settings.compress_timeout_seconds
            )
        except EngineError as exc:
            return self._engine_failed(loaded, exc)
        if attempt.outcome != "compressed":
            return _Run(None, new_state, reason=attempt.reason, failed=attempt.outcome == "aborted")
        return self._taken(loaded, given, result, new_state, attempt.manifest)

    async def _run_foreign(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        current: int,
        focus: str | None,
        force: bool,
    ) -> _Run:
        state = self._state(loaded)
        given = to_engine(loaded.rows)
        try:
            await self._apply_limit()
            if trigger in ("preflight", "loop"):
                wanted, reason = await self._wanted(current)
                if not wanted:
                    return _Run(None, state, reason=reason or "")
            result = await self._host.run(
                lambda: self._call_foreign(given, current, focus, force),
                "compress",
                self._settings.compress_timeout_seconds,
            )
        except EngineError as exc:
            return self._engine_failed(loaded, exc)
        new_state = after_compression(state, "", self._clock.now(), mode="summary")
        return self._taken(loaded, given, result, new_state, {"mode": "engine"})

    def _call_foreign(
        self, given: list[Message], current: int, focus: str | None, force: bool
    ) -> Any:
        """On the worker thread: with copies of everything, which the engine may change."""
        keywords = {
            "current_tokens": current,
            "focus_topic": focus,
            "force": force,
            "memory_context": "",
        }
        accepted = accepted_keywords(self._engine.compress, keywords)
        return self._engine.compress(copy.deepcopy([dict(m) for m in given]), **accepted)

    async def _wanted(self, current: int) -> tuple[bool, str | None]:
        answer = await self._host.call("should_compress_info", current)
        if isinstance(answer, tuple) and len(answer) == 2:
            return bool(answer[0]), answer[1] if isinstance(answer[1], str) else None
        return bool(answer), None

    def _taken(
        self,
        loaded: LoadedSession,
        given: list[Message],
        result: object,
        new_state: CompressionState,
        manifest: dict[str, Any],
    ) -> _Run:
        """Believe an engine only what can be checked: a valid list, a change, fewer tokens."""
        if same_list(result, given):
            return self._no_gain(loaded, "the context engine changed nothing")
        try:
            adopted = adopt(result, loaded.rows)
        except EngineError as exc:
            return self._engine_failed(loaded, exc)
        if adopted.tokens >= rows_tokens(loaded.rows):
            return self._no_gain(loaded, "the result would not have been smaller")
        return _Run(adopted, new_state, manifest)

    def _no_gain(self, loaded: LoadedSession, reason: str) -> _Run:
        return _Run(None, after_nothing(self._state(loaded), self._clock.now()), reason=reason)

    def _engine_failed(self, loaded: LoadedSession, exc: EngineError) -> _Run:
        log.warning("context engine gave no result", extra={"error": str(exc)})
        state = after_failure(self._state(loaded), "other", str(exc), self._clock.now())
        return _Run(None, state, reason=str(exc), failed=True)

    # --- committing -----------------------------------------------------------------------------

    async def _commit(
        self, loaded: LoadedSession, run: _Run, state: CompressionState, holder: str
    ) -> ChangeResult:
        session = loaded.session
        entries = run.adopted.entries if run.adopted is not None else ()
        if self._settings.in_place:
            return await self._store.rewrite(
                RewriteRequest(
                    session_id=session.id,
                    expected_revision=session.revision,
                    covered_row_id=loaded.last_row_id,
                    entries=entries,
                    compression=state,
                    manifest=run.manifest,
                )
            )
        return await self._store.split(
            SplitRequest(
                conversation_id=session.conversation_id,
                parent_id=session.id,
                expected_revision=session.revision,
                covered_row_id=loaded.last_row_id,
                entries=entries,
                compression=state,
                manifest=run.manifest,
                lease_holder=holder,
            )
        )

    async def _not_applied(
        self, loaded: LoadedSession, run: _Run, notify: Notify | None
    ) -> LoadedSession:
        """Remember why, and tell the user once for each reason."""
        state = run.state
        told = (state.cooldown_reason if run.failed else "") or run.reason
        if notify is not None and told != state.told_reason:
            notify(abort_text(told))
            state = state.changed(told_reason=told)
        return await self._remember(loaded, state)

    async def _announce(self, old: LoadedSession, new: LoadedSession) -> None:
        """Tell the engine where the conversation goes on; its failures change nothing."""
        if old.session.id == new.session.id or self._builtin is not None:
            return
        conversation = await self._store.conversation(new.session.conversation_id)
        await self._host.tell("on_session_end", old.session.id, to_engine(old.rows))
        await self._host.tell(
            "on_session_start",
            new.session.id,
            boundary_reason="compression",
            old_session_id=old.session.id,
            platform=new.session.prefix.source,
            conversation_id=conversation.session_key if conversation is not None else "",
        )
        try:
            self._engine.last_prompt_tokens = -1
            self._engine.last_completion_tokens = 0
            self._engine.awaiting_real_usage_after_compression = True  # type: ignore[attr-defined]
        except Exception:  # a property of somebody else's engine
            log.warning("context engine refused to be marked as compressed", exc_info=True)

    # --- what comes back ------------------------------------------------------------------------

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage, *, notify: Notify | None = None
    ) -> LoadedSession:
        loaded = self._current(loaded)
        figures = usage_dict(usage)
        state = self._state(loaded)
        prompt = usage.prompt_tokens
        if self._builtin is not None:
            self._builtin.update_from_response(figures)
        else:
            await self._host.tell("update_from_response", figures)
        state = after_usage(state, prompt, self.threshold_tokens, self._clock.now())
        if prompt > 0 and self.threshold_tokens > 0:
            state, tell = pressure.after_size(
                state, prompt, self.threshold_tokens, self._clock.now()
            )
            if tell:
                self._warn(prompt, notify)
        return await self._remember(loaded, state)

    def _warn(self, prompt_tokens: int, notify: Notify | None) -> None:
        threshold, window = self.threshold_tokens, self._engine.context_length
        log.warning(
            "context pressure",
            extra={"prompt_tokens": prompt_tokens, "threshold_tokens": threshold},
        )
        if notify is not None:
            automatic = self._settings.enabled
            notify(pressure.pressure_text(prompt_tokens, threshold, window, automatic=automatic))

    def note_limit(self, limit_tokens: int) -> None:
        current = self._lowered_window or self._engine.context_length
        lowered = Window(current, "provider").lowered_to(limit_tokens).tokens
        if lowered == current:
            return
        self._lowered_window = lowered
        log.warning(
            "the provider named a smaller window",
            extra={"window_tokens": lowered, "assumed_tokens": current},
        )
        if self._builtin is not None:
            self._builtin.update_model(self._builtin.model, lowered)
        if self._fallback is not None:
            self._fallback.update_model(self._fallback.model, lowered)
        self._on_limit(lowered)

    async def _apply_limit(self) -> None:
        """A third-party engine learns of a lowered window on its own thread."""
        if self._lowered_window is not None and self._engine.context_length > self._lowered_window:
            model = self._fallback.model if self._fallback is not None else ""
            await self._host.call("update_model", model, self._lowered_window)

    # --- state ----------------------------------------------------------------------------------

    def _state(self, loaded: LoadedSession) -> CompressionState:
        """What is remembered about a session: the newest that this compactor has stored."""
        if self._states is not None and self._states[0] == loaded.session.id:
            return self._states[1]
        return loaded.session.compression

    def _current(self, loaded: LoadedSession) -> LoadedSession:
        """The session with what is remembered about it, whoever loaded it when."""
        state = self._state(loaded)
        if state == loaded.session.compression:
            return loaded
        return replace(loaded, session=replace(loaded.session, compression=state))

    async def _remember(self, loaded: LoadedSession, state: CompressionState) -> LoadedSession:
        if state == self._state(loaded):
            return loaded
        self._states = (loaded.session.id, state)
        await self._store.set_compression(loaded.session.id, state)
        return self._current(loaded)

    def _prefix_tokens(self, prefix: SessionPrefix) -> int:
        if self._prefix is None or self._prefix[0] is not prefix:
            self._prefix = (prefix, estimate_prefix_tokens(prefix))
        return self._prefix[1]


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
