"""Owns the lanes: one per conversation, one job at a time in each, first in, first out."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent.ports import Clock
from gateway.lanes.jobs import DrainReport, Job, LaneView, Run
from gateway.lanes.slots import AT_ONCE, Slots
from gateway.tasks import StopReason, TaskOwner, wait_all

log = logging.getLogger(__name__)

SETTLE_SECONDS = 3.0
"""What a told job may take to write down how it ended."""


@dataclass(slots=True, eq=False)
class _Lane:
    key: str
    waiting: deque[Job] = field(default_factory=deque)
    running: Run | None = None
    beside: list[Run] = field(default_factory=list)
    """Of lanes that have become one with this: nothing begins here before they are over."""

    def runs(self) -> list[Run]:
        """All that is not over."""
        own = [self.running] if self.running is not None else []
        return [run for run in (*own, *self.beside) if not run.over.done()]


class Lanes:
    """All lanes. `put` takes a place at once, without an await, so no two jobs can both be first.

    A lane whose work is done leaves nothing behind. How many may wait is the caller's rule
    (`rows_waiting`): a job that was promised to somebody must not be refused here.
    """

    def __init__(self, clock: Clock, *, at_once: int = AT_ONCE) -> None:
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}
        self._workers = TaskOwner(clock)
        self._slots = Slots(at_once)
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._held = False
        self._resting: Counter[str] = Counter()
        """Keys under which nothing begins at the moment."""

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def held(self) -> bool:
        """The daemon goes down: nothing begins any more."""
        return self._held

    def put(self, key: str, job: Job) -> None:
        """Append a job to its lane."""
        job.put_at, job.key = self._clock.monotonic(), key
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        if lane.running is not None or self._held:
            job.waited = True
            lane.waiting.append(job)
            return
        # It counts as running from here on: a stop that comes in the same breath is meant for it.
        self._start(lane, job)
        self._workers.spawn(self._work(lane), name=f"lane {job.label}")

    def open_keys(self) -> list[str]:
        """Of all lanes."""
        return list(self._lanes)

    def waiting(self, key: str) -> int:
        """Jobs behind the one at the head."""
        lane = self._lanes.get(key)
        return len(lane.waiting) if lane else 0

    def rows_waiting(self, key: str) -> int:
        """Rows of the jobs that have not begun, but for the one at the head of the lane."""
        return max(0, sum(len(job.items) or 1 for job in self.unbegun(key)) - self._heads(key))

    def unbegun(self, key: str) -> Iterator[Job]:
        """Jobs that have not begun, newest first."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        yield from reversed(lane.waiting)
        if lane.running is not None and lane.running.began_at is None:
            yield lane.running.job

    def behind(self, key: str) -> Iterator[Job]:
        """Jobs behind the one at the head, oldest first."""
        lane = self._lanes.get(key)
        yield from lane.waiting if lane else ()

    def follower(self, job: Job) -> Job | None:
        """What stands first behind this running job, if the lane is its alone."""
        lane = self._lanes.get(job.key)
        if lane is None or lane.running is None or lane.running.job is not job:
            return None
        if len(lane.runs()) > 1:
            return None
        return lane.waiting[0] if lane.waiting else None

    def withdraw(self, job: Job) -> None:
        """Take a job out that waits, if it still does: it was done in another way."""
        lane = self._lanes.get(job.key)
        if lane is not None and job in lane.waiting:
            lane.waiting.remove(job)

    def wake(self, key: str) -> None:
        """What has not begun looks again whether it may: its time has changed."""
        lane = self._lanes.get(key)
        if lane is not None and lane.running is not None:
            lane.running.wake.set()

    def running(self, key: str) -> Run | None:
        """What has the head of the lane."""
        lane = self._lanes.get(key)
        return lane.running if lane else None

    def view(self, key: str) -> LaneView:
        """How this lane is now."""
        lane, now = self._lanes.get(key), self._clock.monotonic()
        if lane is None:
            return LaneView()
        run, waiting = lane.running, lane.waiting
        return LaneView(
            running=run.job.kind if run else None,
            running_seconds=now - (run.began_at or run.job.put_at) if run else 0.0,
            waiting=len(waiting),
            oldest_seconds=now - waiting[0].put_at if waiting else 0.0,
        )

    def views(self) -> list[tuple[str, LaneView]]:
        """All that are open, by key; what has run longest comes first."""
        found = [(key, self.view(key)) for key in self._lanes]
        return sorted(found, key=lambda each: -each[1].running_seconds)

    def busy(self, key: str) -> bool:
        """Is a job running?"""
        return self.running(key) is not None

    def counts(self) -> tuple[int, int]:
        """Jobs that run, and jobs that wait, over all lanes."""
        return len(self._runs), sum(len(lane.waiting) for lane in self._lanes.values())

    def stop(self, key: str) -> asyncio.Future[None] | None:
        """Tell the running job to end; what waits stays. The future is done when it has ended.

        None: nothing runs.
        """
        lane = self._lanes.get(key)
        if lane is None or lane.running is None:
            return None
        for run in lane.runs():
            run.ask(StopReason.USER)
        return lane.running.over

    @contextmanager
    def resting(self, keys: Collection[str]) -> Iterator[None]:
        """Nothing begins under these keys while the block runs; what comes there waits."""
        self._resting.update(keys)
        try:
            yield
        finally:
            self._resting.subtract(keys)
            self._resting = +self._resting
            for key in keys:
                self.wake(key)

    def begun_under(self, keys: Collection[str]) -> list[Run]:
        """What runs under these keys."""
        lanes = [lane for key in keys if (lane := self._lanes.get(key)) is not None]
        return [run for lane in lanes for run in lane.runs() if run.began_at is not None]

    def merge(self, old: str, new: str) -> None:
        """What was said under the old key is said under the new one from here on.

        Where something runs under both, nothing begins before both are over.
        """
        lane, there = self._lanes.get(old), self._lanes.get(new)
        if lane is None or lane is there:
            return
        del self._lanes[old]
        lane.key = new
        moving = lane.runs()
        for job in (*lane.waiting, *(run.job for run in moving)):
            job.key = new
        if there is None:
            self._lanes[new] = lane
            return
        # What has begun waits for nobody any more.
        lane.beside += [run for run in there.runs() if run.began_at is not None]
        there.beside += moving
        there.waiting = deque(sorted([*lane.waiting, *there.waiting], key=_first_row))
        lane.waiting.clear()

    async def idle(self, seconds: float) -> bool:
        """Wait until every lane is empty; False if that took too long."""
        return await self._workers.wait(seconds)

    async def drain(self, seconds: float) -> DrainReport:
        """Start nothing more, let what runs end by itself, and tell it to stop after that."""
        self._held = True
        for run in self._runs.values():
            run.wake.set()  # what has not begun stays as it is
        running = list(self._runs.values())
        finished = await wait_all([r.over for r in running], self._clock, seconds)
        late = [r for r in running if not r.over.done()]
        for entry in late:
            entry.ask(StopReason.SHUTDOWN)
        await wait_all([r.over for r in late], self._clock, SETTLE_SECONDS)
        await self._workers.cancel(SETTLE_SECONDS)
        waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        return DrainReport(finished, interrupted=len(late), waiting=waiting)

    def _heads(self, key: str) -> int:
        run = self.running(key)
        return 1 if run is not None and run.began_at is None else 0

    def _start(self, lane: _Lane, job: Job) -> Run:
        future = asyncio.get_running_loop().create_future()
        run = lane.running = Run(next(self._numbers), job, future)
        self._runs[run.number] = run
        return run

    async def _work(self, lane: _Lane) -> None:
        run = lane.running
        while run is not None:
            try:
                if await self._may_begin(lane, run):
                    run.began_at = self._clock.monotonic()
                    await run.job.run(run.stop)
                else:
                    lane.waiting.appendleft(run.job)
            except Exception:  # the supervised border: one job must not end its lane
                log.exception("lane job crashed", extra={"job": run.job.label})
            finally:
                self._slots.give_back(run.number)
                del self._runs[run.number]
                lane.running = None
                if not run.over.done():
                    run.over.set_result(None)
            while not lane.waiting and (others := lane.runs()):
                # It is the lane's as if it had been put here: a stop finds it, what comes waits.
                lane.running = others[0]
                await asyncio.wait({lane.running.over})
                lane.running = None
            # No await from here to the next job: a stop always meets the job it was meant for.
            ready = lane.waiting and not self._held
            run = self._start(lane, lane.waiting.popleft()) if ready else None
        if not lane.waiting and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    async def _may_begin(self, lane: _Lane, run: Run) -> bool:
        """Wait until it is its turn; False: the daemon goes down first.

        A stop ends every wait but that for what runs beside it, which has been told as well.
        """
        while not self._held:
            others = [r for r in lane.runs() if r is not run]
            told = run.stop.reason is not None
            pause = run.job.ready_at - self._clock.monotonic()
            if run.job.key in self._resting:
                self._slots.give_back(run.number)
                await self._rest(run, None)
            elif pause > 0 and not told:
                await self._rest(run, pause)
            elif others:
                self._slots.give_back(run.number)  # they may be waiting for just this place
                await self._rest(run, None, [r.over for r in others])
            elif not told and not self._slots.take(run.number, run.wake.set):
                await self._rest(run, None)
            else:
                return True
        return False

    async def _rest(
        self, run: Run, seconds: float | None, others: Iterable[asyncio.Future[None]] = ()
    ) -> None:
        """Until it is woken, the time is over, or one of the others is done."""
        run.job.waited = True
        run.wake.clear()
        own: list[asyncio.Future[Any]] = [asyncio.ensure_future(run.wake.wait())]
        if seconds is not None:
            own.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait({*own, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in own:
                future.cancel()


def _first_row(job: Job) -> int:
    return job.items[0].id if job.items else 0
