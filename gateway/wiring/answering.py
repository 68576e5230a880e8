"""Owns the composition of what makes an answer: model, windows, tools, compactors, accounts."""

from __future__ import annotations

from dataclasses import dataclass

from agent.attachments import Attachments
from agent.cache_watch import CacheWatch
from agent.image_tokens import ImageTokens
from agent.loop import TurnLoop
from agent.media.pictures import PictureMaker
from agent.ports import LanguageModel
from agent.prices import price_table
from agent.prompt import system_prompt
from agent.sessions import SessionPrefix
from agent.tools.registry import ToolRegistry
from gateway.accounts import Accounts
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics
from gateway.turns.ahead import AheadDesk
from gateway.turns.compactors import CompactorCache
from gateway.turns.micro import MicroDesk
from gateway.windows.book import WindowBook, remembered_image_tokens
from gateway.wiring.compaction import CompactorFactory
from gateway.wiring.ground import Ground
from gateway.wiring.models import known_window, loop_settings, tool_result_tokens
from gateway.wiring.tools import build_tools


@dataclass(frozen=True, slots=True)
class Books:
    """Where it is written down what was asked, and what it took."""

    metrics: Metrics
    accounts: Accounts


@dataclass(frozen=True, slots=True)
class Answering:
    """What makes an answer; ``factory`` has the numbers in force, and makes compactors."""

    model: MeteredModel
    book: WindowBook
    image_tokens: ImageTokens
    factory: CompactorFactory
    compactors: CompactorCache
    tools: ToolRegistry
    prompt: str

    def prefix_for(self, platform: str) -> SessionPrefix:
        """With what the configuration gives now."""
        return SessionPrefix(platform, self.model.name, self.prompt, self.tools.schemas)


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
    return Books(metrics, accounts)


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
    metered = MeteredModel(model, books.metrics, ground.clock)
    factory = CompactorFactory(
        config,
        book,
        metered,
        ground.store,
        ground.clock,
        ground.ids,
        image_tokens,
        books.metrics,
    )
    factory.micro_may_spend = books.accounts.may_prepare
    compactors = CompactorCache(factory)
    factory.on_window_changed(compactors.clear)
    tools = build_tools(
        config.agent.tools,
        home,
        clock=ground.clock,
        zone=ground.zone,
        archive=ground.store,
        attachments=attachments,
        pictures=pictures,
        result_tokens=lambda: tool_result_tokens(factory.triggers()),
    )
    return Answering(
        metered,
        book,
        image_tokens,
        factory,
        compactors,
        tools,
        system_prompt(config.agent.system_prompt),
    )


def build_loop(ground: Ground, answering: Answering, books: Books) -> TurnLoop:
    """Model ↔ tools, one turn at a call."""
    model = answering.model
    return TurnLoop(
        store=ground.store,
        model=model,
        tools=answering.tools,
        settings=lambda: loop_settings(ground.config, model.name, answering.factory.triggers()),
        cache_watch=CacheWatch(ground.clock, on_miss=books.metrics.cache_missed),
        image_tokens=answering.image_tokens,
    )


def build_background(ground: Ground, answering: Answering, books: Books) -> Background:
    """Compressions made before they are due, and micro-compaction."""
    rules = ground.config.compression
    ahead = AheadDesk(
        ground.store,
        answering.compactors,
        ground.clock,
        threshold_tokens=lambda: answering.factory.triggers().threshold_tokens,
        may_spend=books.accounts.may_prepare,
        enabled=rules.enabled and rules.background,
    )
    return Background(ahead, MicroDesk(answering.compactors, ground.clock))
