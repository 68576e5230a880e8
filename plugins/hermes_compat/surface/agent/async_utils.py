"""Owns handing a coroutine to an event loop of another thread (`agent.async_utils`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

__all__ = ["safe_schedule_threadsafe"]

_log = logging.getLogger(__name__)


def safe_schedule_threadsafe(
    coro: Coroutine[Any, Any, Any],
    loop: asyncio.AbstractEventLoop | None,
    *,
    logger: logging.Logger | None = None,
    log_message: str = "a coroutine could not be scheduled",
    log_level: int = logging.DEBUG,
) -> Future[Any] | None:
    """The future of a coroutine on that loop; None, with the coroutine closed, if it takes none."""
    why = "there is no loop"
    if loop is not None:
        try:
            return asyncio.run_coroutine_threadsafe(coro, loop)
        except (RuntimeError, TypeError) as exc:  # the loop is closed; it is no coroutine
            why = str(exc)
    if asyncio.iscoroutine(coro):
        coro.close()
    (logger or _log).log(log_level, "%s: %s", log_message, why)
    return None
