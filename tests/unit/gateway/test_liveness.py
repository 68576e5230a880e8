"""What counts as alive: to the second with a clock of our own, and for any course of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.liveness import (
    ENDING_SECONDS,
    MOST_SECONDS_PER_TICK,
    RESTART_SECONDS,
    TICK_SECONDS,
    Pulse,
    Vitals,
    beyond_help,
    done_in_time,
    is_overdue,
    longest_silence_seconds,
)
from gateway.pauses import RECOVERY_SECONDS, backoff_seconds
from gateway.platforms.contract import (
    SIGN_OF_LIFE_SECONDS,
    Intake,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    Report,
)
from gateway.supervisor import CONFIG_DOUBTS, Supervisor
from tests.fakes.clock import FakeClock

events = st.lists(
    st.tuples(st.sampled_from(["sign", "tick", "pass", "jump"]), st.floats(0, 500)), max_size=40
)


@given(events)
def test_silence_is_lived_time_since_the_last_sign(course: list[tuple[str, float]]) -> None:
    clock = FakeClock()
    pulse = Pulse(clock)
    signed_at = clock.monotonic()
    ticks = 0
    for what, seconds in course:
        before = pulse.silent_seconds
        match what:
            case "sign":
                pulse.sign()
                signed_at, ticks = clock.monotonic(), 0
                assert pulse.silent_seconds == 0
            case "tick":
                pulse.tick()
                ticks += 1
                assert pulse.silent_seconds == pytest.approx(before)
            case "pass" | "jump":
                clock.jump(seconds)
                assert before <= pulse.silent_seconds <= before + seconds + 1e-6
        assert 0 <= pulse.silent_seconds <= clock.monotonic() - signed_at + 1e-6
        # However long the machine slept, it counts for little.
        assert pulse.silent_seconds <= (ticks + 1) * MOST_SECONDS_PER_TICK + 1e-6


@given(
    st.sampled_from(PlatformState),
    st.floats(0, 1e6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_who_is_beyond_help(
    state: PlatformState, silent: float, signs: bool, resting: bool, ended: bool, stuck: bool
) -> None:
    vitals = Vitals(state, silent, signs=signs, resting=resting, ended=ended, stuck=stuck)
    why = beyond_help(vitals)
    if ended or state is PlatformState.FAILED_CONFIG:
        assert why is None, "a person has to heal it, or nobody has to"
    elif stuck:
        assert why is not None
    elif resting or not signs:
        assert why is None, "a known retry; a console"
    else:
        limit = longest_silence_seconds(state) + ENDING_SECONDS + RESTART_SECONDS
        assert (why is not None) == (silent > limit)
    if why is not None and not stuck:
        assert is_overdue(vitals), "the supervisor comes first"


def test_the_numbers_of_the_rule() -> None:
    assert longest_silence_seconds(PlatformState.RUNNING) == SIGN_OF_LIFE_SECONDS <= 60
    assert ENDING_SECONDS + TICK_SECONDS <= 10
    assert all(longest_silence_seconds(state) > 0 for state in PlatformState)


async def test_waiting_in_lived_time() -> None:
    clock = FakeClock()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(done_in_time(never, clock, 60))
    await clock.advance(1)
    clock.jump(3600)
    await clock.advance(40)
    assert not waiting.done(), "an hour of sleep is no hour of silence"
    await clock.advance(20)
    assert waiting.done()
    assert waiting.result() is False
    assert await done_in_time(_done(), clock, 60) is True


def _done() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


# --- the supervisor -----------------------------------------------------------------------------


class Living:
    """A platform that gives signs as a test says, and may be deaf to its cancellation."""

    def __init__(self, name: str = "living", *, deaf: bool = False) -> None:
        self.name = name
        self.deaf = deaf
        self.runs = 0
        self.report: Report = lambda state, reason: None
        self.reports: list[Report] = []
        self.fail: asyncio.Future[None] | None = None
        self.let_go = asyncio.Event()
        self.starts: list[BaseException] = []

    async def run(self, intake: Intake, report: Report) -> None:
        self.runs += 1
        self.report = report
        self.reports.append(report)
        if self.starts:
            raise self.starts.pop(0)
        report(PlatformState.RUNNING, "")
        self.fail = asyncio.get_running_loop().create_future()
        while True:
            try:
                await self.fail
            except asyncio.CancelledError:
                if not self.deaf or self.let_go.is_set():
                    raise
                self.fail = asyncio.get_running_loop().create_future()


class Rig:
    def __init__(self, *platforms: Any, **more: Any) -> None:
        self.clock = FakeClock()
        none: Any = None
        self.supervisor = Supervisor(platforms, none, self.clock, jitter=lambda: 0.5, **more)
        self.task = asyncio.create_task(self.supervisor.run())

    def state(self, name: str = "living") -> PlatformState:
        return self.supervisor.status[name].state

    async def until(self, condition: Callable[[], bool], seconds: float = 3600) -> float:
        """Let time pass, event by event; how long it took."""
        began = self.clock.monotonic()
        for _ in range(10):
            await asyncio.sleep(0)
        while not condition():
            assert self.clock.monotonic() - began < seconds
            await self.clock.advance(self.clock.next_wake_seconds or 0.0)
        return self.clock.monotonic() - began

    async def stop(self, *platforms: Living) -> None:
        for platform in platforms:
            platform.let_go.set()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_silence_is_noticed_within_a_minute_and_healed_within_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    platform = Living()
    rig = Rig(platform)
    await rig.clock.advance(33.3)
    platform.report(PlatformState.RUNNING, "")
    noticed: list[float] = []

    def looked() -> bool:
        if "starting it again" in caplog.text and not noticed:
            noticed.append(rig.clock.monotonic())
        return platform.runs == 2

    began = rig.clock.monotonic()
    await rig.until(looked)
    assert noticed[0] - began == pytest.approx(60)
    assert rig.clock.monotonic() - noticed[0] <= 10
    assert rig.state() is PlatformState.RUNNING
    (recovered,) = [r for r in caplog.records if r.getMessage() == "platform recovered"]
    assert "no sign of life" in recovered.__dict__["reason"]
    await rig.stop()


async def test_signs_keep_it_alive_and_other_platforms_are_not_touched() -> None:
    silent, living = Living("silent"), Living()
    rig = Rig(silent, living)
    for _ in range(40):
        await rig.clock.advance(30)
        living.report(PlatformState.RUNNING, "")
    assert living.runs == 1
    assert silent.runs > 10
    await rig.stop()


async def test_one_that_does_not_end_is_stuck_and_its_words_count_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deaf, living = Living("deaf", deaf=True), Living()
    rig = Rig(deaf, living)

    def alive() -> bool:
        living.report(PlatformState.RUNNING, "")
        return rig.supervisor.vitals()["deaf"].stuck

    took = await rig.until(alive)
    assert took == pytest.approx(60 + ENDING_SECONDS)
    assert "does not end" in caplog.text
    assert beyond_help(rig.supervisor.vitals()["deaf"]) is not None
    assert beyond_help(rig.supervisor.vitals()["living"]) is None
    deaf.report(PlatformState.RUNNING, "")
    assert rig.state("deaf") is PlatformState.RETRYING
    assert "only a restart" in rig.supervisor.status["deaf"].reason
    assert deaf.runs == 1, "never two at once"
    deaf.let_go.set()  # it ends after all: all is well again, without a new process
    await rig.until(lambda: deaf.runs == 2)
    assert rig.state("deaf") is PlatformState.RUNNING
    assert beyond_help(rig.supervisor.vitals()["deaf"]) is None
    await rig.stop(deaf, living)


async def test_a_suspended_machine_is_nobodys_fault() -> None:
    platform = Living()
    rig = Rig(platform)
    for _ in range(5):
        await rig.clock.advance(20)
        platform.report(PlatformState.RUNNING, "")
        rig.clock.jump(7200)
        await rig.clock.advance(1)
    assert platform.runs == 1
    await rig.stop()


async def test_a_console_needs_no_signs() -> None:
    rig = Rig(platform := Living("console"), without_signs={"console"})
    await rig.clock.advance(86_400)
    assert platform.runs == 1
    assert beyond_help(rig.supervisor.vitals()["console"]) is None
    await rig.stop()


async def test_one_that_hangs_while_it_starts_or_heals_itself_is_started_again_too() -> None:
    platform = Living()
    rig = Rig(platform)
    await rig.clock.advance(1)
    platform.report(PlatformState.DEGRADED, "healing")
    took = await rig.until(lambda: platform.runs == 2)
    assert took == pytest.approx(longest_silence_seconds(PlatformState.DEGRADED))
    await rig.stop()


async def test_why_it_is_tried_again_stays_readable_while_it_starts() -> None:
    platform = Living()
    platform.starts = [PlatformUnavailable("no route")] * 3
    rig = Rig(platform)
    await rig.until(lambda: platform.runs == 1)
    await rig.until(lambda: rig.state() is PlatformState.RETRYING)
    platform.report(PlatformState.STARTING, "")
    assert rig.supervisor.status["living"].reason == "no route"
    await rig.until(lambda: rig.state() is PlatformState.RUNNING)
    platform.reports[0](PlatformState.DEGRADED, "an old run still talks")
    assert rig.state() is PlatformState.RUNNING
    await rig.stop()


async def test_back_off_begins_anew_only_after_a_while_of_health() -> None:
    platform = Living()
    rig = Rig(platform)

    async def fail() -> float:
        await rig.until(lambda: rig.state() is PlatformState.RUNNING)
        runs = platform.runs
        assert platform.fail is not None
        platform.fail.set_exception(PlatformUnavailable("lost"))
        return await rig.until(lambda: platform.runs == runs + 1)

    assert [await fail() for _ in range(4)] == pytest.approx([1, 2, 4, RECOVERY_SECONDS])
    for _ in range(3):
        await rig.clock.advance(25)
        platform.report(PlatformState.RUNNING, "")
    platform.report(PlatformState.DEGRADED, "healing")
    await rig.clock.advance(10)
    assert await fail_from(rig, platform) == pytest.approx(1)
    await rig.stop()


async def fail_from(rig: Rig, platform: Living) -> float:
    runs = platform.runs
    assert platform.fail is not None
    platform.fail.set_exception(PlatformUnavailable("lost"))
    return await rig.until(lambda: platform.runs == runs + 1)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_back_off_is_bounded_and_spread(failures: int, jitter: float) -> None:
    pause = backoff_seconds(failures, jitter)
    assert 0.75 <= pause <= 75
    assert pause <= backoff_seconds(failures + 1, jitter)


async def test_one_that_is_cancelled_from_inside_comes_again() -> None:
    platform = Living()
    rig = Rig(platform)
    await rig.until(lambda: rig.state() is PlatformState.RUNNING)
    assert platform.fail is not None
    platform.fail.cancel()
    await rig.until(lambda: platform.runs == 2)
    assert rig.state() is PlatformState.RUNNING
    await rig.stop()


async def test_a_token_that_has_worked_is_asked_about_again_before_it_is_given_up() -> None:
    platform = Living()
    rig = Rig(platform)
    await rig.until(lambda: rig.state() is PlatformState.RUNNING)
    refused = PlatformConfigError("the token is refused")
    platform.starts = [refused] * CONFIG_DOUBTS
    assert platform.fail is not None
    platform.fail.set_exception(PlatformUnavailable("401 during a poll"))
    await rig.until(lambda: rig.state() is PlatformState.RUNNING)
    assert platform.runs == CONFIG_DOUBTS + 2, "an incident that passed"
    platform.starts = [refused] * (CONFIG_DOUBTS + 1)
    platform.fail.set_exception(PlatformUnavailable("401 during a poll"))
    await rig.until(lambda: rig.state() is PlatformState.FAILED_CONFIG)
    assert rig.task.done() or rig.supervisor.hopeless
    await rig.stop()
