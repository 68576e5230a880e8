"""Owns deletion by age, in SQL: conversations that have been silent for long, whole.

Done on the connection itself, in a transaction of its own with the foreign keys' checks off: each
row that goes would be looked for in every table that may name it, and there is no index for that,
as nothing else ever deletes. `foreign_key_check` in the tests stands in for them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from agent.attachments import NAME
from agent.forgetting import Cleared, ClearedConversation
from storage import forgetting_rest as rest
from storage.codec import ROW_COLUMNS, decode_row
from storage.database import (
    UNINDEX_TEXT,
    IndexDamaged,
    Transaction,
    is_index_alone,
    is_index_damage,
)
from storage.faultpoint import faultpoint
from storage.inbox import DEDUPE_SECONDS
from storage.rows import SEARCHED
from storage.search import index
from storage.segment import indexable_text, segmented
from storage.sessions import Reader
from storage.silent import Heard, to_clear

_HEARD = (
    # Whoever has just gone back to an old one, or given it a name, has said nothing in it yet.
    "WITH asked (id, at) AS (SELECT r.conversation_id, max(i.received_at) FROM inbox i"
    "  JOIN routes r ON r.session_key = i.session_key WHERE i.kind = 'command' GROUP BY 1)"
    "SELECT c.id, max(c.created_at, tip.started_at, coalesce((SELECT m.created_at FROM messages m"
    "  WHERE m.session_id = tip.id AND m.active = 1 ORDER BY m.seq DESC LIMIT 1), 0),"
    "  coalesce(asked.at, 0)),"
    " c.id IN (SELECT t.conversation_id FROM turns t"
    "  WHERE t.state IN ('running', 'interrupted', 'crashed'))"
    # Ids are never given anew, so the newest message of all stays.
    " OR c.id = (SELECT s.conversation_id FROM sessions s JOIN messages m ON m.session_id = s.id"
    "  WHERE m.id = (SELECT max(id) FROM messages))"
    " FROM conversations c JOIN sessions tip ON tip.id = c.tip_session_id"
    " LEFT JOIN asked ON asked.id = c.id ORDER BY c.rowid"
)
_FORKS = (
    "SELECT f.conversation_id, p.conversation_id FROM sessions f"
    " JOIN sessions p ON p.id = f.parent_session_id WHERE f.link = 'branch'"
)
_CONVERSATIONS = "(SELECT value FROM json_each(:conversations))"
_SESSIONS = f"(SELECT id FROM sessions WHERE conversation_id IN {_CONVERSATIONS})"
_MESSAGES = f"(SELECT id FROM messages WHERE session_id IN {_SESSIONS})"
# Looked for once in a step: neither table has an index for it.
_TURNS = "(SELECT value FROM json_each(:turns))"
_OUTBOX = "(SELECT value FROM json_each(:outbox))"
_FIND_TURNS = f"SELECT id FROM turns WHERE conversation_id IN {_CONVERSATIONS}"
_FIND_OUTBOX = (
    f"SELECT id FROM outbox WHERE conversation_id IN {_CONVERSATIONS} OR turn_id IN {_TURNS}"
)
_NEWEST_OUT = (
    "(SELECT max(id) FROM outbox"
    " UNION SELECT outbox_id FROM outbox_parts WHERE id = (SELECT max(id) FROM outbox_parts))"
)
"""What goes out under these numbers must never go out under them again."""
_EMPTY_OUT = "conversation_id = NULL, turn_id = NULL, text = '', extras = '{}', error = NULL"
_OLD_OUT = (
    "(SELECT id FROM outbox WHERE created_at < :before AND conversation_id IS NULL"
    f" AND turn_id IS NULL AND state IN ('sent', 'failed') AND id NOT IN {_NEWEST_OUT})"
)
_OLD_MAIL = (
    f"DELETE FROM outbox_parts WHERE outbox_id IN {_OLD_OUT}",
    f"DELETE FROM outbox WHERE id IN {_OLD_OUT}",
    "DELETE FROM inbox WHERE received_at < :before AND state IN ('answered', 'quarantined')"
    " AND turn_id IS NULL AND id NOT IN (SELECT inbox_id FROM restarts_awaited)"
    " AND id < (SELECT max(id) FROM inbox)",
)
_MARK = (index.DAMAGED,)
_NOTED = "cleared:"
"""In front of a conversation, among the facts."""
_FIND_SESSIONS = (
    "SELECT conversation_id, id FROM sessions"
    f" WHERE conversation_id IN {_CONVERSATIONS} ORDER BY id"
)
_SIZE = (
    "SELECT count(*), coalesce(sum(length(CAST(coalesce(content, '') || coalesce(wire_content, '')"
    " || coalesce(tool_calls, '') || coalesce(raw_blocks, '') AS BLOB))), 0)"
    f" FROM messages WHERE session_id IN {_SESSIONS}"
)
_GOES = (
    "UPDATE outbox_parts SET payload = '{}', error = NULL"
    f" WHERE outbox_id IN {_OUTBOX} AND outbox_id IN {_NEWEST_OUT}",
    f"UPDATE outbox SET {_EMPTY_OUT} WHERE id IN {_OUTBOX} AND id IN {_NEWEST_OUT}",
    f"DELETE FROM outbox_parts WHERE outbox_id IN {_OUTBOX} AND outbox_id NOT IN {_NEWEST_OUT}",
    f"DELETE FROM outbox WHERE id IN {_OUTBOX} AND id NOT IN {_NEWEST_OUT}",
    f"DELETE FROM previews WHERE turn_id IN {_TURNS}",
    # A row by which a repeat is known stays for its week, without words.
    "UPDATE inbox SET turn_id = NULL, text = '', payload = '{}', reply_to_message_id = NULL"
    f" WHERE turn_id IN {_TURNS} AND (received_at >= :young OR id = (SELECT max(id) FROM inbox))",
    "DELETE FROM restarts_awaited WHERE inbox_id IN"
    f" (SELECT id FROM inbox WHERE turn_id IN {_TURNS})",
    f"DELETE FROM inbox WHERE turn_id IN {_TURNS}",
    f"DELETE FROM steered WHERE row_id IN {_MESSAGES}",
    f"DELETE FROM turns WHERE id IN {_TURNS}",
    f"DELETE FROM replaced_lists WHERE session_id IN {_SESSIONS}",
    f"DELETE FROM prepared WHERE session_id IN {_SESSIONS}",
    f"DELETE FROM messages WHERE session_id IN {_SESSIONS}",
    "UPDATE requests SET session_serial = NULL WHERE session_serial IN"
    f" (SELECT serial FROM sessions WHERE conversation_id IN {_CONVERSATIONS})",
    f"DELETE FROM routes WHERE conversation_id IN {_CONVERSATIONS}",
    f"DELETE FROM leases WHERE conversation_id IN {_CONVERSATIONS}",
    f"DELETE FROM sessions WHERE conversation_id IN {_CONVERSATIONS}",
    f"DELETE FROM conversations WHERE id IN {_CONVERSATIONS}",
)


def clear_silent(
    connection: sqlite3.Connection, before: float, conversations: int, now: float
) -> Cleared:
    """`agent.forgetting.Forgetting.clear_silent`, one step of it."""
    asked = before, conversations, now
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        try:
            return _at_once(connection, *asked)
        except IndexDamaged:
            # Its error may have undone the transaction, and what came behind would have none.
            connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, '1')", _MARK)
            return _at_once(connection, *asked)
    finally:
        connection.execute("PRAGMA foreign_keys = ON")


def _at_once(db: sqlite3.Connection, before: float, conversations: int, now: float) -> Cleared:
    """In one transaction.

    Raises:
        IndexDamaged: nothing was changed.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        cleared = _clear(db, before, conversations, now)
        _commit(db)
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return cleared


def _commit(db: sqlite3.Connection) -> None:
    try:
        db.execute("COMMIT")
    except sqlite3.DatabaseError as exc:
        # The index writes itself out just before.
        if is_index_alone(exc):
            raise IndexDamaged from exc
        raise


def _clear(db: sqlite3.Connection, before: float, limit: int, now: float) -> Cleared:
    heard = [Heard(one, at, bool(busy)) for one, at, busy in db.execute(_HEARD)]
    chosen, more = to_clear(heard, db.execute(_FORKS).fetchall(), before, limit)
    messages = text_bytes = 0
    if chosen:
        values: dict[str, object] = {
            "conversations": json.dumps(chosen), "young": now - DEDUPE_SECONDS
        }  # fmt: skip
        values["turns"] = _ids(db, _FIND_TURNS, values)
        values["outbox"] = _ids(db, _FIND_OUTBOX, values)
        messages, text_bytes = db.execute(_SIZE, values).fetchone()
        _unindex(db, values)
        faultpoint("clear_silent.unindexed")
        _note(db, values)
        faultpoint("clear_silent.noted")
        _run(db, _GOES, values)
    if not more:
        _run(db, _OLD_MAIL, {"before": min(before, now - DEDUPE_SECONDS)})
    return Cleared(len(chosen), messages, text_bytes, more)


def _ids(db: sqlite3.Connection, query: str, values: Mapping[str, object]) -> str:
    return json.dumps([row[0] for row in db.execute(query, values)])


def _run(db: sqlite3.Connection, statements: Sequence[str], values: Mapping[str, object]) -> None:
    for statement in statements:
        db.execute(statement, values)
        faultpoint("clear_silent.deleted")


def _unindex(db: sqlite3.Connection, values: Mapping[str, object]) -> None:
    """Take them out of search; an index that is damaged is made anew anyhow.

    Raises:
        IndexDamaged: it is, and nothing says so yet.
    """
    if db.execute("SELECT 1 FROM facts WHERE name = ?", _MARK).fetchone() is not None:
        return
    query = f"SELECT {ROW_COLUMNS} FROM messages WHERE session_id IN {_SESSIONS} AND {SEARCHED}"
    try:
        for row in map(decode_row, db.execute(query, values)):
            text = indexable_text(row.message, row.kind, row.origin_id)
            if text is not None:
                db.execute(UNINDEX_TEXT, (row.id, segmented(text)))
    except sqlite3.DatabaseError as exc:
        if not is_index_damage(exc):
            raise
        raise IndexDamaged from exc


# --- plugins --------------------------------------------------------------------------------------


def _note(db: sqlite3.Connection, values: Mapping[str, object]) -> None:
    sessions: dict[str, list[str]] = {}
    for conversation_id, session_id in db.execute(_FIND_SESSIONS, values):
        sessions.setdefault(conversation_id, []).append(session_id)
    db.executemany(
        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
        [(_NOTED + one, json.dumps(ids)) for one, ids in sessions.items()],
    )


def cleared(db: Reader, *, limit: int = 100) -> list[ClearedConversation]:
    """`agent.forgetting.Forgetting.cleared`."""
    query = "SELECT name, value FROM facts WHERE name GLOB ? ORDER BY name LIMIT ?"
    return [
        ClearedConversation(name.removeprefix(_NOTED), tuple(json.loads(value)))
        for name, value in db.execute(query, (f"{_NOTED}*", limit))
    ]


def strike_cleared(tx: Transaction, conversation_ids: Sequence[str]) -> None:
    """`agent.forgetting.Forgetting.strike_cleared`."""
    tx.executemany(
        "DELETE FROM facts WHERE name = ?", [(_NOTED + one,) for one in conversation_ids]
    )
    faultpoint("strike_cleared.struck")


# --- files ----------------------------------------------------------------------------------------


def named_files(db: sqlite3.Connection) -> tuple[set[str], int]:
    """Files that messages or owed answers name, and up to which message that was looked for."""
    (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    return {*_named_since(db, 0), *_owed(db)}, int(newest)


def clear_files(
    tx: Transaction, before: float, named: frozenset[str], upto: int
) -> tuple[str, ...]:
    """Strike out files that are older than this and that nobody names; gives back their names."""
    kept = {*named, *_named_since(tx, upto), *_owed(tx)}
    old = tx.execute("SELECT DISTINCT name FROM attachments WHERE created_at < ?", (before,))
    gone = sorted({row[0] for row in old} - kept)
    tx.executemany(
        "DELETE FROM attachments WHERE name = ? AND created_at < ?", [(n, before) for n in gone]
    )
    faultpoint("clear_files.struck")
    return rest.unowned(tx, gone)


def _named_since(db: Reader, row_id: int) -> Iterator[str]:
    query = (
        "SELECT coalesce(content, '') || ' ' || coalesce(wire_content, '') FROM messages"
        " WHERE id > ? AND (content LIKE '%attachment%' OR wire_content LIKE '%attachment%')"
    )
    for (text,) in db.execute(query, (row_id,)):
        yield from NAME.findall(text)


def _owed(db: Reader) -> Iterator[str]:
    query = "SELECT extras FROM outbox WHERE state IN ('planned', 'sending', 'unknown')"
    for (extras,) in db.execute(query):
        yield from NAME.findall(extras)
