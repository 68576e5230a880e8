"""Owns the composition: the only file that names every concrete class."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from agent.auxiliary_client import LoopSideModel, install
from agent.cache_watch import CacheWatch
from agent.clock import RandomIds, SystemClock
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.passes import MicroParts
from agent.compaction.native.running import NativeCompaction
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.errors import ConfigError
from agent.exchange.records import TakenIn
from agent.image_tokens import ImageTokens
from agent.llm.anthropic import AnthropicModel, preload
from agent.llm.background import in_daemon_thread
from agent.llm.native_edits import edits_for
from agent.llm.offline import OfflineModel
from agent.llm.retry import RetryingModel
from agent.loop import LoopSettings, TurnLoop
from agent.mail import Address
from agent.model_metadata import Triggers, estimate_prefix_tokens, triggers_for
from agent.ports import Clock, Compactor, IdSource, LanguageModel
from agent.prices import price_table
from agent.prompt import system_prompt
from agent.prompt_caching import TTL_SECONDS, cache_marks, ttl_for
from agent.sessions import SessionPrefix, session_key
from agent.store_ports import Store
from agent.tools.clock import CurrentTimeTool
from agent.tools.recall import RecallTool
from agent.tools.registry import ToolRegistry
from gateway import texts
from gateway.accounts import Accounts
from gateway.ahead import AheadDesk
from gateway.commands.contract import CommandHost
from gateway.compactors import CompactorCache
from gateway.config.environment import Home, Secrets, local_zone, missing_tokens
from gateway.config.models import Config
from gateway.control import socket_path
from gateway.daemon import Daemon, Parts
from gateway.delivery.outbox import Delivery, DeliverySettings
from gateway.dispatch import Dispatch
from gateway.exchange import TakeIn
from gateway.http import HttpFace, HttpSettings
from gateway.hygiene import HygieneNet
from gateway.intake.access import AccessRules
from gateway.intake.intake import GatewayIntake, IntakeLimits, PlatformPolicy
from gateway.lanes import Lanes
from gateway.metered import MeteredModel
from gateway.metrics import Metrics
from gateway.micro import MicroDesk
from gateway.platforms.console.adapter import ConsolePlatform, Terminal
from gateway.platforms.console.convert import BOT_ID, CHAT_ID, USER_ID
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.contract import Platform
from gateway.recovery import Recovery
from gateway.sdnotify import ServiceManager
from gateway.self_report import SelfReport
from gateway.settling import Settling
from gateway.supervisor import Supervisor
from gateway.trigger_rules import micro_of, rules_of
from gateway.turns import TurnRunner
from gateway.windows import WindowBook, remembered_image_tokens
from storage.files import read_portables
from storage.sqlite import open_archive, open_store
from storage.store import SqlArchive, SqlStore

log = logging.getLogger(__name__)

OFFLINE_WINDOW_TOKENS = 200_000
IDLE_CHECK_SECONDS = 0.05
MICRO_THREADS = 2
"""So many calls of micro-compaction wait at once; the others wait for a thread."""
CONSOLE_KEY = session_key(CONSOLE, BOT_ID, CHAT_ID, None, USER_ID)
CONSOLE_ADDRESS = Address(CONSOLE, BOT_ID, CHAT_ID)

StoreDecorator = Callable[[Store], Store]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process stands in, beside its configuration."""

    home: Home
    secrets: Secrets
    env: Mapping[str, str]
    console: Terminal | None = None
    """The standard streams, if they are a console."""
    only_console: bool = False
    """``chat``: no other platform."""


@asynccontextmanager
async def archive(home: Home) -> AsyncIterator[SqlArchive]:
    """The store of a home, for looking only; also beside a running daemon.

    Raises:
        StoreUnavailable: there is none yet.
    """
    opened = await open_archive(home.database)
    try:
        yield opened
    finally:
        await opened.close()


async def take_in_file(home: Home, path: Path, owner: str | None) -> list[TakenIn]:
    """Take conversations from a file into a home of which no daemon runs; its lock is held.

    Raises:
        ImportRefused: the file can not be taken in; nothing was changed.
        StoreUnavailable: the store can not be opened.
    """
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    try:
        return await _take_in(store, path, owner)
    finally:
        await store.close()


async def _take_in(store: SqlStore, path: Path, owner: str | None) -> list[TakenIn]:
    found = await in_daemon_thread(partial(read_portables, path, owner), "read-import")
    return await store.take_in(found)


async def build_daemon(
    config: Config, around: Surroundings, *, decorate_store: StoreDecorator | None = None
) -> Daemon:
    """Everything that runs, from the configuration; on the event loop that will run it.

    ``decorate_store`` stands between the store and everything else, for tests that break it.

    Raises:
        ConfigError: a provider or platform is asked for without its secret, or there is none.
        DatabaseTooNew: the database is from a newer version.
        StoreUnavailable: the store can not be opened.
    """
    clock, ids = SystemClock(), RandomIds()
    model = build_model(config, around.secrets, clock)
    check_platforms(config, around)
    opened = await open_store(
        around.home.database, clock=clock, ids=ids, set_aside_notice=texts.SET_ASIDE
    )
    store: Store = decorate_store(opened) if decorate_store else opened
    try:
        platforms = await build_platforms(config, around, clock, store)
    except BaseException:
        await store.close()
        raise
    take_in = partial(_take_in, opened)
    return assemble(config, around, clock, ids, model, store, platforms, take_in=take_in)


def assemble(
    config: Config,
    around: Surroundings,
    clock: Clock,
    ids: IdSource,
    model: LanguageModel,
    store: Store,
    platforms: Mapping[str, Platform],
    *,
    take_in: TakeIn | None = None,
) -> Daemon:
    """Put the parts together; does nothing yet. The console comes on top of ``platforms``."""
    zone = ZoneInfo(config.timezone) if config.timezone else local_zone(around.env)
    book = WindowBook(
        model.name,
        config.model.base_url,
        _known_window(config, model),
        around.home.windows,
        clock=clock,
    )
    image_tokens = remembered_image_tokens(around.home.image_tokens)
    prices = price_table()
    metrics = Metrics(clock, prices)
    asked = MeteredModel(model, metrics, clock)
    factory = CompactorFactory(config, book, asked, store, clock, ids, image_tokens, metrics)

    def result_tokens() -> int:
        return tool_result_tokens(factory.triggers())

    tools = ToolRegistry(
        [
            CurrentTimeTool(clock, zone),
            # A page of recall comes whole: its frame has to fit under the cap as well.
            RecallTool(store, zone=zone, page_tokens=lambda: result_tokens() * 3 // 5),
        ],
        result_cap_tokens=result_tokens,
    )
    prompt = system_prompt(config.agent.system_prompt)

    def prefix_for(platform: str) -> SessionPrefix:
        return SessionPrefix(platform, model.name, prompt, tools.schemas)

    compactors = CompactorCache(factory)
    factory.on_window_changed(compactors.clear)
    accounts = Accounts(
        store,
        clock=clock,
        zone=zone,
        prices=prices,
        usd_per_user_day=config.budget.usd_per_user_day,
        on_refusal=metrics.refusals.add,
    )
    report = SelfReport(
        config,
        model=model.name,
        book=book,
        triggers=factory.triggers,
        prefix_tokens=estimate_prefix_tokens(prefix_for(CONSOLE)),
        image_tokens=image_tokens.of,
        missing_native=lambda: missing_native(model),
    )
    # Delivery and the console know each other: the mapping is complete before anything runs.
    serving: dict[str, Platform] = dict(platforms)
    delivery = Delivery(
        mailbox=store, platforms=serving, clock=clock, settings=DeliverySettings(zone=zone)
    )
    lanes = Lanes(clock)
    ahead = AheadDesk(
        store,
        compactors,
        clock,
        threshold_tokens=lambda: factory.triggers().threshold_tokens,
        may_spend=accounts.may_prepare,
        enabled=config.compression.enabled and config.compression.background,
    )
    factory.micro_may_spend = accounts.may_prepare
    micro = MicroDesk(compactors, clock)
    policies = build_policies(config, {*platforms, CONSOLE})
    turns = TurnRunner(
        sessions=store,
        lineages=store,
        mailbox=store,
        loop=TurnLoop(
            store=store,
            model=asked,
            tools=tools,
            settings=lambda: _loop(config, model.name, factory.triggers()),
            cache_watch=CacheWatch(clock, on_miss=metrics.cache_missed),
            image_tokens=image_tokens,
        ),
        hygiene=HygieneNet(store, clock),
        compactors=compactors,
        prefix_for=prefix_for,
        delivery=delivery,
        clock=clock,
        accounts=accounts,
        on_over=ahead.turn_over,
        on_ended=metrics.turn_ended,
        on_answered=micro.answered,
    )
    dispatch = Dispatch(
        lanes=lanes,
        turns=turns,
        settling=Settling(store, store, delivery, clock),
        delivery=delivery,
        host=CommandHost(
            store, store, store, compactors, prefix_for, report, lanes.waiting, lanes.busy, accounts
        ),
        policies=policies,
        clock=clock,
    )
    console = ConsolePlatform(
        clock=clock,
        ids=ids,
        idle=partial(_console_idle, dispatch, delivery, clock),
        on_attach=lambda: delivery.nudge(CONSOLE),
        standard=around.console,
    )
    serving[CONSOLE] = console
    intake = GatewayIntake(
        mailbox=store,
        policies=policies,
        dispatcher=dispatch,
        hand_over=delivery.hand_over,
        clock=clock,
        limits=IntakeLimits(
            queue_limit=config.gateway.queue_limit,
            # One message must leave room for the rest: prompt, tools, what was said before.
            max_message_tokens=lambda: factory.triggers().effective_tokens // 2,
        ),
    )
    supervised = [*platforms.values(), *([console] if around.console is not None else [])]
    supervisor = Supervisor(supervised, intake, clock, on_running=delivery.nudge)
    metrics.watch(
        waiting=lambda: lanes.counts()[1],
        running=lambda: lanes.counts()[0],
        owed=lambda: delivery.under_way,
        prepared=lambda: ahead.counts,
        platforms=lambda: {n: s.state.value for n, s in supervisor.status.items()},
    )
    report.watch(supervisor)
    report.say_at_start(policies)
    return Daemon(
        Parts(
            home=around.home.path,
            store=store,
            model=model,
            intake=intake,
            console=console,
            platforms=list(serving.values()),
            supervisor=supervisor,
            lanes=lanes,
            dispatch=dispatch,
            delivery=delivery,
            recovery=Recovery(
                sessions=store,
                mailbox=store,
                turns=turns,
                dispatch=dispatch,
                delivery=delivery,
                policies=policies,
                clock=clock,
            ),
            control_path=socket_path(config.gateway.control_socket, around.home.path, around.env),
            manager=ServiceManager(around.env),
            clock=clock,
            drain_seconds=config.gateway.drain_seconds,
            ahead=ahead,
            micro=micro,
            http=HttpFace(
                HttpSettings(
                    config.gateway.http.host,
                    config.gateway.http.port,
                    tuple(config.gateway.http.allowed_hosts),
                )
            ),
            metrics=metrics,
            warm_up=partial(_warm_up, model, book, compactors),
            details=report.details,
            take_in=take_in,
        )
    )


# --- the model ----------------------------------------------------------------------------------


def build_model(config: Config, secrets: Secrets, clock: Clock) -> LanguageModel:
    """The model with its fallbacks and the retry policy, or the offline one.

    Raises:
        ConfigError: Anthropic is asked for without a key or a base URL.
    """
    wanted = config.model
    if wanted.provider == "anthropic" and not (secrets.anthropic_api_key or wanted.base_url):
        raise ConfigError(
            ["model.provider is anthropic, but there is neither ANTHROPIC_API_KEY nor a base_url"]
        )
    if is_offline(config, secrets):
        return OfflineModel(window_tokens=wanted.context_length or OFFLINE_WINDOW_TOKENS)
    models = [
        AnthropicModel(
            name, api_key=secrets.anthropic_api_key, base_url=wanted.base_url, clock=clock
        )
        for name in (wanted.name, *wanted.fallback)
    ]
    return RetryingModel(models, clock=clock, random=random.random)


def missing_native(model: LanguageModel) -> tuple[str, ...]:
    """What of native context management is not to be had here, as far as that is known."""
    if isinstance(model, RetryingModel):
        return model.missing_native
    return ("context edits", "compaction")


def is_offline(config: Config, secrets: Secrets) -> bool:
    """Does the built-in model answer?"""
    if config.model.provider == "auto":
        return not (secrets.anthropic_api_key or config.model.base_url)
    return config.model.provider == "offline"


def _known_window(config: Config, model: LanguageModel) -> int | None:
    if config.model.context_length is None and isinstance(model, OfflineModel):
        return OFFLINE_WINDOW_TOKENS
    return config.model.context_length


def _loop(config: Config, model: str, triggers: Triggers) -> LoopSettings:
    marks = cache_marks(model, config.model.base_url)
    return LoopSettings(
        max_iterations=config.agent.max_iterations,
        max_tokens=triggers.max_tokens,
        cache_ttl=config.model.cache_ttl if marks.on else None,
        edits=edits_for(triggers, tool_result_tokens(triggers))
        if config.compression.native == "edits"
        else None,
    )


def tool_result_tokens(triggers: Triggers) -> int:
    """How much of a tool's result is sent: several must fit between two compressions."""
    return max(200, min(4000, triggers.effective_tokens // 6))


def cache_seconds(config: Config, model: str) -> float:
    """How long the provider keeps the prompt of somebody who chats; 0: it keeps none."""
    marks = cache_marks(model, config.model.base_url)
    ttl = ttl_for(config.model.cache_ttl if marks.on else None, for_person=True)
    return TTL_SECONDS[ttl] if ttl is not None else 0.0


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
    ) -> None:
        rules = config.compression
        self._config = config
        self._book = book
        self._model = model.name
        self._compacting = model if rules.native == "compact" else None
        self._side_model = LoopSideModel(model, asyncio.get_running_loop(), ledger=store)
        self._store = store
        self._clock = clock
        self._ids = ids
        self._image_tokens = image_tokens
        self._metrics = metrics
        self._threads = DaemonThreads()
        self._window_changed: Callable[[], None] = lambda: None
        self._settings = CompactionSettings(
            enabled=rules.enabled,
            in_place=rules.in_place,
            background=rules.background,
            cache_ttl_seconds=cache_seconds(config, model.name),
            prune_from_tokens=rules.proactive_prune_tokens,
        )
        self._rules = rules_of(config)
        self._micro_threads = DaemonThreads(MICRO_THREADS, name="micro")
        self.micro_may_spend: Callable[[str], Awaitable[bool]] | None = None
        """May this owner's money be spent on micro-compaction now?"""
        install(self._side_model)

    def on_window_changed(self, call: Callable[[], None]) -> None:
        """What to do about the compactors that were made before."""
        self._window_changed = call

    def _lower_window(self, tokens: int) -> None:
        """One conversation has learned the limit; the others shall not have to."""
        self._book.lower(tokens)
        self._window_changed()

    def triggers(self) -> Triggers:
        """The numbers in force."""
        return triggers_for(
            self._book.window.tokens,
            self._rules,
            max_tokens=self._config.model.max_tokens,
            model=self._model,
        )

    def __call__(self, conversation_id: str) -> Compactor:
        rules = self._config.compression
        engine = ContextCompressor(
            self._model,
            protect_first_n=rules.protect_first_n,
            protect_last_n=rules.protect_last_n,
            summary_model_override=rules.summary_model,
            config_context_length=self._book.window.tokens,
            max_tokens=self._config.model.max_tokens,
            side_model=self._side_model.on_account(conversation_id, "summary"),
            clock=self._clock,
            rules=self._rules,
        )
        return SessionCompactor(
            engine,
            self._store,
            self._clock,
            self._ids,
            self._settings,
            threads=self._threads,
            on_limit=self._lower_window,
            ahead_model=self._side_model.on_account(conversation_id, "background"),
            image_tokens=self._image_tokens.of,
            on_result=self._metrics.compression_ended,
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


async def _warm_up(model: LanguageModel, book: WindowBook, compactors: CompactorCache) -> None:
    """Import the SDK beside the running loop, then ask the provider for the window."""
    online = not isinstance(model, OfflineModel)
    if online:
        await in_daemon_thread(preload, "sdk-import")
    # All that is loaded by now stays for good. Without this every full collection walks it again
    # and holds the loop for a tenth of a second.
    gc.freeze()
    if online:
        await book.ask(model, compactors.clear)


# --- platforms ----------------------------------------------------------------------------------


def check_platforms(config: Config, around: Surroundings) -> None:
    """Refuse what can not work, before anything is opened.

    Raises:
        ConfigError: a platform is switched on without its token, or nothing is left to run.
    """
    if around.only_console:
        return
    problems = missing_tokens(config, around.secrets)
    if problems:
        raise ConfigError(problems)
    if around.console is None and not enabled_platforms(config, around.secrets):
        raise ConfigError(
            [
                "no platform can run: set TELEGRAM_BOT_TOKEN or DISCORD_BOT_TOKEN, or use "
                "`posthouse chat` for the console"
            ]
        )


def enabled_platforms(config: Config, secrets: Secrets) -> list[str]:
    """The chat platforms that are on: ``auto`` means with a token."""
    tokens = {"telegram": secrets.telegram_bot_token, "discord": secrets.discord_bot_token}
    wanted = {"telegram": config.telegram.enabled, "discord": config.discord.enabled}
    return [name for name, token in tokens.items() if token and wanted[name] is not False]


async def build_platforms(
    config: Config, around: Surroundings, clock: Clock, store: Store
) -> dict[str, Platform]:
    """The chat platforms by name; their SDKs are only imported where they are on."""
    platforms: dict[str, Platform] = {}
    secrets = around.secrets
    if around.only_console:
        return platforms
    enabled = enabled_platforms(config, secrets)
    if "telegram" in enabled and secrets.telegram_bot_token:
        # Inside: each SDK costs a quarter of a second and 15 to 20 MB.
        from gateway.platforms.telegram.adapter import TelegramPlatform  # noqa: PLC0415
        from gateway.platforms.telegram.client import TelegramSettings  # noqa: PLC0415

        platforms["telegram"] = TelegramPlatform(
            TelegramSettings(
                secrets.telegram_bot_token,
                base_url=config.telegram.base_url,
                base_file_url=config.telegram.base_file_url,
            ),
            clock,
        )
    if "discord" in enabled and secrets.discord_bot_token:
        from gateway.platforms.discord.adapter import DiscordPlatform  # noqa: PLC0415
        from gateway.platforms.discord.client import DiscordSettings  # noqa: PLC0415

        platforms["discord"] = DiscordPlatform(
            DiscordSettings(
                secrets.discord_bot_token,
                api_base=config.discord.api_base,
                gateway_url=config.discord.gateway_url,
            ),
            clock,
            nonce_scope=await store.identity(),
        )
    return platforms


def build_policies(config: Config, names: set[str]) -> dict[str, PlatformPolicy]:
    """Who may talk, for the platforms that are on."""
    telegram, discord = config.telegram, config.discord
    policies = {
        "telegram": PlatformPolicy(
            AccessRules(
                allow_from=frozenset(telegram.allow_from),
                allow_chats=frozenset(telegram.allow_chats),
                admins=frozenset(telegram.admins),
            ),
            require_mention=telegram.require_mention,
            group_sessions_per_user=telegram.group_sessions_per_user,
        ),
        "discord": PlatformPolicy(
            AccessRules(
                allow_from=frozenset(discord.allow_from),
                allow_chats=frozenset(discord.allow_channels),
                allow_roles=frozenset(discord.allow_roles),
                admins=frozenset(discord.admins),
            ),
            require_mention=discord.require_mention,
            group_sessions_per_user=discord.group_sessions_per_user,
        ),
        # Whoever can write to the process's input, or to its socket, owns the server.
        CONSOLE: PlatformPolicy(
            AccessRules(allow_from=frozenset({USER_ID}), admins=frozenset({USER_ID}))
        ),
    }
    return {name: policy for name, policy in policies.items() if name in names}


async def _console_idle(dispatch: Dispatch, delivery: Delivery, clock: Clock) -> None:
    while dispatch.at_work(CONSOLE_KEY) or delivery.pending(CONSOLE_ADDRESS):
        await clock.sleep(IDLE_CHECK_SECONDS)
