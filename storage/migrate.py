"""Owns the shape of the database: numbered files, applied forward, each once and whole."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from agent.errors import DatabaseTooNew, StoreError
from storage.faultpoint import faultpoint

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of ``storage/schema``."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of its text, so that a file that was changed after it was applied is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@lru_cache(maxsize=1)
def shipped() -> tuple[Migration, ...]:
    """The migrations that this version brings, in order."""
    found = []
    for entry in resources.files("storage").joinpath("schema").iterdir():
        if match := _FILE_NAME.fullmatch(entry.name):
            sql = entry.read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), entry.name, sql))
    return tuple(sorted(found, key=lambda m: m.version))


def check_version(connection: sqlite3.Connection, newest: int) -> int:
    """The file's version.

    Raises:
        DatabaseTooNew: it was written by a newer version of this program.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > newest:
        raise DatabaseTooNew(
            f"the database has version {version}, this program knows {newest}: "
            "install the newer program again, or restore a backup"
        )
    return int(version)


def first_applied(connection: sqlite3.Connection) -> float | None:
    """When the database was made; None: there is nothing in it."""
    if check_version(connection, shipped()[-1].version) == 0:
        return None
    (first,) = connection.execute("SELECT min(applied_at) FROM schema_migrations").fetchone()
    return None if first is None else float(first)


def migrate(connection: sqlite3.Connection, now: float) -> list[str]:
    """Bring the database up to date and give back the names of the files applied.

    Raises:
        DatabaseTooNew: it was written by a newer version of this program.
        StoreError: a file that was applied long ago has another text now.
    """
    migrations = shipped()
    version = check_version(connection, migrations[-1].version)
    if version:
        _check_history(connection, migrations)
    applied = []
    for migration in migrations:
        if migration.version > version:
            _apply(connection, migration, now)
            applied.append(migration.name)
    return applied


def _check_history(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    known = {m.version: m for m in migrations}
    for version, checksum in connection.execute("SELECT version, checksum FROM schema_migrations"):
        migration = known.get(version)
        if migration is not None and migration.checksum != checksum:
            raise StoreError(
                f"{migration.name} is not the file that this database was made with; "
                "a released migration must never be edited"
            )


def _apply(connection: sqlite3.Connection, migration: Migration, now: float) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations ("
            "version INTEGER NOT NULL PRIMARY KEY, checksum TEXT NOT NULL, applied_at REAL NOT NULL"
            ") STRICT"
        )
        for statement in _statements(migration.sql):
            connection.execute(statement)
            faultpoint("migrate.statement")
        connection.execute(
            "INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (?, ?, ?)",
            (migration.version, migration.checksum, now),
        )
        faultpoint("migrate.recorded")
        connection.execute(f"PRAGMA user_version = {migration.version:d}")
        faultpoint("migrate.versioned")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        raise StoreError("a migration ends in the middle of a statement")


def identity(db: sqlite3.Connection) -> str:
    """`agent.store_ports.Store.identity`: when this database was made, to the microsecond."""
    (made_at,) = db.execute(
        "SELECT applied_at FROM schema_migrations ORDER BY version LIMIT 1"
    ).fetchone()
    return f"{made_at:.6f}"
