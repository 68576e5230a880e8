from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from gateway.platforms.contract import PlatformState, PlatformUnavailable
from gateway.platforms.telegram.convert import Me, convert
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.polling import (
    MAX_FAILED_POLLS,
    PollConflict,
    PollFailed,
    PollLoop,
    PollTimes,
)
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

ME = Me(42, "bot")
TIMES = PollTimes(poll_seconds=20, grace_seconds=15)


def said(number: int, text: str = "") -> dict[str, Any]:
    return {
        "update_id": number,
        "message": {
            "message_id": number,
            "date": 1,
            "chat": {"id": 9, "type": "private"},
            "from": {"id": 9, "is_bot": False, "first_name": "A"},
            "text": text or f"m{number}",
        },
    }


class Script:
    """Answers polls one after the other; the last one never comes back."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.offsets: list[int | None] = []
        self.waits: list[bool] = []
        self.renewed = 0
        self.drained = asyncio.Event()

    async def renew_polling(self) -> None:
        self.renewed += 1

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        self.offsets.append(offset)
        self.waits.append(wait)
        if not self.steps:
            self.drained.set()
            await asyncio.Event().wait()
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        result: Sequence[Any] = step
        return result


class Rig:
    def __init__(self, *steps: Any, script: Script | None = None) -> None:
        self.script = script or Script(*steps)
        self.intake = RecordingIntake()
        self.reports = Reports()
        self.clock = FakeClock()
        self.incoming = Incoming(
            lambda update: convert(update, ME), "42", self.intake, self.reports, self.clock
        )
        self.loop = PollLoop(self.script, self.incoming, self.reports, self.clock, TIMES)

    async def drain(self) -> None:
        """Run until the script is at its end, letting every pause pass."""
        task = asyncio.create_task(self.loop.run())
        while not self.script.drained.is_set() and not task.done():
            await self.clock.advance(self.clock.next_wake_seconds or 0.0)
        if task.done():
            await task
        task.cancel()


async def test_offsets_follow_what_is_stored_and_an_empty_answer_forgets_them() -> None:
    rig = Rig([said(5), said(6)], [said(7)], [], [], [said(3)])
    await rig.drain()
    assert rig.script.offsets == [None, 7, 8, None, None, 4]
    assert rig.intake.texts == ["m5", "m6", "m7", "m3"]


async def test_updates_that_are_nothing_are_passed_over() -> None:
    rig = Rig([{"update_id": 1, "chosen_inline_result": {}}, {"update_id": 2}])
    await rig.drain()
    assert rig.script.offsets == [None, 3]
    assert rig.intake.messages == []
    assert rig.intake.quarantined == []


async def test_a_quarantine_that_can_not_be_stored_waits_too() -> None:
    rig = Rig([{"update_id": 1, "message": 7}, said(2)])
    rig.intake.failures = 3
    await rig.drain()
    assert [entry[0] for entry in rig.intake.quarantined] == ["1"]
    assert rig.intake.texts == ["m2"]
    assert rig.reports.states.count(PlatformState.DEGRADED) == 3
    assert rig.reports.states[-1] is PlatformState.RUNNING


@pytest.mark.parametrize(
    "junk", [["text"], [None, 7], [{"message": {}}], [{"update_id": "x", "message": {}}]]
)
async def test_what_has_no_number_neither_blocks_nor_spins(junk: list[Any]) -> None:
    rig = Rig(junk, [*junk, said(9)])
    await rig.drain()
    assert rig.intake.texts == ["m9"]
    assert rig.script.offsets == [None, None, 10]
    assert len(rig.intake.quarantined) == 2 * len(junk)
    # A batch that nothing can confirm is not asked for again at once.
    assert rig.clock.monotonic() - 1000.0 >= 30.0


def storm(make: Callable[[], Exception], count: int) -> list[Exception]:
    return [make() for _ in range(count)]


async def test_too_many_failures_are_the_supervisors_business() -> None:
    rig = Rig(*storm(lambda: PollFailed("no route"), MAX_FAILED_POLLS))
    with pytest.raises(PlatformUnavailable, match="no route"):
        await rig.drain()
    assert PlatformState.RUNNING not in rig.reports.states


async def test_updates_come_again_soon_after_an_outage() -> None:
    script = Script(*storm(lambda: PollFailed("no route"), MAX_FAILED_POLLS - 1), [said(1)])
    rig, times = Rig(script=script), list[float]()
    asked = script.updates

    async def updates(offset: int | None, *, wait: bool) -> Sequence[Any]:
        times.append(rig.clock.monotonic())
        return await asked(offset, wait=wait)

    script.updates = updates  # type: ignore[method-assign]
    await rig.drain()
    assert rig.intake.texts == ["m1"]
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps) <= 5.0
    assert min(gaps[3:-1]) >= 3.0, "and it is not hammered"


async def test_the_servers_wish_to_wait_is_kept() -> None:
    rig = Rig(PollFailed("flood control", 400.0), [])
    await rig.drain()
    assert rig.clock.monotonic() - 1000.0 >= 400.0


# --- polls that do not come back ----------------------------------------------------------------


class Hanging(Script):
    """Some polls never come back; ``deaf``: not even when they are cancelled."""

    def __init__(self, *hanging: int, deaf: bool = False) -> None:
        super().__init__()
        self.hanging = hanging
        self.deaf = deaf
        self.over = asyncio.Event()
        self.asked = asyncio.Condition()

    async def asked_often(self, count: int) -> None:
        """Until so many polls were begun."""
        async with self.asked:
            await self.asked.wait_for(lambda: len(self.waits) >= count)

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        async with self.asked:
            self.waits.append(wait)
            self.asked.notify_all()
        while len(self.waits) - 1 in self.hanging:
            try:
                await self.over.wait()
                return []
            except asyncio.CancelledError:
                if not self.deaf:
                    raise
        return []


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("hanging", [0, 1, 2])
async def test_a_wedged_poll_is_noticed_within_a_minute_and_replaced_within_ten_seconds(
    hanging: int, deaf: bool
) -> None:
    """The rule itself, to the second: at the first poll, and at those that wait."""
    script = Hanging(hanging, deaf=deaf)
    rig = Rig(script=script)
    task = asyncio.create_task(rig.loop.run())
    await rig.clock.advance(0)
    while len(script.waits) <= hanging:
        await rig.clock.advance(1)
    began = rig.clock.monotonic()
    signs = len(rig.reports.all)
    while len(rig.reports.all) == signs:
        await rig.clock.advance(rig.clock.next_wake_seconds or 0.0)
    noticed = rig.clock.monotonic()
    assert rig.reports.all[signs][0] is PlatformState.DEGRADED
    assert "stuck" in rig.reports.all[signs][1]
    assert noticed - began <= 60
    while rig.reports.states[-1] is not PlatformState.RUNNING:
        await rig.clock.advance(rig.clock.next_wake_seconds or 0.0)
    assert rig.clock.monotonic() - noticed <= 10
    assert script.renewed == 1
    assert script.waits[hanging + 1] is False, "the first one after it does not wait"
    script.over.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_machine_that_slept_has_no_stuck_poll() -> None:
    script = Hanging(1)
    rig = Rig(script=script)
    task = asyncio.create_task(rig.loop.run())
    await script.asked_often(2)
    rig.clock.jump(3600)
    await rig.clock.advance(5)
    await rig.clock.advance(5)
    assert PlatformState.DEGRADED not in rig.reports.states
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_long_wait_and_a_long_batch_are_full_of_signs_of_life() -> None:
    rig = Rig(PollFailed("flood control", 1000.0), [said(n) for n in range(1, 6)])
    await rig.drain()
    assert rig.reports.states.count(PlatformState.DEGRADED) >= 1000 / 30
    assert rig.reports.states.count(PlatformState.RUNNING) >= 6
    assert rig.clock.monotonic() - 1000.0 >= 1000.0


@pytest.mark.parametrize("asked", [1e9, float("inf")])
async def test_a_server_can_not_send_us_away_for_ever(asked: float) -> None:
    rig = Rig(PollFailed("flood control", asked), [])
    await rig.drain()
    assert 3600 <= rig.clock.monotonic() - 1000.0 <= 3700


# --- somebody else with the same token ----------------------------------------------------------


async def test_two_programs_that_push_each_other_out_stay_visible() -> None:
    """Every other poll is answered: that heals nothing, and nothing is counted anew."""
    other = "another program polls"
    rig = Rig(*[step for _ in range(20) for step in (PollConflict(other), [])])
    await rig.drain()
    assert set(rig.reports.all) == {(PlatformState.DEGRADED, other)}
    # With the other one in the way for long, it is not asked many times a second.
    assert rig.clock.monotonic() - 1000.0 > 20 * 4


async def test_when_the_other_one_has_ended_updates_come_within_seconds() -> None:
    rig = Rig(*[PollConflict("other") for _ in range(50)], [said(1)])
    task = asyncio.create_task(rig.loop.run())
    while len(rig.script.offsets) < 50:
        await rig.clock.advance(rig.clock.next_wake_seconds or 0.0)
    await rig.clock.advance(5)
    assert rig.intake.texts == ["m1"]
    task.cancel()


async def test_a_store_that_is_back_gets_what_waits_within_seconds() -> None:
    rig = Rig([said(1)])
    rig.intake.failures = 50
    task = asyncio.create_task(rig.loop.run())
    while rig.intake.failures:
        await rig.clock.advance(rig.clock.next_wake_seconds or 0.0)
    await rig.clock.advance(5)
    assert rig.intake.texts == ["m1"]
    task.cancel()


async def test_a_conflict_is_over_when_the_other_has_been_quiet_for_a_minute() -> None:
    rig = Rig(PollConflict("other"), [said(1)])
    await rig.drain()
    assert rig.reports.states[-1] is PlatformState.DEGRADED
    assert rig.intake.texts == ["m1"], "what comes is taken meanwhile"
    rig = Rig(PollConflict("other"), *[[] for _ in range(8)])
    rig.script = Slow(rig.clock, 10.0, *rig.script.steps)
    rig.loop = PollLoop(rig.script, rig.incoming, rig.reports, rig.clock, TIMES)
    await rig.drain()
    assert rig.reports.states.count(PlatformState.DEGRADED) >= 3
    assert rig.reports.states[-1] is PlatformState.RUNNING


class Slow(Script):
    """Every poll takes so long."""

    def __init__(self, clock: FakeClock, seconds: float, *steps: Any) -> None:
        super().__init__(*steps)
        self.clock = clock
        self.seconds = seconds

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        await self.clock.sleep(self.seconds)
        return await super().updates(offset, wait=wait)


async def test_a_webhook_of_before_is_no_conflict_but_one_that_comes_back_is() -> None:
    removed = "a webhook was removed"
    rig = Rig(PollConflict(removed, healed=True), [])
    await rig.drain()
    assert rig.reports.states == [PlatformState.DEGRADED, PlatformState.RUNNING]
    assert rig.clock.monotonic() == 1000.0, "polled again at once"
    rig = Rig(PollConflict(removed, healed=True), [], PollConflict(removed, healed=True), [])
    await rig.drain()
    assert rig.reports.all[-1] == (PlatformState.DEGRADED, removed)


# --- servers that do not keep to it -------------------------------------------------------------


@pytest.mark.parametrize("answer", [[], [said(7)]], ids=["nothing", "the same"])
async def test_a_server_that_does_not_wait_is_not_hammered(answer: list[Any]) -> None:
    rig = Rig(*[answer for _ in range(60)])
    await rig.drain()
    assert rig.clock.monotonic() - 1000.0 >= 50, "once a second, not as fast as it goes"
    assert set(rig.reports.states) == {PlatformState.RUNNING}
