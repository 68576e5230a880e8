"""Owns the nouns of what there is of people beside the store: files, and what plugins keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.forgetting import ClearedConversation, PluginAnswer
from gateway.backups.shelf import Backup


class Files(Protocol):
    """The folder of kept files."""

    async def remove(self, names: Sequence[str]) -> int:
        """Delete those of these that nobody has; how many that were."""
        ...


class Others(Protocol):
    """Plugins that keep what people said, in files of their own or elsewhere."""

    def can(self) -> Sequence[str]:
        """Those that are able to erase one person, by name."""
        ...

    async def forget(
        self,
        owner: str,
        *,
        keys: Sequence[str],
        conversations: Sequence[str],
        sessions: Sequence[str],
    ) -> Sequence[PluginAnswer]:
        """Have all erased; what each of those that work says to it. May be done again.

        ``keys`` lead to places that are this person's alone; the conversations, and their sessions,
        are all in which they had a part. Instances that are at work there are ended before.
        """
        ...

    async def forget_sessions(
        self, conversations: Sequence[ClearedConversation]
    ) -> Sequence[PluginAnswer]:
        """The same for conversations that are gone from the store, whoever spoke in them."""
        ...


@dataclass(frozen=True, slots=True)
class Leavings:
    """What there is of people beside the store."""

    backups: Callable[[], Sequence[Backup]]
    plugin_files: Callable[[], Sequence[str]]
    """What plugins keep, by name."""
    files: Files | None = None
    clear_workspace: Callable[[str], Awaitable[None]] | None = None
    """Of a place (`agent.ports.ToolContext.place`)."""
    plugins: Others | None = None
    rewrite: Callable[[], Awaitable[bool]] | None = None
    """Writes the database anew and empties its log; None: there is no file."""
