"""Owns the connection's facts: its settings, what its errors mean, and what a write sees."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from agent.errors import StoreUnavailable
from agent.messages import Message
from agent.ports import IdSource

WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA busy_timeout = 5000",
    # A check-point makes a commit wait for dozens of milliseconds, so it is left to idle moments
    # (`storage.writer`); without any, the log ends at 16 MB.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -8000",
    # What is erased is overwritten, whoever built the library.
    "PRAGMA secure_delete = ON",
)
READER_PRAGMAS = (
    "PRAGMA busy_timeout = 5000",
    # SQLite before 3.51.3 can corrupt a WAL that two connections checkpoint.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA temp_store = MEMORY",
    # The system keeps pages of the file as well; a cache of 8 MB each was filled in weeks.
    "PRAGMA cache_size = -2000",
    "PRAGMA query_only = ON",
)

INDEX_TEXT = "INSERT INTO message_index (rowid, text) VALUES (?, ?)"
# Taking out what is not in would spoil the index: it keeps no texts to compare with.
UNINDEX_TEXT = (
    "INSERT INTO message_index (message_index, rowid, text) SELECT 'delete', ?1, ?2"
    " WHERE EXISTS (SELECT 1 FROM message_index_docsize WHERE id = ?1)"
)

# Joining the index's segments by itself, SQLite now and then makes one append wait for dozens of
# milliseconds. Instead the writer joins them, as much at a time as it has added, and at most so
# much (`Transaction.write_index`); the second setting is how many segments may pile up before
# SQLite joins them all the same.
INDEX_SETTINGS = (
    "INSERT INTO message_index (message_index, rank) VALUES ('automerge', 0)",
    "INSERT INTO message_index (message_index, rank) VALUES ('crisismerge', 64)",
)
MERGE_INDEX = "INSERT INTO message_index (message_index, rank) VALUES ('merge', ?)"
_MERGE_AFTER = 16
"""Segments: each commit adds one. Joining many at once writes less than joining few often."""
_MERGED_PAGES = 4
"""Of the index, for each text."""
_MOST_MERGED_PAGES = 256
"""In one commit: some milliseconds."""

# Primary result codes that say: this statement is wrong. All others (full, I/O, busy, corrupt …)
# say: this database can not be written now.
_STATEMENT_CODES = frozenset({1, 18, 19, 20, 21, 23, 25})
_CORRUPT_VTAB = 267


def code_of(error: sqlite3.Error) -> int | None:
    """The extended result code; None if the error was not SQLite's own."""
    return getattr(error, "sqlite_errorcode", None)


def is_outage(error: BaseException) -> bool:
    """Does this error say that the database, not the statement, is at fault?"""
    if not isinstance(error, sqlite3.Error):
        return False
    code = code_of(error)
    return code is not None and code & 0xFF not in _STATEMENT_CODES


def is_damage(error: sqlite3.Error) -> bool:
    """And not a lock, a lack of rights or of anything else that may be there the next time."""
    code = code_of(error)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_index_damage(error: sqlite3.Error) -> bool:
    """Does this error, met while indexing, come from the full-text index alone?

    A damaged index says so, or trips over its own constraints. Page damage carries the plain code
    and must stay an outage: writing on would spread it.
    """
    return code_of(error) == _CORRUPT_VTAB or not is_outage(error)


def is_index_alone(error: sqlite3.Error) -> bool:
    """Does a damaged full-text index say so itself, whatever was done?"""
    return code_of(error) == _CORRUPT_VTAB


class IndexDamaged(Exception):
    """The full-text index can not take what was stored; the messages themselves can be."""


def outage(error: BaseException) -> StoreUnavailable:
    """The error to hand to callers."""
    told = StoreUnavailable(f"the database can not be written: {error}")
    told.__cause__ = error
    return told


class Transaction:
    """What a write sees: statements, the time of the call, ids, and the index of what it stores."""

    __slots__ = (
        "_ids", "_segments", "_texts", "_unmerged", "estimate", "execute", "executemany",
        "index_damaged", "now",
    )  # fmt: skip

    def __init__(
        self,
        connection: sqlite3.Connection,
        ids: IdSource,
        estimate: Callable[[Message], int],
    ) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.estimate = estimate
        self.now = 0.0
        self.index_damaged = _index_is_damaged(connection)
        self._ids = ids
        self._texts: list[tuple[str, int, str]] = []
        self._unmerged = self._segments = 0
        """Texts, and commits of them, since segments of the index were last joined."""

    def new_id(self, prefix: str) -> str:
        """A new id."""
        return self._ids.new(prefix)

    def index(self, row_id: int, text: str) -> None:
        """Put this text (segmented already) into the search index in this transaction.

        Gathered and written once per group.
        """
        self._texts.append((INDEX_TEXT, row_id, text))

    def unindex(self, row_id: int, text: str) -> None:
        """Take this text (segmented, as it went in) out of the search index."""
        self._texts.append((UNINDEX_TEXT, row_id, text))

    @property
    def indexed_count(self) -> int:
        """How many texts wait to be indexed."""
        return len(self._texts)

    def forget_index(self, count: int) -> None:
        """Keep only the first ``count`` texts: a call was undone."""
        del self._texts[count:]

    def write_index(self) -> bool:
        """Index what the group stored; False: there was nothing.

        Raises:
            IndexDamaged: what was written so far has to be undone.
        """
        texts, self._texts = self._texts, []
        if not texts or self.index_damaged:
            return False
        try:
            for statement, of_one_kind in groupby(texts, key=itemgetter(0)):
                self.executemany(statement, [pair for _, *pair in of_one_kind])
            self._join_segments(len(texts))
        except sqlite3.DatabaseError as exc:
            if not is_index_damage(exc):
                raise
            raise IndexDamaged from exc
        return True

    def _join_segments(self, added: int) -> None:
        self._unmerged += added
        self._segments += 1
        if self._segments >= _MERGE_AFTER:
            pages = min(self._unmerged * _MERGED_PAGES, _MOST_MERGED_PAGES)
            self.execute(MERGE_INDEX, (pages,))
            self._unmerged = self._segments = 0

    def give_up_index(self) -> None:
        """Damage must not stop anyone from talking: nothing is indexed until it is made anew."""
        self.execute("INSERT OR REPLACE INTO facts VALUES ('index_damaged', '1')")
        self.index_damaged = True


def _index_is_damaged(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM facts WHERE name = 'index_damaged'"
    return connection.execute(query).fetchone() is not None
