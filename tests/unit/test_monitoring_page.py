"""docs/monitoring.md: what its rules and tables name exists."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from typing import Any

import yaml

from agent.llm.standing import Standing
from agent.prices import price_table
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.overview import Overview
from gateway.monitoring.provider import provider_metrics
from gateway.monitoring.sources import Sources
from gateway.monitoring.stalls import LoopWatch
from gateway.monitoring.turn_board import TurnBoard
from gateway.monitoring.upkeep_metrics import upkeep_metrics
from gateway.supervisor import Supervisor
from tests.fakes.clock import FakeClock
from tests.fakes.exposition import read_exposition
from tests.unit.gateway.rig import Rig

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")


def overview(clock: FakeClock, metrics: Metrics, home: Path) -> tuple[Overview, LoopWatch]:
    rig, watch = Rig(clock), LoopWatch()
    metrics.watch(
        waiting=lambda: 0, running=lambda: 0, owed=lambda: 0, prepared=dict, platforms=dict
    )
    made = Overview(
        Sources(
            home=home,
            database=home / "state.db",
            clock=clock,
            zone=lambda: UTC,
            console="console",
            supervisor=Supervisor([], rig.intake, clock),
            lanes=rig.lanes,
            metrics=metrics,
            board=TurnBoard(clock),
            store_trouble=lambda: None,
            loop_watch=watch,
        )
    )
    metrics.add(upkeep_metrics(made, watch, dict))
    metrics.add(provider_metrics(Standing))
    return made, watch


async def test_every_metric_of_the_rules_exists(clock: FakeClock, tmp_path: Path) -> None:
    metrics = Metrics(clock, price_table())
    overview(clock, metrics, tmp_path)
    known = read_exposition(metrics.text())
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    rules: list[dict[str, Any]] = blocks[1]["groups"][0]["rules"]
    assert len(rules) >= 6
    named = {name for rule in rules for name in re.findall(r"posthouse_\w+", rule["expr"])}
    assert named - set(known) == set()
    assert all(set(rule) <= {"alert", "expr", "for"} for rule in rules)


async def test_every_key_of_status_is_told_of(clock: FakeClock, tmp_path: Path) -> None:
    made, _ = overview(clock, Metrics(clock, price_table()), tmp_path)
    status = await made.status()
    missing = [key for key in status if f"`{key}`" not in PAGE and key != "uptime_seconds"]
    assert missing == []
