"""Owns the backups that the daemon makes by itself: one a night, the newest ones kept."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from agent.counting import counted
from agent.errors import PosthouseError, StoreError
from agent.ports import Clock
from gateway.backups.destination import Destination, destination
from gateway.backups.making import Made, dated, make, tidy
from gateway.backups.nouns import StoreTools
from gateway.backups.shelf import Backup, folder_of, manifest_of, within
from gateway.config.environment import Home

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEDULE = "schedule"
"""Who has made it, in its manifest: only these are ever deleted."""
SOON_SECONDS = 12 * 3600.0
"""No second one is made so soon after one."""
LATE_SECONDS = 26 * 3600.0
"""Behind the last one: a night was missed."""
AFTER_START_SECONDS = 600.0
"""A missed night is made up so long after a start: first come the people who wait."""
ROOM = 2
"""So many times the database has to be free; what is left is for the messages of tomorrow."""


class InThread(Protocol):
    """A way to run what blocks beside the loop: `agent.llm.background.in_daemon_thread`."""

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """Run it; what it raises is raised here."""
        ...


class Nightly:
    """Makes one when it is told to, and takes the oldest away."""

    def __init__(
        self,
        home: Home,
        tools: StoreTools,
        clock: Clock,
        in_thread: InThread,
        *,
        keep: int = 7,
        also: Callable[[], Sequence[Path]] = tuple,
        on_index_damage: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Take the parts.

        ``also``: files in the home of which only plugins know. ``on_index_damage``: told why the
        search index of what was copied is not whole.
        """
        self._home = home
        self._tools = tools
        self._clock = clock
        self._in_thread = in_thread
        self.keep = keep
        """So many of the newest ones; the configuration may change it."""
        self._also = also
        self._on_index_damage = on_index_damage
        self._one_at_a_time = asyncio.Lock()
        """Its hour may come while a missed night is made up."""

    async def run(self) -> str:
        """One backup, unless there is a fresh one; what was done, for the list of jobs.

        Raises:
            PosthouseError: there is none; the text says why.
        """
        async with self._one_at_a_time:
            return await self._run()

    async def _run(self) -> str:
        age = await self._in_thread(self._age_seconds, "backup")
        if age is not None and 0 <= age < SOON_SECONDS:
            return f"there is one of {age / 3600:.0f} hours ago"
        made = await self._in_thread(self._make, "backup")
        if made.index_damage is not None:
            self._on_index_damage(made.index_damage)
        gone = await self._in_thread(partial(rotate, self._home, self.keep), "backup")
        extra = {"path": str(made.backup.path), "bytes": made.backup.bytes, "taken_away": gone}
        log.info("backup", extra=extra)
        if made.left_out:
            log.warning(
                "not in the backup: not readable, or outside the home",
                extra={"files": made.left_out[:5]},
            )
        return f"{made.backup.path.name}, {counted(made.counts['messages'], 'message')}"

    async def make_up(self) -> None:
        """After a start: a night that was missed is made up, once. What fails waits for tonight."""
        await self._clock.sleep(AFTER_START_SECONDS)
        age = await self._in_thread(self._age_seconds, "backup")
        if age is None or not 0 <= age < LATE_SECONDS:
            try:
                await self.run()
            except PosthouseError as exc:
                log.warning("no backup was made: %s", exc)

    def _age_seconds(self) -> float | None:
        found = scheduled(self._home)
        return self._clock.now() - found[0].made_at if found else None

    def _make(self) -> Made:
        shelf = folder_of(self._home)
        try:
            shelf.mkdir(mode=0o700, exist_ok=True)
            size = self._home.database.stat().st_size
            free = shutil.disk_usage(shelf).free
        except OSError as exc:
            raise PosthouseError(f"{shelf} can not be used: {exc.strerror or exc}") from exc
        if free < ROOM * size:
            raise PosthouseError(
                f"{shelf} has {free >> 20} MB free, less than twice the database's {size >> 20} MB;"
                " make room, or set backup.keep lower"
            )
        now = self._clock.now()
        where = destination(self._home, str(shelf), dated(now))
        try:
            return self._made(where, now)
        except StoreError as exc:
            # Something was erased while it was made: once more, without it.
            log.info("the backup is made again", extra={"reason": str(exc)})
            return self._made(where, self._clock.now())

    def _made(self, where: Destination, now: float) -> Made:
        made_by, also = SCHEDULE, self._also()
        return make(self._home, where, self._tools, now, made_by=made_by, also=also)


def scheduled(home: Home) -> list[Backup]:
    """Those that the daemon has made by itself, newest first."""
    return [
        backup
        for backup in within(folder_of(home))
        if (manifest_of(backup.path) or {}).get("made_by") == SCHEDULE
    ]


def rotate(home: Home, keep: int) -> int:
    """Take away all but the newest ones; how many went. Others' folders are never touched."""
    gone = 0
    for backup in scheduled(home)[max(1, keep) :]:
        # Under another name at once: half of a backup must not pass for one.
        dying = backup.path.with_name(f".posthouse-{secrets.token_hex(8)}.part")
        try:
            os.rename(backup.path, dying)
        except OSError as exc:
            log.warning("an old backup stays", extra={"path": str(backup.path), "error": str(exc)})
            continue
        gone += 1
    tidy(folder_of(home))
    return gone
