"""Owns who may give the commands of plugins (pure). Ours have rules of their own."""

from __future__ import annotations

from dataclasses import dataclass

ANYONE = "*"


@dataclass(frozen=True, slots=True)
class Scope:
    """The lists of direct chats, or those of groups."""

    admins: frozenset[str] = frozenset()
    """Users who may give all of them."""
    allowed: frozenset[str] = frozenset()
    """Names of commands that everybody may give; ``*``: all of them."""


NO_LISTS = Scope()


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Who may give them on one platform. ``admins`` of the platform may always."""

    direct: Scope = NO_LISTS
    group: Scope = NO_LISTS


NO_COMMAND_RULES = CommandRules()


def may_give(
    rules: CommandRules, name: str, sender_id: str, *, direct: bool, shared: bool, admin: bool
) -> bool:
    """May this sender, whom the gate has let in, give this command of a plugin here?

    Where no list is set for a kind of chat, a conversation of one's own takes them from whoever it
    belongs to, and a shared one from admins.

    Args:
        rules: Of the platform.
        name: The command's.
        sender_id: By the platform.
        direct: Is it a direct chat?
        shared: Do several people talk in this conversation?
        admin: Is the sender one of the platform's ``admins``?
    """
    scope = rules.direct if direct else rules.group
    if admin or (sender_id != ANYONE and sender_id in scope.admins):
        return True
    if scope.allowed & {name, ANYONE}:
        return True
    return not (scope.admins or scope.allowed or shared)
