"""Owns running one slow, blocking start-up step beside the event loop, in a daemon thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            return  # the loop is gone, and with it whoever waited

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
