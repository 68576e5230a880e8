"""Owns which platforms of plugins run, and who may talk there: `plugins.entries.<plugin>`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ConfigDict, ValidationError

from agent.ports import Clock
from gateway.config.models import Ids, PlainIds, WhoMayCommand
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.plugins.calling import PluginCalls
from gateway.plugins.loops import PluginLoops
from gateway.plugins.manager import PluginManager
from gateway.plugins.platforms import ForeignPlatform
from gateway.plugins.settings import PluginSettings
from gateway.wiring.platforms import command_rules


class WhoMayTalk(WhoMayCommand):
    """The keys of an entry that are about its platforms; its other keys are not looked at."""

    model_config = ConfigDict(extra="ignore")

    allow_from: Ids = []  # noqa: RUF012 - pydantic copies it
    allow_chats: PlainIds = []  # noqa: RUF012
    admins: PlainIds = []  # noqa: RUF012
    group_sessions_per_user: bool = True
    require_mention: bool = True


NOBODY = WhoMayTalk()


@dataclass(frozen=True, slots=True)
class ForeignPlatforms:
    """Platforms by name, and who may talk there."""

    platforms: Mapping[str, ForeignPlatform] = field(default_factory=dict)
    policies: Mapping[str, PlatformPolicy] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


def foreign_platforms(
    manager: PluginManager,
    settings: PluginSettings,
    calls: PluginCalls,
    loops: PluginLoops,
    clock: Clock,
) -> ForeignPlatforms:
    """All that plugins brought along."""
    platforms: dict[str, ForeignPlatform] = {}
    policies: dict[str, PlatformPolicy] = {}
    troubles: list[str] = []
    for given in manager.platforms:
        record = manager.record(given.plugin)
        names = record.found.names if record is not None else (given.plugin,)
        try:
            who = WhoMayTalk.model_validate(dict(settings.entry(names)))
        except ValidationError as exc:
            where = ".".join(map(str, exc.errors()[0]["loc"]))
            troubles.append(
                f"plugins.entries.{given.plugin}.{where}: {exc.errors()[0]['msg']}; nobody is let "
                f"in on {given.name}"
            )
            who = NOBODY
        platforms[given.name] = ForeignPlatform(
            given, settings.settings(names), calls, loops, clock
        )
        policies[given.name] = PlatformPolicy(
            AccessRules(
                allow_from=frozenset(who.allow_from),
                allow_chats=frozenset(who.allow_chats),
                admins=frozenset(who.admins),
            ),
            require_mention=who.require_mention,
            group_sessions_per_user=who.group_sessions_per_user,
            commands=command_rules(who),
        )
    return ForeignPlatforms(platforms, policies, tuple(troubles))
