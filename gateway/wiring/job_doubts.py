"""Owns putting together what is to be known before jobs of config.yaml can be doubted."""

from __future__ import annotations

from collections.abc import Mapping

from agent.clock import SystemClock
from gateway.config.environment import Secrets, local_zone
from gateway.config.loading import Loaded
from gateway.config.models import Config
from gateway.jobs.doubts import Doubt, doubts_about
from gateway.jobs.zone_names import name_of
from gateway.wiring.platforms import build_policies, enabled_platforms

_OURS = ("telegram", "discord")


def found(config: Config, secrets: Secrets | None, env: Mapping[str, str]) -> list[Doubt]:
    """Of the jobs as they are now. ``secrets``: None: which there are is not known."""
    if not config.jobs:
        return []
    if secrets is not None:
        off = {*_OURS} - {*enabled_platforms(config, secrets)}
    else:
        off = {name for name in _OURS if getattr(config, name).enabled is False}
    zone = config.timezone or name_of(local_zone(env))
    policies = build_policies(config, {*_OURS})
    now = SystemClock().now()
    return list(doubts_about(config.jobs, now=now, zone=zone, off=off, policies=policies))


def placed(loaded: Loaded, secrets: Secrets, env: Mapping[str, str]) -> list[str]:
    """The same as lines, each with its place in the file."""
    return [
        f"{loaded.written.place(('jobs', doubt.index, doubt.key))}: {doubt}"
        for doubt in found(loaded.config, secrets, env)
    ]
