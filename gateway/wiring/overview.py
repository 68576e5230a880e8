"""Owns the composition of what tells how the daemon is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from agent.census import Census
from agent.jobs.ports import JobStore
from agent.model_metadata import estimate_prefix_tokens
from agent.ports import LanguageModel
from gateway.backups.shelf import kept
from gateway.config.models import Config
from gateway.monitoring.http import HttpFace, HttpSettings
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.overview import Overview
from gateway.monitoring.provider import in_lines, provider_metrics
from gateway.monitoring.self_report import SelfReport
from gateway.monitoring.sources import JobFacts, Sources
from gateway.monitoring.stalls import LoopWatch, patience_for
from gateway.monitoring.upkeep_metrics import upkeep_metrics
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.sdnotify import ServiceManager
from gateway.supervisor import Supervisor
from gateway.wiring.answering import Answering, Background, Books
from gateway.wiring.ground import Ground
from gateway.wiring.models import missing_native, standing
from gateway.wiring.talking import Inward, Outward

if TYPE_CHECKING:
    from gateway.mcp.servers import McpServers

TakeCensus = Callable[[float, float], Awaitable[Census]]


def build_overview(
    ground: Ground,
    books: Books,
    inward: Inward,
    supervisor: Supervisor,
    census: TakeCensus | None,
    model: LanguageModel,
) -> Overview:
    """Looks at all of it; the metrics show what it finds."""
    home, crashes = ground.around.home, ground.around.crashes
    watch = LoopWatch(
        on_frozen=crashes.stacks if crashes is not None else _not_kept,
        patience=patience_for(ServiceManager(ground.around.env).watchdog_seconds),
    )
    overview = Overview(
        Sources(
            home=home.path,
            database=home.database,
            clock=ground.clock,
            zone=lambda: ground.zone,
            console=CONSOLE,
            supervisor=supervisor,
            lanes=inward.lanes,
            metrics=books.metrics,
            board=books.board,
            store_trouble=ground.store.trouble,
            census=census,
            jobs=partial(_job_facts, ground.store),
            backups=lambda: [(b.made_at, b.bytes) for b in kept(home) if b.kind != "replaced"],
            loop_watch=watch,
            standing=partial(standing, model),
        )
    )
    books.metrics.add(provider_metrics(partial(standing, model)))
    books.metrics.add(upkeep_metrics(overview, watch, lambda: ground.reloads.counts))
    return overview


def build_report(
    ground: Ground, answering: Answering, model: LanguageModel, mcp: McpServers | None
) -> SelfReport:
    """What it says of itself, at the start and when asked."""
    return SelfReport(
        lambda: ground.now,
        model=model.name,
        book=answering.book,
        triggers=answering.factory.triggers,
        prefix_tokens=lambda: estimate_prefix_tokens(answering.prefix_for(CONSOLE)),
        image_tokens=answering.image_tokens.of,
        missing_native=lambda: missing_native(model),
        provider=lambda: in_lines(standing(model), ground.clock.now()),
        plugins=ground.plugins,
        tool_servers=mcp,
    )


def feed_metrics(
    metrics: Metrics,
    inward: Inward,
    outward: Outward,
    background: Background,
    supervisor: Supervisor,
) -> None:
    """What the metrics ask whenever they are read."""
    metrics.watch(
        waiting=lambda: inward.lanes.counts()[1],
        running=lambda: inward.lanes.counts()[0],
        owed=lambda: outward.delivery.under_way,
        prepared=lambda: background.ahead.counts,
        platforms=lambda: {n: s.state.value for n, s in supervisor.status.items()},
    )


def build_http(config: Config, *, is_needed: bool) -> HttpFace:
    """Where others look."""
    http = config.gateway.http
    return HttpFace(
        HttpSettings(http.host, http.port, tuple(http.allowed_hosts), is_needed=is_needed)
    )


async def _job_facts(store: JobStore) -> JobFacts:
    views = await store.job_views()
    states = Counter(view.job.state for view in views)
    due = [v.job.next_run_at for v in views if v.job.state == "active"]
    return JobFacts(
        active=states["active"],
        paused=states["paused"],
        next_at=min((at for at in due if at is not None), default=None),
        failed=sum(view.last is not None and view.last.state == "failed" for view in views),
    )


def _not_kept(what: str, stacks: str) -> None:
    return None
