"""Owns the full-text index: may it be trusted, making it anew in pieces, keeping it tidy."""

from __future__ import annotations

import logging
import re
import sqlite3
from dataclasses import dataclass

from storage import rows
from storage.codec import ROW_COLUMNS, decode_row
from storage.database import INDEX_SETTINGS, INDEX_TEXT, MERGE_INDEX, Transaction
from storage.faultpoint import faultpoint
from storage.search.question import read_question
from storage.segment import SEGMENTER, indexable_text, segmented

_log = logging.getLogger(__name__)

DEFINITION = """CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
)"""
REBUILD_ROWS = 500
"""Messages indexed in one transaction of a rebuild: some tens of milliseconds."""
OWN_CHARS = 1_000
"""How much of a message it is looked for with; a question may have more."""
MERGE_PAGES = 64
"""What one step of tidying may move, in pages of 4 KiB."""
_EMPTY = ((1, b""), (10, bytes(7)))
"""What the table of an FTS5 index without content holds: its averages and its structure."""
_MISSING = "index_missing_upto"
_BROKEN_WORD = re.compile(r"\w+\Z")


@dataclass(frozen=True, slots=True)
class IndexState:
    """What the index can be asked."""

    usable: bool
    missing_upto: int = 0
    """While it is made anew: messages up to this id are not in it yet."""


def state(db: sqlite3.Connection) -> IndexState:
    """Damaged, made by another segmenter, in the making, or whole."""
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    if "index_damaged" in facts or facts.get("segmenter") != SEGMENTER:
        _log.warning("search index is damaged or outdated, scanning instead")
        return IndexState(False)
    return IndexState(True, int(facts.get(_MISSING, 0)))


def finds_itself(db: sqlite3.Connection) -> bool:
    """Is the newest message that was indexed found by its own words?

    Some damage makes the index answer "nothing" instead of failing.
    """
    (newest,) = db.execute("SELECT max(id) FROM message_index_docsize").fetchone()
    columns = db.execute(f"SELECT {ROW_COLUMNS} FROM messages WHERE id = ?", (newest,)).fetchone()
    if columns is None:
        return True
    row = decode_row(columns)
    text = indexable_text(row.message, None, None) or ""
    # A word that is cut is another word.
    whole = text if len(text) <= OWN_CHARS else _BROKEN_WORD.sub("", text[:OWN_CHARS])
    terms = read_question(whole).terms
    if not terms:
        return True
    own = "SELECT 1 FROM message_index WHERE message_index MATCH ? AND rowid = ?"
    words = " OR ".join(term.match for term in terms)
    return db.execute(own, (words, newest)).fetchone() is not None


# --- making it anew -----------------------------------------------------------------------------


def begin_rebuild(tx: Transaction) -> None:
    """Drop what is there. From now on new messages are indexed, and the old ones step by step."""
    newest = rows.newest_id(tx)
    _drop(tx)
    faultpoint("rebuild.dropped")
    tx.execute(DEFINITION)
    for setting in INDEX_SETTINGS:
        tx.execute(setting)
    faultpoint("rebuild.made")
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('segmenter', ?)", (SEGMENTER,))
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (_MISSING, str(newest)))
    tx.execute("DELETE FROM facts WHERE name = 'index_damaged'")
    faultpoint("rebuild.noted")
    tx.index_damaged = False


def _drop(tx: Transaction) -> None:
    """SQLite opens an index before it drops it: one that can not be opened is emptied first."""
    try:
        tx.execute("DROP TABLE IF EXISTS message_index")
    except sqlite3.DatabaseError:
        tx.execute("DELETE FROM message_index_data")
        tx.executemany("INSERT INTO message_index_data VALUES (?, ?)", _EMPTY)
        tx.execute("DROP TABLE message_index")


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
        _log.info("search index is whole again")
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


def maintain(tx: Transaction) -> bool:
    """One small step of what the index needs; True: there may be more."""
    current = tx.execute("SELECT value FROM facts WHERE name = 'segmenter'").fetchone()
    if tx.index_damaged or current != (SEGMENTER,):
        _log.warning("search index is damaged or outdated, making it anew")
        begin_rebuild(tx)
        return True
    if _missing(tx):
        rebuild_step(tx)
        return True
    return _merge(tx)


def _merge(tx: Transaction) -> bool:
    """Join some of the index's segments, so that no append has to."""
    before = _changes(tx)
    tx.execute(MERGE_INDEX, (MERGE_PAGES,))
    # By its manual: fewer than two changes mean that there was nothing to join.
    return _changes(tx) - before >= 2


def _changes(tx: Transaction) -> int:
    (changes,) = tx.execute("SELECT total_changes()").fetchone()
    return int(changes)
