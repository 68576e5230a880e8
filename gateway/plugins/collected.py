"""Owns what one call of a plugin's `register` gave, as data; nothing is in force by it.

A plugin registers into a `Collected` and into nothing else. What becomes of it is decided by
`gateway.plugins.manager` (for the process) and by the sources of engines and providers (for one
conversation, whose collection is made by calling `register` once more).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.context_engine import ContextEngine
from agent.memory_provider import MemoryProvider

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PluginTool:
    """A tool as the plugin gave it. ``handler(arguments, **keywords)`` is its own code."""

    name: str
    schema: Mapping[str, Any]
    """``{"name", "description", "parameters"}``, whatever form it was given in."""
    handler: Callable[..., Any]
    check: Callable[[], Any] | None = None
    """Can it work now? None: always."""
    requires_env: tuple[str, ...] = ()
    override: bool = False
    """It takes the place of a tool of ours; the operator has allowed it."""
    plugin: str = ""
    """The key of the plugin that it is from."""


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command as the plugin gave it; ``handler(raw_arguments)`` gives a text, or awaits one."""

    name: str
    handler: Callable[..., Any]
    description: str = ""
    args_hint: str = ""
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class PluginSkill:
    """A file of instructions that a plugin brings along."""

    name: str
    path: Path
    description: str = ""
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class PluginPlatform:
    """A chat platform that a plugin brings along."""

    name: str
    label: str
    adapter_factory: Callable[..., Any]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    plugin: str = ""


@dataclass(slots=True)
class Collected:
    """All that one `register(ctx)` gave. Grows while that call runs, then never again."""

    engine: ContextEngine | None = None
    engine_name: str = ""
    """What it said it is called, when it was registered: asking again would run its code."""
    memory_provider: MemoryProvider | None = None
    provider_name: str = ""
    tools: list[PluginTool] = field(default_factory=list)
    commands: list[PluginCommand] = field(default_factory=list)
    hooks: list[tuple[str, Hook]] = field(default_factory=list)
    """(name, callback), in the order of registration."""
    skills: list[PluginSkill] = field(default_factory=list)
    platforms: list[PluginPlatform] = field(default_factory=list)
    transcribers: list[Any] = field(default_factory=list)
    """Whoever can make words of recordings: has a ``transcribe(path)``."""
    refused: list[str] = field(default_factory=list)
    """What was not taken, and why: a line each, for the operator."""
    without_effect: list[str] = field(default_factory=list)
    """Members of the context that were called and do nothing here."""
    closed: bool = False
    """`register` has returned, failed or missed its deadline: nothing is taken any more."""

    def gives(self) -> list[str]:
        """What it brought, in words, for lists."""
        found: list[str] = []
        if self.engine is not None:
            found.append(f"context engine {self.engine_name}")
        if self.memory_provider is not None:
            found.append(f"memory provider {self.provider_name}")
        found += [f"tool {tool.name}" for tool in self.tools]
        found += [f"/{command.name}" for command in self.commands]
        found += [f"hook {name}" for name in dict.fromkeys(name for name, _ in self.hooks)]
        found += [f"skill {skill.name} (nothing reads it here)" for skill in self.skills]
        found += [f"platform {platform.name}" for platform in self.platforms]
        found += ["transcription"] * bool(self.transcribers)
        return found
