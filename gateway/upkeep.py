"""Owns the store's upkeep while the daemon runs: small steps, with pauses for everybody else."""

from __future__ import annotations

import logging

from agent.errors import StoreError
from agent.ports import Clock
from agent.store_ports import Store

log = logging.getLogger(__name__)

BETWEEN_STEPS_SECONDS = 0.05
QUIET_SECONDS = 60.0
TROUBLED_SECONDS = 20.0
"""From one try of a store that takes nothing to the next: whoever watches it hears of it soon."""
ROOM = "room"
ROOM_CHARS = 256 * 1024
"""What a message takes, or a few; a few bytes may find room where nobody else does."""


async def keep_up(store: Store, clock: Clock) -> None:
    """For ever, until cancelled. A store that fails is asked again later: upkeep can wait."""
    while True:
        try:
            more = await store.maintain()
            await _try_again(store)
        except StoreError as exc:
            log.warning("upkeep of the store failed", extra={"error": repr(exc)})
            more = False
        rest = QUIET_SECONDS if store.trouble() is None else TROUBLED_SECONDS
        await clock.sleep(BETWEEN_STEPS_SECONDS if more else rest)


async def _try_again(store: Store) -> None:
    """While nobody writes, nobody else would find out that a store takes what comes again.

    Raises:
        StoreError: it does not.
    """
    if store.trouble() is not None:
        await store.set_fact(ROOM, "x" * ROOM_CHARS)
        await store.set_fact(ROOM, None)
