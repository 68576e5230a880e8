"""Owns the composition of what makes an answer: model, windows, tools, compactors, accounts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agent.attachments import Attachments
from agent.cache_watch import CacheWatch
from agent.compaction.host.foreign import HostFacts
from agent.image_tokens import ImageTokens
from agent.llm.offline import OfflineModel
from agent.loop import TurnLoop
from agent.media.pictures import PictureMaker
from agent.memory.desk import NoteDesk
from agent.memory.provider_companion import ProviderCompanion
from agent.ports import LanguageModel
from agent.prices import price_table
from agent.prompt import system_prompt
from agent.sessions import SessionPrefix
from agent.tools.registry import ToolRegistry
from gateway.accounts import Accounts
from gateway.jobs.desk import JobDesk
from gateway.jobs.zone_names import name_of
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.turn_board import TurnBoard
from gateway.turns.ahead import AheadDesk
from gateway.turns.compactors import CompactorCache
from gateway.turns.micro import MicroDesk
from gateway.windows.book import WindowBook, remembered_image_tokens
from gateway.wiring.compaction import CompactorFactory
from gateway.wiring.ground import Ground
from gateway.wiring.memory import build_memory
from gateway.wiring.models import ask_anew, known_window, loop_settings, tool_result_tokens
from gateway.wiring.tools import build_tools

if TYPE_CHECKING:
    from gateway.plugins.engines import EngineSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Books:
    """Where it is written down what was asked, and what it took."""

    metrics: Metrics
    accounts: Accounts
    board: TurnBoard


@dataclass(frozen=True, slots=True)
class Answering:
    """What makes an answer; ``factory`` has the numbers in force, and makes compactors."""

    model: MeteredModel
    book: WindowBook
    image_tokens: ImageTokens
    factory: CompactorFactory
    compactors: CompactorCache
    tools: ToolRegistry
    notes: NoteDesk
    jobs: JobDesk
    memory: ProviderCompanion | None
    """The configured provider of a plugin."""
    prompt: Callable[[], str]
    ask_anew: Callable[[], None]
    """A person wants to know whether the provider takes the key by now."""

    def prefix_for(self, platform: str) -> SessionPrefix:
        """With what the configuration gives now."""
        return SessionPrefix(platform, self.model.name, self.prompt(), self.tools.schemas)

    def let_go(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """What has to be told of the daemon's end, by name."""
        told: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        if self.factory.keeper is not None:
            told.append(("context engines", self.compactors.close))
        if self.memory is not None:
            told.append(("memory provider", self.memory.close))
        return told


@dataclass(frozen=True, slots=True)
class Background:
    """What goes on behind answered turns."""

    ahead: AheadDesk
    micro: MicroDesk


def build_books(ground: Ground) -> Books:
    """One price list for both."""
    prices = price_table()
    metrics = Metrics(ground.clock, prices)
    accounts = Accounts(
        ground.store,
        clock=ground.clock,
        zone=ground.zone,
        prices=prices,
        usd_per_user_day=ground.config.budget.usd_per_user_day,
        on_refusal=metrics.refusals.add,
    )
    return Books(metrics, accounts, TurnBoard(ground.clock))


def build_answering(
    ground: Ground,
    model: LanguageModel,
    books: Books,
    attachments: Attachments,
    pictures: PictureMaker,
) -> Answering:
    """Model, tools and compactors; each conversation gets its compactor when it needs one."""
    config, home = ground.config, ground.around.home
    book = WindowBook(
        model.name,
        config.model.base_url,
        known_window(config, model),
        home.windows,
        clock=ground.clock,
    )
    image_tokens = remembered_image_tokens(home.image_tokens)
    metered = MeteredModel(model, books.metrics, ground.clock, on_usage=books.board.asked)
    factory = CompactorFactory(
        config,
        book,
        metered,
        ground.store,
        ground.clock,
        ground.ids,
        image_tokens,
        books.metrics,
        engines=_engines(ground),
        facts=_host_facts(ground, model),
    )
    factory.micro_may_spend = books.accounts.may_prepare
    compactors = CompactorCache(factory, keeper=factory.keeper)
    factory.on_window_changed(compactors.clear)
    notes = NoteDesk(ground.store)
    jobs = JobDesk(ground.store, ground.clock, zone=lambda: name_of(ground.zone))
    tools = build_tools(
        config.agent.tools,
        home,
        notes=notes,
        jobs=jobs,
        clock=ground.clock,
        zone=lambda: ground.zone,
        archive=ground.store,
        attachments=attachments,
        pictures=pictures,
        result_tokens=lambda: tool_result_tokens(factory.triggers()),
        without=ground.plugins.gifts.tools.overriding if ground.plugins is not None else (),
    )
    if ground.plugins is not None:
        ground.plugins.gifts.equip(tools, ground.clock)
    _add_engine_tools(ground, tools, compactors)
    return Answering(
        metered,
        book,
        image_tokens,
        factory,
        compactors,
        tools,
        notes,
        jobs,
        build_memory(ground, tools, factory, notes),
        lambda: system_prompt(ground.now.agent.system_prompt),
        partial(ask_anew, model),
    )


def _engines(ground: Ground) -> EngineSource | None:
    """Where engines of plugins come from; None: the built-in one is wanted, or nothing else works.

    One that fails in a conversation gives it the built-in engine, loudly.
    """
    plugins = ground.plugins
    return plugins.engines if plugins is not None and plugins.engines.works else None


def _host_facts(ground: Ground, model: LanguageModel) -> HostFacts:
    """What engines of plugins are told of us; no key is among it."""
    engines, plugins = _engines(ground), ground.plugins
    if engines is None or plugins is None:
        return HostFacts()
    from gateway.plugins.session_db import SessionDb  # noqa: PLC0415 - only where there are some

    home = ground.around.home.hermes
    return HostFacts(
        home=str(home),
        base_url=ground.config.model.base_url or "",
        provider="offline" if isinstance(model, OfflineModel) else "anthropic",
        api_mode="anthropic_messages",
        model_thresholds=ground.config.compression.model_thresholds,
        session_db=lambda: SessionDb(home / "state.db"),
        before_boundary=lambda: plugins.facade.refresh(ground.store),
        on_tools=engines.has_tools,
        on_threshold=engines.trigger.told,
    )


def _add_engine_tools(ground: Ground, tools: ToolRegistry, compactors: CompactorCache) -> None:
    """Each conversation's calls go to its own engine."""
    engines = _engines(ground)
    if engines is None:
        return
    from gateway.plugins.engine_tools import SOURCE, engine_tools  # noqa: PLC0415 - as above

    def take_over() -> None:
        for name in tools.replace(SOURCE, engine_tools(engines.schemas, compactors)):
            log.warning("a tool of the context engine is left out", extra={"tool": name})

    loop = asyncio.get_running_loop()
    engines.on_tools(partial(loop.call_soon_threadsafe, take_over))
    take_over()


def build_loop(ground: Ground, answering: Answering, books: Books) -> TurnLoop:
    """Model ↔ tools, one turn at a call."""
    model = answering.model
    return TurnLoop(
        store=ground.store,
        model=model,
        tools=answering.tools,
        settings=lambda: loop_settings(ground.now, model.name, answering.factory.triggers()),
        cache_watch=CacheWatch(ground.clock, on_miss=books.metrics.cache_missed),
        image_tokens=answering.image_tokens,
    )


def build_background(ground: Ground, answering: Answering, books: Books) -> Background:
    """Compressions made before they are due, and micro-compaction."""

    def wanted() -> bool:
        rules = ground.now.compression
        return rules.enabled and rules.background

    ahead = AheadDesk(
        ground.store,
        answering.compactors,
        ground.clock,
        threshold_tokens=lambda: answering.factory.triggers().threshold_tokens,
        may_spend=books.accounts.may_prepare,
        wanted=wanted,
    )
    return Background(ahead, MicroDesk(answering.compactors, ground.clock))
