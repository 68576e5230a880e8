"""Owns what a plugin sees of us: the `ctx` of its `register`. It only writes into a `Collected`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.context_engine import ContextEngine
from agent.memory_provider import MemoryProvider
from gateway.plugins.collected import (
    Collected,
    PluginCommand,
    PluginPlatform,
    PluginSkill,
    PluginTool,
)
from gateway.plugins.discovery import Found
from gateway.plugins.llm import PluginLlm
from gateway.plugins.manifest import Manifest
from gateway.plugins.names import command_name, is_engine_name, is_tool_name, shown, type_of
from gateway.plugins.settings import PluginSettings, setting
from gateway.plugins.taken import Sort, TakenNames

log = logging.getLogger(__name__)

WITHOUT_EFFECT = frozenset(
    {
        "register_cli_command",
        "register_middleware",
        "register_auxiliary_task",
        "register_image_gen_provider",
        "register_video_gen_provider",
        "register_web_search_provider",
        "register_browser_provider",
        "register_tts_provider",
        "register_dashboard_auth_provider",
        "register_secret_source",
        "register_slack_action_handler",
    }
)
"""Members of the original host's context that have no counterpart here: taken, and said once."""


class PluginContext:
    """The ``ctx`` that a plugin registers with. What it does not take, it notes and logs."""

    def __init__(
        self, found: Found, collected: Collected, settings: PluginSettings, names: TakenNames
    ) -> None:
        self.manifest: Manifest = found.manifest
        self._names_of_plugin = found.names
        self._collected = collected
        self._settings = settings
        self._taken = names
        wanted = settings.entry(found.names).get("llm")
        model = wanted.get("model") if isinstance(wanted, Mapping) else None
        self.llm = PluginLlm(found.manifest.name, str(model) if model else None)
        self.profile_name = "default"

    # --- what is chosen by name -----------------------------------------------------------------

    def register_context_engine(self, engine: Any) -> None:
        """Offer a context engine; it is used if ``context.engine`` names it."""
        if not self._open("a context engine"):
            return
        if not isinstance(engine, ContextEngine):
            self._refuse(
                f"context engine {type_of(engine)} is no agent.context_engine.ContextEngine"
            )
        elif self._collected.engine is not None:
            self._refuse("a second context engine: one plugin can offer one")
        elif not is_engine_name(name := engine.name):
            self._refuse(
                f"context engine {shown(name)}: a name is made of a-z, 0-9, _ and -, and not ours"
            )
        else:
            self._collected.engine, self._collected.engine_name = engine, name

    def register_memory_provider(self, provider: Any) -> None:
        """Offer a memory provider; it is used if ``memory.provider`` names it."""
        if not self._open("a memory provider"):
            return
        if not isinstance(provider, MemoryProvider):
            self._refuse(
                f"memory provider {type_of(provider)} is no agent.memory_provider.MemoryProvider"
            )
        elif self._collected.memory_provider is not None:
            self._refuse("a second memory provider: one plugin can offer one")
        else:
            self._collected.memory_provider = provider
            self._collected.provider_name = str(provider.name)[:100]

    # --- what everybody gets --------------------------------------------------------------------

    def register_tool(
        self,
        name: str,
        toolset: str = "",
        schema: Mapping[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
        requires_env: Iterable[str] | None = None,
        is_async: bool = False,
        description: str = "",
        emoji: str = "",
        override: bool = False,
        **ignored: Any,
    ) -> None:
        """Offer a tool to the model. Ours keep their names, unless the operator allowed it."""
        if not self._open(f"tool {shown(name)}"):
            return
        described = _function_of(schema)
        if not is_tool_name(name):
            self._refuse(
                f"tool {shown(name)}: a name is made of A-Z, a-z, 0-9, _ and -, 64 at most"
            )
        elif not callable(handler):
            self._refuse(f"tool {name} has no handler")
        elif described is None:
            self._refuse(f"tool {name}: its schema is no description of a function")
        elif self._may_have_tool(name):
            self._collected.tools.append(
                PluginTool(
                    name=name,
                    schema={
                        "name": name,
                        "description": str(described.get("description") or description),
                        "parameters": described.get("parameters")
                        or {"type": "object", "properties": {}},
                    },
                    handler=handler,
                    check=check_fn if callable(check_fn) else None,
                    requires_env=tuple(map(str, requires_env or ())),
                    override=self._taken.is_ours("tool", name),
                    plugin=self.manifest.key,
                )
            )

    def _may_have_tool(self, name: str) -> bool:
        allowed = self._settings.entry(self._names_of_plugin).get("allow_tool_override") is True
        if self._taken.is_ours("tool", name) and not allowed:
            key = f"plugins.entries.{self.manifest.key}.allow_tool_override"
            self._refuse(f"tool {name}: that is one of ours; {key}: true would let it replace it")
            return False
        if any(tool.name == name for tool in self._collected.tools):
            self._refuse(f"tool {name}: it has registered one of this name already")
            return False
        return self._may_have("tool", name)

    def register_command(
        self,
        name: str,
        handler: Any,
        description: str = "",
        args_hint: str = "",
        **ignored: Any,
    ) -> None:
        """Offer a slash command; ours keep their names."""
        if not self._open(f"command {shown(name)}"):
            return
        plain = command_name(name)
        if plain is None:
            self._refuse(
                f"command {shown(name)}: a name begins with a-z and has a-z, 0-9, _, -; 32 at most"
            )
        elif not callable(handler):
            self._refuse(f"command /{plain} has no handler")
        elif self._taken.is_ours("command", plain):
            self._refuse(f"command /{plain}: that is one of ours")
        elif any(command.name == plain for command in self._collected.commands):
            self._refuse(f"command /{plain}: it has registered one of this name already")
        elif self._may_have("command", plain):
            self._collected.commands.append(
                PluginCommand(
                    plain,
                    handler,
                    str(description or ""),
                    str(args_hint or ""),
                    self.manifest.key,
                )
            )

    def register_hook(self, hook_name: Any, callback: Any) -> None:
        """Be called at a point of each turn. Unknown points are kept: they are never reached."""
        if not self._open(f"hook {shown(hook_name)}"):
            return
        if not isinstance(hook_name, str) or not callable(callback):
            self._refuse(f"hook {shown(hook_name)}: it needs a name and something to call")
            return
        self._collected.hooks.append((hook_name, callback))

    def register_skill(self, name: Any, path: Any, description: str = "", **ignored: Any) -> None:
        """Bring a file of instructions along."""
        if not self._open(f"skill {shown(name)}"):
            return
        if not isinstance(name, str) or not isinstance(path, str | Path):
            self._refuse(f"skill {shown(name)}: it needs a name and a file")
        elif self._may_have("skill", name):
            self._collected.skills.append(
                PluginSkill(name, Path(path), str(description or ""), self.manifest.key)
            )

    def register_platform(
        self,
        name: str,
        label: str = "",
        adapter_factory: Callable[..., Any] | None = None,
        **more: Any,
    ) -> None:
        """Bring a chat platform along."""
        if not self._open(f"platform {shown(name)}"):
            return
        plain = command_name(name)
        if plain is None or not callable(adapter_factory):
            self._refuse(f"platform {shown(name)}: it needs a plain name and an adapter_factory")
        elif self._taken.is_ours("platform", plain):
            self._refuse(f"platform {plain}: that is one of ours")
        elif self._may_have("platform", plain):
            self._collected.platforms.append(
                PluginPlatform(plain, str(label or plain), adapter_factory, more, self.manifest.key)
            )

    def register_transcription_provider(self, provider: Any, **ignored: Any) -> None:
        """Hear voice messages: ``provider.transcribe(path)``."""
        if not self._open("a transcription provider"):
            return
        if not callable(getattr(provider, "transcribe", None)):
            self._refuse(f"transcription provider {type_of(provider)} has no transcribe(path)")
        else:
            self._collected.transcribers.append(provider)

    # --- what it can ask ------------------------------------------------------------------------

    def get_config(self, key: str, default: Any = None) -> Any:
        """One of its settings: ``plugins.entries.<plugin>.settings``, or its own section."""
        return setting(self._settings.settings(self._names_of_plugin), str(key), default)

    def inject_message(self, content: Any = "", role: str = "user") -> bool:
        """Say something in the conversation of the terminal: there is no such one here."""
        self._without_effect("inject_message")
        return False

    def dispatch_tool(self, tool_name: str, args: Any = None, **ignored: Any) -> str:
        """Run a tool outside a turn: nobody could be asked to allow it, so nothing runs."""
        self._without_effect("dispatch_tool")
        return json.dumps({"error": f"{tool_name} can not be run outside a conversation here"})

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in WITHOUT_EFFECT:
            raise AttributeError(f"posthouse has no ctx.{name}")

        def nothing(*arguments: Any, **keywords: Any) -> None:
            self._without_effect(name)

        return nothing

    # --- what was not taken ---------------------------------------------------------------------

    def _open(self, what: str) -> bool:
        if self._collected.closed:
            log.warning(
                "plugin registers too late", extra={"plugin": self.manifest.key, "what": what}
            )
        return not self._collected.closed

    def _may_have(self, sort: Sort, name: str) -> bool:
        other = self._taken.take(sort, name, self.manifest.key)
        if other is not None:
            called = f"/{name}" if sort == "command" else name if is_tool_name(name) else repr(name)
            self._refuse(f"{sort} {called[:80]}: plugin {other} has that name already")
        return other is None

    def _refuse(self, what: str) -> None:
        log.warning("plugin: not taken", extra={"plugin": self.manifest.key, "what": what})
        self._collected.refused.append(what)

    def _without_effect(self, name: str) -> None:
        if name not in self._collected.without_effect:
            self._collected.without_effect.append(name)
            log.info(
                "plugin: has no effect here",
                extra={"plugin": self.manifest.key, "member": f"ctx.{name}"},
            )


def _function_of(schema: Any) -> Mapping[str, Any] | None:
    """A schema in its bare form; it may come wrapped as ``{"type": "function", …}``."""
    if schema is None:
        return {}
    if not isinstance(schema, Mapping):
        return None
    inner = schema.get("function")
    bare = inner if isinstance(inner, Mapping) else schema
    return bare if isinstance(bare.get("parameters"), Mapping | None) else None
