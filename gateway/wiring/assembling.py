"""Owns the composition: how the parts of a daemon are put together."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from agent.attachments import Attachments
from agent.cache_watch import CacheWatch
from agent.clock import RandomIds, SystemClock
from agent.llm.anthropic import preload
from agent.llm.background import in_daemon_thread
from agent.llm.offline import OfflineModel
from agent.llm.pictures import PictureLoader
from agent.loop import TurnLoop
from agent.mail import Address
from agent.media.pictures import PictureMaker
from agent.model_metadata import estimate_prefix_tokens
from agent.ports import Clock, IdSource, LanguageModel
from agent.prices import price_table
from agent.prompt import system_prompt
from agent.sessions import SessionPrefix, session_key
from agent.store_ports import Store
from gateway import texts
from gateway.accounts import Accounts
from gateway.approvals import ApprovalDesk
from gateway.commands.contract import CommandHost
from gateway.concealing import conceal_this_process
from gateway.config.environment import Home, local_zone
from gateway.config.models import Config
from gateway.control import socket_path
from gateway.daemon import Daemon, Parts
from gateway.delivery.outbox import Delivery
from gateway.delivery.tries import DeliverySettings
from gateway.exchange import TakeIn
from gateway.hygiene import HygieneNet
from gateway.intake.gate import Gate
from gateway.intake.intake import GatewayIntake, IntakeLimits
from gateway.intake.pairing import PairingDesk
from gateway.intake.pairing_office import PairingOffice
from gateway.lanes.dispatch import Dispatch
from gateway.lanes.lanes import Lanes
from gateway.lanes.recovery import Recovery
from gateway.monitoring.http import HttpFace, HttpSettings
from gateway.monitoring.metered import MeteredModel
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.self_report import SelfReport
from gateway.platforms.console.adapter import ConsolePlatform
from gateway.platforms.console.convert import BOT_ID, CHAT_ID, USER_ID
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.contract import Platform, PlatformState
from gateway.restarting import RestartDesk, is_managed
from gateway.sdnotify import ServiceManager
from gateway.supervisor import Supervisor
from gateway.turns.ahead import AheadDesk
from gateway.turns.compactors import CompactorCache
from gateway.turns.enclosures import Enclosures
from gateway.turns.micro import MicroDesk
from gateway.turns.runner import TurnRunner
from gateway.turns.settling import Settling
from gateway.windows.book import WindowBook, remembered_image_tokens
from gateway.wiring.compaction import CompactorFactory
from gateway.wiring.exchange import kept_files, take_in
from gateway.wiring.models import (
    build_model,
    check_model,
    known_window,
    loop_settings,
    missing_native,
    tool_result_tokens,
)
from gateway.wiring.platforms import (
    build_platforms,
    build_policies,
    check_platforms,
    pairing_platforms,
)
from gateway.wiring.surroundings import Surroundings
from gateway.wiring.tools import build_tools
from storage.sqlite import open_archive, open_store
from storage.store import SqlArchive

log = logging.getLogger(__name__)

IDLE_CHECK_SECONDS = 0.05
CONSOLE_KEY = session_key(CONSOLE, BOT_ID, CHAT_ID, None, USER_ID)
CONSOLE_ADDRESS = Address(CONSOLE, BOT_ID, CHAT_ID)

StoreDecorator = Callable[[Store], Store]


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


async def answer_pairing(home: Home, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `posthouse pair` in a home of which no daemon runs; its lock is held.

    Raises:
        StoreUnavailable: the store can not be opened.
    """
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    try:
        office = PairingOffice(store, SystemClock(), pairing_on=pairing_platforms(config))
        return await office.answer(request)
    finally:
        await store.close()


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
    if config.agent.tools.shell:
        conceal_this_process()
    check_model(config, around.secrets)
    check_platforms(config, around)
    opened = await open_store(
        around.home.database, clock=clock, ids=ids, set_aside_notice=texts.SET_ASIDE
    )
    try:
        store: Store = decorate_store(opened) if decorate_store else opened
        files = kept_files(around.home, opened)
        platforms = await build_platforms(config, around, clock, store, files)
        model = build_model(config, around.secrets, clock, PictureLoader(files))
        return assemble(
            config,
            around,
            clock,
            ids,
            model,
            store,
            platforms,
            attachments=files,
            tidy_files=files.sweep,
            take_in=partial(take_in, opened, files),
        )
    except BaseException:
        await opened.close()
        raise


def assemble(
    config: Config,
    around: Surroundings,
    clock: Clock,
    ids: IdSource,
    model: LanguageModel,
    store: Store,
    platforms: Mapping[str, Platform],
    *,
    attachments: Attachments,
    tidy_files: Callable[[], Awaitable[int]] | None = None,
    take_in: TakeIn | None = None,
) -> Daemon:
    """Put the parts together; does nothing yet. The console comes on top of ``platforms``.

    ``tidy_files``: what takes away the leavings of crashes among the files; once per start.
    """
    zone = ZoneInfo(config.timezone) if config.timezone else local_zone(around.env)
    book = WindowBook(
        model.name,
        config.model.base_url,
        known_window(config, model),
        around.home.windows,
        clock=clock,
    )
    image_tokens = remembered_image_tokens(around.home.image_tokens)
    prices = price_table()
    metrics = Metrics(clock, prices)
    asked = MeteredModel(model, metrics, clock)
    factory = CompactorFactory(config, book, asked, store, clock, ids, image_tokens, metrics)

    pictures = PictureMaker()
    tools = build_tools(
        config.agent.tools,
        around.home,
        clock=clock,
        zone=zone,
        archive=store,
        attachments=attachments,
        pictures=pictures,
        result_tokens=lambda: tool_result_tokens(factory.triggers()),
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
        mailbox=store,
        platforms=serving,
        clock=clock,
        settings=DeliverySettings(zone=zone),
        awaited=lambda outbox_id: approvals.is_awaited(outbox_id),
        asks=lambda address: approvals.is_asking_in(address),
        works=lambda name: _works(supervisor, name),
    )
    approvals = ApprovalDesk(store, delivery.hand_over, clock)
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
    gate = Gate(policies, store, store)
    restarts = RestartDesk(store, possible=is_managed(around.env, os.getpid()))
    turns = TurnRunner(
        sessions=store,
        lineages=store,
        mailbox=store,
        loop=TurnLoop(
            store=store,
            model=asked,
            tools=tools,
            settings=lambda: loop_settings(config, model.name, factory.triggers()),
            cache_watch=CacheWatch(clock, on_miss=metrics.cache_missed),
            image_tokens=image_tokens,
        ),
        hygiene=HygieneNet(store, clock),
        compactors=compactors,
        prefix_for=prefix_for,
        delivery=delivery,
        clock=clock,
        accounts=accounts,
        enclosures=Enclosures(
            serving, attachments, clock, pictures=pictures, transcriber=around.transcriber
        ),
        previews=delivery.previews(store) if config.gateway.streaming else None,
        approver_for=approvals.approver,
        on_over=ahead.turn_over,
        on_ended=metrics.turn_ended,
        on_answered=micro.answered,
    )
    limits = IntakeLimits(
        queue_limit=config.gateway.queue_limit,
        # One message must leave room for the rest: prompt, tools, what was said before.
        max_message_tokens=lambda: factory.triggers().effective_tokens // 2,
    )
    dispatch = Dispatch(
        lanes=lanes,
        turns=turns,
        settling=Settling(store, store, delivery, clock),
        delivery=delivery,
        host=CommandHost(
            store,
            store,
            store,
            compactors,
            prefix_for,
            report,
            lanes.waiting,
            lanes.busy,
            accounts,
            lane=lanes.view,
            busy_mode=config.gateway.busy_mode,
            restarts=restarts,
            approvals=approvals,
        ),
        gate=gate,
        mailbox=store,
        clock=clock,
        busy_mode=config.gateway.busy_mode,
        limits=limits,
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
        gate=gate,
        pairing=PairingDesk(gate, store, delivery.say_now, clock),
        dispatcher=dispatch,
        hand_over=delivery.hand_over,
        clock=clock,
        limits=limits,
    )
    supervised = [*platforms.values(), *([console] if around.console is not None else [])]
    supervisor = Supervisor(
        supervised, intake, clock, on_running=delivery.nudge, without_signs={CONSOLE}
    )
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
                gate=gate,
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
            warm_up=partial(_warm_up, model, book, compactors, tidy_files),
            details=report.details,
            take_in=take_in,
            pairing=PairingOffice(
                store, clock, pairing_on=pairing_platforms(config), changed=gate.changed
            ),
            restarts=restarts,
            approvals=approvals,
        )
    )


async def _warm_up(
    model: LanguageModel,
    book: WindowBook,
    compactors: CompactorCache,
    tidy_files: Callable[[], Awaitable[int]] | None,
) -> None:
    """Import the SDK beside the running loop, ask the provider for the window, tidy up."""
    online = not isinstance(model, OfflineModel)
    if online:
        await in_daemon_thread(preload, "sdk-import")
    # All that is loaded by now stays for good. Without this every full collection walks it again
    # and holds the loop for a tenth of a second.
    gc.freeze()
    if online:
        await book.ask(model, compactors.clear)
    if tidy_files is not None:
        await tidy_files()


async def _console_idle(dispatch: Dispatch, delivery: Delivery, clock: Clock) -> None:
    while dispatch.at_work(CONSOLE_KEY) or delivery.pending(CONSOLE_ADDRESS):
        await clock.sleep(IDLE_CHECK_SECONDS)


def _works(supervisor: Supervisor, platform: str) -> bool:
    """Of one that nobody supervises no trouble is known."""
    status = supervisor.status.get(platform)
    return status is None or status.state is PlatformState.RUNNING
