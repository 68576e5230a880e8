"""The store's upkeep: on while there is work, rarely when there is none, never the end of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agent.errors import StoreUnavailable
from gateway.upkeep import BETWEEN_STEPS_SECONDS, QUIET_SECONDS, ROOM, TROUBLED_SECONDS, keep_up
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds


class Busy(MemoryStore):
    """Answers from a script; then there is nothing to do any more."""

    def __init__(self, clock: FakeClock, *answers: bool | Exception) -> None:
        super().__init__(clock, SequentialIds())
        self.answers = list(answers)
        self.asked_at: list[float] = []
        self._watch = clock

    async def maintain(self) -> bool:
        self.asked_at.append(self._watch.monotonic())
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_steps_follow_one_another_until_there_is_quiet(clock: FakeClock) -> None:
    store = Busy(clock, True, True, False, StoreUnavailable("full"), True, False)
    task = asyncio.ensure_future(keep_up(store, clock))
    async with asyncio.timeout(10):
        while len(store.asked_at) < 7:
            await clock.advance(clock.next_wake_seconds or 0.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    waits = [b - a for a, b in zip(store.asked_at, store.asked_at[1:], strict=False)]
    short, long = BETWEEN_STEPS_SECONDS, QUIET_SECONDS
    for wait, expected in zip(waits, [short, short, long, long, short, long], strict=True):
        assert wait == pytest.approx(expected)


async def test_a_store_in_trouble_is_tried_again_soon_and_nothing_of_that_stays(
    clock: FakeClock,
) -> None:
    class Full(Busy):
        reason: str | None = "full"
        tried = 0

        def trouble(self) -> str | None:
            return self.reason

        async def set_fact(self, name: str, value: str | None) -> None:
            self.tried += value is not None
            if self.tried < 3:
                raise StoreUnavailable("full")
            await super().set_fact(name, value)
            self.reason = None

    store = Full(clock)
    task = asyncio.ensure_future(keep_up(store, clock))
    async with asyncio.timeout(10):
        while len(store.asked_at) < 4:
            await clock.advance(clock.next_wake_seconds or 0.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    waits = [b - a for a, b in zip(store.asked_at, store.asked_at[1:], strict=False)]
    assert waits == [TROUBLED_SECONDS, TROUBLED_SECONDS, QUIET_SECONDS]
    assert store.tried == 3
    assert await store.fact(ROOM) is None
