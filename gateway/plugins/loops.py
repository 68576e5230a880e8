"""Owns the event loops of plugins: one for each plugin that needs one, on a thread of its own.

A plugin that blocks its loop blocks itself; ours is never touched. One loop for all calls of a
plugin: clients that it keeps (of HTTP, of a database) belong to the loop that they were made on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any


class PluginLoops:
    """Started as they are needed; they end with the process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()

    def submit(self, plugin: str, work: Awaitable[Any]) -> Future[Any]:
        """Run it on the plugin's loop, in the caller's context; to be cancelled if it is late."""
        return asyncio.run_coroutine_threadsafe(_awaited(work), self.of(plugin))

    def of(self, plugin: str) -> asyncio.AbstractEventLoop:
        """The loop of this plugin. One that the plugin has stopped is made anew."""
        with self._lock:
            loop = self._loops.get(plugin)
            if loop is None or loop.is_closed():
                loop = self._loops[plugin] = asyncio.new_event_loop()
                threading.Thread(
                    target=_run, args=(loop,), name=f"plugin loop {plugin}"[:60], daemon=True
                ).start()
            return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _awaited(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as exc:  # SystemExit would end the loop, for all calls of the plugin
        raise RuntimeError(f"it raised {type(exc).__name__}") from exc
