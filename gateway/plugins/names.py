"""Owns what plugins, engines, tools and commands may be called; ours are never given away. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

BUILT_IN_ENGINE = "compressor"
OUR_TOOLS = frozenset(
    {
        *("current_time", "recall", "open_attachment", "files", "shell"),
        *("remember", "forget", "fetch_url", "schedule"),
    }
)
"""Tools that are built in, switched on or not."""
OUR_PLATFORMS = frozenset({"telegram", "discord", "console"})

_CHOSEN = re.compile(r"[a-z0-9_-]{1,64}")
_PLUGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+-]{0,63}")
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_COMMAND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_NOT_IN_MODULES = re.compile(r"[^A-Za-z0-9_]")


def may_be_chosen(name: str) -> bool:
    """Can an engine or a memory provider be selected by this name? A folder is made of it."""
    return _CHOSEN.fullmatch(name) is not None


def is_engine_name(name: object) -> bool:
    """As `may_be_chosen`, and not the built-in one's."""
    return isinstance(name, str) and may_be_chosen(name) and name != BUILT_IN_ENGINE


def is_plugin_name(name: str) -> bool:
    """One plain word or several: no part of a path, nothing that steers a terminal."""
    return _PLUGIN.fullmatch(name) is not None and ".." not in name


def is_folder_name(name: str) -> bool:
    """Is this a folder that may hold a plugin? Hidden ones and caches do not."""
    return is_plugin_name(name) and name != "__pycache__"


def is_tool_name(name: object) -> bool:
    """What a provider of models takes for the name of a tool."""
    return isinstance(name, str) and _TOOL.fullmatch(name) is not None


def command_name(name: object) -> str | None:
    """A command's name as people type it, without its slash; None: it is none."""
    if not isinstance(name, str):
        return None
    plain = name.strip().removeprefix("/").lower()
    return plain if _COMMAND.fullmatch(plain) else None


def module_slug(key: str) -> str:
    """The last part of a plugin's module name."""
    return _NOT_IN_MODULES.sub("_", key.replace("/", "__"))


def same_section(name: str) -> str:
    """A name as sections of config.yaml are compared: ``-`` is ``_``."""
    return name.replace("-", "_")


def listed(names: Iterable[str], among: Iterable[str]) -> bool:
    """Does a list of the configuration name a plugin that goes by any of ``names``?"""
    return not set(names).isdisjoint(among)


def shown(name: object) -> str:
    """A name that may be anything, for a line to the operator."""
    return repr(name)[:80] if isinstance(name, str) else f"of type {type(name).__name__}"


def type_of(value: object) -> str:
    """The name of its class, or its own if it is one."""
    return shown(value.__name__ if isinstance(value, type) else type(value).__name__)
