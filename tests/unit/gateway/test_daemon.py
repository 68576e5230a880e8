"""The daemon's end: bounded whatever hangs, and every part is told to let go."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from agent.llm.offline import OfflineModel
from agent.ports import LanguageModel
from agent.store_ports import Store
from gateway.config.environment import Home, Secrets
from gateway.config.models import Config
from gateway.daemon import LONGEST_END_SECONDS, Daemon
from gateway.daemon_parts import Parts
from gateway.lanes.lanes import Job
from gateway.platforms.console.adapter import ConsolePlatform
from gateway.platforms.contract import Intake, PlatformState, Report
from gateway.sdnotify import ServiceManager
from gateway.supervisor import Supervisor
from gateway.turns.ahead import AheadDesk
from gateway.turns.compactors import CompactorCache
from gateway.turns.micro import MicroDesk
from gateway.wiring import assembling
from gateway.wiring.surroundings import Surroundings
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_compactors import FakeKeeper

UNIT = Path(__file__).parents[3] / "systemd" / "posthouse.service"


async def never(*_: object) -> None:
    """Ends for nobody, not even for a cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if _over.is_set():
                raise


_over = asyncio.Event()


class Stuck(FakePlatform):
    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.RUNNING, "")
        await never()

    async def close(self) -> None:
        self.closed += 1
        await never()


class StuckModel(OfflineModel):
    async def aclose(self) -> None:
        await never()


def daemon(rig: Rig, home: Path, platforms: list[Any], model: Any, **more: Any) -> Daemon:
    async def at_once() -> None:
        return None

    return Daemon(
        Parts(
            home=home,
            store=rig.store,
            model=model,
            intake=rig.intake,
            console=ConsolePlatform(clock=rig.clock, ids=SequentialIds(), idle=at_once),
            platforms=platforms,
            supervisor=Supervisor(platforms, rig.intake, rig.clock),
            lanes=rig.lanes,
            dispatch=rig.dispatch,
            delivery=rig.delivery,
            recovery=rig.recovery,
            control_path=home / "c.sock",
            manager=more.pop("manager", ServiceManager({})),
            clock=rig.clock,
            drain_seconds=lambda: Config().gateway.drain_seconds,
            restarts=rig.restarts,
            **more,
        )
    )


async def test_the_end_is_in_time_whatever_hangs(tmp_path: Path, clock: FakeClock) -> None:
    _over.clear()
    platforms = [Stuck(name=name) for name in ("fake", "other", "third")]
    rig = Rig(clock, platform=platforms[0])
    none: Any = None
    compactors = CompactorCache(lambda _: none)
    desks: dict[str, Any] = {
        "ahead": AheadDesk(rig.store, compactors, clock, threshold_tokens=lambda: 10_000),
        "micro": MicroDesk(compactors, clock),
    }
    for desk in desks.values():
        desk._tasks.spawn(never(), name="stuck")
    made = daemon(rig, tmp_path, platforms, StuckModel(window_tokens=10_000), **desks)
    serving = asyncio.create_task(made.serve())
    await rig.settle()
    assert made.ready
    rig.lanes.put("stuck", Job(never, "stuck"))
    platforms[0].gate = asyncio.Event()  # a send that never comes back
    await rig.intake.receive(inbound("hello"))
    rig.store.close = never
    await rig.settle()
    try:
        before = clock.monotonic()
        made.stop()
        while not serving.done():
            await clock.advance(0.5)
            await rig.settle()
        assert serving.result() == 0
        assert [p.closed for p in platforms] == [1, 1, 1]
        took = clock.monotonic() - before
        drain = Config().gateway.drain_seconds
        assert drain < took < drain + LONGEST_END_SECONDS
        found = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
        assert found
        assert int(found[1]) >= drain + LONGEST_END_SECONDS
    finally:
        _over.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_a_stop_that_comes_before_anything_runs(tmp_path: Path, clock: FakeClock) -> None:
    platform = FakePlatform()
    rig = Rig(clock, platform=platform)
    made = daemon(rig, tmp_path, [platform], OfflineModel(window_tokens=10_000))
    made.stop()
    serving = asyncio.create_task(made.serve())
    while not serving.done():
        await rig.settle()
        await clock.advance(0.5)
    assert serving.result() == 0
    assert platform.closed == 1
    assert not (tmp_path / "c.sock").exists()


async def test_a_store_that_takes_nothing_is_said(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    told: list[str] = []
    made = daemon(rig, tmp_path, [rig.platform], OfflineModel(window_tokens=10_000))
    made._parts.manager.status = told.append  # type: ignore[method-assign]
    serving = asyncio.create_task(made.serve())
    await rig.settle()
    assert "STORE TAKES NOTHING" not in made.status()["details"]
    rig.store.trouble = lambda: "the file is gone"
    await clock.advance(120)
    assert made.status()["details"]["STORE TAKES NOTHING"] == "the file is gone"
    assert "nothing can be stored (the file is gone)" in told[-1]
    assert "nothing can be stored" in caplog.text
    rig.store.trouble = lambda: None
    await clock.advance(120)
    assert "nothing can be stored" not in told[-1]
    made.stop()
    while not serving.done():
        await rig.settle()
        await clock.advance(0.5)


async def test_what_can_not_be_put_together_lets_go_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that stays open keeps its threads, and the process with them."""

    class Broken(Exception):
        pass

    def broken(*_: object) -> LanguageModel:
        raise Broken

    monkeypatch.setattr(assembling, "build_model", broken)
    around = Surroundings(Home(tmp_path, "of a test"), Secrets(), {}, only_console=True)
    opened: list[Store] = []

    def seen(store: Store) -> Store:
        opened.append(store)
        return store

    with pytest.raises(Broken):
        await assembling.build_daemon(Config(), around, decorate_store=seen)
    with pytest.raises(StoreUnavailable):
        await opened[0].owed()


async def test_what_plugins_do_at_the_end_may_still_ask_the_model(
    tmp_path: Path, clock: FakeClock
) -> None:
    ended: list[str] = []

    class Model(OfflineModel):
        async def aclose(self) -> None:
            ended.append("model")

    async def engines() -> None:
        await asyncio.sleep(0)
        ended.append("engines")

    rig = Rig(clock)
    made = daemon(
        rig,
        tmp_path,
        [rig.platform],
        Model(window_tokens=10_000),
        let_go=[("context engines", engines)],
    )
    serving = asyncio.create_task(made.serve())
    await rig.settle()
    made.stop()
    while not serving.done():
        await clock.advance(0.5)
        await rig.settle()
    assert ended == ["engines", "model"]


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_engine_that_is_let_go_does_not_outlive_the_daemon(
    tmp_path: Path, clock: FakeClock, hangs: bool
) -> None:
    """Nobody waited for it: it was told of its end while the store was closed already, or after."""
    ended: list[str] = []
    keeper = FakeKeeper()
    keeper.go.clear()
    rig = Rig(clock)
    cache = CompactorCache(lambda _: rig.compactor, keeper=keeper)
    closed = rig.store.close

    async def close() -> None:
        ended.extend([*keeper.gone, "store"])
        await closed()

    rig.store.close = close
    let_go = [("context engines", cache.close)]
    made = daemon(rig, tmp_path, [rig.platform], OfflineModel(window_tokens=10_000), let_go=let_go)
    before = asyncio.all_tasks()
    serving = asyncio.create_task(made.serve())
    await rig.settle()
    await cache.get("a")
    cache.drop(["a"])
    made.stop()
    began = clock.monotonic()
    while not serving.done():
        await rig.settle()
        await clock.advance(0.5)
        if not hangs and clock.monotonic() - began > 2:
            keeper.go.set()
    assert ended == ([] if hangs else ["a"]) + ["store"]
    assert clock.monotonic() - began < LONGEST_END_SECONDS
    await rig.settle()
    assert asyncio.all_tasks() - before == set()
