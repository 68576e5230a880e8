"""Owns the commands as a platform's native menu shows them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.commands.contract import Command


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One command of the menu."""

    name: str
    help: str
    usage: str = ""
    """What may stand behind its name: ``[focus]``, ``[on|off|inherit]``."""
    quiet: bool = False
    """Its answer only concerns whoever asked: among others it is shown to nobody else, if it can
    be."""
    private: bool = False
    """… and if it can not be, it is not shown."""
    asks_again: bool = False
    """It has no answer of its own: a turn comes of it."""
    admin_only: bool = False
    aliases: tuple[str, ...] = ()
    """Other names that it hears."""


QUIET = frozenset({"status", "context", "lineage", "help"})
PRIVATE = frozenset({"sessions", "whoami", "usage"})
ASKS_AGAIN = frozenset({"retry"})


def entries(
    commands: Mapping[str, Command], aliases: Mapping[str, str] | None = None
) -> tuple[MenuEntry, ...]:
    """The menu, in the order of the list; ``aliases``: other name → name."""
    return tuple(
        MenuEntry(
            command.name,
            command.help,
            command.usage,
            quiet=command.name in QUIET | PRIVATE,
            private=command.name in PRIVATE,
            asks_again=command.name in ASKS_AGAIN,
            admin_only=command.admin_only,
            aliases=tuple(a for a, name in (aliases or {}).items() if name == command.name),
        )
        for command in commands.values()
    )
