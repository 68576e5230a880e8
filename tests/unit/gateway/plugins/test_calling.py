"""Calls of plugin code: deadlines, what hangs, what raises, what has to be awaited."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.daemon_threads import DaemonThreads
from agent.keywords import accepted
from gateway.plugins.calling import (
    Callee,
    PluginCalls,
    Raised,
    Step,
    StillHangs,
    TookTooLong,
)
from tests.fakes.clock import FakeClock


def callee(what: str = "hook x", most: int = 1) -> Callee:
    return Callee("plug", what, most_hanging=most)


async def until(it_is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if it_is_so():
                return
            await asyncio.sleep(0.001)


async def passing(clock: FakeClock, task: asyncio.Task[Any], seconds: float) -> Any:
    """Let time pass until the task is over."""
    while not task.done():
        await asyncio.sleep(0.001)
        await clock.advance(seconds)
    return await task


async def test_one_that_hangs_is_left_out_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, free = FakeClock(), threading.Event()
    calls = PluginCalls(clock)
    hangs, fine = callee("hook a"), callee("hook b")
    steps = [Step(fine, lambda: 1), Step(hangs, free.wait), Step(fine, lambda: 3)]
    task = asyncio.create_task(calls.each(steps, 3, 5))
    outcomes = await passing(clock, task, 1)
    assert [given for _, given in outcomes] == [1, 3]
    assert hangs.hangs

    # It is not called again, and that is said once.
    outcomes = await calls.each(steps, 3, 5)
    assert [given for _, given in outcomes] == [1, 3]
    assert sum("plugin hangs" in r.message for r in caplog.records) == 1
    free.set()
    await until(lambda: not hangs.hangs)
    outcomes = await calls.each(steps, 3, 5)
    assert [given for _, given in outcomes] == [1, True, 3]


async def test_ten_that_hang_hold_up_nobody_behind_them_and_are_known_at_once() -> None:
    clock, free = FakeClock(), threading.Event()
    hanging = [callee(f"hook {n}") for n in range(10)]
    steps = [*(Step(one, free.wait) for one in hanging), Step(callee("hook fine"), lambda: 1)]
    calls, began = PluginCalls(clock), clock.monotonic()
    task = asyncio.create_task(calls.each(steps, 3, 5))
    assert [given for _, given in await passing(clock, task, 0.1)] == [1]
    assert clock.monotonic() - began <= 5.5
    assert all(one.hangs for one in hanging)
    now = clock.monotonic()
    assert [given for _, given in await calls.each(steps, 3, 5)] == [1]
    assert clock.monotonic() == now
    free.set()


async def test_all_of_them_together_have_a_deadline() -> None:
    clock, free, late = FakeClock(), threading.Event(), callee("hook late")
    steps = [Step(callee(f"hook {n}"), free.wait) for n in range(40)] + [Step(late, lambda: 1)]
    began = clock.monotonic()
    task = asyncio.create_task(PluginCalls(clock).each(steps, 3, 5))
    assert await passing(clock, task, 0.25) == []
    assert clock.monotonic() - began <= 6
    assert not late.hangs  # not called, so not to blame
    free.set()


async def test_a_call_that_raises_anything_is_a_result(caplog: pytest.LogCaptureFixture) -> None:
    calls, bad = PluginCalls(FakeClock()), callee()

    def leaves() -> None:
        raise SystemExit(3)

    (only,) = await calls.each([Step(bad, leaves)], 3, 5)
    assert isinstance(only[1], Raised)
    with pytest.raises(Raised):
        await calls.one(bad, leaves, 3)
    # One that always does so does not fill the log.
    caplog.clear()
    caplog.set_level(logging.ERROR)
    for _ in range(100):
        await calls.each([Step(bad, leaves)], 3, 5)
    assert len(caplog.records) < 8


async def test_what_is_to_be_awaited_runs_on_a_loop_of_its_own() -> None:
    ours = asyncio.get_running_loop()

    async def work() -> bool:
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is not ours

    assert await PluginCalls(FakeClock()).one(callee(), work, 3) is True


async def test_an_awaitable_that_never_ends_is_cancelled_and_its_thread_is_free() -> None:
    clock, one = FakeClock(), callee("tool x", most=1)
    calls = PluginCalls(clock, DaemonThreads(1))
    task = asyncio.create_task(calls.one(one, lambda: asyncio.sleep(3600), 3))
    with pytest.raises(TookTooLong):
        await passing(clock, task, 1)
    await until(lambda: not one.hangs)
    assert await calls.one(one, lambda: 7, 3) == 7


async def test_two_calls_may_hang_then_it_is_not_called_any_more() -> None:
    clock, free, one = FakeClock(), threading.Event(), callee(most=2)
    calls = PluginCalls(clock)
    for _ in range(2):
        with pytest.raises(TookTooLong):
            await passing(clock, asyncio.create_task(calls.one(one, free.wait, 3)), 1)
    with pytest.raises(StillHangs):
        await calls.one(one, free.wait, 3)
    free.set()


async def test_whoever_stops_waiting_leaves_the_call_to_itself() -> None:
    clock, free, begun, one = FakeClock(), threading.Event(), threading.Event(), callee()

    def waits() -> None:
        begun.set()
        free.wait()

    task = asyncio.create_task(PluginCalls(clock).one(one, waits, 3))
    await until(lambda: begun.is_set())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.hangs
    free.set()
    await until(lambda: not one.hangs)


async def test_no_free_thread_is_nobodys_fault() -> None:
    clock, free, threads = FakeClock(), threading.Event(), DaemonThreads(1)
    calls, innocent = PluginCalls(clock, threads), callee("hook b")
    threads.submit(free.wait)
    task = asyncio.create_task(calls.each([Step(innocent, lambda: 1)], 3, 5))
    assert await passing(clock, task, 1) == []
    assert not innocent.hangs
    free.set()


def test_keywords_are_those_that_it_takes() -> None:
    offered = {"a": 1, "b": 2}
    assert accepted(lambda a: a, offered) == {"a": 1}
    assert accepted(lambda **more: more, offered) == offered
    assert accepted(lambda x, /: x, offered) == {}
