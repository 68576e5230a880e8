"""The supervisor: one broken platform does not stop the others, and each has an honest state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from gateway.platforms.contract import (
    Intake,
    Platform,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    Report,
)
from gateway.supervisor import Supervisor
from tests.fakes.clock import FakeClock


class Scripted:
    """A platform whose runs follow a script."""

    def __init__(self, name: str, *runs: BaseException | None) -> None:
        self.name = name
        self.runs = list(runs)
        self.count = 0

    async def run(self, intake: Intake, report: Report) -> None:
        self.count += 1
        outcome = self.runs.pop(0) if self.runs else asyncio.Event()
        if isinstance(outcome, BaseException):
            raise outcome
        report(PlatformState.RUNNING, "")
        if outcome is not None:
            await outcome.wait()


def supervise(
    clock: FakeClock, *platforms: Scripted, on_running: Callable[[str], None] = lambda name: None
) -> Supervisor:
    listed: Sequence[Platform] = platforms  # type: ignore[assignment]
    return Supervisor(
        listed,
        None,  # type: ignore[arg-type]
        clock,
        on_running=on_running,
        jitter=lambda: 0.5,
    )


async def settled(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("did not happen")


async def test_bad_token_stops_only_its_platform(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Scripted("bad", PlatformConfigError("token refused")), Scripted("good")
    supervisor = supervise(clock, bad, good)
    task = asyncio.ensure_future(supervisor.run())
    await supervisor.wait_settled()
    await settled(lambda: supervisor.status["good"].state is PlatformState.RUNNING)
    assert supervisor.status["bad"].state is PlatformState.FAILED_CONFIG
    assert supervisor.status["bad"].reason == "token refused"
    # On a terminal with a chat only errors are shown, and this waits for whoever sits there.
    assert {r.__dict__["platform"] for r in caplog.records if r.levelno >= logging.ERROR} == {"bad"}
    assert not supervisor.hopeless
    await clock.advance(3600)
    assert bad.count == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_no_platform_can_run(clock: FakeClock) -> None:
    supervisor = supervise(clock, Scripted("a", PlatformConfigError("no")))
    await supervisor.run()
    assert supervisor.hopeless


async def pauses_after(clock: FakeClock, *errors: Exception) -> list[float]:
    flaky = Scripted("flaky", *errors)
    supervisor = supervise(clock, flaky)
    task = asyncio.ensure_future(supervisor.run())
    pauses: list[float] = []
    for _ in errors:
        await settled(lambda: supervisor.vitals()["flaky"].resting)
        assert supervisor.status["flaky"].state is PlatformState.RETRYING
        pause = clock.next_wake_seconds
        assert pause is not None
        pauses.append(pause)
        await clock.advance(pause)
    await settled(lambda: supervisor.status["flaky"].state is PlatformState.RUNNING)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return pauses


async def test_back_off_grows_and_is_bounded(clock: FakeClock) -> None:
    pauses = await pauses_after(clock, *(RuntimeError("a bug") for _ in range(12)))
    assert pauses[:4] == pytest.approx([1, 2, 4, 8])
    assert max(pauses) == pytest.approx(60)


async def test_a_network_that_is_back_is_found_within_seconds(clock: FakeClock) -> None:
    pauses = await pauses_after(clock, *(PlatformUnavailable("no route") for _ in range(12)))
    assert pauses[:3] == pytest.approx([1, 2, 4])
    assert max(pauses) == pytest.approx(5)


async def test_a_platform_that_asks_for_time_gets_it(clock: FakeClock) -> None:
    wishes = [PlatformUnavailable("flood", retry_after_seconds=s) for s in (400.0, 86_400.0, 0.0)]
    pauses = await pauses_after(clock, *wishes)
    assert pauses == pytest.approx([400, 3600, 4])


async def test_a_crash_is_logged_and_retried(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    buggy = Scripted("buggy", ZeroDivisionError("bug"))
    supervisor = supervise(clock, buggy)
    task = asyncio.ensure_future(supervisor.run())
    await settled(lambda: supervisor.vitals()["buggy"].resting)
    assert "ZeroDivisionError" in caplog.text
    await clock.advance(2)
    assert buggy.count == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_ends_when_every_platform_has_ended(clock: FakeClock) -> None:
    await supervise(clock, Scripted("console", None)).run()


async def test_who_has_something_to_send_hears_that_a_platform_works(clock: FakeClock) -> None:
    heard: list[str] = []
    flaky = Scripted("flaky", PlatformUnavailable("no route"))
    supervisor = supervise(clock, flaky, on_running=heard.append)
    task = asyncio.ensure_future(supervisor.run())
    await settled(lambda: supervisor.vitals()["flaky"].resting)
    assert heard == []
    await clock.advance(2)
    assert heard == ["flaky"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
