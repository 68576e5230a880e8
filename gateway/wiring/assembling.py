"""Owns the composition: how the parts of a daemon are put together."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.attachments import Attachments
from agent.clock import RandomIds, SystemClock
from agent.llm.pictures import PictureLoader
from agent.media.pictures import PictureMaker
from agent.ports import Clock, IdSource, LanguageModel
from agent.store_ports import Store
from gateway import texts
from gateway.concealing import conceal_this_process
from gateway.config.models import Config
from gateway.config.reading import FileText, Reading
from gateway.control import socket_path
from gateway.daemon import Daemon
from gateway.daemon_parts import Parts
from gateway.exchange import TakeIn
from gateway.forgetting.retention import retention
from gateway.intake.pairing_office import PairingOffice
from gateway.jobs.house import HouseMaker
from gateway.jobs.office import JobOffice
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.contract import Platform, PlatformState
from gateway.reloading import Reloads
from gateway.restarting import RestartDesk, is_managed
from gateway.sdnotify import ServiceManager
from gateway.supervisor import Supervisor
from gateway.turns.enclosures import Enclosures
from gateway.wiring.answering import build_answering, build_background, build_books
from gateway.wiring.companions import build_companions
from gateway.wiring.forgetting import build_desk, leavings_of
from gateway.wiring.ground import Ground
from gateway.wiring.job_doubts import found as doubts_about_jobs
from gateway.wiring.jobs import build_jobs, build_resets
from gateway.wiring.kept_files import kept_files
from gateway.wiring.models import build_model, check_model
from gateway.wiring.on_demand import planned_servers, take_in, wanted_plugins, wanted_servers
from gateway.wiring.overview import (
    TakeCensus,
    build_http,
    build_overview,
    build_report,
    feed_metrics,
)
from gateway.wiring.platforms import (
    build_platforms,
    build_policies,
    check_platforms,
    pairing_platforms,
)
from gateway.wiring.reloading import say_who_takes_over
from gateway.wiring.store_care import Night, look_before_opening
from gateway.wiring.surroundings import Surroundings
from gateway.wiring.talking import (
    Erasing,
    build_console,
    build_inward,
    build_outward,
    build_recovery,
    build_turns,
)
from gateway.wiring.warming_up import warm_up
from storage.sqlite import open_store

if TYPE_CHECKING:
    from gateway.wiring.mcp import ServerPlan
    from gateway.wiring.plugins import Plugins

log = logging.getLogger(__name__)

StoreDecorator = Callable[[Store], Store]


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
    servers = wanted_servers(config, around)
    if config.agent.tools.shell or (servers is not None and servers.has_programs):
        conceal_this_process()
    check_model(config, around.secrets)
    check_platforms(config, around)
    look_before_opening(around.home)
    opened = await open_store(
        around.home.database, clock=clock, ids=ids, set_aside_notice=texts.SET_ASIDE
    )
    try:
        store: Store = decorate_store(opened) if decorate_store else opened
        files = kept_files(around.home, opened)
        plugins = await wanted_plugins(config, around, clock, store)
        platforms = await build_platforms(config, around, clock, store, files, plugins)
        loader = PictureLoader(files)
        night = Night(around.home, opened, clock, config, also=partial(_files_of, plugins))
        model = build_model(config, around.secrets, clock, loader)
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
            house_makers=night.makers(),
            night=night,
            erasing=partial(build_desk, leavings_of(around.home, opened, files), loader.forget),
            census=opened.census,
            plugins=plugins,
            servers=servers,
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
    erasing: Erasing | None = None,
    house_makers: Sequence[HouseMaker] = (),
    census: TakeCensus | None = None,
    night: Night | None = None,
    plugins: Plugins | None = None,
    servers: ServerPlan | None = None,
) -> Daemon:
    """Put the parts together; does nothing yet. The console comes on top of ``platforms``.

    ``tidy_files``: what takes away the leavings of crashes among the files; once per start.
    """
    started = around.reading or Reading(
        config, around.plugin_sections, around.secrets, FileText(None)
    )
    reloads = Reloads(started, around.source, clock)
    ground = Ground(config, around, clock, ids, store, reloads, plugins)
    pictures = PictureMaker()
    books = build_books(ground)
    answering = build_answering(ground, model, books, attachments, pictures)
    background = build_background(ground, answering, books)
    mcp = planned_servers(servers, ground, answering.tools, attachments, pictures)
    report = build_report(ground, answering, model, mcp)
    # Delivery and the console know each other: the mapping is complete before anything runs.
    serving: dict[str, Platform] = dict(platforms)
    outward = build_outward(ground, serving, works=lambda name: _works(supervisor, name))
    enclosures = Enclosures(
        serving,
        attachments,
        clock,
        pictures=pictures,
        transcriber=ground.transcriber,
    )
    companions = build_companions(ground, answering)
    resets = build_resets(ground, answering, companions)
    turns = build_turns(
        ground, answering, books, background, outward, enclosures, companions, resets
    )
    policies = {**build_policies(config, {*platforms, CONSOLE}), **ground.foreign_policies}
    restarts = RestartDesk(store, possible=is_managed(around.env, os.getpid()))
    inward = build_inward(
        ground,
        answering,
        books,
        outward,
        turns,
        policies,
        report,
        restarts,
        resets,
        erasing or partial(build_desk, None, None),
    )
    say_who_takes_over(ground, answering, books, inward, report, {*platforms, CONSOLE})
    console = build_console(ground, inward, outward)
    serving[CONSOLE] = console
    supervised = [*platforms.values(), *([console] if around.console is not None else [])]
    supervisor = Supervisor(
        supervised,
        inward.intake,
        clock,
        on_running=outward.delivery.nudge,
        without_signs={CONSOLE},
    )
    clearing = retention(store, clock, inward.forgetting.leavings)
    makers = [clearing, *house_makers]
    jobs = build_jobs(ground, answering, inward, outward, serving, resets, makers)
    feed_metrics(books.metrics, inward, outward, background, supervisor)
    overview = build_overview(ground, books, inward, supervisor, census, model)
    report.watch(supervisor)
    report.say_at_start(policies)
    return Daemon(
        Parts(
            home=around.home.path,
            store=store,
            model=model,
            intake=inward.intake,
            console=console,
            platforms=list(serving.values()),
            supervisor=supervisor,
            lanes=inward.lanes,
            dispatch=inward.dispatch,
            delivery=outward.delivery,
            recovery=build_recovery(ground, inward, outward, turns),
            control_path=socket_path(config.gateway.control_socket, around.home.path, around.env),
            manager=ServiceManager(around.env),
            clock=clock,
            drain_seconds=lambda: ground.now.gateway.drain_seconds,
            ahead=background.ahead,
            micro=background.micro,
            http=build_http(config, is_needed=not around.only_console),
            metrics=books.metrics,
            warm_up=partial(warm_up, model, answering, tidy_files),
            overview=overview,
            details=night.details(report.details) if night is not None else report.details,
            look_at_index=night.look_at_index if night is not None else None,
            take_in=take_in,
            pairing=PairingOffice(
                store,
                clock,
                pairing_on=lambda: pairing_platforms(ground.now),
                changed=inward.gate.changed,
            ),
            jobs=JobOffice(
                answering.jobs,
                store,
                doubts=lambda: doubts_about_jobs(ground.now, around.secrets, around.env),
            ),
            forgetting=inward.forgetting,
            reloads=reloads,
            restarts=restarts,
            approvals=outward.approvals,
            plugin_rows=plugins.rows if plugins is not None else None,
            let_go=[
                ("jobs", jobs.close),
                *answering.let_go(),
                *ground.let_go(),
                *([("mcp servers", mcp.close)] if mcp is not None else []),
            ],
            beside=[
                *([partial(plugins.facade.keep_fresh, store, clock)] if plugins else []),
                *([mcp.start] if mcp is not None else []),
                jobs.run,
                *(night.beside() if night is not None else []),
            ],
        )
    )


def _files_of(plugins: Plugins | None) -> tuple[Path, ...]:
    """What a backup should take along for them."""
    return plugins.providers.backup_paths if plugins is not None else ()


def _works(supervisor: Supervisor, platform: str) -> bool:
    """Of one that nobody supervises no trouble is known."""
    status = supervisor.status.get(platform)
    return status is None or status.state is PlatformState.RUNNING
