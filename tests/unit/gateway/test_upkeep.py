"""The store's upkeep: on while there is work, rarely when there is none, never the end of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agent.errors import StoreUnavailable
from gateway.upkeep import BETWEEN_STEPS_SECONDS, QUIET_SECONDS, keep_up
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
