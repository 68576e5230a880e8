"""What systemd's status line says while the disk is full, and once there is room again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.errors import StoreUnavailable
from gateway.supervisor import Supervisor
from gateway.upkeep import keep_up
from gateway.watchdog import Watchdog
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.inbox_suite import inbound
from tests.fakes.clock import FakeClock
from tests.fakes.disks import fill, small_disk
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_watchdog import WATCHDOG_SECONDS, Manager

LARGE = "x" * 200_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 12) as disk:
        yield disk


@contextlib.asynccontextmanager
async def stored(disk: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(disk / "state.db", clock=SystemClock(), ids=RandomIds())
    try:
        yield store
    finally:
        await store.close()


async def until_refused(store: SqlStore) -> None:
    for n in range(100):
        try:
            await store.accept(inbound(n, text=LARGE))
        except StoreUnavailable:
            return
    raise AssertionError("there is room without end")


async def test_upkeep_that_writes_nothing_is_no_sign_of_room(disk: Path) -> None:
    async with stored(disk) as store:
        while await store.maintain():
            pass
        fill(disk)
        await until_refused(store)
        assert store.trouble() is not None
        with contextlib.suppress(StoreUnavailable):
            await store.maintain()
        assert store.trouble() is not None


async def test_the_status_line_follows_the_store(tmp_path: Path, disk: Path) -> None:
    """Nobody writes to the bot meanwhile; each change shows within the watchdog's time."""
    clock = FakeClock()
    manager = Manager(tmp_path / "notify")
    async with stored(disk) as store:
        watchdog = Watchdog(manager.service, Supervisor([], Rig(clock).intake, clock), store, clock)
        tasks = [
            asyncio.create_task(watchdog.feed()),
            asyncio.create_task(keep_up(store, clock)),
        ]
        try:
            last = Status(manager, clock)
            assert not await last.within(1, lambda text: "nothing can be stored" in text)
            filler = fill(disk)
            await until_refused(store)
            assert await last.within(WATCHDOG_SECONDS, lambda text: "nothing can be stored" in text)
            assert not await last.within(
                3 * WATCHDOG_SECONDS, lambda text: "nothing can be stored" not in text
            ), "it is said for as long as it is so"
            filler.unlink()
            assert await last.within(
                WATCHDOG_SECONDS, lambda text: "nothing can be stored" not in text
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            manager.socket.close()


class Status:
    """systemd's line."""

    def __init__(self, manager: Manager, clock: FakeClock) -> None:
        self._manager = manager
        self._clock = clock

    async def within(self, seconds: float, wanted: Callable[[str], bool]) -> bool:
        """Does it become so?"""
        for _ in range(int(seconds)):
            await self._clock.advance(1)
            await asyncio.sleep(0.01)  # the store's thread answers
            lines = [line for line in self._manager.heard() if line.startswith("STATUS=")]
            if any(map(wanted, lines)):
                return True
        return False
