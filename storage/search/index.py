"""Owns the full-text index: may it be trusted, making it anew in pieces, keeping it tidy."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass

from storage import remembered, rows
from storage.codec import ROW_COLUMNS, decode_row
from storage.database import (
    INDEX_SETTINGS,
    INDEX_TEXT,
    MERGE_INDEX,
    Transaction,
    is_index_damage,
    is_outage,
)
from storage.faultpoint import faultpoint
from storage.segment import SEGMENTER, indexable_text, segmented

_log = logging.getLogger(__name__)

DEFINITION = """CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
)"""
REBUILD_ROWS = 500
"""Messages indexed in one transaction of a rebuild: some tens of milliseconds."""
MERGE_PAGES = 64
"""What one step of tidying may move, in pages of 4 KiB."""
_EMPTY = ((1, b""), (10, bytes(7)))
"""What the table of an FTS5 index without content holds: its averages and its structure."""
_EMPTIED = (
    "CREATE TABLE IF NOT EXISTS message_index_data (id INTEGER PRIMARY KEY, block BLOB)",
    "CREATE TABLE IF NOT EXISTS message_index_idx"
    " (segid, term, pgno, PRIMARY KEY (segid, term)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS message_index_docsize (id INTEGER PRIMARY KEY, sz BLOB)",
    "CREATE TABLE IF NOT EXISTS message_index_config (k PRIMARY KEY, v) WITHOUT ROWID",
    "INSERT OR REPLACE INTO message_index_config VALUES ('version', 4)",
    "DELETE FROM message_index_data",
)
"""Its tables as SQLite makes them, whatever has become of them."""
DAMAGED = "index_damaged"
"""The fact that it may not be trusted: whoever finds out sets it, who makes it anew strikes it."""
ABANDONED = "pages_abandoned"
"""Remembered: there are pages in the file that nobody uses and that are not free either."""
_MISSING = "index_missing_upto"


@dataclass(frozen=True, slots=True)
class Kept:
    """What a step of upkeep leaves behind."""

    more: bool
    """There may be more to do at once."""
    begun: bool = False
    """It was dropped, and is made anew from here on."""
    damaged: bool = False
    """It is to be made anew, and that has not begun."""
    missing_upto: int = 0
    """As `IndexState.missing_upto`."""

    @property
    def whole(self) -> bool:
        """All that is searched is in it."""
        return not (self.damaged or self.missing_upto)


@dataclass(frozen=True, slots=True)
class IndexState:
    """What the index can be asked."""

    usable: bool
    missing_upto: int = 0
    """While it is made anew: messages up to this id are not in it yet."""


def state(db: sqlite3.Connection) -> IndexState:
    """Damaged, made by another segmenter, in the making, or whole."""
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    if DAMAGED in facts or facts.get("segmenter") != SEGMENTER:
        return IndexState(False)
    return IndexState(True, int(facts.get(_MISSING, 0)))


# --- making it anew -----------------------------------------------------------------------------


def begin_rebuild(tx: Transaction, forsaken: bool = False) -> None:
    """Drop what is there. From now on new messages are indexed, and the old ones step by step.

    ``forsaken``: it can not be dropped. That has to be known before, as an attempt that meets a
    damaged page spoils its transaction.
    """
    newest = rows.newest_id(tx)
    if forsaken:
        abandon(tx)
    else:
        _drop(tx)
    faultpoint("rebuild.dropped")
    tx.execute(DEFINITION)
    for setting in INDEX_SETTINGS:
        tx.execute(setting)
    faultpoint("rebuild.made")
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('segmenter', ?)", (SEGMENTER,))
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (_MISSING, str(newest)))
    tx.execute("DELETE FROM facts WHERE name = ?", (DAMAGED,))
    faultpoint("rebuild.noted")
    tx.index_damaged = False


def _drop(tx: Transaction) -> None:
    """SQLite opens an index before it drops it: one that can not be opened is emptied first."""
    try:
        tx.execute("DROP TABLE IF EXISTS message_index")
    except sqlite3.DatabaseError as exc:
        if not is_index_damage(exc):
            raise
        for statement in _EMPTIED:
            tx.execute(statement)
        tx.executemany("INSERT INTO message_index_data VALUES (?, ?)", _EMPTY)
        tx.execute("DROP TABLE message_index")


def abandon(tx: Transaction) -> None:
    """Forget where its pages are: one of them is none any more, so they can not be given back.

    Nobody uses them from here on, and writing the file anew leaves them out (`ABANDONED`).
    """
    tx.execute("PRAGMA writable_schema = ON")
    tx.execute(
        "DELETE FROM sqlite_schema WHERE name = 'message_index' OR tbl_name GLOB 'message_index_*'"
    )
    tx.execute("PRAGMA writable_schema = RESET")
    remembered.set_fact(tx, ABANDONED, "1")


def rebuild_step(tx: Transaction) -> int:
    """Index the newest messages that are still missing; gives back how many are left, at most.

    Newest first: what was said lately is asked for most.
    """
    missing = _missing(tx)
    found = tx.execute(
        f"SELECT {ROW_COLUMNS} FROM messages WHERE id <= ? AND {rows.SEARCHED}"
        f" AND NOT {rows.TAKEN_BACK} ORDER BY id DESC LIMIT {REBUILD_ROWS}",
        (missing,),
    ).fetchall()
    for row in map(decode_row, reversed(found)):
        text = indexable_text(row.message, row.kind, row.origin_id)
        if text is not None:
            tx.execute(INDEX_TEXT, (row.id, segmented(text)))
    left = found[-1][0] - 1 if len(found) == REBUILD_ROWS else 0
    if left:
        tx.execute("UPDATE facts SET value = ? WHERE name = ?", (str(left), _MISSING))
    else:
        tx.execute("DELETE FROM facts WHERE name = ?", (_MISSING,))
    faultpoint("rebuild.filled")
    return left


def rebuild(tx: Transaction) -> int:
    """All at once, and how many messages the index holds then: for maintenance, not for use."""
    begin_rebuild(tx)
    while rebuild_step(tx):
        pass
    (count,) = tx.execute("SELECT count(*) FROM message_index_docsize").fetchone()
    return int(count)


def _missing(tx: Transaction) -> int:
    row = tx.execute("SELECT value FROM facts WHERE name = ?", (_MISSING,)).fetchone()
    return int(row[0]) if row else 0


# --- upkeep -------------------------------------------------------------------------------------


def mark_damaged(tx: Transaction) -> None:
    """Nothing is asked of it, and nothing put into it, until it is made anew."""
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, '1')", (DAMAGED,))
    tx.index_damaged = True


def maintain(
    tx: Transaction, distrusted: bool = False, may_begin: bool = True, forsaken: bool = False
) -> Kept:
    """One small step of what the index needs.

    ``distrusted``: it did not do what it is for, though nothing says so in the file yet.
    ``may_begin``: it may be made anew now, if it has to be. ``forsaken``: as `begin_rebuild`.
    """
    facts = dict(tx.execute("SELECT name, value FROM facts").fetchall())
    if distrusted or tx.index_damaged or DAMAGED in facts or facts.get("segmenter") != SEGMENTER:
        if not may_begin:
            mark_damaged(tx)
            return Kept(more=False, damaged=True)
        _log.info("search index is damaged or outdated, making it anew")
        begin_rebuild(tx, forsaken)
        return Kept(more=True, begun=True, missing_upto=max(1, _missing(tx)))
    if _missing(tx):
        return Kept(more=True, missing_upto=rebuild_step(tx))
    try:
        return Kept(more=_merge(tx))
    except sqlite3.DatabaseError as exc:
        # One that says that it is damaged has the whole transaction begin anew, without it.
        if is_outage(exc):
            raise
        return maintain(tx, distrusted=True, may_begin=may_begin)


def _merge(tx: Transaction) -> bool:
    """Join some of the index's segments, so that no append has to."""
    before = _changes(tx)
    tx.execute(MERGE_INDEX, (MERGE_PAGES,))
    # By its manual: fewer than two changes mean that there was nothing to join.
    return _changes(tx) - before >= 2


def _changes(tx: Transaction) -> int:
    (changes,) = tx.execute("SELECT total_changes()").fetchone()
    return int(changes)
