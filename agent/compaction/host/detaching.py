"""Owns work that goes on when whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from agent.errors import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

_kept: set[asyncio.Task[Any]] = set()
"""Keeps the tasks alive, whatever becomes of their owner: the loop holds only weak references."""


def at_work() -> int:
    """How many pieces of such work are not over yet, in all conversations."""
    return len(_kept)


class Detachable(Generic[T]):
    """One piece of work in a task of its own.

    Cancelling `wait` detaches it: it goes on, and its end is only logged. Nothing but the end of
    the event loop cancels it, so that a shutdown never waits for it.
    """

    def __init__(
        self, work: Callable[[Detachable[T]], Coroutine[Any, Any, T]], *, name: str
    ) -> None:
        self._detached = False
        self._task = asyncio.get_running_loop().create_task(work(self), name=name)
        _kept.add(self._task)
        self._task.add_done_callback(self._over)

    @property
    def detached(self) -> bool:
        """Has nobody waited to the end?"""
        return self._detached

    @property
    def running(self) -> bool:
        """Is it still at work?"""
        return not self._task.done()

    async def wait(self) -> T:
        """Until it is done.

        Raises:
            Exception: whatever the work raised.
            asyncio.CancelledError: the caller was cancelled; the work goes on.
        """
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._detached = True
            raise

    async def over(self) -> None:
        """Until it is done, however it ends; whoever waits here only looks on."""
        await asyncio.wait({self._task})

    def _over(self, task: asyncio.Task[T]) -> None:
        _kept.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._detached:
            level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
            log.log(level, "detached work failed", extra={"task": task.get_name()}, exc_info=error)
