"""Owns the tables of the engine's file, and which files are refused."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

APPLICATION_ID = 0x4C53_4C31
VERSION = 1
BUSY_MS = 5000

_TABLES = f"""
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    session_key TEXT NOT NULL,  -- as the host calls the place; several conversations may share it
    parent INTEGER,             -- of a branch: whose nodes may stand in its first list
    made_at REAL NOT NULL
);
CREATE INDEX conversations_by_key ON conversations (session_key);
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (id)
) WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    digest TEXT NOT NULL,       -- of the stored form
    same TEXT NOT NULL,         -- of what it says
    role TEXT NOT NULL,
    stored TEXT NOT NULL,       -- the message as JSON, whole
    tokens INTEGER NOT NULL,
    seen_at REAL NOT NULL,
    own INTEGER NOT NULL,       -- 1: a result of the engine's own tools
    active INTEGER NOT NULL DEFAULT 1,  -- 0: taken back by whoever said it
    UNIQUE (conversation, digest)
);
CREATE INDEX messages_by_same ON messages (conversation, same);
CREATE TABLE nodes (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    id TEXT NOT NULL,
    key TEXT NOT NULL,          -- of its sources
    depth INTEGER NOT NULL,
    body TEXT NOT NULL,
    content TEXT NOT NULL,      -- as it stands in the list
    tokens INTEGER NOT NULL,
    source_tokens INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    mode TEXT NOT NULL,
    made_at REAL NOT NULL,
    PRIMARY KEY (conversation, id)
);
CREATE INDEX nodes_by_key ON nodes (conversation, key);
CREATE TABLE sources (
    conversation INTEGER NOT NULL,
    node TEXT NOT NULL,
    place INTEGER NOT NULL,
    kind TEXT NOT NULL,         -- message or node
    ref TEXT NOT NULL,          -- digest or id
    PRIMARY KEY (conversation, node, place)
) WITHOUT ROWID;
CREATE INDEX sources_by_ref ON sources (conversation, ref);
CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='unicode61 remove_diacritics 2');
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""


class LosslessError(Exception):
    """What the engine can not do, in words for whoever runs the host."""


@contextlib.contextmanager
def in_words(file: Path) -> Iterator[None]:
    """Whatever SQLite says of a file, said with its name and what to do.

    Raises:
        LosslessError: In place of every error of SQLite's.
    """
    try:
        yield
    except sqlite3.DatabaseError as exc:
        broken = not isinstance(exc, sqlite3.OperationalError) or "malformed" in str(exc)
        advice = "; it is broken: move it away, a new one is made" if broken else ""
        raise LosslessError(f"{file} can not be used: {exc}{advice}") from exc


def connect(file: Path) -> sqlite3.Connection:
    """Open the file, made if it is not there. Any thread may use it, one at a time.

    Raises:
        LosslessError: It is broken, of a newer version, or something else's.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError as exc:
        raise LosslessError(f"{file} can not be made: {exc.strerror}") from exc
    with in_words(file):
        database = sqlite3.connect(
            file, timeout=BUSY_MS / 1000, check_same_thread=False, isolation_level=None
        )
        try:
            _prepare_in_time(database, file)
        except BaseException:
            database.close()
            raise
    return database


def _prepare_in_time(database: sqlite3.Connection, file: Path) -> None:
    """SQLite does not wait where two make a file with WAL at once: it says at once "locked"."""
    end = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            return _prepare(database, file)
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _prepare(database: sqlite3.Connection, file: Path) -> None:
    _refuse_others(database, file)
    database.execute("PRAGMA journal_mode = WAL")
    # A list may hold a mark as soon as `compress` has returned: what it names has to be on disk.
    database.execute("PRAGMA synchronous = FULL")
    if _version(database) == VERSION:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        if _version(database) == 0:  # nobody else made it in between
            for statement in _TABLES.split(";\n"):
                if statement.strip():
                    database.execute(statement)
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _refuse_others(database: sqlite3.Connection, file: Path) -> None:
    # In this order: who makes the tables names them in the same transaction, perhaps right now.
    tables = int(database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    version = _version(database)
    owner = int(database.execute("PRAGMA application_id").fetchone()[0])
    if version == 0 and owner == 0 and tables == 0:
        return
    if owner != APPLICATION_ID:
        raise LosslessError(f"{file} can not be used: it belongs to something else; move it away")
    if version > VERSION:
        raise LosslessError(
            f"{file} can not be used: it is of version {version}, and this engine knows {VERSION}; "
            "take the newer engine, or move the file away"
        )
