"""Owns looking into a database without changing it: no lock is kept, no file is made beside it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

BUSY_SECONDS = 1.0
_FORM_AT = 60
"""Where the header has the number that `PRAGMA user_version` tells."""
_MAGIC = b"SQLite format 3\x00"
_EVERY_STEPS = 10_000


def form_of(file: Path) -> int | None:
    """Its version, read from its first bytes; None: it is no database."""
    with file.open("rb") as stream:
        header = stream.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):
        return None
    return int.from_bytes(header[_FORM_AT : _FORM_AT + 4], "big")


def bytes_of(file: Path) -> int:
    """Its size; nothing where there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


@contextmanager
def looked_into(file: Path, *, daemon_runs: bool) -> Iterator[sqlite3.Connection | None]:
    """A connection that reads; None: a crash left a log that only the next start may take in.

    A reader of a database with a log makes two files beside it where they are missing, and leaves
    them there; a look must not. Without a log there is nothing that an immutable file would miss.
    """
    file = file.resolve()  # a log lies beside the file, not beside a link to it
    waiting = bytes_of(file.with_name(f"{file.name}-wal"))
    if not daemon_runs and waiting and not os.path.exists(f"{file}-shm"):
        yield None
        return
    how = "mode=ro" if daemon_runs or waiting else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{how}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        connection.execute("PRAGMA query_only=1")
        yield connection
    finally:
        connection.close()


@contextmanager
def bounded(connection: sqlite3.Connection, seconds: float) -> Iterator[Callable[[], bool]]:
    """Whatever runs inside is interrupted after so long; was it?"""
    deadline = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() > deadline

    connection.set_progress_handler(over, _EVERY_STEPS)
    try:
        yield over
    finally:
        connection.set_progress_handler(None, 0)
