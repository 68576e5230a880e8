"""Owns what files tell of a home: its backups, how runs ended, crash reports; read off the loop.

A backup may lie on a disk of the network that does not answer, and whoever asks the kernel for it
waits as long as that takes: so a thread of ours does, and nobody waits for it beyond a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agent.llm.background import in_daemon_thread
from agent.tools.room import sizes
from gateway.crashes.runs import Run, runs
from gateway.crashes.shelf import Crash, kept


@dataclass(frozen=True, slots=True)
class BackupFacts:
    """What could be put back."""

    count: int = 0
    newest_at: float | None = None
    newest_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceFacts:
    """What tools have written, for everybody together."""

    count: int = 0
    bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What was found at one look."""

    backups: BackupFacts = field(default_factory=BackupFacts)
    runs: tuple[Run, ...] = ()
    """The book of runs, the oldest first."""
    crashes: tuple[Crash, ...] = ()
    """Reports, the newest first."""
    workspaces: WorkspaceFacts | None = None
    """None: they were not looked at, as that takes longer."""


class HomeFiles:
    """One look at a time, however many ask."""

    def __init__(self, home: Path, backups: Callable[[], Sequence[tuple[float, int]]]) -> None:
        """``backups``: when each was made, and its size; newest first. It may block."""
        self._home = home
        self._backups = backups
        self._looking: asyncio.Future[FileFacts] | None = None

    async def look(self, seconds: float, *, workspaces: bool = False) -> FileFacts | None:
        """None: not in time. A look that hangs is not begun again: threads would pile up."""
        if self._looking is None or self._looking.done():
            read = partial(self._read, workspaces=workspaces)
            self._looking = asyncio.ensure_future(in_daemon_thread(read, "home files"))
        looking = self._looking
        done, _ = await asyncio.wait((looking,), timeout=seconds)
        return looking.result() if done else None

    def _read(self, *, workspaces: bool) -> FileFacts:
        found = self._backups()
        backups = BackupFacts(len(found), *found[0]) if found else BackupFacts()
        space = _workspaces(self._home / "workspace") if workspaces else None
        return FileFacts(backups, tuple(runs(self._home)), tuple(kept(self._home)), space)


def _workspaces(folder: Path) -> WorkspaceFacts:
    found = sizes(folder).values()
    return WorkspaceFacts(len(found), sum(one[0] for one in found), sum(one[1] for one in found))
