"""Owns how conversations leave a home and come into one, with the files that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from agent.attachments import Attachments, StoredFile
from agent.clock import RandomIds, SystemClock
from agent.errors import ImportRefused, StoreUnavailable
from agent.exchange.files import files_of
from agent.exchange.records import Portable, PortableFile, TakenIn
from agent.llm.background import in_daemon_thread
from gateway.config.environment import Home
from gateway.wiring.kept_files import kept_files
from storage.archive import SqlArchive
from storage.attachments import FolderAttachments
from storage.files import read_portable_files, read_portables
from storage.sqlite import open_archive, open_store
from storage.store import SqlStore

# --- out ----------------------------------------------------------------------------------------


async def exported_file(home: Home, name: str, owner: str) -> PortableFile:
    """One file of a home; also beside a running daemon. One that is gone is said to be.

    ``owner``: whose conversation names it. How somebody else called the same file stays here.
    """
    archive = await open_archive(home.database)
    try:
        rows = _OnlyLookedAt(archive)
        kept = FolderAttachments(home.attachments, rows, SystemClock(), in_daemon_thread)
        known = await kept.find(name)
        if known is None:
            return PortableFile(name, "", "", None)
        try:
            data = await kept.read(name)
        except LookupError:
            data = None
        file_name = known.file_name if known.owner == owner else ""
        return PortableFile(name, file_name, known.media_type, data)
    finally:
        await archive.close()


class _OnlyLookedAt:
    """What an archive knows of files (`storage.attachments.FileRows`)."""

    def __init__(self, archive: SqlArchive) -> None:
        self._archive = archive

    async def file_row(self, name: str, owner: str | None = None) -> StoredFile | None:
        return await self._archive.file_row(name, owner)

    async def enter_file(self, file: StoredFile) -> StoredFile:
        raise StoreUnavailable("this home is only looked at")

    async def known_files(self, names: Collection[str]) -> set[str]:
        return set(names)


# --- in -----------------------------------------------------------------------------------------


async def take_in_file(home: Home, path: Path, owner: str | None) -> list[TakenIn]:
    """Take conversations from a file into a home of which no daemon runs; its lock is held.

    Raises:
        ImportRefused: the file can not be taken in; no conversation was changed.
        StoreUnavailable: the store can not be opened.
    """
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    try:
        return await take_in(store, kept_files(home, store), path, owner)
    finally:
        await store.close()


async def take_in(
    store: SqlStore, attachments: Attachments, path: Path, owner: str | None
) -> list[TakenIn]:
    """Take conversations from a file in: what they name first, so that none ever misses it.

    Raises:
        ImportRefused: as `take_in_file`. Files that were kept by then stay; nobody sees them.
    """
    found = await in_daemon_thread(partial(read_portables, path, owner), "read-import")
    owners = _owners(found)
    files = read_portable_files(path)
    while (file := await in_daemon_thread(partial(_next, files), "read-import")) is not None:
        if file.data is None:
            continue
        for each in owners.get(file.name, ()):
            kept = await attachments.keep(
                file.data, owner=each, file_name=file.file_name, media_type=file.media_type
            )
            if kept.name != file.name:
                raise ImportRefused(f"the file {file.name} is not of the kind that its name says")
    return await store.take_in(found)


def _next(files: Iterator[PortableFile]) -> PortableFile | None:
    return next(files, None)


def _owners(portables: Sequence[Portable]) -> dict[str, set[str]]:
    """Name of a file → whose conversations name it. What nobody names does not come in."""
    owners: dict[str, set[str]] = {}
    for portable in portables:
        for name in files_of(portable):
            owners.setdefault(name, set()).add(portable.owner)
    return owners
