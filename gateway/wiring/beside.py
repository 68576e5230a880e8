"""Owns what is opened of a home without a daemon: its archive, its pairing, its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from agent.clock import RandomIds, SystemClock
from gateway.config.environment import Home, environment
from gateway.config.models import Config
from gateway.intake.pairing_office import PairingOffice
from gateway.jobs.desk import JobDesk
from gateway.jobs.office import JobOffice
from gateway.wiring.job_doubts import found as doubts_about_jobs
from gateway.wiring.platforms import pairing_platforms
from storage.archive import SqlArchive
from storage.sqlite import open_archive, open_store


@asynccontextmanager
async def archive(home: Home) -> AsyncIterator[SqlArchive]:
    """The store of a home, for looking only; also beside a running daemon.

    Raises:
        StoreUnavailable: there is none yet.
    """
    opened = await open_archive(home.database)
    try:
        yield opened
    finally:
        await opened.close()


async def answer_pairing(home: Home, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `posthouse pair` in a home of which no daemon runs; its lock is held.

    Raises:
        StoreUnavailable: the store can not be opened.
    """
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    try:
        office = PairingOffice(store, SystemClock(), pairing_on=lambda: pairing_platforms(config))
        return await office.answer(request)
    finally:
        await store.close()


async def answer_jobs(home: Home, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `posthouse jobs` in a home of which no daemon runs; its lock is held.

    Raises:
        StoreUnavailable: the store can not be opened.
    """
    clock = SystemClock()
    store = await open_store(home.database, clock=clock, ids=RandomIds())
    try:
        desk = JobDesk(store, clock, zone=lambda: config.timezone or "UTC")
        # Which secrets the daemon has is not known here: a service has its own.
        doubts = partial(doubts_about_jobs, config, None, environment())
        return await JobOffice(desk, store, doubts=doubts).answer(request)
    finally:
        await store.close()
