"""Owns the list of who is asked for an overview, and what some of them answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from agent.census import Census
from agent.llm.standing import Standing
from agent.ports import Clock
from gateway.lanes.lanes import Lanes
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.stalls import LoopWatch
from gateway.monitoring.turn_board import TurnBoard
from gateway.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class JobFacts:
    """How the jobs are."""

    active: int = 0
    paused: int = 0
    next_at: float | None = None
    failed: int = 0
    """Whose last run failed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Who is asked."""

    home: Path
    database: Path
    clock: Clock
    zone: Callable[[], tzinfo]
    console: str
    supervisor: Supervisor
    lanes: Lanes
    metrics: Metrics
    board: TurnBoard
    store_trouble: Callable[[], str | None]
    census: Callable[[float, float], Awaitable[Census]] | None = None
    jobs: Callable[[], Awaitable[JobFacts]] | None = None
    backups: Callable[[], Sequence[tuple[float, int]]] = lambda: ()
    """When each was made, and its size; newest first. It may block."""
    loop_watch: LoopWatch | None = None
    standing: Callable[[], Standing] = Standing
    """What the model's provider says of key, credit and models."""
