"""Owns how the nightly care and the nightly backup get at the store: one job of the house each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from agent.errors import ConfigError
from agent.jobs.nouns import Schedule
from agent.llm.background import in_daemon_thread
from agent.ports import Clock
from gateway.backups.nightly import Nightly
from gateway.backups.shelf import folder_of, within
from gateway.config.environment import Home
from gateway.config.models import Config
from gateway.jobs.house import HouseJob, HouseMaker
from gateway.store_care import StoreCare
from gateway.store_care_ports import Found
from gateway.wiring.backups import store_tools
from storage.store import SqlStore
from storage.upkeep import Examined, examine, index_trouble

log = logging.getLogger(__name__)

NIGHTLY_BACKUP = "backup"
UPKEEP = "upkeep"
UPKEEP_AT = "50 3 * * *"
"""By the clock on the wall: behind the backup, and behind what deletes by age and leaves room."""


class FileOfStore:
    """`gateway.store_care_ports.Care` over the file of a store."""

    def __init__(self, store: SqlStore, path: Path) -> None:
        self._store = store
        self._path = path
        self.index = store.index
        self.maintain = store.maintain
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

    async def index_trouble(self) -> str | None:
        return await in_daemon_thread(partial(index_trouble, self._path), "check-search-index")

    async def mend(self, found: Found) -> None:
        examined = cast(Examined, found)
        for reason in examined.search[:1]:
            self.index.hurt(reason)  # before the writer says only that it leaves the index out
        await self._store.mend(examined)

    def idle_seconds(self) -> float:
        return self._store.idle_seconds


class Night:
    """What is done for the store at night, as jobs of the house, and once after a start."""

    def __init__(
        self,
        home: Home,
        store: SqlStore,
        clock: Clock,
        config: Config,
        also: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        """``also``: files of which only plugins know."""
        self._store = store
        self._on = config.backup.enabled
        self._care = build_care(home, store, clock)
        self._nightly = build_nightly(
            home, clock, keep=config.backup.keep, also=also, on_index_damage=store.index.hurt
        )

    def makers(self) -> list[HouseMaker]:
        """For the house's jobs."""
        return [self._backup, self._upkeep]

    async def look_at_index(self) -> str | None:
        """As `StoreCare.look_at_index`."""
        return await self._care.look_at_index()

    def beside(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What runs beside everything else."""
        return [
            self._care.mind_index,
            self._care.at_start,
            *([self._nightly.make_up] if self._on else []),
        ]

    def details(self, others: Callable[[], dict[str, str]]) -> Callable[[], dict[str, str]]:
        """For `status`: what is not whole, in front of everything else."""

        def told() -> dict[str, str]:
            remark = self._care.remark
            # What stops all writing is told by the store itself.
            if remark is None or self._store.trouble() is not None:
                return others()
            return {"DATABASE": remark, **others()}

        return told

    def _backup(self, config: Config, zone: str) -> HouseJob | None:
        self._nightly.keep = config.backup.keep
        if not config.backup.enabled:
            return None
        schedule = Schedule("cron", f"0 {config.backup.hour} * * *", zone)
        return HouseJob(NIGHTLY_BACKUP, schedule, self._nightly.run)

    def _upkeep(self, config: Config, zone: str) -> HouseJob:
        return HouseJob(UPKEEP, Schedule("cron", UPKEEP_AT, zone), self._care.nightly)


def look_before_opening(home: Home) -> None:
    """An empty file would be taken for a new database, and nobody would miss what was in it.

    Raises:
        ConfigError: it has been emptied.
    """
    try:
        size = home.database.stat().st_size
    except FileNotFoundError:
        size = None
    if size or not has_lived(home):
        return
    if size is None:
        log.warning("there is no state.db, although this home has been used: it begins anew")
        return
    raise ConfigError(
        [
            f"{home.database} is empty (0 bytes), although this home was used. {_advice(home)}."
            " To begin anew, delete the empty file"
        ]
    )


def has_lived(home: Home) -> bool:
    """Has this home been used, by what lies beside its database?"""
    return bool(within(folder_of(home))) or any(home.attachments.glob("*"))


def build_care(home: Home, store: SqlStore, clock: Clock) -> StoreCare:
    """Who looks after the file of this home."""
    return StoreCare(FileOfStore(store, home.database), clock, partial(_advice, home))


def build_nightly(
    home: Home,
    clock: Clock,
    *,
    keep: int,
    also: Callable[[], Sequence[Path]] = tuple,
    on_index_damage: Callable[[str], None] = lambda reason: None,
) -> Nightly:
    """Who makes the backups of this home."""
    return Nightly(
        home,
        store_tools(),
        clock,
        in_daemon_thread,
        keep=keep,
        also=also,
        on_index_damage=on_index_damage,
    )


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
