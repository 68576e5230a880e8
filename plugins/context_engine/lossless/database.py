"""Owns the connection to the engine's file: opened when it is needed, whole transactions only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from plugins.context_engine.lossless.schema import connect, in_words

FILE_NAME = "lossless.db"


class Database:
    """One connection, for one engine. Every method raises `LosslessError` where the file is bad."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._database: sqlite3.Connection | None = None

    def close(self) -> None:
        """Nothing is lost by it: the next call opens the file again."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For reading only."""
        with in_words(self._file):
            if self._database is None:
                self._database = connect(self._file)
            yield self._database

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """For one transaction."""
        with self.reading() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def check(self) -> None:
        """Open it once."""
        with self.reading():
            pass
