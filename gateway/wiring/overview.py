"""Owns the composition of what tells how the daemon is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent.census import Census
from gateway.backups.shelf import kept
from gateway.monitoring.overview import Overview
from gateway.monitoring.sources import Sources
from gateway.monitoring.stalls import LoopWatch
from gateway.monitoring.upkeep_metrics import upkeep_metrics
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.supervisor import Supervisor
from gateway.wiring.answering import Books
from gateway.wiring.ground import Ground
from gateway.wiring.talking import Inward

TakeCensus = Callable[[float, float], Awaitable[Census]]


def build_overview(
    ground: Ground,
    books: Books,
    inward: Inward,
    supervisor: Supervisor,
    census: TakeCensus | None,
) -> Overview:
    """Looks at all of it; the metrics show what it finds."""
    home, crashes = ground.around.home, ground.around.crashes
    watch = LoopWatch(on_frozen=crashes.stacks if crashes is not None else _not_kept)
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
            backups=lambda: [(b.made_at, b.bytes) for b in kept(home) if b.kind != "replaced"],
            loop_watch=watch,
        )
    )
    books.metrics.add(upkeep_metrics(overview, watch, lambda: ground.reloads.counts))
    return overview


def _not_kept(what: str, stacks: str) -> None:
    return None
