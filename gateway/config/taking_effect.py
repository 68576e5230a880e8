"""Owns when a changed key takes effect: at a reload, or with the next start only. Pure.

The one table of it. A key that no part of this daemon takes over at a reload (`Reloads.on`) waits
for the next start as well, whatever stands here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from gateway.config.models import Config

When = Literal["reload", "restart"]
_Section = TypeVar("_Section", bound=BaseModel)

GATE_KEYS = tuple(
    f"{platform}.{key}"
    for platform, own in (
        ("telegram", ("allow_chats",)),
        ("discord", ("allow_channels", "allow_roles")),
    )
    for key in (
        *("allow_from", *own, "admins", "pairing", "require_mention", "group_sessions_per_user"),
        *("allow_admin_from", "user_allowed_commands"),
        *("group_allow_admin_from", "group_user_allowed_commands"),
    )
)
"""Who may talk and command, and where: the gate is asked for every message."""

TAKES_EFFECT: dict[str, When] = {
    "model": "restart",
    "model.max_tokens": "reload",
    "model.cache_ttl": "reload",
    "context": "restart",
    "compression": "reload",
    "agent.system_prompt": "reload",
    "agent.max_iterations": "reload",
    "agent.tools": "restart",
    "gateway.busy_mode": "reload",
    "gateway.drain_seconds": "reload",
    "gateway.queue_limit": "reload",
    "gateway.streaming": "restart",
    "gateway.control_socket": "restart",
    "gateway.http": "restart",
    **dict.fromkeys(GATE_KEYS, "reload"),
    "telegram.enabled": "restart",
    "telegram.base_url": "restart",
    "telegram.base_file_url": "restart",
    "telegram.mode": "restart",
    "telegram.webhook": "restart",
    "discord.enabled": "restart",
    "discord.api_base": "restart",
    "discord.gateway_url": "restart",
    "timezone": "reload",
    "console": "restart",
    "sessions": "reload",
    "backup": "reload",
    "auxiliary": "restart",
    "memory": "restart",
    "plugins": "restart",
    "jobs": "reload",
    "budget": "reload",
    "logging": "reload",
}
"""By dotted path; a path counts for all below it, and the longest one rules."""


def takes_effect(path: str) -> When:
    """When a change of this key is in force; what nobody knows needs a start."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        when = TAKES_EFFECT.get(".".join(parts[:length]))
        if when is not None:
            return when
    return "restart"


def covers(prefix: str, path: str) -> bool:
    """Is the path the prefix, or below it?"""
    return path == prefix or path.startswith(prefix + ".")


def changed_paths(old: BaseModel, new: BaseModel, prefix: str = "") -> Iterator[str]:
    """The dotted path of every key in which the two differ; a list or a mapping is one value."""
    for name in type(old).model_fields:
        path, before, after = prefix + name, getattr(old, name), getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from changed_paths(before, after, f"{path}.")
        elif before != after or type(before) is not type(after):
            yield path


def with_paths(running: Config, wanted: Config, paths: frozenset[str]) -> Config:
    """What runs, with the values of these paths as they are wanted; a path counts for all below."""
    return _mixed(running, wanted, paths, "")


def _mixed(running: _Section, wanted: _Section, paths: frozenset[str], prefix: str) -> _Section:
    update: dict[str, Any] = {}
    for name in type(running).model_fields:
        path, old, new = prefix + name, getattr(running, name), getattr(wanted, name)
        if any(covers(taken, path) for taken in paths):
            update[name] = new
        elif isinstance(old, BaseModel) and isinstance(new, BaseModel):
            update[name] = _mixed(old, new, paths, f"{path}.")
    return running.model_copy(update=update)
