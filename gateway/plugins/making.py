"""Owns how a plugin is asked for what one conversation gets: on its threads, with a deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from agent.daemon_threads import DaemonThreads
from agent.errors import EngineError
from agent.ports import Clock
from gateway.tasks import wait_all

log = logging.getLogger(__name__)
T = TypeVar("T")

MAKING_SECONDS = 10.0


def ended(instance: object) -> None:
    """On its thread: let it close; what it raises changes nothing of what it did before."""
    shutdown = getattr(instance, "shutdown", None)
    if not callable(shutdown):
        return
    try:
        shutdown()
    except Exception:
        log.warning("an instance of a plugin did not close", exc_info=True)


async def asked(
    threads: DaemonThreads,
    clock: Clock,
    plugin: str,
    work: Callable[[], T],
    what: str,
    seconds: float = MAKING_SECONDS,
) -> T:
    """Run code of a plugin's. ``what`` it was to do ends the sentence "it did not …".

    Raises:
        EngineError: it failed, or did not end in time; then it is left behind on its thread.
    """
    waiting = asyncio.wrap_future(threads.submit(work))
    try:
        if not await wait_all((waiting,), clock, seconds):
            raise EngineError(f"it did not {what} within {seconds:.0f} s")
        return waiting.result()
    except EngineError:
        raise
    except Exception as exc:
        log.exception("plugin failed", extra={"plugin": plugin, "what": what})
        raise EngineError(f"it could not {what} ({type(exc).__name__})") from exc
    finally:
        if waiting.done() and not waiting.cancelled():
            waiting.exception()  # seen
        waiting.cancel()
