"""Owns how what plugins gave becomes part of the daemon: tools, commands, hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.media.transcription import Transcriber
from agent.ports import Clock
from agent.tools.registry import ToolRegistry
from gateway.commands.contract import Command
from gateway.config.environment import environment
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import Hook
from gateway.plugins.commands import foreign_commands
from gateway.plugins.engines import EngineSource
from gateway.plugins.hearing import ForeignTranscriber
from gateway.plugins.hook_companion import HookCompanion
from gateway.plugins.hooks import HookDispatch
from gateway.plugins.loops import PluginLoops
from gateway.plugins.manager import PluginManager
from gateway.plugins.settings import PluginSettings
from gateway.plugins.tool_hooks import ToolHooks
from gateway.plugins.tools import ReadyTools, ready_tools
from gateway.plugins.whereabouts import Places
from gateway.wiring.plugin_platforms import ForeignPlatforms, foreign_platforms

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
    foreign: ForeignPlatforms
    transcriber: Transcriber | None = None
    """Of the first plugin that brings one."""

    def equip(self, registry: ToolRegistry, clock: Clock) -> None:
        """Their tools beside ours, and their hooks around all of them."""
        registry.replace(SOURCE, self.tools.tools)
        registry.watched_by(ToolHooks(self.hooks, self.places, clock))

    def troubles(self) -> list[str]:
        """A line for the operator for each thing that is not offered."""
        return [*self.tools.left_out, *self.foreign.troubles]


@dataclass(frozen=True, slots=True)
class _Own:
    """`gateway.plugins.hooks.OwnHooks` of the configured engine."""

    engines: EngineSource
    plugin: str

    def hooks_of(self, conversation_id: str, hook: str) -> Sequence[Hook]:
        return self.engines.hooks_of(conversation_id, hook)


async def gifts_of(
    manager: PluginManager, engines: EngineSource, settings: PluginSettings, clock: Clock
) -> Gifts:
    """Look at everything once; what can not be used is a line, not an error."""
    loops, places = PluginLoops(), Places()
    calls = PluginCalls(clock, loops=loops)
    record = manager.engine(engines.name)
    own = _Own(engines, record.key if record is not None else "")
    hooks = HookDispatch(manager, calls, own)
    return Gifts(
        calls,
        places,
        hooks,
        await ready_tools(manager.tools, calls, places, environment()),
        foreign_commands(manager.commands, calls, engines),
        HookCompanion(hooks, places, clock),
        foreign_platforms(manager, settings, calls, loops, clock),
        next((ForeignTranscriber(key, one, calls) for key, one in manager.transcribers), None),
    )
