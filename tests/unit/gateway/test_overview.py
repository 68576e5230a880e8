"""The overview: numbers of a gateway at work, also where the store is silent; and its metrics."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from agent.census import Census, RefusingChat
from agent.errors import StoreUnavailable
from agent.llm.standing import ModelTrouble, Standing
from agent.messages import Draft
from agent.ports import Usage
from agent.prices import price_table
from gateway.cli.overview_text import lines
from gateway.crashes.runs import recorded
from gateway.crashes.shelf import CrashShelf
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.overview import WARM_LOOKS, WARM_SECONDS, Overview
from gateway.monitoring.provider import provider_metrics
from gateway.monitoring.sources import JobFacts, Sources
from gateway.monitoring.stalls import LoopWatch
from gateway.monitoring.turn_board import PastTurn, TurnBoard
from gateway.monitoring.upkeep_metrics import upkeep_metrics
from gateway.platforms.contract import PlatformState
from gateway.supervisor import Supervisor
from tests.fakes.clock import FakeClock
from tests.fakes.exposition import read_exposition
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said

SECRET_WORDS = "what nobody else may read"


class Scene:
    """A gateway on fakes, looked at."""

    def __init__(self, clock: FakeClock, home: Path, **more: Any) -> None:
        self.rig = Rig(clock)
        self.metrics = Metrics(clock, price_table())
        self.board = TurnBoard(clock)
        self.supervisor = Supervisor([FakePlatform(name="fake")], self.rig.intake, clock)
        self.trouble: str | None = None
        self.watch = LoopWatch()
        fields: dict[str, Any] = {
            "home": home,
            "database": home / "state.db",
            "clock": clock,
            "zone": lambda: UTC,
            "console": "console",
            "supervisor": self.supervisor,
            "lanes": self.rig.lanes,
            "metrics": self.metrics,
            "board": self.board,
            "store_trouble": lambda: self.trouble,
            "loop_watch": self.watch,
        }
        self.overview = Overview(Sources(**{**fields, **more}))


def census(found: Census) -> Callable[[float, float], Awaitable[Census]]:
    async def take(now: float, day_began_at: float) -> Census:
        assert now - day_began_at <= 86_400
        return found

    return take


async def test_a_gateway_at_work(clock: FakeClock, tmp_path: Path) -> None:
    now = clock.now()
    found = Census(
        inbox_new=2, inbox_oldest_at=now - 30, owed=1, owed_oldest_at=now - 9, turns={"done": 4}
    )

    async def jobs() -> JobFacts:
        return JobFacts(active=2, next_at=now + 60, failed=1)

    (tmp_path / "state.db").write_bytes(b"x" * 5000)
    (tmp_path / "state.db-wal").write_bytes(b"x" * 700)
    CrashShelf(tmp_path, str, clock.now).stacks("it fell over", "frames")
    (tmp_path / "workspace" / "test-1" / "deep").mkdir(parents=True)
    (tmp_path / "workspace" / "test-1" / "deep" / "a").write_bytes(b"x" * 900)
    (tmp_path / "workspace" / "test-2").mkdir()
    with recorded(tmp_path, clock.now):
        pass
    with recorded(tmp_path, clock.now):
        pass
    scene = Scene(
        clock,
        tmp_path,
        census=census(found),
        jobs=jobs,
        backups=lambda: [(now - 3600, 4000), (now - 90_000, 3000)],
    )
    gate = asyncio.Event()

    async def script(*_: object) -> Draft:
        await gate.wait()
        return said("done")

    scene.rig.loop.scripts[SECRET_WORDS] = script
    await scene.rig.intake.receive(inbound(SECRET_WORDS, message_id="1"))
    await scene.rig.loop.started(SECRET_WORDS)
    await scene.rig.intake.receive(inbound("and more", message_id="2"))
    await clock.advance(12)
    status, top = await scene.overview.status(), await scene.overview.top()
    text = json.dumps([status, top])
    assert SECRET_WORDS not in text
    assert "and more" not in text
    assert status["lanes"]["running"] == 1
    assert status["lanes"]["longest_running_seconds"] == pytest.approx(12, abs=2)
    assert status["queues"]["inbox_oldest_seconds"] == pytest.approx(42, abs=1)
    assert status["queues"]["outbox_oldest_seconds"] == pytest.approx(21, abs=1)
    assert status["today"] == {"turns": {"done": 4}, "compressions": 0}
    assert (status["jobs"]["active"], status["jobs"]["failed"]) == (2, 1)
    assert status["database"] == {"bytes": 5000, "wal_bytes": 700, "trouble": None}
    assert (status["backups"]["count"], status["backups"]["newest_bytes"]) == (2, 4000)
    assert status["workspaces"] == {"count": 2, "bytes": 900, "entries": 2}
    assert dict(lines(status, clock.now()))["workspaces"] == "2, 900 B in 2 entries"
    assert status["runs"]["cut_off"] == 1
    assert status["crashes"]["newest"]["what"] == "it fell over"
    assert status["memory"]["grown_bytes"] is None, "it is not warm yet"
    (row,) = top["rows"]
    assert (row["platform"], row["doing"], row["waiting"]) == ("fake", "message", 1)
    gate.set()
    await scene.rig.settle()
    assert (await scene.overview.top())["rows"] == []


async def test_a_provider_that_refuses_the_key_is_seen(clock: FakeClock, tmp_path: Path) -> None:
    now = clock.now()
    refused = ModelTrouble("claude-x", "key", since=now - 300, last_at=now - 20)
    standing = Standing(now - 4000, (refused,))
    scene = Scene(clock, tmp_path, standing=lambda: standing)
    scene.metrics.add(provider_metrics(lambda: standing))
    status = await scene.overview.status()
    assert json.loads(json.dumps(status["provider"])) == {
        "answered_at": now - 4000,
        "troubles": [
            {"model": "claude-x", "kind": "key", "since": now - 300, "last_at": now - 20},
        ],
    }
    told = dict(lines(status, now))["provider"]
    assert "refuses the key" in told
    assert "5 minutes ago" in told
    assert "claude-x" in told
    metrics = read_exposition(scene.metrics.text())
    sample = ("posthouse_model_trouble", (("kind", "key"), ("model", "claude-x")))
    assert metrics["posthouse_model_trouble"].samples == {sample: 1.0}
    answered = "posthouse_model_answered_timestamp_seconds"
    assert metrics[answered].samples == {(answered, ()): now - 4000}
    standing = Standing(now)
    assert "provider" not in dict(lines(await scene.overview.status(), now))
    assert read_exposition(scene.metrics.text())["posthouse_model_trouble"].samples == {}


async def test_a_store_that_is_silent_holds_nobody_up(clock: FakeClock, tmp_path: Path) -> None:
    async def fail(now: float, day_began_at: float) -> Census:
        raise StoreUnavailable("the disk is full")

    scene = Scene(clock, tmp_path, census=fail)
    status = await scene.overview.status()
    assert status["queues"] is None
    assert status["today"] is None
    assert "the disk" not in json.dumps(status)


async def test_what_is_not_known_any_more_is_not_told(clock: FakeClock, tmp_path: Path) -> None:
    answers = [Census(inbox_new=7)]

    async def once(now: float, day_began_at: float) -> Census:
        if not answers:
            raise StoreUnavailable("gone")
        return answers.pop()

    scene = Scene(clock, tmp_path, census=once)
    assert (await scene.overview.status())["queues"]["inbox"] == 7
    assert (await scene.overview.status())["queues"] is None


async def test_a_backup_on_a_disk_that_hangs_holds_nobody_up(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, the loop least of all; and it is asked once, however many look."""
    monkeypatch.setattr("gateway.monitoring.overview.FILES_SECONDS", 0.05)
    back, asked = threading.Event(), list[int]()

    def backups() -> list[tuple[float, int]]:
        asked.append(1)
        back.wait(20)
        return [(1.0, 2)]

    scene = Scene(clock, tmp_path, census=census(Census(inbox_new=1)), backups=backups)
    scene.metrics.add(upkeep_metrics(scene.overview, scene.watch, dict))
    try:
        status = await scene.overview.status()
        assert (status["backups"], status["runs"], status["crashes"]) == (None, None, None)
        assert status["queues"]["inbox"] == 1
        await scene.overview.refresh()
        assert asked == [1]
        assert read_exposition(scene.metrics.text())["posthouse_backups"].samples == {}
        assert (await scene.overview.top())["queues"]["inbox"] == 1
    finally:
        back.set()
    monkeypatch.setattr("gateway.monitoring.overview.FILES_SECONDS", 20)
    assert (await scene.overview.status())["backups"]["count"] == 1


async def test_ready_while_nothing_can_be_reached(clock: FakeClock, tmp_path: Path) -> None:
    """A network that is down at the start is no reason to end, but nobody is served either."""
    scene = Scene(clock, tmp_path)
    (charge,) = scene.supervisor._charges
    scene.supervisor._set(charge, PlatformState.RETRYING, "no route")
    assert scene.overview.readiness(started=True).state == "degraded"
    await clock.advance(61)
    found = scene.overview.readiness(started=True)
    assert not found.ready
    assert found.reasons == ("fake retrying for 61 s: no route",)
    scene.supervisor._set(charge, PlatformState.RUNNING, "")
    assert scene.overview.readiness(started=True).state == "ready"
    scene.trouble = "the disk is full"
    assert not scene.overview.readiness(started=True).ready


async def test_what_is_loaded_on_demand_is_no_growth(clock: FakeClock, tmp_path: Path) -> None:
    """The line tells a leak: it begins behind the first turn, or after an hour without one."""

    async def grown(scene: Scene) -> int | None:
        found: int | None = (await scene.overview.top())["memory"]["grown_bytes"]
        return found

    busy, idle = Scene(clock, tmp_path), Scene(clock, tmp_path)
    warming = [asyncio.ensure_future(scene.overview.warm()) for scene in (busy, idle)]
    await clock.advance(10 * WARM_SECONDS)
    assert await grown(busy) is None
    busy.board.over(PastTurn(1.0, "fake", "c", "done", 1.0, 1, 0, 0, 1, 0, 1))
    await clock.advance(WARM_SECONDS)
    assert await grown(busy) is not None
    assert await grown(idle) is None
    await clock.advance(WARM_LOOKS * WARM_SECONDS)
    assert await grown(idle) is not None
    await asyncio.gather(*warming)


def test_turns_on_the_board(clock: FakeClock) -> None:
    from gateway.logs import about

    board = TurnBoard(clock)
    usage = Usage(10, 5, cache_read_tokens=90)
    with about(turn_id="t_1"), board.shown("t_1", "c_1", "key", "fake"):
        board.asked(usage)
        board.asked(usage)
        (turn,) = board.running()
        assert (turn.requests, turn.prompt_tokens, turn.output_tokens) == (2, 100, 10)
        with about(turn_id="t_other"):
            board.asked(usage)  # of no turn that is shown
        assert turn.requests == 2
    assert board.running() == []
    for number in range(100):
        board.over(PastTurn(float(number), "fake", "c", "done", 1.0, 1, 0, 0, 1, 0, 1))
    assert len(board.recent()) == 20
    assert board.recent()[0].ended_at == 99.0


async def test_metrics_can_be_read_whatever_is_known(clock: FakeClock, tmp_path: Path) -> None:
    reloads = {"taken over": 3, "refused": 1}
    now = clock.now()
    blocked = RefusingChat("telegram", "111", 3, now - 7200, "bot was blocked by the user")
    found = Census(inbox_new=1, inbox_oldest_at=now - 5, in_doubt=2, refusing=(blocked,))

    async def jobs() -> JobFacts:
        return JobFacts(active=2, next_at=now + 60)

    scene = Scene(clock, tmp_path, census=census(found), jobs=jobs, backups=lambda: [(now - 60, 5)])
    scene.metrics.add(upkeep_metrics(scene.overview, scene.watch, lambda: reloads))
    before = read_exposition(scene.metrics.text())
    assert before["posthouse_inbox_waiting"].samples == {}
    assert before["posthouse_event_loop_lag_seconds"].samples == {}
    await scene.overview.refresh()
    after = read_exposition(scene.metrics.text())

    def value(name: str, **labels: str) -> float:
        return after[name].samples[(name, tuple(sorted(labels.items())))]

    assert value("posthouse_inbox_waiting") == 1
    assert value("posthouse_inbox_oldest_seconds") == 5
    assert value("posthouse_outbox_oldest_seconds") == 0
    assert value("posthouse_outbox_in_doubt") == 2
    assert value("posthouse_chats_refusing") == 1
    told = dict(lines({"queues": scene.overview.queues()}, now))
    assert "1 chat takes no answers: telegram 111 (3 answers given up since 2 h 00 min" in str(told)
    assert "bot was blocked by the user" in str(told)
    assert value("posthouse_jobs_active") == 2
    assert value("posthouse_job_next_timestamp_seconds") == now + 60
    assert value("posthouse_backup_age_seconds") == 60
    assert value("posthouse_reloads_total", outcome="refused") == 1
    assert value("posthouse_database_bytes", part="wal") == 0
    assert value("posthouse_starts") == 0
