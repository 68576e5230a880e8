"""Owns reading stored messages for recall, in SQL: around one, of one session, of one call."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import sqlite3

from agent.errors import SessionNotFound
from agent.messages import Row
from agent.sessions import Conversation, SearchScope
from storage import rows
from storage.codec import ROW_COLUMNS, decode_row
from storage.search.reach import reach_of


def in_scope(db: sqlite3.Connection, scope: SearchScope, message_id: int) -> bool:
    place = db.execute("SELECT session_id FROM messages WHERE id = ?", (message_id,)).fetchone()
    return place is not None and reach_of(db, scope).sees(place[0], message_id)


def result_of_call(db: sqlite3.Connection, scope: SearchScope, call_id: str) -> Row | None:
    reach = reach_of(db, scope)
    found = db.execute(
        f"SELECT {ROW_COLUMNS} FROM messages WHERE tool_call_id = ? AND origin_id IS NULL"
        f" AND kind IS NULL AND NOT {rows.TAKEN_BACK} ORDER BY id DESC",
        (call_id,),
    )
    for row in map(decode_row, found):
        if reach.sees(row.session_id, row.id):
            return row
    return None


def window(db: sqlite3.Connection, message_id: int, before: int, after: int) -> list[Row]:
    there = f"NOT {rows.TAKEN_BACK}"
    found = f"SELECT session_id FROM messages WHERE id = ? AND {there}"
    place = db.execute(found, (message_id,)).fetchone()
    if place is None:
        return []
    here = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id = ? AND NOT {rows.TAKEN_BACK}"
        " AND (active = 1 OR compacted = 1)"
    )
    original = f"origin_id IS NULL AND kind IS NULL AND {there}"
    earlier = db.execute(
        f"{here} AND id < ? AND {original} ORDER BY id DESC LIMIT ?",
        (*place, message_id, max(0, before)),
    ).fetchall()
    # The message itself is shown even when it is a copy.
    later = db.execute(
        f"{here} AND (id = ? OR (id > ? AND {original})) ORDER BY id LIMIT ?",
        (*place, message_id, message_id, max(0, after) + 1),
    ).fetchall()
    around = [decode_row(row) for row in [*reversed(earlier), *later]]
    return around if any(row.id == message_id for row in around) else []


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
