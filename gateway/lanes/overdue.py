"""Owns how long a job's turn may take: nobody is there who would stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agent.jobs.nouns import is_scheduled
from agent.mail import InboxItem
from agent.ports import Clock
from gateway.tasks import StopReason, StopSignal

JOB_TURN_SECONDS = 1800.0


@asynccontextmanager
async def bounded(
    items: Sequence[InboxItem], stop: StopSignal, clock: Clock
) -> AsyncIterator[None]:
    """While the block runs: tell a job's turn to end once it has taken too long."""
    if not any(is_scheduled(item.record) for item in items):
        yield
        return
    timer = asyncio.ensure_future(_overdue(stop, clock))
    try:
        yield
    finally:
        timer.cancel()


async def _overdue(stop: StopSignal, clock: Clock) -> None:
    await clock.sleep(JOB_TURN_SECONDS)
    stop.request(StopReason.OVERDUE)
