from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.platforms.contract import PlatformState, PlatformUnavailable
from gateway.platforms.telegram.convert import Me, convert
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.polling import (
    MAX_CONFLICTS,
    MAX_FAILED_POLLS,
    PollConflict,
    PollFailed,
    PollLoop,
)
from tests.fakes.clock import FakeClock
from tests.fakes.intake import RecordingIntake, Reports

ME = Me(42, "bot")


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
        self.drained = asyncio.Event()

    async def __call__(self, offset: int | None) -> Sequence[Any]:
        self.offsets.append(offset)
        if not self.steps:
            self.drained.set()
            await asyncio.Event().wait()
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        result: Sequence[Any] = step
        return result


class Rig:
    def __init__(self, *steps: Any, stuck_after_seconds: float = 60.0) -> None:
        self.script = Script(*steps)
        self.intake = RecordingIntake()
        self.reports = Reports()
        self.clock = FakeClock()
        self.incoming = Incoming(
            lambda update: convert(update, ME), "42", self.intake, self.reports, self.clock
        )
        self.loop = PollLoop(
            self.script,
            self.incoming,
            self.reports,
            self.clock,
            stuck_after_seconds=stuck_after_seconds,
        )

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
    rig = Rig([{"update_id": 1, "edited_message": {}}, {"update_id": 2}])
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


async def test_counters_are_cleared_by_a_successful_poll_only() -> None:
    conflicts = storm(lambda: PollConflict("other"), MAX_CONFLICTS - 1)
    rig = Rig(*conflicts, [], *conflicts, [])
    await rig.drain()
    assert rig.reports.states.count(PlatformState.DEGRADED) == 2 * (MAX_CONFLICTS - 1)
    rig = Rig(*conflicts, PollFailed("blip"), PollConflict("other"))
    with pytest.raises(PlatformUnavailable, match="conflict"):
        await rig.drain()


async def test_too_many_failures_are_the_supervisors_business() -> None:
    rig = Rig(*storm(lambda: PollFailed("no route"), MAX_FAILED_POLLS))
    with pytest.raises(PlatformUnavailable, match="no route"):
        await rig.drain()
    assert PlatformState.RUNNING not in rig.reports.states


async def test_the_servers_wish_to_wait_is_kept() -> None:
    rig = Rig(PollFailed("flood control", 400.0), [])
    await rig.drain()
    assert rig.clock.monotonic() - 1000.0 >= 400.0


async def test_a_poll_that_never_comes_back_is_given_up() -> None:
    class Stuck(Script):
        async def __call__(self, offset: int | None) -> Sequence[Any]:
            if not self.offsets:
                self.offsets.append(offset)
                await asyncio.Event().wait()
            return await super().__call__(offset)

    rig = Rig(stuck_after_seconds=0.01)
    rig.loop = PollLoop(
        stuck := Stuck([said(1)]),
        rig.incoming,
        rig.reports,
        rig.clock,
        stuck_after_seconds=0.01,
    )
    task = asyncio.create_task(rig.loop.run())
    await rig.reports.wait(PlatformState.DEGRADED)
    await rig.clock.advance(2.0)
    await rig.intake.wait_messages(1)
    assert stuck.offsets[0] is None
    assert (PlatformState.DEGRADED, "the poll was stuck") in rig.reports.all
    task.cancel()
