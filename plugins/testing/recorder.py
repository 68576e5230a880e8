"""Owns a stand-in for the `ctx` of `register`: it keeps what a plugin gives, and does no more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

Register = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class GivenTool:
    """A tool, its schema in the bare form."""

    schema: Mapping[str, Any]
    handler: Callable[..., Any]
    more: Mapping[str, Any]


@dataclass(slots=True)
class Given:
    """All that one call of `register` gave."""

    tools: dict[str, GivenTool] = field(default_factory=dict)
    commands: dict[str, Callable[..., Any]] = field(default_factory=dict)
    hooks: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)
    engine: Any = None
    provider: Any = None
    others: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    """Calls of other members of the context: (name, arguments, keywords)."""

    def call(self, hook: str, **offered: Any) -> list[Any]:
        """Call all hooks of a name as the host does: each gets the keywords that it takes."""
        return [each(**taken_by(each, offered)) for each in self.hooks.get(hook, ())]


class RecordingContext:
    """What a plugin sees as ``ctx``."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.given = Given()
        self.manifest = SimpleNamespace(name="under-test", key="under-test", version="0")
        self._settings = dict(settings or {})

    def register_tool(
        self,
        name: str,
        toolset: str = "",
        schema: Any = None,
        handler: Any = None,
        **more: Any,
    ) -> None:
        """As the host's, with the bare form of the schema kept."""
        bare = schema.get("function", schema) if isinstance(schema, Mapping) else {}
        assert name not in self.given.tools, f"{name} is registered twice"
        self.given.tools[name] = GivenTool(bare, handler, more)

    def register_command(self, name: str, handler: Any, *described: Any, **more: Any) -> None:
        """As the host's."""
        plain = name.strip().removeprefix("/").lower()
        assert plain not in self.given.commands, f"/{plain} is registered twice"
        self.given.commands[plain] = handler

    def register_hook(self, hook_name: str, callback: Any) -> None:
        """As the host's."""
        self.given.hooks.setdefault(hook_name, []).append(callback)

    def register_context_engine(self, engine: Any) -> None:
        """As the host's."""
        assert self.given.engine is None, "one plugin can offer one engine"
        self.given.engine = engine

    def register_memory_provider(self, provider: Any) -> None:
        """As the host's."""
        assert self.given.provider is None, "one plugin can offer one provider"
        self.given.provider = provider

    def get_config(self, key: str, default: Any = None) -> Any:
        """One of the settings that the test gave."""
        return self._settings.get(key, default)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("register_"):
            raise AttributeError(name)

        def keep(*arguments: Any, **keywords: Any) -> None:
            self.given.others.append((name, arguments, keywords))

        return keep


def registered(register: Register, settings: Mapping[str, Any] | None = None) -> Given:
    """What a plugin gives, with these settings."""
    context = RecordingContext(settings)
    register(context)
    return context.given


def taken_by(call: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those keywords that it takes, as the host finds them."""
    parameters = inspect.signature(call).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(offered)
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in offered.items() if name in names}
