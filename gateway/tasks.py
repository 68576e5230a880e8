"""Owns background tasks: each has an owner that keeps it, logs its crash and can wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from agent.errors import StaleTurn
from agent.ports import Clock

log = logging.getLogger(__name__)
T = TypeVar("T")

_unowned: set[asyncio.Task[Any]] = set()
"""Keeps tasks from `spawn` alive: the event loop itself holds only a weak reference."""


def spawn(coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run ``coro`` in the background; a crash is logged, a cancellation is not."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _unowned.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _unowned.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        log.error("background task crashed", extra={"task": task.get_name()}, exc_info=error)


async def wait_all(tasks: Iterable[asyncio.Future[Any]], clock: Clock, seconds: float) -> bool:
    """Wait until all of these are done or the time is over; True if all are done.

    Nothing is cancelled, neither by the deadline nor by a cancellation of the caller.
    """
    pending = {task for task in tasks if not task.done()}
    if not pending:
        return True
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        while pending and not timer.done():
            await asyncio.wait({*pending, timer}, return_when=asyncio.FIRST_COMPLETED)
            pending = {task for task in pending if not task.done()}
    finally:
        timer.cancel()
    return not pending


class TaskOwner:
    """Tasks that live and die together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run ``coro`` under this owner."""
        task = spawn(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self, seconds: float) -> bool:
        """Wait for all of them, later ones included; False if the time ran out first."""
        deadline = self._clock.monotonic() + seconds
        while self._tasks:
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await wait_all(set(self._tasks), self._clock, left):
                return False
            await asyncio.sleep(0)  # lets the done callbacks take them out
        return True

    async def cancel(self, seconds: float) -> list[str]:
        """Cancel all and wait; the names of those that would not end in time."""
        for task in set(self._tasks):
            task.cancel()
        await self.wait(seconds)
        names = sorted(task.get_name() for task in self._tasks)
        if names:
            log.warning("tasks ignored their cancellation", extra={"tasks": names})
        return names


class StopReason(StrEnum):
    """Why running work is told to end early."""

    USER = "user"
    NEWER = "a newer message"
    SHUTDOWN = "shutdown"
    OVERDUE = "it takes too long"


class StopSignal:
    """Tells one piece of work to end; made new for each, so an old one can not hit the next."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: StopReason | None = None
        self._shutdown = False
        self._yields = False
        self._newer = False

    @property
    def shutdown(self) -> bool:
        """Is the daemon going down, whatever came first?"""
        return self._shutdown

    @property
    def reason(self) -> StopReason | None:
        """None while nobody asked."""
        return self._reason

    def request(self, reason: StopReason) -> None:
        """Ask; the first reason stays."""
        self._shutdown = self._shutdown or reason is StopReason.SHUTDOWN
        if self._reason is None:
            self._reason = reason
            self._event.set()

    def give_way(self) -> None:
        """A newer message wants the place of this work: asked for once the work is `yielding`."""
        self._newer = True
        if self._yields:
            self.request(StopReason.NEWER)

    def yielding(self) -> AbstractContextManager[None]:
        """While the block runs, the work gives way to a newer message. It does not by itself."""
        return self._set_yields(True)

    def sheltered(self) -> AbstractContextManager[None]:
        """Inside of that: while this block runs, a newer message waits."""
        return self._set_yields(False)

    @contextmanager
    def _set_yields(self, now: bool) -> Iterator[None]:
        before, self._yields = self._yields, now
        try:
            if now and self._newer:
                self.request(StopReason.NEWER)
            yield
        finally:
            self._yields = before
            if before and self._newer:
                self.request(StopReason.NEWER)

    async def wait(self) -> StopReason:
        """Until somebody asks."""
        await self._event.wait()
        assert self._reason is not None
        return self._reason


@dataclass(frozen=True, slots=True)
class Stopped:
    """The work was ended by its signal before it had a result."""

    reason: StopReason
    obeyed: bool
    """False: it ignored its cancellation; it was left behind and must not be believed."""


@dataclass(frozen=True, slots=True)
class Completed(Generic[T]):
    """The work came to its own end."""

    value: T


async def run_stoppable(
    work: Callable[[], Coroutine[Any, Any, T]],
    stop: StopSignal,
    clock: Clock,
    *,
    name: str,
    grace_seconds: float,
) -> Completed[T] | Stopped:
    """Run ``work`` until it ends or ``stop`` is asked for; then it is cancelled.

    Work that ignores its cancellation is waited for ``grace_seconds`` and then left behind, so that
    nothing that runs can make a stop wait. A result that was ready when the stop came counts.

    Raises:
        Exception: whatever the work raised.
        asyncio.CancelledError: the caller was cancelled; the work is cancelled with it.
    """
    if stop.reason is not None:
        return Stopped(stop.reason, obeyed=True)
    task = asyncio.get_running_loop().create_task(work(), name=name)
    signal = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, signal}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await wait_all((task,), clock, grace_seconds)
    finally:
        signal.cancel()
        if not task.done():
            task.cancel()
            _unowned.add(task)
            task.add_done_callback(_ended_late)
    return _outcome(task, stop.reason, name)


def _outcome(task: asyncio.Task[T], reason: StopReason | None, name: str) -> Completed[T] | Stopped:
    if task.done() and not task.cancelled():
        return Completed(task.result())
    if reason is None:
        # Cancelled from inside or by a stranger: to the caller that is a failure of the work.
        raise RuntimeError(f"{name} was cancelled from outside")
    if not task.done():
        log.warning("work ignored its cancellation and was left behind", extra={"task": name})
    return Stopped(reason, obeyed=task.done())


def _ended_late(task: asyncio.Task[Any]) -> None:
    """What was left behind is over. That its turn was over before it is the fence, and no crash."""
    if task.cancelled() or not isinstance(task.exception(), StaleTurn):
        _finished(task)
        return
    _unowned.discard(task)
    log.info("work that was left behind met the end of its turn", extra={"task": task.get_name()})


async def finish(step: Awaitable[T]) -> T:
    """Finish a commit although the caller is being cancelled; the cancellation follows it."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            log.error("step failed while its caller was cancelled", exc_info=task.exception())
        raise
