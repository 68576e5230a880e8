"""The event loop, watched from outside: what it is at when it does not come round."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.logs.lines import LineFormatter
from gateway.logs.redaction import Redactor
from gateway.monitoring.stalls import LoopWatch, Patience, patience_for

QUICK = Patience(tick_seconds=0.02, stall_seconds=0.06, frozen_seconds=0.2, quiet_seconds=60.0)


def hold(until: Callable[[], object]) -> None:
    """As a plugin or a regular expression might; on the loop."""
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def run_freely(until: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not until():  # noqa: ASYNC110 - a thread decides
            await asyncio.sleep(0.01)


async def test_a_stall_is_said_with_what_the_loop_is_at(caplog: pytest.LogCaptureFixture) -> None:
    frozen: list[tuple[str, str]] = []
    watch = LoopWatch(on_frozen=lambda what, stacks: frozen.append((what, stacks)), patience=QUICK)
    watch.start()
    try:
        with caplog.at_level(logging.WARNING):
            hold(lambda: frozen)
            await run_freely(lambda: "goes on" in caplog.text)
            # So soon after: counted, not said with its stack again.
            hold(lambda: watch.stalls == 2)
            await run_freely(lambda: caplog.text.count("goes on") == 2)
    finally:
        watch.stop()
    said = [r for r in caplog.records if r.name == "gateway.monitoring.stalls"]
    still = [r for r in said if "stands still" in r.getMessage()]
    assert len(still) == 1
    shown = LineFormatter("plain", Redactor(())).format(still[0])
    assert " in hold" in shown
    assert "test_stalls.py" in shown
    (what, stacks), *more = frozen
    assert (what, more) == ("the event loop stood still", [])
    assert "thread of the event loop" in stacks
    assert "thread loop watch" in stacks
    lag = watch.lag()
    assert lag.most >= QUICK.frozen_seconds / 1.5
    assert lag.samples >= 2


async def test_a_loop_that_runs_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(patience=replace(QUICK, stall_seconds=20.0))
    assert watch.lag().samples == 0
    watch.start()
    await run_freely(lambda: watch.lag().samples >= 3)
    watch.stop()
    assert watch.stalls == 0
    assert not [r for r in caplog.records if r.name == "gateway.monitoring.stalls"]


async def test_a_report_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(what: str, stacks: str) -> None:
        raise OSError("full")

    watch = LoopWatch(on_frozen=fail, patience=QUICK)
    watch.start()
    with caplog.at_level(logging.WARNING):
        hold(lambda: "could not be made" in caplog.text)
        await run_freely(lambda: "goes on" in caplog.text)
    watch.stop()


def test_a_loop_that_is_closed_is_left_alone() -> None:
    watch = LoopWatch(patience=QUICK)

    async def start() -> None:
        watch.start()

    asyncio.run(start())
    threads = [t for t in threading.enumerate() if t.name == "loop watch"]
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("watchdog", "frozen"), [(None, 25.0), (60.0, 24.0), (10.0, 4.0)])
def test_the_report_comes_before_the_end(watchdog: float | None, frozen: float) -> None:
    assert patience_for(watchdog).frozen_seconds == frozen
