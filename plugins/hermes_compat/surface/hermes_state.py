"""Owns how plugins open databases of their own (`hermes_state`)."""

from __future__ import annotations

import logging
import sqlite3

log = logging.getLogger(__name__)

__all__ = ["apply_wal_with_fallback"]


def apply_wal_with_fallback(conn: sqlite3.Connection, *, db_label: str = "state.db") -> str:
    """Switch a database to write-ahead logging where its file system can do that.

    Returns:
        The mode it is in now: ``wal``, or what it was in before.

    Raises:
        sqlite3.OperationalError: the database is locked or broken.
    """
    before = _mode(conn)
    if before == "wal":
        return before
    try:
        now = str(conn.execute("PRAGMA journal_mode=WAL").fetchone()[0]).lower()
    except sqlite3.OperationalError as exc:
        # Network file systems have no shared memory, which is all that WAL needs beside a file.
        if "locking protocol" not in str(exc) and "unable to open" not in str(exc):
            raise
        now = before
    if now != "wal":
        log.warning("%s keeps journal mode %s: its file system can not do WAL", db_label, now)
    return now


def _mode(conn: sqlite3.Connection) -> str:
    return str(conn.execute("PRAGMA journal_mode").fetchone()[0]).lower()
