"""Owns how the nightly care and the nightly backup get at the store: one job of the house each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from agent.llm.background import in_daemon_thread
from agent.ports import Clock
from gateway.backups.nightly import Nightly
from gateway.backups.shelf import folder_of, within
from gateway.config.environment import Home
from gateway.store_care import Found, StoreCare
from gateway.wiring.backups import store_tools
from storage.store import SqlStore
from storage.upkeep import Examined, examine


class FileOfStore:
    """`gateway.store_care.Care` over the file of a store."""

    def __init__(self, store: SqlStore, path: Path) -> None:
        self._store = store
        self._path = path
        self.condemn = store.condemn
        self.trouble = store.trouble
        self.unused_bytes = store.unused_bytes
        self.rewrite_file = store.rewrite_file
        self.fact = store.fact
        self.set_fact = store.set_fact

    async def examine(self, *, thorough: bool) -> Found:
        return await in_daemon_thread(
            partial(examine, self._path, thorough=thorough), "check-database"
        )

    async def mend(self, found: Found) -> None:
        await self._store.mend(cast(Examined, found))

    def idle_seconds(self) -> float:
        return self._store.idle_seconds


def build_care(home: Home, store: SqlStore, clock: Clock) -> StoreCare:
    """Who looks after the file of this home."""
    return StoreCare(FileOfStore(store, home.database), clock, partial(_advice, home))


def build_nightly(
    home: Home, clock: Clock, *, keep: int, also: Callable[[], Sequence[Path]] = tuple
) -> Nightly:
    """Who makes the backups of this home."""
    return Nightly(home, store_tools(), clock, in_daemon_thread, keep=keep, also=also)


def _advice(home: Home) -> str:
    """Whether a backup is whole is looked at by the restore itself, which takes the newest one."""
    backups = within(folder_of(home))
    if not backups:
        return (
            "Stop it and put a backup back: `posthouse restore BACKUP`. The home itself holds none;"
            " without one, docs/backups.md says how to get out what can be read"
        )
    newest = backups[0]
    return (
        "Stop it and run `posthouse restore`: it takes the newest backup that is whole. The newest"
        f" is {newest.path}"
    )
