"""Owns running one slow, blocking step beside the event loop, in a daemon thread of its own.

An interpreter that ends while such a thread is inside an extension module's import may crash, so
its end waits for them, for a while.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LAST_WAIT_SECONDS = 10.0
"""An import without compiled files takes seconds on a slow machine."""
_running: set[threading.Thread] = set()


def is_at_work() -> bool:
    """Does any of these threads run?"""
    return bool(_running)


def let_finish(seconds: float = LAST_WAIT_SECONDS) -> None:
    """Wait until none of these threads is at work any more, or so long."""
    until = time.monotonic() + seconds
    for thread in list(_running):
        thread.join(max(0.0, until - time.monotonic()))


atexit.register(let_finish)


async def in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Run it in a thread of its own; what it raises is raised here.

    Never the default executor: that one also resolves names, and is waited for at exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T, when there is no error

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as exc:  # noqa: BLE001 - handed over whole to whoever waits
            error = exc
        _running.discard(threading.current_thread())
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            return  # the loop is gone, and with it whoever waited

    thread = threading.Thread(target=run, name=name, daemon=True)
    _running.add(thread)
    thread.start()
    return await future
