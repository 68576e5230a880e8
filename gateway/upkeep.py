"""Owns the store's upkeep while the daemon runs: small steps, with pauses for everybody else."""

from __future__ import annotations

import logging

from agent.errors import StoreError
from agent.ports import Clock
from agent.store_ports import Store

log = logging.getLogger(__name__)

BETWEEN_STEPS_SECONDS = 0.05
QUIET_SECONDS = 60.0


async def keep_up(store: Store, clock: Clock) -> None:
    """For ever, until cancelled. A store that fails is asked again later: upkeep can wait."""
    while True:
        try:
            more = await store.maintain()
        except StoreError as exc:
            log.warning("upkeep of the store failed", extra={"error": repr(exc)})
            more = False
        await clock.sleep(BETWEEN_STEPS_SECONDS if more else QUIET_SECONDS)
