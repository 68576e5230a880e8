"""Owns who may give which command, for plugins that ask (`gateway.slash_access`).

What is decided here is the plugin's own question; whether a command reaches it at all is decided
by our gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["SlashAccessPolicy", "policy_for_source", "policy_from_extra"]

_FOR_EVERYBODY = frozenset({"help", "whoami"})
_PRIVATE = {"", "dm", "direct", "private"}


@dataclass(frozen=True)
class SlashAccessPolicy:
    """What counts in private chats, or in groups."""

    enabled: bool
    """False: everybody may everything."""
    admin_user_ids: frozenset[str] = frozenset()
    user_allowed_commands: frozenset[str] = frozenset()

    def is_admin(self, user_id: str | None) -> bool:
        """May this person do everything?"""
        return not self.enabled or (bool(user_id) and str(user_id) in self.admin_user_ids)

    def can_run(self, user_id: str | None, canonical_cmd: str) -> bool:
        """May this person give this command?"""
        if self.is_admin(user_id):
            return True
        return canonical_cmd in _FOR_EVERYBODY | self.user_allowed_commands


def policy_from_extra(extra: Mapping[str, Any], scope: str) -> SlashAccessPolicy:
    """From a platform's section. ``scope``: ``dm`` or ``group``.

    There has to be an administrator before anything is refused. Commands for private chats are
    those for groups where none are given.
    """
    prefix = "group_" if scope == "group" else ""
    admins = frozenset(_items(extra.get(f"{prefix}allow_admin_from")))
    named = extra.get(f"{prefix}user_allowed_commands") or extra.get("group_user_allowed_commands")
    commands = frozenset(item.lstrip("/").lower() for item in _items(named))
    return SlashAccessPolicy(bool(admins), admins, commands - {""})


def policy_for_source(gateway_config: Any, source: Any) -> SlashAccessPolicy:
    """As `policy_from_extra`, for where a message is from."""
    platforms = getattr(gateway_config, "platforms", None) or {}
    platform = getattr(source, "platform", None)
    found = platforms.get(getattr(platform, "value", platform))
    kind = str(getattr(source, "chat_type", None) or "").lower()
    extra = getattr(found, "extra", found)
    scope = "dm" if kind in _PRIVATE else "group"
    return policy_from_extra(extra if isinstance(extra, Mapping) else {}, scope)


def _items(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        value = value.split(",")
    elif not isinstance(value, Iterable):
        value = [value]
    return [text for item in value if (text := str(item).strip())]
