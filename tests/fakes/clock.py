"""Owns the clock and the ids of the tests: time moves only when a test moves it."""

from __future__ import annotations

import asyncio
import heapq


class FakeClock:
    """A clock (`agent.ports.Clock`) that stands still until `advance` is called."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def set_wall(self, now: float) -> None:
        """Let the wall clock jump; sleepers do not notice."""
        self._now = now

    def jump(self, seconds: float) -> None:
        """Both clocks leap, as over a suspended machine: nobody runs in between."""
        self._now += seconds
        self._monotonic += seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._monotonic + seconds, self._count, future))
        await future

    @property
    def next_wake_seconds(self) -> float | None:
        """How long the next sleeper still sleeps, or None if nobody does."""
        live = [wake for wake, _, future in self._sleepers if not future.done()]
        return min(live) - self._monotonic if live else None

    async def advance(self, seconds: float) -> None:
        """Move both clocks, waking sleepers in order and letting them run in between."""
        target = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            wake, _, future = heapq.heappop(self._sleepers)
            self._now += max(0.0, wake - self._monotonic)
            self._monotonic = max(self._monotonic, wake)
            if not future.done():
                future.set_result(None)
            for _ in range(20):
                await asyncio.sleep(0)
        self._now += target - self._monotonic
        self._monotonic = target
        for _ in range(20):
            await asyncio.sleep(0)


class SequentialIds:
    """Ids (`agent.ports.IdSource`) that a test can predict: ``s_1``, ``s_2``, …"""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def new(self, prefix: str) -> str:
        self._next[prefix] = self._next.get(prefix, 0) + 1
        return f"{prefix}_{self._next[prefix]}"

    def mark(self) -> dict[str, int]:
        """How far they are, for `back_to`."""
        return dict(self._next)

    def back_to(self, mark: dict[str, int]) -> None:
        """Give out anew what was given out since, for a call that never happened."""
        self._next = dict(mark)
