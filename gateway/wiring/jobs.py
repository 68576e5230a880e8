"""Owns the composition of jobs: what runs them, what is named, what the house does by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gateway.config.models import Config
from gateway.jobs.configured import NamedJobs
from gateway.jobs.house import House, HouseMaker
from gateway.jobs.runner import JobRunner
from gateway.jobs.zone_names import name_of
from gateway.platforms.contract import Platform
from gateway.wiring.answering import Answering
from gateway.wiring.ground import Ground
from gateway.wiring.talking import Inward, Outward


def build_jobs(
    ground: Ground,
    answering: Answering,
    inward: Inward,
    outward: Outward,
    platforms: Mapping[str, Platform],
    house_makers: Sequence[HouseMaker] = (),
) -> JobRunner:
    """What runs jobs when they are due. ``house_makers``: each gives one of the house's own."""
    store, clock = ground.store, ground.clock
    house = House(store, clock, house_makers)
    named = NamedJobs(
        store,
        clock,
        house,
        config=lambda: ground.now,
        zone=lambda: name_of(ground.zone),
        bot_of=partial(_bot_of, platforms),
        policy_of=inward.gate.policy,
    )
    runner = JobRunner(
        store, clock, inward.gate, inward.dispatch, outward.delivery, house, keep=named.keep
    )
    answering.jobs.on_changed(runner.wake)

    async def changed(config: Config) -> None:
        runner.keep_again()

    ground.reloads.on(("jobs", "timezone", "sessions", "backup"), changed)
    return runner


def _bot_of(platforms: Mapping[str, Platform], name: str) -> str | None:
    platform = platforms.get(name)
    return platform.bot_id if platform is not None else None
