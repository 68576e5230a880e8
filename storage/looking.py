"""Owns how a database is reached for looking, also where nothing can be written beside it.

That is a disk that is read-only, as failing ones become, or a folder of somebody else's. SQLite
makes two files beside a database with a log before it reads the first row. Where it can not, and
there is no log, nothing is missed by taking the file for unchangeable; with one, both are copied.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from agent.errors import StoreUnavailable

READ_ONLY = "the folder is read-only (its disk, or its rights)"
_BESIDE_NOTHING = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""Result codes of a reader that could not make its files."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a database is opened for looking."""

    uri: str
    aside: Path | None = None
    """A folder with a copy, which goes when nobody looks any more."""

    def let_go(self) -> None:
        """Take the copy away."""
        if self.aside is not None:
            shutil.rmtree(self.aside, ignore_errors=True)


def reach(path: Path) -> Reach:
    """The way to this database. Blocking: it may have to be copied.

    Raises:
        StoreUnavailable: it can not be copied; the text says why.
    """
    path = Path(os.path.realpath(path))  # the log lies beside the file, not beside a link to it
    usual = _uri(path, "mode=ro")
    if is_writable(path.parent) or not os.access(path, os.R_OK) or _opens(usual):
        return Reach(usual)
    log = Path(f"{path}-wal")
    if not log.exists() or not log.stat().st_size:
        return Reach(_uri(path, "mode=ro&immutable=1"))
    aside = Path(tempfile.mkdtemp(prefix="posthouse-"))
    try:
        for file in (path, log):
            shutil.copyfile(file, aside / file.name)
    except OSError as exc:
        shutil.rmtree(aside, ignore_errors=True)
        raise StoreUnavailable(
            f"{path} can not be read where it is, as {READ_ONLY}, and can not be copied to"
            f" {aside.parent}: {exc.strerror or exc}. TMPDIR may name a folder with more room"
        ) from exc
    return Reach(_uri(aside / path.name, "mode=ro"), aside)


def is_writable(folder: Path) -> bool:
    """May this process make files there?"""
    return os.access(folder, os.W_OK | os.X_OK)


class Looking(sqlite3.Connection):
    """A connection that takes its copy away when it is closed."""

    way: Reach | None = None

    def close(self) -> None:
        """As ever."""
        super().close()
        if self.way is not None:
            self.way.let_go()


def look(path: Path) -> sqlite3.Connection:
    """A connection that neither writes nor check-points, wherever the file lies. Blocking.

    Raises:
        StoreUnavailable: as `reach`.
    """
    way = reach(path)
    db = None
    try:
        db = sqlite3.connect(way.uri, uri=True, isolation_level=None, factory=Looking)
        db.way = way
        db.execute("PRAGMA busy_timeout = 5000")
        db.execute("PRAGMA wal_autocheckpoint = 0")
    except sqlite3.Error:
        if db is not None:
            db.close()
        way.let_go()
        raise
    return db


def _opens(uri: str) -> bool:
    """False: SQLite can not make its files beside it. What else is wrong is said by who reads."""
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as exc:
        return exc.sqlite_errorcode & 0xFF not in _BESIDE_NOTHING
    return True


def _uri(path: Path, how: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{how}"
