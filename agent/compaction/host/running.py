"""Owns running an engine over a session: ours or somebody else's, and what of it is believed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent.compaction.host.foreign import ForeignEngine
from agent.compaction.host.foreign_lists import pruned_by
from agent.compaction.host.memory_text import MemoryText, memory_text
from agent.compaction.plan.adoption import Adopted, Checked, check
from agent.compaction.plan.policy import after_compression, after_failure, after_waste, in_words
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.engine_host import QUICK_SECONDS, EngineHost
from agent.errors import EngineError
from agent.messages import to_engine
from agent.model_metadata import IMAGE_TOKENS, Measurement, Window
from agent.ports import Clock, CompactionOutcome, CompactionResult, CompactionTrigger, SideModel
from agent.sessions import CompressionState, LoadedSession

if TYPE_CHECKING:
    from agent.compaction.native.running import NativeCompaction

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be compressed, and why."""

    loaded: LoadedSession
    """With its newest compression state."""
    trigger: CompactionTrigger
    size: Measurement
    """Of its next prompt, as far as known."""
    prefix_tokens: int
    image_tokens: int = IMAGE_TOKENS
    focus: str | None = None
    overflow_proven: bool = False

    @property
    def state(self) -> CompressionState:
        """What is remembered about the session."""
        return self.loaded.session.compression

    @property
    def force(self) -> bool:
        """Somebody asked for it: the guards do not count."""
        return self.trigger == "manual"

    def unchanged(self, outcome: CompactionOutcome, reason: str) -> CompactionResult:
        """The result if nothing comes of it."""
        return CompactionResult(outcome, self.loaded, self.size.tokens, self.size.tokens, reason)


@dataclass(frozen=True, slots=True)
class Run:
    """What one engine made of a list."""

    adopted: Adopted | None
    """None: nothing is to be changed."""
    state: CompressionState
    manifest: dict[str, Any] | None = None
    reason: str = ""
    failed: bool = False
    """It was wanted and could not be done: the user is told."""
    refused: str = ""
    """The kind of reason for which somebody else's engine does not want to, although it is full."""
    cost: dict[str, Any] = field(default_factory=dict)
    """What the summary calls took, as far as the host learns of it."""


class EngineRunner:
    """The engine of one conversation, and the built-in one behind it if nothing else fits."""

    def __init__(
        self,
        engine: ContextEngine | ForeignEngine,
        clock: Clock,
        *,
        threads: DaemonThreads | None,
        fallback: ContextCompressor | None,
        timeout_seconds: float,
        memory: MemoryText | None = None,
        ahead_model: SideModel | None = None,
        native: NativeCompaction | None = None,
    ) -> None:
        self._threads = threads or DaemonThreads()
        self._foreign: ForeignEngine | None = None
        self._builtin: ContextCompressor | None = None
        if isinstance(engine, ForeignEngine):
            self._foreign, self._host = engine, engine.host
        elif isinstance(engine, ContextCompressor):
            self._builtin, self._host = engine, EngineHost(engine, self._threads, clock)
        else:
            self._foreign = ForeignEngine(
                engine, self._threads, clock, timeout_seconds=timeout_seconds
            )
            self._host = self._foreign.host
        self._native = native
        self._ahead_model = ahead_model
        self._fallback = (
            (fallback, EngineHost(fallback, self._threads, clock)) if fallback is not None else None
        )
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._memory = memory
        self._lowered_window: int | None = None

    @property
    def engine(self) -> ContextEngine:
        """The conversation's engine."""
        return self._host.engine

    @property
    def foreign(self) -> ForeignEngine | None:
        """The same, if it is somebody else's."""
        return self._foreign

    @property
    def threshold_tokens(self) -> int:
        """Prompt size from which on it compresses; 0: it does not say."""
        if self._builtin is not None:
            return max(0, self._builtin.threshold_tokens)
        return self._host.threshold_tokens

    @property
    def window_tokens(self) -> int:
        """The model's window, as far as it is known; 0: nobody knows."""
        if self._foreign is not None:
            return self._foreign.window_tokens
        return self._host.context_length

    @property
    def builtin(self) -> ContextCompressor | None:
        """The same, if it is the built-in one."""
        return self._builtin

    @property
    def occupied(self) -> bool:
        """Is the engine at work on something that nobody should wait behind?"""
        return self._host.occupied

    async def run(self, order: Order) -> Run:
        """Let the engine work; the built-in one steps in if the history is proven not to fit."""
        current = order.size.tokens
        if order.overflow_proven:
            current = max(current, self.window_tokens)
        if self._builtin is not None:
            return await self._run_ours(self._builtin, self._host, order, current)
        assert self._foreign is not None
        run = await self._run_foreign(self._foreign, order, current)
        if run.adopted is None and order.overflow_proven and self._fallback is not None:
            log.warning("the built-in engine steps in", extra={"engine_failure": run.reason})
            return await self._run_builtin(*self._fallback, order, current)
        return run

    async def run_ahead(self, order: Order) -> Run:
        """Let a twin of the built-in engine work on what is not due yet; nobody waits for it."""
        if self._builtin is None:
            raise ValueError("only the built-in engine works ahead of time")
        twin = self._builtin.twin(self._ahead_model)
        twin.ahead = True
        host = EngineHost(twin, self._threads, self._clock)
        return await self._run_ours(twin, host, order, order.size.tokens)

    @property
    def prunes_results(self) -> bool:
        """Has the engine a way of its own to shorten tool results only?"""
        return not self._host.inherits("prune_tool_results_only")

    async def prune_results(self, order: Order) -> Checked | None:
        """What the engine makes of old tool results; None: it changed nothing.

        Raises:
            EngineError: It failed, or it is busy.
        """
        foreign, rows = self._foreign, order.loaded.rows
        if foreign is not None:
            return await foreign.compressing.prune_results(rows, order.size.tokens)
        pruned: Checked | None = await self._host.run(
            lambda: pruned_by(self.engine, rows, order.size.tokens),
            "prune_tool_results_only",
            QUICK_SECONDS,
        )
        return pruned

    async def beside(self, call: Callable[[], T]) -> T:
        """Run something that takes a while beside the event loop."""
        return await asyncio.wrap_future(self._threads.submit(call))

    async def _run_ours(
        self, engine: ContextCompressor, host: EngineHost, order: Order, current: int
    ) -> Run:
        """The provider's own summary where that is wanted and works, else one of ours.

        Ours never builds on the provider's: it reads what that was made from.
        """
        native = self._native
        if native is None:
            return await self._run_builtin(engine, host, order, current)
        memory = await memory_text(self._memory, order.loaded, self._clock)
        run = await native.run(order, engine.triggers, memory, self.beside)
        if run is not None:
            return run
        whole = await native.originals(order.loaded)
        order_for_all = replace(order, loaded=whole)
        run = await self._run_builtin(engine, host, order_for_all, current, memory)
        return native.taken_back(run, order.loaded, whole)

    async def _run_builtin(
        self,
        engine: ContextCompressor,
        host: EngineHost,
        order: Order,
        current: int,
        memory: str | None = None,
    ) -> Run:
        rows = order.loaded.rows
        if memory is None:
            memory = await memory_text(self._memory, order.loaded, self._clock)

        def work() -> Any:
            engine.restore(order.state)
            engine.fixed_tokens = order.prefix_tokens
            engine.image_tokens = order.image_tokens
            engine.size_is_estimated = order.size.source != "usage"
            engine.overflow_proven = order.overflow_proven
            given = to_engine(rows)
            copies = [dict(message) for message in given]
            result = engine.compress(copies, current, order.focus, order.force, memory)
            attempt = engine.last_attempt
            compressed = attempt.outcome == "compressed"
            checked = check(result, given, rows) if compressed else None
            return checked, engine.state, attempt

        try:
            checked, new_state, attempt = await host.run(work, "compress", self._timeout_seconds)
        except EngineError as exc:
            return self._failed(order, exc)
        if checked is None:
            return Run(
                None,
                new_state,
                reason=attempt.reason,
                failed=attempt.outcome == "aborted",
                cost=attempt.cost,
            )
        taken = self._taken(order, checked, new_state, attempt.manifest)
        return replace(taken, cost=attempt.cost)

    async def asked(self, order: Order) -> Run | None:
        """Let somebody else's engine decide; None: it wants to compress.

        What comes back otherwise says why not, if it should and does not want to.
        """
        if self._foreign is None:
            return None
        try:
            wanted, reason = await self._foreign.compressing.wants(
                order.size.tokens, order.trigger, order.loaded.session.prefix
            )
        except EngineError as exc:
            return self._failed(order, exc)
        if wanted:
            return None
        kind = (reason or "").partition(":")[0].strip()
        words = in_words(order.state, reason, self._clock.now()) if reason else ""
        return Run(None, order.state, reason=words, refused=kind)

    async def _run_foreign(self, foreign: ForeignEngine, order: Order, current: int) -> Run:
        rows = order.loaded.rows
        try:
            if order.force and not await foreign.compressing.has_content(rows):
                return Run(None, order.state, reason="there is nothing to compress")
            memory = ""
            if order.force or not await foreign.compressing.only_cleans_up(rows):
                memory = await memory_text(self._memory, order.loaded, self._clock)
            checked = await foreign.compressing.compress(
                rows,
                order.loaded.session.prefix,
                tokens=current,
                focus=order.focus,
                force=order.force,
                memory=memory,
            )
        except EngineError as exc:
            return self._failed(order, exc)
        new_state = after_compression(order.state, self._clock.now(), mode="summary")
        return self._taken(order, checked, new_state, None)

    def _taken(
        self,
        order: Order,
        checked: Checked,
        new_state: CompressionState,
        manifest: dict[str, Any] | None,
    ) -> Run:
        """Believe an engine only what can be checked: a valid list, a change, fewer tokens."""
        if isinstance(checked.adopted, EngineError):
            return self._failed(order, checked.adopted)
        if checked.adopted is None:
            return self._no_gain(order, "the context engine changed nothing")
        adopted, before = checked.adopted, checked.tokens_before
        if adopted.tokens >= before:
            return self._no_gain(order, "the result would not have been smaller")
        if manifest is None:
            manifest = {
                "mode": "engine",
                "at": self._clock.now(),
                "tokens_before": before,
                "tokens_after": adopted.tokens,
                "rows_before": len(order.loaded.rows),
                "rows_after": len(adopted.entries),
            }
        return Run(adopted, new_state, manifest)

    def _no_gain(self, order: Order, reason: str) -> Run:
        """Somebody may have paid for it, so it cools down as well."""
        state = after_waste(order.state, reason, self._clock.now(), order.size)
        return Run(None, state, reason=reason)

    def _failed(self, order: Order, exc: EngineError) -> Run:
        log.warning("context engine gave no result", extra={"error": str(exc)})
        state = after_failure(order.state, "other", str(exc), self._clock.now())
        return Run(None, state, reason=str(exc), failed=True)

    # --- what the engine is told ----------------------------------------------------------------

    async def tell_usage(self, figures: dict[str, Any]) -> None:
        """What a response really took."""
        if self._builtin is not None:
            if not self._host.busy:
                self._builtin.update_from_response(figures)
        elif self._foreign is not None:
            await self._foreign.tell_usage(figures)

    def lower_window(self, limit_tokens: int) -> int | None:
        """The provider named its window; the new one, or None if it is not lower."""
        current = self._lowered_window or self.window_tokens
        lowered = Window(current, "provider").lowered_to(limit_tokens).tokens
        if lowered == current:
            return None
        self._lowered_window = lowered
        log.warning(
            "the provider named a smaller window",
            extra={"window_tokens": lowered, "assumed_tokens": current},
        )
        if self._foreign is not None:
            self._foreign.lower_window(lowered)
        for engine in (self._builtin, self._fallback and self._fallback[0]):
            if engine is not None:
                engine.update_model(engine.model, lowered)
        return lowered
