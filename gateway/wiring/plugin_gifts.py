"""Owns how what plugins gave becomes part of the daemon: tools, commands, hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.media.transcription import Transcriber
from agent.ports import Clock
from agent.tools.registry import ToolRegistry
from gateway.commands.contract import Command
from gateway.config.environment import environment
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import Hook
from gateway.plugins.commands import foreign_commands
from gateway.plugins.engines import EngineSource
from gateway.plugins.hook_companion import HookCompanion
from gateway.plugins.hooks import HookDispatch
from gateway.plugins.loops import PluginLoops
from gateway.plugins.manager import PluginManager
from gateway.plugins.settings import PluginSettings
from gateway.plugins.tool_hooks import ToolHooks
from gateway.plugins.tools import ReadyTools, ready_tools
from gateway.plugins.whereabouts import LookUp, Places

if TYPE_CHECKING:
    from gateway.wiring.plugin_platforms import ForeignPlatforms

SOURCE = "plugins"
"""Of the registry of tools."""


@dataclass(frozen=True, slots=True)
class Gifts:
    """What plugins gave, ready to be used."""

    calls: PluginCalls
    places: Places
    hooks: HookDispatch
    tools: ReadyTools
    commands: Mapping[str, Command]
    companion: HookCompanion
    """Calls the hooks around turns."""
    foreign: ForeignPlatforms | None
    """None: they brought no platform."""
    transcriber: Transcriber | None = None
    """Of the first plugin that brings one."""

    def equip(self, registry: ToolRegistry, clock: Clock) -> None:
        """Their tools beside ours, and their hooks around all of them."""
        registry.replace(SOURCE, self.tools.tools)
        registry.watched_by(ToolHooks(self.hooks, self.places, clock))

    def troubles(self) -> list[str]:
        """A line for the operator for each thing that is not offered."""
        return [*self.tools.left_out, *(self.foreign.troubles if self.foreign else ())]


@dataclass(frozen=True, slots=True)
class _Own:
    """`gateway.plugins.hooks.OwnHooks` of the configured engine."""

    engines: EngineSource
    plugin: str

    def hooks_of(self, conversation_id: str, hook: str) -> Sequence[Hook]:
        return self.engines.hooks_of(conversation_id, hook)


async def gifts_of(
    manager: PluginManager,
    engines: EngineSource,
    settings: PluginSettings,
    clock: Clock,
    look_up: LookUp,
) -> Gifts:
    """Look at everything once; what can not be used is a line, not an error."""
    loops, places = PluginLoops(), Places(look_up)
    calls = PluginCalls(clock, loops=loops)
    record = manager.engine(engines.name)
    own = _Own(engines, record.key if record is not None else "")
    hooks = HookDispatch(manager, calls, own)
    return Gifts(
        calls,
        places,
        hooks,
        await ready_tools(manager.tools, calls, places, environment(), engines),
        foreign_commands(manager.commands, calls, engines),
        HookCompanion(hooks, places, clock),
        _platforms(manager, settings, calls, loops, clock),
        _transcriber(manager, calls),
    )


def _platforms(
    manager: PluginManager,
    settings: PluginSettings,
    calls: PluginCalls,
    loops: PluginLoops,
    clock: Clock,
) -> ForeignPlatforms | None:
    if not manager.platforms:
        return None
    from gateway.wiring.plugin_platforms import (  # noqa: PLC0415 - few plugins bring one
        foreign_platforms,
    )

    return foreign_platforms(manager, settings, calls, loops, clock)


def _transcriber(manager: PluginManager, calls: PluginCalls) -> Transcriber | None:
    """Of the first plugin that brings one."""
    for key, provider in manager.transcribers:
        from gateway.plugins.hearing import ForeignTranscriber  # noqa: PLC0415 - as above

        return ForeignTranscriber(key, provider, calls)
    return None
