"""Owns how the compactor of a conversation is made, from the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from agent.auxiliary_client import USUAL_TASK, LoopSideModel, TaskSettings, install
from agent.compaction.host.foreign import ForeignEngine, HostFacts
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.passes import MicroParts
from agent.compaction.native.running import NativeCompaction
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.errors import EngineError
from agent.image_tokens import ImageTokens
from agent.messages import Message
from agent.model_metadata import Triggers, triggers_for
from agent.ports import Clock, Compactor, IdSource
from agent.store_ports import Store
from gateway.config.models import Config
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics
from gateway.windows.book import WindowBook
from gateway.windows.rules import micro_of, rules_of
from gateway.wiring.models import cache_seconds

if TYPE_CHECKING:
    from gateway.plugins.engines import EngineSource
    from gateway.turns.compactors import Keeper

MICRO_THREADS = 2
"""So many calls of micro-compaction wait at once; the others wait for a thread."""


def side_tasks(config: Config) -> dict[str, TaskSettings]:
    """What is configured for side tasks, by their names."""
    tasks = {
        name: TaskSettings(task.model, task.timeout) for name, task in config.auxiliary.items()
    }
    usual = tasks.get(USUAL_TASK, TaskSettings())
    tasks[USUAL_TASK] = TaskSettings(config.compression.summary_model, usual.timeout_seconds)
    return tasks


class CompactorFactory:
    """Makes the compactor of one conversation, for the window that is known by then."""

    def __init__(
        self,
        config: Config,
        book: WindowBook,
        model: MeteredModel,
        store: Store,
        clock: Clock,
        ids: IdSource,
        image_tokens: ImageTokens,
        metrics: Metrics,
        engines: EngineSource | None = None,
        facts: HostFacts | None = None,
    ) -> None:
        """``engines``: where those of plugins come from; None: the built-in one is wanted.

        ``facts``: what those are told of their host.
        """
        self._engines = engines
        self._facts = facts or HostFacts()
        self._book = book
        self._model = model.name
        self._asked = model
        self._side_model = LoopSideModel(model, asyncio.get_running_loop(), ledger=store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._image_tokens = image_tokens
        self._metrics = metrics
        self._threads = DaemonThreads()
        self._window_changed: Callable[[], None] = lambda: None
        self._micro_threads = DaemonThreads(MICRO_THREADS, name="micro")
        self.to_keep: Callable[[str, list[Message]], Awaitable[str]] | None = None
        """What the memory of a conversation wants a summary of these messages to keep."""
        self.micro_may_spend: Callable[[str], Awaitable[bool]] | None = None
        """May this owner's money be spent on micro-compaction now?"""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Other rules, for compactors that are made from now on and for triggers."""
        rules = config.compression
        self._config = config
        self._compacting = self._asked if rules.native == "compact" else None
        self._settings = CompactionSettings(
            enabled=rules.enabled,
            in_place=rules.in_place,
            background=rules.background,
            cache_ttl_seconds=cache_seconds(config, self._model),
            prune_from_tokens=rules.proactive_prune_tokens,
        )
        self._rules = rules_of(config)
        install(self._side_model, tasks=side_tasks(config))

    def on_window_changed(self, call: Callable[[], None]) -> None:
        """What to do about the compactors that were made before."""
        self._window_changed = call

    def _lower_window(self, tokens: int) -> None:
        """One conversation has learned the limit; the others shall not have to."""
        self._book.lower(tokens)
        self._window_changed()

    async def _to_keep(self, conversation_id: str, messages: list[Message]) -> str:
        return await self.to_keep(conversation_id, messages) if self.to_keep is not None else ""

    def triggers(self) -> Triggers:
        """The numbers in force."""
        return triggers_for(
            self._book.window.tokens,
            self._rules,
            max_tokens=self._config.model.max_tokens,
            model=self._model,
        )

    @property
    def keeper(self) -> Keeper | None:
        """Who looks after engines of plugins; None: there are none."""
        if self._engines is None:
            return None
        from gateway.plugins.engine_keeper import EngineKeeper  # noqa: PLC0415 - only with plugins

        return EngineKeeper(self._engines, self._store, self._around, self._make)

    def __call__(self, conversation_id: str) -> Compactor | Awaitable[Compactor]:
        """At once with the built-in engine; one of a plugin's is made on its own thread."""
        if self._engines is None:
            return self._around(conversation_id)
        return self._make(conversation_id)

    async def _make(self, conversation_id: str) -> Compactor:
        engine = await self._engines.make(conversation_id) if self._engines is not None else None
        if engine is None or self._engines is None:
            return self._around(conversation_id)
        foreign = ForeignEngine(
            engine,
            self._engines.threads,
            self._clock,
            timeout_seconds=self._settings.compress_timeout_seconds,
            name=self._engines.name,
            facts=self._facts,
            window=lambda: self._book.window.tokens,
        )
        try:
            await foreign.introduce(self._model)
        except EngineError as exc:
            self._engines.refused(str(exc))
            self._engines.let_go(conversation_id)
            await foreign.ends(None)
            return self._around(conversation_id)
        return self._around(conversation_id, foreign)

    def _around(
        self, conversation_id: str, foreign: ForeignEngine | None = None
    ) -> SessionCompactor:
        rules = self._config.compression
        builtin = ContextCompressor(
            self._model,
            protect_first_n=rules.protect_first_n,
            protect_last_n=rules.protect_last_n,
            summary_model_override=rules.summary_model,
            summary_timeout_seconds=side_tasks(self._config)[USUAL_TASK].timeout_seconds,
            config_context_length=self._book.window.tokens,
            max_tokens=self._config.model.max_tokens,
            side_model=self._side_model.on_account(conversation_id, "summary"),
            clock=self._clock,
            rules=self._rules,
        )
        return SessionCompactor(
            foreign or builtin,
            self._store,
            self._clock,
            self._ids,
            self._settings,
            threads=self._threads,
            fallback=builtin if foreign is not None else None,
            on_limit=self._lower_window,
            ahead_model=self._side_model.on_account(conversation_id, "background"),
            image_tokens=self._image_tokens.of,
            on_result=self._metrics.compression_ended,
            memory_text=partial(self._to_keep, conversation_id),
            native=NativeCompaction(
                self._compacting, self._store, self._clock, protect_last_n=rules.protect_last_n
            ),
            micro=MicroParts(
                micro_of(self._config),
                self._side_model.on_account(conversation_id, "micro"),
                self._micro_threads,
                self.micro_may_spend,
            ),
        )
