"""Owns patience with the store: a step that must be stored is tried until it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway.tasks import StopReason, StopSignal, wait_all

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
"""Somebody waits for what is to be stored."""


class GaveUp(Exception):
    """The daemon goes down, or the user said stop, before the store took the step."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


async def until_stored(
    call: Callable[[], Awaitable[T]],
    clock: Clock,
    stop: StopSignal,
    *,
    only_shutdown: bool = False,
    on_trouble: Callable[[], Awaitable[None]] | None = None,
    trouble_after: int = 3,
) -> T:
    """Try until the store takes it; each try must be harmless if the one before did happen.

    ``only_shutdown``: a user's stop does not end the tries. ``on_trouble`` is called once, after
    ``trouble_after`` failures, to tell somebody.

    Raises:
        GaveUp: told to stop first.
    """
    failures = 0
    while True:
        try:
            return await call()
        except StoreUnavailable:
            failures += 1
            log.warning("store unavailable", extra={"failures": failures})
        if on_trouble is not None and failures == trouble_after:
            await on_trouble()
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10))
        reason = await _pause(pause, clock, stop, only_shutdown=only_shutdown)
        if reason is not None:
            raise GaveUp(reason)


async def _pause(
    seconds: float, clock: Clock, stop: StopSignal, *, only_shutdown: bool
) -> StopReason | None:
    def told() -> StopReason | None:
        if stop.shutdown:
            return StopReason.SHUTDOWN
        return None if only_shutdown else stop.reason

    if stop.reason is not None:
        if told() is None:
            await clock.sleep(seconds)
        return told()
    signal = asyncio.ensure_future(stop.wait())
    try:
        await wait_all((signal,), clock, seconds)
    finally:
        signal.cancel()
    return told()
