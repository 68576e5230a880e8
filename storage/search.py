"""Owns search in SQL: candidates by bm25, ordered by how closely a message says what was asked."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from agent.errors import SessionNotFound
from agent.messages import Row
from agent.sessions import Conversation, Hit, SearchScope
from storage import rows
from storage.codec import ROW_COLUMNS, clean, decode_row
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.segment import (
    SEGMENTER,
    Term,
    indexable_text,
    query_terms,
    segmented,
    snippet,
    weigh,
)

_log = logging.getLogger(__name__)

CANDIDATES = 80
"""Messages that are read and weighed; more costs milliseconds and finds next to nothing."""

_INDEX = "message_index"
_ORIGINAL = "origin_id IS NULL AND kind IS NULL AND role IN ('user', 'assistant', 'tool')"


def search(db: sqlite3.Connection, query: str, scope: SearchScope, limit: int) -> list[Hit]:
    query = clean(query)
    terms = query_terms(query)
    if limit <= 0 or not query.strip():
        return []
    ranked = _candidates(db, query, terms, scope)
    if not ranked:
        return []
    hits = _weighed(db, ranked, terms or [Term("", query.strip().lower())])
    return sorted(hits, key=lambda hit: (-hit.score, -hit.message_id))[:limit]


def _candidates(
    db: sqlite3.Connection, query: str, terms: Sequence[Term], scope: SearchScope
) -> dict[int, float]:
    """Message ids with their bm25 (higher is better)."""
    if not terms:
        return _by_scan(db, [query.strip()], scope)
    if _index_is_usable(db):
        try:
            found = _by_index(db, terms, scope)
            if found or _index_finds_itself(db):
                return found
            _log.error("search index has lost what it held, scanning instead")
        except sqlite3.DatabaseError as exc:
            _log.error("search index failed, scanning instead", extra={"error": repr(exc)})
    else:
        _log.warning("search index is damaged or outdated, scanning instead")
    return _by_scan(db, [term.needle for term in terms], scope)


def _index_is_usable(db: sqlite3.Connection) -> bool:
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    return "index_damaged" not in facts and facts.get("segmenter") == SEGMENTER


def _index_finds_itself(db: sqlite3.Connection) -> bool:
    """Is the newest message that was indexed found by its own words?

    Some damage makes the index answer "nothing" instead of failing.
    """
    (newest,) = db.execute("SELECT max(id) FROM message_index_docsize").fetchone()
    row = db.execute(f"SELECT {ROW_COLUMNS} FROM messages WHERE id = ?", (newest,)).fetchone()
    terms = query_terms(_searched_text(decode_row(row))) if row is not None else []
    if not terms:
        return True
    own = "SELECT 1 FROM message_index WHERE message_index MATCH ? AND rowid = ?"
    words = " OR ".join(term.match for term in terms)
    return db.execute(own, (words, newest)).fetchone() is not None


def _by_index(
    db: sqlite3.Connection, terms: Sequence[Term], scope: SearchScope
) -> dict[int, float]:
    inside, parameters = _scope(scope)
    # The plus keeps SQLite from asking the index once for each message of the scope.
    found = db.execute(
        "SELECT rowid, -bm25(message_index) FROM message_index WHERE message_index MATCH ?"
        + (f" AND +rowid IN ({inside})" if inside else "")
        + f" ORDER BY bm25(message_index) LIMIT {CANDIDATES}",
        (" OR ".join(term.match for term in terms), *parameters),
    )
    return dict(found.fetchall())


def _by_scan(
    db: sqlite3.Connection, needles: Sequence[str], scope: SearchScope
) -> dict[int, float]:
    """Without the index: newest first, every one as good as the other."""
    inside, parameters = _scope(scope)
    patterns = [
        "%" + needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        for needle in needles
    ]
    any_of = " OR ".join(["content LIKE ? ESCAPE '\\'"] * len(patterns))
    found = db.execute(
        f"SELECT id, 1.0 FROM messages WHERE {_ORIGINAL} AND ({any_of})"
        + (f" AND id IN ({inside})" if inside else "")
        + f" ORDER BY id DESC LIMIT {CANDIDATES}",
        (*patterns, *parameters),
    )
    return dict(found.fetchall())


def _scope(scope: SearchScope) -> tuple[str, tuple[Any, ...]]:
    conditions = {
        "s.conversation_id = ?": scope.conversation_id,
        "s.conversation_id IN (SELECT id FROM conversations WHERE owner = ?)": scope.owner,
    }
    used = {sql: value for sql, value in conditions.items() if value is not None}
    if not used:
        return "", ()
    return (
        "SELECT m.id FROM messages m WHERE m.session_id IN"
        f" (SELECT s.id FROM sessions s WHERE {' AND '.join(used)})",
        tuple(used.values()),
    )


def _weighed(db: sqlite3.Connection, ranked: dict[int, float], terms: Sequence[Term]) -> list[Hit]:
    marks = ", ".join("?" * len(ranked))
    found = [
        decode_row(row)
        for row in db.execute(
            f"SELECT {ROW_COLUMNS} FROM messages WHERE id IN ({marks}) ORDER BY id", tuple(ranked)
        )
    ]
    texts = [_searched_text(row) for row in found]
    best = max(ranked.values()) or 1.0
    hits = []
    for position, (row, text, share) in enumerate(
        zip(found, texts, weigh(texts, terms), strict=True)
    ):
        recency = 1 + 0.3 * position / max(1, len(found) - 1)
        score = (0.25 + ranked[row.id] / best) * (0.03 + share) * recency
        role = row.message["role"]
        hits.append(Hit(row.id, row.session_id, role, snippet(text, terms), score, row.created_at))
    return hits


def _searched_text(row: Row) -> str:
    return indexable_text(row.message, row.kind, row.origin_id) or ""


def window(db: sqlite3.Connection, message_id: int, before: int, after: int) -> list[Row]:
    place = db.execute("SELECT session_id FROM messages WHERE id = ?", (message_id,)).fetchone()
    if place is None:
        return []
    here = f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id = ?"
    original = "origin_id IS NULL AND kind IS NULL"
    earlier = db.execute(
        f"{here} AND id < ? AND {original} ORDER BY id DESC LIMIT ?",
        (*place, message_id, max(0, before)),
    ).fetchall()
    # The message itself is shown even when it is a copy.
    later = db.execute(
        f"{here} AND (id = ? OR (id > ? AND {original})) ORDER BY id LIMIT ?",
        (*place, message_id, message_id, max(0, after) + 1),
    ).fetchall()
    return [decode_row(row) for row in [*reversed(earlier), *later]]


def conversation_of_message(db: sqlite3.Connection, message_id: int) -> Conversation | None:
    row = db.execute(
        "SELECT c.id, c.owner, c.session_key, c.tip_session_id, c.created_at FROM messages m"
        " JOIN sessions s ON s.id = m.session_id JOIN conversations c ON c.id = s.conversation_id"
        " WHERE m.id = ?",
        (message_id,),
    ).fetchone()
    return Conversation(*row) if row else None


def all_rows(db: sqlite3.Connection, session_id: str) -> list[Row]:
    query = f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id = ? ORDER BY id"
    return [decode_row(row) for row in db.execute(query, (session_id,))]


def active_rows(db: sqlite3.Connection, session_id: str) -> list[Row]:
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
        raise SessionNotFound(session_id)
    return rows.active_rows(db, session_id)


def rebuild(tx: Transaction) -> int:
    """Make the index anew from the messages and give back how many it holds.

    One transaction, about 20,000 messages a second: for maintenance, not for a busy hour.
    """
    (definition,) = tx.execute("SELECT sql FROM sqlite_master WHERE name = ?", (_INDEX,)).fetchone()
    tx.execute("DROP TABLE message_index")
    faultpoint("rebuild.dropped")
    tx.execute(definition)
    faultpoint("rebuild.made")
    count = 0
    found = tx.execute(f"SELECT {ROW_COLUMNS} FROM messages WHERE {_ORIGINAL} ORDER BY id")
    for row in map(decode_row, found):
        text = indexable_text(row.message, row.kind, row.origin_id)
        if text is not None:
            tx.execute(
                "INSERT INTO message_index (rowid, text) VALUES (?, ?)", (row.id, segmented(text))
            )
            count += 1
    faultpoint("rebuild.filled")
    tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('segmenter', ?)", (SEGMENTER,))
    tx.execute("DELETE FROM facts WHERE name = 'index_damaged'")
    tx.index_damaged = False
    return count
