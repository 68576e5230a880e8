"""Owns the tests of the nightly backup: which are kept, when there is none, a missed night."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agent.errors import PosthouseError
from agent.llm.background import in_daemon_thread
from gateway.backups.nightly import (
    AFTER_START_SECONDS,
    LATE_SECONDS,
    Nightly,
    rotate,
    scheduled,
)
from gateway.backups.shelf import folder_of
from gateway.config.environment import Home
from tests.fakes.clock import FakeClock
from tests.unit.gateway.backup_rig import TOOLS, filled, made, new_home

T = TypeVar("T")
DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """It waits for the clock by now."""
    task = asyncio.ensure_future(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


def nightly(home: Home, clock: FakeClock, keep: int = 3) -> Nightly:
    return Nightly(home, TOOLS, clock, in_daemon_thread, keep=keep)


async def test_the_newest_ones_are_kept_and_only_ours_go(home: Home, clock: FakeClock) -> None:
    await filled(home)
    folder_of(home).mkdir()
    by_hand = await made(home, str(folder_of(home)))
    (folder_of(home) / "mine").mkdir()
    job = nightly(home, clock)
    names = []
    for _ in range(5):
        names.append((await job.run()).split(",")[0])
        clock.jump(DAY)
    assert [b.path.name for b in scheduled(home)] == names[:1:-1]
    assert sorted(os.listdir(folder_of(home))) == sorted(
        [*names[2:], by_hand.backup.path.name, "mine"]
    )
    assert rotate(home, 0) == 2  # never the last one
    assert len(scheduled(home)) == 1


async def test_a_second_one_so_soon_is_none(home: Home, clock: FakeClock) -> None:
    await filled(home)
    job = nightly(home, clock)
    await job.run()
    clock.jump(3600)
    assert "hours ago" in await job.run()
    assert len(scheduled(home)) == 1
    clock.set_wall(clock.now() - 300 * DAY)  # the clock was set back: no reason to stop
    await job.run()
    assert len(scheduled(home)) == 2


async def test_no_room_is_a_warning_and_no_backup(
    home: Home,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await filled(home)
    monkeypatch.setattr("gateway.backups.nightly.ROOM", 10**12)
    with pytest.raises(PosthouseError, match="make room"):
        await nightly(home, clock).run()
    making_up = await begun(nightly(home, clock).make_up())
    await clock.advance(AFTER_START_SECONDS)
    await making_up
    assert "make room" in caplog.text
    assert os.listdir(folder_of(home)) == []


async def test_a_night_that_comes_while_one_is_made_up_makes_no_second(
    home: Home, clock: FakeClock
) -> None:
    await filled(home)
    job = nightly(home, clock)
    await asyncio.gather(job.run(), job.run())
    assert len(scheduled(home)) == 1


async def test_a_missed_night_is_made_up_once(home: Home, clock: FakeClock) -> None:
    await filled(home)
    for wait, expected in ((0.0, 1), (DAY / 2, 1), (LATE_SECONDS, 2)):
        clock.jump(wait)
        task = await begun(nightly(home, clock).make_up())
        await clock.advance(AFTER_START_SECONDS)
        await task
        assert len(scheduled(home)) == expected
