"""Owns the rows of messages: how they are stored, copied and read inside a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import cast

from agent.messages import Draft, Message, Row, wire_message, without_thinking
from storage.codec import (
    LIST_COLUMNS,
    ROW_COLUMNS,
    decode_list,
    decode_row,
    dump_json,
    encode,
    stored,
)
from storage.database import Transaction
from storage.segment import indexable_text, segmented

_INSERT = (
    "INSERT INTO messages (session_id, seq, created_at, tokens, role, content, content_is_json,"
    " wire_content, wire_is_json, tool_calls, tool_call_id, tool_name, raw_blocks, kind, origin_id)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COPY = (
    "INSERT INTO messages (session_id, seq, created_at, tokens, role, content, content_is_json,"
    " wire_content, wire_is_json, tool_calls, tool_call_id, tool_name, raw_blocks, kind, origin_id)"
    " SELECT ?, ?, created_at, ?, role, content, content_is_json,"
    " wire_content, wire_is_json, tool_calls, tool_call_id, tool_name, ?, kind,"
    " coalesce(origin_id, id) FROM messages WHERE id = ?"
)
SEARCHED = "origin_id IS NULL AND kind IS NULL AND role IN ('user', 'assistant', 'tool')"
"""Of a row in ``FROM messages``: is it one that search looks at (`storage.segment`)?"""
TAKEN_BACK = (
    "EXISTS (SELECT 1 FROM messages u CROSS JOIN sessions us ON us.id = u.session_id"
    " WHERE u.active = 0 AND u.compacted = 0"
    " AND coalesce(u.origin_id, u.id) = coalesce(messages.origin_id, messages.id)"
    " AND us.conversation_id ="
    "  (SELECT conversation_id FROM sessions WHERE id = messages.session_id))"
)
"""Of a row in ``FROM messages``: was what it says undone, as original or as copy of it, here?"""

_ACTIVE = f"SELECT {LIST_COLUMNS} FROM messages WHERE session_id = ? AND active = 1 ORDER BY seq"


def insert(tx: Transaction, session_id: str, seq: int, draft: Draft) -> Row:
    """Store a message; an original is indexed in the same transaction."""
    columns, message, wire = encode(draft)
    sent = message if wire is None else cast(Message, {**message, "content": wire})
    tokens = tx.estimate(sent)
    row_id = tx.execute(_INSERT, (session_id, seq, tx.now, tokens, *columns)).lastrowid
    assert row_id is not None
    text = indexable_text(message, draft.kind, draft.origin_id)
    if text is not None:
        tx.index(row_id, segmented(text))
    return stored(
        row_id, session_id, seq, message, tx.now, wire, draft.kind, draft.origin_id, tokens
    )


def copy(
    tx: Transaction, session_id: str, seq: int, row: Row, *, with_thinking: bool = False
) -> None:
    """Copy a stored row behind another prefix: everything but its thinking, where that is void."""
    bare = row.message if with_thinking else without_thinking(row.message)
    tokens = row.tokens
    if bare is not row.message:
        tokens = tx.estimate(wire_message(Row(0, "", 0, bare, 0.0, row.wire_content)))
    blocks = bare.get("anthropic_content_blocks")
    blocks_text = dump_json(blocks) if blocks else None
    tx.execute(_COPY, (session_id, seq, tokens, blocks_text, row.id))


def take_back(tx: Transaction, conversation_id: str, taken: Sequence[Row]) -> None:
    """Take rows out of their session's list and, with their originals, out of search.

    An original in another conversation, which this one was forked from, stays findable there.
    """
    statement = "UPDATE messages SET active = 0 WHERE id = ?"
    tx.executemany(statement, [(row.id,) for row in taken])
    unindex(tx, conversation_id, {row.root_id for row in taken})


def unindex(tx: Transaction, conversation_id: str, row_ids: Collection[int]) -> None:
    """Take originals out of search, those that are this conversation's own."""
    query = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE id = ?"
        " AND session_id IN (SELECT id FROM sessions WHERE conversation_id = ?)"
    )
    for row_id in row_ids:
        found = tx.execute(query, (row_id, conversation_id)).fetchone()
        if found is not None:
            original = decode_row(found)
            text = indexable_text(original.message, original.kind, original.origin_id)
            if text is not None:
                tx.unindex(row_id, segmented(text))


def has_thinking(row: Row) -> bool:
    """Would a copy of this row lose something?"""
    return without_thinking(row.message) is not row.message


def active_rows(connection: sqlite3.Connection | Transaction, session_id: str) -> list[Row]:
    """The rows of the session's list, in order."""
    return decode_list(session_id, connection.execute(_ACTIVE, (session_id,)))


def end_of_list(tx: Transaction, session_id: str) -> list[Row]:
    """The last row that is no tool result, and the results behind it."""
    query = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id = ?1 AND active = 1 AND seq >= ("
        "  SELECT seq FROM messages WHERE session_id = ?1 AND active = 1 AND role <> 'tool'"
        "  ORDER BY seq DESC LIMIT 1) ORDER BY seq"
    )
    return [decode_row(columns) for columns in tx.execute(query, (session_id,))]


def retire(tx: Transaction, row_ids: Sequence[int]) -> None:
    """Take rows out of their session's list; they stay as they are, and stay searchable."""
    statement = "UPDATE messages SET active = 0, compacted = 1 WHERE id = ?"
    tx.executemany(statement, [(row_id,) for row_id in row_ids])


def by_ids(db: sqlite3.Connection | Transaction, session_id: str, row_ids: str) -> list[Row]:
    """Rows of a session whatever became of them; the ids are JSON and give the order."""
    query = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))"
        " AND +session_id = ?"
    )
    found = map(decode_row, db.execute(query, (row_ids, session_id)))
    by_id = {row.id: row for row in found}
    return [by_id[row_id] for row_id in json.loads(row_ids) if row_id in by_id]


def said_since(
    db: sqlite3.Connection | Transaction, session_id: str, after_row_id: int
) -> list[Row]:
    """The originals of a session behind this row, and the stand-ins for lost tool results."""
    query = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND origin_id IS NULL"
        " AND (kind IS NULL OR (kind = 'stub' AND role = 'tool'))"
        " AND (active = 1 OR compacted = 1) ORDER BY id"
    )
    return [decode_row(columns) for columns in db.execute(query, (session_id, after_row_id))]


def taken_back(db: sqlite3.Connection | Transaction, session_ids: Sequence[str]) -> set[int]:
    """The originals that an undo took away in these sessions."""
    query = (
        "SELECT coalesce(origin_id, id) FROM messages"
        " WHERE session_id = ? AND active = 0 AND compacted = 0"
    )
    return {row[0] for each in session_ids for row in db.execute(query, (each,))}


def steered(db: sqlite3.Connection | Transaction, session_id: str) -> set[int]:
    """The originals of the session's list that came into a turn, and began none."""
    query = (
        "SELECT s.row_id FROM messages m JOIN steered s ON s.row_id = coalesce(m.origin_id, m.id)"
        " WHERE m.session_id = ? AND m.active = 1 AND m.role = 'user'"
    )
    return {row[0] for row in db.execute(query, (session_id,))}


def newest_id(tx: Transaction) -> int:
    """Of all messages of the store; 0 if there is none."""
    (newest,) = tx.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    return int(newest)


def said_text(content: str | None, content_is_json: int) -> str:
    """The text of a content column."""
    if content is None:
        return ""
    if not content_is_json:
        return content
    return "\n".join(
        str(part.get("text", "")) for part in json.loads(content) if part.get("type") == "text"
    )
