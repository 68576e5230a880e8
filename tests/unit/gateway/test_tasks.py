"""Owned tasks, stops and patience with the store."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent.errors import StoreUnavailable
from gateway.lanes.jobs import DrainReport, Job
from gateway.lanes.lanes import Lanes
from gateway.tasks import (
    Completed,
    Stopped,
    StopReason,
    StopSignal,
    TaskOwner,
    finish,
    run_stoppable,
    spawn,
    wait_all,
)
from gateway.turns.storing import GaveUp, until_stored
from tests.fakes.clock import FakeClock


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_crash_is_logged_and_a_cancellation_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crash() -> None:
        raise ValueError("bug")

    async def hang() -> None:
        await asyncio.Event().wait()

    spawn(crash(), name="bad")
    hanging = spawn(hang(), name="good")
    await settle()
    hanging.cancel()
    await settle()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.__dict__["task"] == "bad"


async def test_owner_waits_and_cancels_with_a_deadline(clock: FakeClock) -> None:
    owner = TaskOwner(clock)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    owner.spawn(stubborn(), name="stubborn")
    await settle()
    waiting = asyncio.ensure_future(owner.wait(5))
    await settle()
    await clock.advance(5)
    assert await waiting is False
    cancelling = asyncio.ensure_future(owner.cancel(5))
    await settle()
    await clock.advance(5)
    assert await cancelling == ["stubborn"]
    release.set()
    assert await owner.wait(5) is True
    assert len(owner) == 0


async def test_wait_all_cancels_nothing(clock: FakeClock) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_all([future], clock, 3))
    await settle()
    waiting.cancel()
    await settle()
    assert not future.cancelled()
    assert await wait_all([], clock, 0) is True


async def test_stop_ends_work_and_a_ready_result_counts(clock: FakeClock) -> None:
    async def value() -> int:
        return 7

    async def hang() -> int:
        await asyncio.Event().wait()
        return 0

    assert await run_stoppable(value, StopSignal(), clock, name="w", grace_seconds=1) == Completed(
        7
    )
    stop = StopSignal()
    running = asyncio.ensure_future(run_stoppable(hang, stop, clock, name="w", grace_seconds=1))
    await settle()
    stop.request(StopReason.USER)
    stop.request(StopReason.SHUTDOWN)
    assert await running == Stopped(StopReason.USER, obeyed=True)
    assert stop.shutdown
    again = await run_stoppable(value, stop, clock, name="w", grace_seconds=1)
    assert isinstance(again, Stopped)


async def test_work_that_ignores_a_stop_is_left_behind(clock: FakeClock) -> None:
    release = asyncio.Event()
    late: list[str] = []

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        late.append("ended")

    stop = StopSignal()
    running = asyncio.ensure_future(
        run_stoppable(stubborn, stop, clock, name="w", grace_seconds=0.7)
    )
    await settle()
    stop.request(StopReason.USER)
    await settle()
    await clock.advance(0.7)
    assert await running == Stopped(StopReason.USER, obeyed=False)
    release.set()
    await settle()
    assert late == ["ended"]


async def test_errors_and_cancellations_of_work_pass(clock: FakeClock) -> None:
    async def crash() -> None:
        raise ValueError("bug")

    async def own() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ValueError, match="bug"):
        await run_stoppable(crash, StopSignal(), clock, name="w", grace_seconds=1)
    with pytest.raises(RuntimeError, match="cancelled from outside"):
        await run_stoppable(own, StopSignal(), clock, name="w", grace_seconds=1)


async def test_finish_ends_the_step_before_the_cancellation() -> None:
    release = asyncio.Event()
    done: list[str] = []

    async def step() -> None:
        await release.wait()
        done.append("stored")

    task = asyncio.ensure_future(finish(step()))
    await settle()
    task.cancel()
    await settle()
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["stored"]


async def test_patience_with_the_store(clock: FakeClock) -> None:
    failures = 6
    told: list[str] = []

    async def call() -> str:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("disk full")
        return "stored"

    async def tell() -> None:
        told.append("trouble")

    waiting = asyncio.ensure_future(until_stored(call, clock, StopSignal(), on_trouble=tell))
    for _ in range(60):
        await settle()
        await clock.advance(1)
    assert await waiting == "stored"
    assert told == ["trouble"]


async def test_a_store_that_is_back_is_seen_soon_however_long_it_was_away(clock: FakeClock) -> None:
    failures = 50

    async def call() -> str:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("disk full")
        return "stored"

    waiting = asyncio.ensure_future(until_stored(call, clock, StopSignal()))
    while failures:
        await settle()
        await clock.advance(clock.next_wake_seconds or 0.0)
    await clock.advance(5)
    assert waiting.done()
    assert await waiting == "stored"


@pytest.mark.parametrize("only_shutdown", [True, False])
async def test_patience_ends_when_told(clock: FakeClock, only_shutdown: bool) -> None:
    async def call() -> str:
        raise StoreUnavailable("gone")

    stop = StopSignal()
    waiting = asyncio.ensure_future(until_stored(call, clock, stop, only_shutdown=only_shutdown))
    await settle()
    stop.request(StopReason.USER)
    for _ in range(3):
        await settle()
        await clock.advance(1)
    assert waiting.done() is not only_shutdown
    stop.request(StopReason.SHUTDOWN)
    for _ in range(60):
        await settle()
        await clock.advance(1)
    with pytest.raises(GaveUp) as caught:
        await waiting
    assert caught.value.reason is (StopReason.SHUTDOWN if only_shutdown else StopReason.USER)


# --- lanes --------------------------------------------------------------------------------------


async def test_lanes_keep_order_and_do_not_wait_for_each_other(clock: FakeClock) -> None:
    lanes = Lanes(clock)
    log: list[str] = []
    gate = asyncio.Event()

    def job(name: str, *, wait: bool = False, crash: bool = False) -> Job:
        async def run(stop: StopSignal) -> None:
            if wait:
                await gate.wait()
            log.append(name)
            if crash:
                raise ValueError("bug")

        return Job(run, name)

    lanes.put("a", job("a1", wait=True))
    lanes.put("a", job("a2", crash=True))
    lanes.put("a", job("a3"))
    lanes.put("b", job("b1"))
    assert lanes.busy("a")
    assert lanes.waiting("a") == 2
    await settle()
    assert log == ["b1"]
    gate.set()
    await settle()
    assert log == ["b1", "a1", "a2", "a3"]
    assert len(lanes) == 0
    assert await lanes.idle(1)


async def test_a_stop_meets_the_job_it_was_meant_for(clock: FakeClock) -> None:
    lanes = Lanes(clock)
    ends: list[tuple[str, StopReason | None]] = []

    def job(name: str) -> Job:
        async def run(stop: StopSignal) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            ends.append((name, stop.reason))

        return Job(run, name)

    assert lanes.stop("a") is None
    lanes.put("a", job("1"))
    over = lanes.stop("a")  # in the same breath: it has not even started
    lanes.put("a", job("2"))
    assert over is not None
    await over
    await settle()
    assert ends == [("1", StopReason.USER), ("2", None)]
    assert lanes.stop("a") is None


async def test_drain_tells_what_runs_and_keeps_what_waits(clock: FakeClock) -> None:
    lanes = Lanes(clock)
    seen: list[str] = []

    def obedient(name: str) -> Job:
        async def run(stop: StopSignal) -> None:
            seen.append(f"{name} {await stop.wait()}")

        return Job(run, name)

    async def stubborn(stop: StopSignal) -> None:
        await asyncio.Event().wait()

    lanes.put("a", obedient("a1"))
    lanes.put("a", obedient("a2"))
    lanes.put("b", Job(stubborn, "b1"))
    draining = asyncio.ensure_future(lanes.drain(20))
    await settle()
    lanes.put("c", obedient("c1"))
    assert seen == []
    for _ in range(40):
        await clock.advance(1)
        await settle()
    report = await draining
    assert not report.finished
    assert report.interrupted == 2
    assert report.waiting == 2
    assert seen == ["a1 shutdown"]


async def test_drain_of_finished_work_is_at_once(clock: FakeClock) -> None:
    lanes = Lanes(clock)

    async def run(stop: StopSignal) -> None:
        await asyncio.sleep(0)

    lanes.put("a", Job(run, "a"))
    await asyncio.sleep(0)
    report = await lanes.drain(20)
    assert report.finished
    assert report.waiting == 0


async def test_what_has_not_begun_does_not_begin_in_a_drain(clock: FakeClock) -> None:
    lanes = Lanes(clock)

    async def run(stop: StopSignal) -> None:
        raise AssertionError("begun")

    lanes.put("a", Job(run, "a"))
    report = await lanes.drain(20)
    assert report == DrainReport(finished=True, interrupted=0, waiting=1)
