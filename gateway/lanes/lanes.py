"""Owns the lanes: one per conversation, one job at a time in each, first in, first out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agent.ports import Clock
from gateway.tasks import StopReason, StopSignal, TaskOwner, wait_all

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0
"""What a told job may take to write down how it ended."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do in a lane. ``run`` ends soon after its signal is asked to stop."""

    run: Callable[[StopSignal], Awaitable[None]]
    label: str


@dataclass(slots=True)
class _Running:
    job: Job
    stop: StopSignal
    over: asyncio.Future[None]


@dataclass(slots=True)
class _Lane:
    waiting: deque[Job] = field(default_factory=deque)
    running: _Running | None = None


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How a shutdown left the lanes."""

    finished: bool
    """Every job that was running came to its own end."""
    interrupted: int
    waiting: int
    """Jobs that never started; their rows are replayed at the next start."""


class Lanes:
    """All lanes. `put` takes a place at once, without an await, so no two jobs can both be first.

    A lane whose work is done leaves nothing behind. How many may wait is the caller's rule
    (`waiting`): a job that was promised to somebody must not be refused here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}
        self._workers = TaskOwner(clock)
        self._held = False

    def __len__(self) -> int:
        return len(self._lanes)

    def put(self, key: str, job: Job) -> None:
        """Append a job to its lane."""
        lane = self._lanes.setdefault(key, _Lane())
        if lane.running is not None or self._held:
            lane.waiting.append(job)
            return
        # It counts as running from here on: a stop that comes in the same breath is meant for it.
        lane.running = _Running(job, StopSignal(), asyncio.get_running_loop().create_future())
        self._workers.spawn(self._work(key, lane), name=f"lane {job.label}")

    def waiting(self, key: str) -> int:
        """Jobs that have not started."""
        lane = self._lanes.get(key)
        return len(lane.waiting) if lane else 0

    def busy(self, key: str) -> bool:
        """Is a job running?"""
        lane = self._lanes.get(key)
        return lane is not None and lane.running is not None

    def counts(self) -> tuple[int, int]:
        """Jobs that run, and jobs that wait, over all lanes."""
        lanes = self._lanes.values()
        return (
            sum(lane.running is not None for lane in lanes),
            sum(len(lane.waiting) for lane in lanes),
        )

    def stop(self, key: str) -> asyncio.Future[None] | None:
        """Tell the running job to end; what waits stays. The future is done when it has ended.

        None: nothing runs.
        """
        lane = self._lanes.get(key)
        if lane is None or lane.running is None:
            return None
        lane.running.stop.request(StopReason.USER)
        return lane.running.over

    async def idle(self, seconds: float) -> bool:
        """Wait until every lane is empty; False if that took too long."""
        return await self._workers.wait(seconds)

    async def drain(self, seconds: float) -> DrainReport:
        """Start nothing more, let what runs end by itself, and tell it to stop after that."""
        self._held = True
        running = [lane.running for lane in self._lanes.values() if lane.running is not None]
        finished = await wait_all([r.over for r in running], self._clock, seconds)
        late = [r for r in running if not r.over.done()]
        for entry in late:
            entry.stop.request(StopReason.SHUTDOWN)
        await wait_all([r.over for r in late], self._clock, SETTLE_SECONDS)
        await self._workers.cancel(SETTLE_SECONDS)
        waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        return DrainReport(finished, interrupted=len(late), waiting=waiting)

    async def _work(self, key: str, lane: _Lane) -> None:
        while lane.running is not None:
            running = lane.running
            try:
                await running.job.run(running.stop)
            except Exception:  # the supervised border: one job must not end its lane
                log.exception("lane job crashed", extra={"job": running.job.label})
            finally:
                lane.running = None
                if not running.over.done():
                    running.over.set_result(None)
            # No await from here to the next job: a stop always meets the job it was meant for.
            if lane.waiting and not self._held:
                job = lane.waiting.popleft()
                future = asyncio.get_running_loop().create_future()
                lane.running = _Running(job, StopSignal(), future)
        if not lane.waiting:
            self._lanes.pop(key, None)
