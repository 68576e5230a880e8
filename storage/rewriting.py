"""Owns what is done to the whole file on the writer's connection: written anew, its log emptied."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import StoreError

if TYPE_CHECKING:
    from storage.archive import Reading
    from storage.ways import Writing

_log = logging.getLogger(__name__)

EMPTYING_MILLISECONDS = 1_000
"""How long readers of other processes are waited for; all of ours are out of the way."""
_SHORTENING_TRIES = 5
LONG_LOG_PAGES = 8_192
"""32 MB; SQLite writes it back at 16 MB (`storage.database.WRITER_PRAGMAS`)."""
SPARE_BYTES = 16 * 1024 * 1024
"""Stays free beside what is written: messages that come meanwhile want to be stored too."""


def rewrite(connection: sqlite3.Connection) -> bool:
    """VACUUM. False: there is no room; the log says so."""
    lacking = lacking_room(connection)
    if lacking is not None:
        _log.warning("the database is not written anew: %s", lacking)
        return False
    # In memory it would be as large as the file.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as exc:
        _log.warning("the database is not written anew", extra={"error": repr(exc)})
        return False
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")
    # As far as readers let it; what is left is little when they are held (`empty_log`).
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return True


def empty_log(connection: sqlite3.Connection) -> bool:
    """Write the log back and cut it to nothing. False: somebody reads what is only in there."""
    (usual,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {EMPTYING_MILLISECONDS}")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual}")
    return not busy


def log_is_long(connection: sqlite3.Connection) -> bool:
    """Has it grown although it is written back again and again?

    SQLite begins it anew when nobody reads at the moment of a write; under constant load that
    moment may never come.
    """
    (_, pages, _) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages) > LONG_LOG_PAGES


async def shorten(writing: Writing, *readers: Reading) -> bool:
    """Write the log back and empty it, readers of ours out of the way, in this order.

    False: others read; the log says so, for whoever wonders why it grows.
    """
    for _ in range(_SHORTENING_TRIES):
        async with contextlib.AsyncExitStack() as aside:
            for reading in readers:
                await aside.enter_async_context(held(reading))
            if await writing.outside(empty_log):
                return True
    _log.warning(
        "the database's log can not be emptied: another process reads the database for long"
    )
    return False


# --- room on the disk -----------------------------------------------------------------------------


def lacking_room(connection: sqlite3.Connection) -> str | None:
    """Why VACUUM would fill a disk: it writes all that is stored twice, aside and into the log."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    wanted = (pages - unused) * page_bytes
    beside = Path(connection.execute("PRAGMA database_list").fetchone()[2]).parent
    aside = temporary_folder()
    needs = {beside: wanted + SPARE_BYTES}
    if os.stat(aside).st_dev == os.stat(beside).st_dev:
        needs[beside] += wanted
    else:
        needs[aside] = wanted
    for folder, needed in needs.items():
        free = free_bytes(folder)
        if free < needed:
            return f"{folder} has {free >> 20} MB free, and {needed >> 20} MB are needed"
    return None


def free_bytes(folder: Path) -> int:
    """What an ordinary user may still write there."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def temporary_folder() -> Path:
    """Where SQLite puts files that are too large for memory: `TMPDIR`, else by its own order."""
    named = Path(tempfile.gettempdir())
    usual = Path("/var/tmp")
    return usual if named == Path("/tmp") and os.access(usual, os.W_OK | os.X_OK) else named


# --- readers out of the way -----------------------------------------------------------------------


@asynccontextmanager
async def held(reading: Reading) -> AsyncIterator[None]:
    """Nothing is read here for so long; what is being read is waited for, what comes waits."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    gate = threading.Event()

    def wait(_: sqlite3.Connection) -> None:
        # In a transaction that has read nothing yet, so no state of the file is held.
        loop.call_soon_threadsafe(_arrive, arrived)
        gate.wait()

    waiting = asyncio.ensure_future(reading.read(wait))
    try:
        await asyncio.wait({arrived, waiting}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        gate.set()
        with contextlib.suppress(StoreError):  # it is closed: then nobody reads
            await waiting


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
