"""The watchdog is fed while every platform lives or is in a known retry, and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.llm.offline import OfflineModel
from agent.store_ports import StoreWork
from gateway.daemon import Daemon
from gateway.lanes.lanes import Job
from gateway.liveness import STORE_SECONDS
from gateway.platforms.contract import (
    Intake,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    Report,
)
from gateway.sdnotify import ServiceManager
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_daemon import daemon

WATCHDOG_SECONDS = 60.0


class Manager:
    """systemd's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.service = ServiceManager(
            {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
        )

    def heard(self) -> list[str]:
        """Every line since the last time."""
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines += self.socket.recv(65536).decode().split("\n")
        return lines

    def fed(self) -> bool:
        return "WATCHDOG=1" in self.heard()


class Platform(FakePlatform):
    """Signs every 20 s while ``alive``; ``deaf`` to its cancellation; or fails as it is told."""

    def prepare(self, clock: FakeClock) -> Platform:
        self.clock = clock
        self.alive, self.deaf = True, False
        self.error: Exception | None = None
        self.runs = 0
        self.over = False
        return self

    async def run(self, intake: Intake, report: Report) -> None:
        self.runs += 1
        while not self.over:
            try:
                if self.error is not None:
                    raise self.error
                if self.alive:
                    report(PlatformState.RUNNING, "")
                await self.clock.sleep(20)
            except asyncio.CancelledError:
                if not self.deaf:
                    raise


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


class Scene:
    def __init__(self, home: Path, clock: FakeClock, manager: Manager) -> None:
        self.clock = clock
        self.manager = manager
        self.platform = Platform(name="fake").prepare(clock)
        self.other = Platform(name="other").prepare(clock)
        self.rig = Rig(clock, platform=self.platform)
        platforms = [self.platform, self.other]
        self.daemon: Daemon = daemon(
            self.rig, home, platforms, OfflineModel(window_tokens=10_000), manager=manager.service
        )

    async def __aenter__(self) -> Scene:
        self.serving = asyncio.create_task(self.daemon.serve())
        await self.pass_time(lambda: self.daemon.ready, 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.platform.over = self.other.over = True
        self.daemon.stop()
        await self.pass_time(self.serving.done, 300)
        assert self.serving.result() == 0

    async def pass_time(self, condition: Callable[[], bool], seconds: float) -> None:
        """At most so long."""
        for _ in range(int(seconds)):
            await self.rig.settle()
            if condition():
                return
            await self.clock.advance(1)
        assert condition()

    async def fed_within(self, seconds: float) -> bool:
        self.manager.heard()
        for _ in range(int(seconds)):
            await self.clock.advance(1)
            if self.manager.fed():
                return True
        return False


async def test_fed_while_all_is_well(tmp_path: Path, clock: FakeClock, manager: Manager) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        for _ in range(10):
            assert await scene.fed_within(WATCHDOG_SECONDS / 2)


@pytest.mark.parametrize(
    "error", [PlatformUnavailable("no route"), PlatformConfigError("no token"), ValueError("bug")]
)
async def test_fed_in_a_known_retry_and_where_only_a_person_helps(
    tmp_path: Path, clock: FakeClock, manager: Manager, error: Exception
) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        scene.platform.error = error
        for _ in range(30):
            assert await scene.fed_within(WATCHDOG_SECONDS / 2)
        assert scene.daemon.ready, "the other one serves"


async def test_silence_that_a_new_start_heals_is_no_reason(
    tmp_path: Path, clock: FakeClock, manager: Manager
) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        scene.platform.alive = False
        for _ in range(10):
            assert await scene.fed_within(WATCHDOG_SECONDS / 2)
        assert scene.platform.runs > 2
        assert scene.other.runs == 1


async def test_a_stuck_platform_stops_the_feeding_and_is_said_before(
    tmp_path: Path, clock: FakeClock, manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        scene.platform.alive, scene.platform.deaf = False, True
        began = clock.monotonic()
        while await scene.fed_within(WATCHDOG_SECONDS / 2):
            pass
        assert clock.monotonic() - began < 60 + 10 + 2 * WATCHDOG_SECONDS
        loud = [r for r in caplog.records if r.levelname == "CRITICAL"]
        assert {"platform does not end"} < {r.getMessage() for r in loud}
        assert loud[-1].__dict__["what"] == "fake"
        assert not await scene.fed_within(5 * WATCHDOG_SECONDS), "and it stays so"
        assert "stuck" in scene.daemon.status()["platforms"]["fake"]["reason"]
        # It ends after all: no new process is needed.
        scene.platform.deaf, scene.platform.alive = False, True
        assert await scene.fed_within(WATCHDOG_SECONDS)


async def test_a_store_that_does_not_come_on_stops_the_feeding(
    tmp_path: Path, clock: FakeClock, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        at_work: StoreWork | None = None
        store = scene.daemon._parts.store
        monkeypatch.setattr(store, "at_work", lambda: at_work)
        at_work = StoreWork(STORE_SECONDS)  # a disk that hangs for minutes is waited for
        assert await scene.fed_within(WATCHDOG_SECONDS / 2)
        for seconds in (STORE_SECONDS + 1, float("inf")):
            at_work = StoreWork(seconds)
            assert not await scene.fed_within(2 * WATCHDOG_SECONDS)
        at_work = None
        assert await scene.fed_within(WATCHDOG_SECONDS)


async def test_work_on_the_whole_file_is_fed_within_its_bound(
    tmp_path: Path,
    clock: FakeClock,
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A night's VACUUM of a huge file on a slow disk was killed in its midst, and the next one."""
    async with Scene(tmp_path, clock, manager) as scene:
        began = clock.monotonic()
        bound_seconds = 3600.0

        def at_work() -> StoreWork:
            return StoreWork(clock.monotonic() - began, "writing it anew", bound_seconds)

        monkeypatch.setattr(scene.daemon._parts.store, "at_work", at_work)
        while clock.monotonic() - began < bound_seconds - WATCHDOG_SECONDS:
            assert await scene.fed_within(WATCHDOG_SECONDS / 2)
        told = [r for r in caplog.records if "long work" in r.getMessage()]
        assert [r.__dict__["what"] for r in told] == ["writing it anew"]
        while clock.monotonic() - began < bound_seconds:
            await clock.advance(1)
        assert not await scene.fed_within(2 * WATCHDOG_SECONDS)
        reasons = {r.__dict__["reason"] for r in caplog.records if r.levelname == "CRITICAL"}
        assert any(reason.startswith("writing it anew has been under way") for reason in reasons)
        monkeypatch.undo()


async def test_a_machine_that_slept_is_fed(
    tmp_path: Path, clock: FakeClock, manager: Manager
) -> None:
    async with Scene(tmp_path, clock, manager) as scene:
        for _ in range(3):
            clock.jump(86_400)
            assert await scene.fed_within(WATCHDOG_SECONDS / 2)
        assert scene.platform.runs == 1


async def test_the_way_down_is_fed_whatever_is_stuck(
    tmp_path: Path, clock: FakeClock, manager: Manager
) -> None:
    scene = Scene(tmp_path, clock, manager)
    async with scene:
        scene.platform.alive, scene.platform.deaf = False, True
        await scene.pass_time(lambda: scene.daemon._parts.supervisor.vitals()["fake"].stuck, 100)
        scene.rig.lanes.put("busy", slow_job(clock))
        manager.heard()
        scene.daemon.stop()
        assert await scene.fed_within(WATCHDOG_SECONDS / 2)


def slow_job(clock: FakeClock) -> Job:
    async def work(*_: object) -> None:
        await clock.sleep(15)

    return Job(work, "work")
