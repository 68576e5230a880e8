"""Owns the composition of jobs: what runs them, what is named, what the house does by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from agent.jobs.nouns import Schedule
from gateway.config.models import Config
from gateway.jobs.configured import NamedJobs
from gateway.jobs.house import House, HouseJob, HouseMaker
from gateway.jobs.rights import Rights
from gateway.jobs.runner import JobRunner
from gateway.jobs.zone_names import name_of
from gateway.lanes.lanes import Lanes
from gateway.platforms.contract import Address, KnowsRoles, Platform
from gateway.turns.companions import Companions
from gateway.turns.resetting import ResetRules, SessionResets
from gateway.wiring.answering import Answering
from gateway.wiring.ground import Ground
from gateway.wiring.talking import Inward, Outward

SWEEP_SECONDS = 900


def build_jobs(
    ground: Ground,
    answering: Answering,
    inward: Inward,
    outward: Outward,
    platforms: Mapping[str, Platform],
    resets: SessionResets,
    house_makers: Sequence[HouseMaker] = (),
) -> JobRunner:
    """What runs jobs when they are due. ``house_makers``: each gives one of the house's own."""
    store, clock = ground.store, ground.clock
    house = House(store, clock, [partial(_sweep, resets, inward.lanes), *house_makers])
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
        store,
        clock,
        Rights(inward.gate, partial(_roles_of, platforms), clock, partial(_bot_of, platforms)),
        inward.dispatch,
        outward.delivery,
        house,
        keep=named.keep,
    )
    answering.jobs.on_changed(runner.wake)

    async def changed(config: Config) -> None:
        runner.keep_again()

    ground.reloads.on(("jobs", "timezone", "sessions", "backup"), changed)
    return runner


def build_resets(ground: Ground, answering: Answering, companions: Companions) -> SessionResets:
    """What lets conversations start anew by themselves."""
    return SessionResets(
        ground.store,
        ground.clock,
        answering.compactors,
        rules=lambda: rules_of(ground.now, name_of(ground.zone)),
        prefix_for=answering.prefix_for,
        crossed=companions.crossed,
    )


def rules_of(config: Config, zone: str) -> ResetRules:
    """When conversations start anew, by the configuration."""
    sessions = config.sessions
    return ResetRules(sessions.reset, sessions.idle_minutes * 60.0, sessions.daily_hour, zone)


def _sweep(resets: SessionResets, lanes: Lanes, config: Config, zone: str) -> HouseJob | None:
    rules = rules_of(config, zone)
    if rules.mode == "none":
        return None
    often = Schedule("every", str(SWEEP_SECONDS), zone)
    schedule = rules.daily if rules.mode == "daily" else often
    return HouseJob("session resets", schedule, partial(resets.sweep, lanes))


def _bot_of(platforms: Mapping[str, Platform], name: str) -> str | None:
    platform = platforms.get(name)
    return platform.bot_id if platform is not None else None


async def _roles_of(
    platforms: Mapping[str, Platform], address: Address, user_id: str
) -> frozenset[str] | None:
    platform: object = platforms.get(address.platform)
    if not isinstance(platform, KnowsRoles):
        return None  # switched off meanwhile, or a plugin's that says roles with messages only
    return await platform.roles_of(address, user_id)
