"""Owns the names of tools and commands that are taken: ours, and those of plugins loaded before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Sort = Literal["tool", "command", "skill", "platform"]


class TakenNames:
    """Who has which name. The first one has it; ours have theirs from the start."""

    def __init__(
        self,
        *,
        tools: Iterable[str] = (),
        commands: Iterable[str] = (),
        platforms: Iterable[str] = (),
    ) -> None:
        self._ours: dict[Sort, frozenset[str]] = {
            "tool": frozenset(tools),
            "command": frozenset(commands),
            "platform": frozenset(platforms),
            "skill": frozenset(),
        }
        self._owners: dict[tuple[Sort, str], str] = {}

    def is_ours(self, sort: Sort, name: str) -> bool:
        """Is this the name of something built in?"""
        return name in self._ours[sort]

    def take(self, sort: Sort, name: str, plugin: str) -> str | None:
        """Give a name to a plugin; None: it has it now, else the key of the plugin that has it."""
        owner = self._owners.setdefault((sort, name), plugin)
        return None if owner == plugin else owner

    def release(self, plugin: str) -> None:
        """A plugin has failed: its names are free for others."""
        self._owners = {name: owner for name, owner in self._owners.items() if owner != plugin}
