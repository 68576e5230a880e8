"""Owns conversations and sessions in SQL: who leads where, what is frozen.

Plain functions over a transaction (or, for reads, a connection); `storage.store` runs them.
"""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import dataclasses
import sqlite3
from typing import Any

from agent.errors import SessionNotFound
from agent.sessions import (
    CompressionState,
    Conversation,
    EndReason,
    Link,
    Session,
    SessionInfo,
    SessionPrefix,
)
from storage.codec import clean, dump_json
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.places import key_of_today, today_in
from storage.session_columns import SELECT_SESSION, dump_compression, session_of

Reader = sqlite3.Connection | Transaction

_CONVERSATION = "SELECT c.id, c.owner, c.session_key, c.tip_session_id, c.created_at"
_LINEAGE = (
    "WITH RECURSIVE back (id) AS ("
    "  SELECT ?1 UNION SELECT s.parent_session_id FROM sessions s JOIN back ON s.id = back.id"
    "  WHERE s.link = 'continuation'"
    "), whole (id) AS ("
    "  SELECT id FROM back UNION SELECT s.id FROM sessions s JOIN whole"
    "  ON s.parent_session_id = whole.id AND s.link = 'continuation'"
    ") "
)
_POINTED_AT = (
    f"{SELECT_SESSION} WHERE id = (SELECT c.tip_session_id FROM sessions s"
    " JOIN conversations c ON c.id = s.conversation_id WHERE s.id = ?)"
)
_ONWARD = (
    "WITH RECURSIVE onward (id) AS ("
    "  SELECT ?1 UNION SELECT s.id FROM sessions s JOIN onward"
    "  ON s.parent_session_id = onward.id AND s.link = 'continuation'"
    ") "
)
_INFO = (
    "SELECT s.id, s.conversation_id, s.parent_session_id, s.link, s.source, s.model, s.title,"
    " s.started_at, s.ended_at, s.end_reason, s.message_count,"
    " (SELECT coalesce(sum(m.tokens), 0) FROM messages m"
    "  WHERE m.session_id = s.id AND m.active = 1)"
    " FROM sessions s"
)


# --- conversations ------------------------------------------------------------------------------


def conversation_for_key(db: Reader, session_key: str) -> Conversation | None:
    query = (
        f"{_CONVERSATION} FROM routes r JOIN conversations c ON c.id = r.conversation_id"
        " WHERE r.session_key = ?"
    )
    row = db.execute(query, (key_of_today(session_key, today_in(db)),)).fetchone()
    return Conversation(*row) if row else None


def conversation(db: Reader, conversation_id: str) -> Conversation | None:
    query = f"{_CONVERSATION} FROM conversations c WHERE c.id = ?"
    row = db.execute(query, (conversation_id,)).fetchone()
    return Conversation(*row) if row else None


def start_conversation(
    tx: Transaction,
    session_key: str,
    owner: str,
    prefix: SessionPrefix,
    *,
    end_reason: EndReason = "reset",
) -> Session:
    session_key = key_of_today(session_key, today_in(tx))
    old = conversation_for_key(tx, session_key)
    if old is not None:
        # The first reason wins: a session that has ended keeps its own.
        tx.execute(
            "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
            (tx.now, end_reason, old.tip_session_id),
        )
        faultpoint("start_conversation.ended_old")
        tx.execute("DELETE FROM prepared WHERE session_id = ?", (old.tip_session_id,))
        faultpoint("start_conversation.discarded_prepared")
    return new_conversation(tx, session_key, owner, prefix)


def new_conversation(
    tx: Transaction,
    session_key: str,
    owner: str,
    prefix: SessionPrefix,
    *,
    forked_from: str | None = None,
    title: str | None = None,
    compression: CompressionState | None = None,
) -> Session:
    """Make a conversation with one empty session, and lead the key to it."""
    conversation_id, session_id = tx.new_id("c"), tx.new_id("s")
    tx.execute(
        "INSERT INTO conversations (id, owner, session_key, tip_session_id, created_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (conversation_id, owner, session_key, session_id, tx.now),
    )
    faultpoint("new_conversation.conversation")
    insert_session(
        tx,
        session_id,
        conversation_id,
        prefix,
        parent_id=forked_from,
        link=None if forked_from is None else "branch",
        title=title,
        compression=compression,
    )
    faultpoint("new_conversation.session")
    lead(tx, session_key, conversation_id)
    faultpoint("new_conversation.route")
    return session(tx, session_id)


# --- sessions -----------------------------------------------------------------------------------


def insert_session(
    tx: Transaction,
    session_id: str,
    conversation_id: str,
    prefix: SessionPrefix,
    *,
    parent_id: str | None = None,
    link: Link | None = None,
    title: str | None = None,
    compression: CompressionState | None = None,
    manifest: dict[str, Any] | None = None,
) -> None:
    """An empty, live session."""
    tools = [dataclasses.asdict(tool) for tool in prefix.tools]
    tx.execute(
        "INSERT INTO sessions (id, conversation_id, parent_session_id, link, source, model,"
        " system_prompt, tools, model_config, title, started_at, compression, manifest)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session_id,
            conversation_id,
            parent_id,
            link,
            prefix.source,
            prefix.model,
            clean(prefix.system_prompt),
            dump_json(tools),
            dump_json(prefix.model_config),
            title,
            tx.now,
            dump_compression(compression or CompressionState()),
            None if manifest is None else dump_json(manifest),
        ),
    )


def session(db: Reader, session_id: str) -> Session:
    row = db.execute(f"{SELECT_SESSION} WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return session_of(row)


def lineage(db: Reader, session_id: str) -> list[Session]:
    # A child is always made after its parent, so serials rise along the chain.
    query = f"{_LINEAGE} {SELECT_SESSION} WHERE id IN (SELECT id FROM whole) ORDER BY serial"
    found = [session_of(row) for row in db.execute(query, (session_id,))]
    if not found:
        raise SessionNotFound(session_id)
    return found


def owner_of(db: Reader, conversation_id: str) -> str:
    """Who has it.

    Raises:
        SessionNotFound: no such conversation.
    """
    found = conversation(db, conversation_id)
    if found is None:
        raise SessionNotFound(conversation_id)
    return found.owner


def continued(db: Reader, child: Session) -> Session | None:
    """The session that this one continues."""
    if child.link != "continuation" or child.parent_session_id is None:
        return None
    return session(db, child.parent_session_id)


def carried_row_id(db: Reader, session_id: str) -> int:
    """The newest row that was put into the session when it was made; 0 if it began empty."""
    query = "SELECT carried_row_id FROM sessions WHERE id = ?"
    (carried,) = db.execute(query, (session_id,)).fetchone()
    return int(carried)


def titles_of(db: Reader, conversation_id: str) -> list[str | None]:
    """The titles of a conversation's sessions, without reading what else is in them."""
    query = "SELECT title FROM sessions WHERE conversation_id = ? AND title IS NOT NULL"
    return [row[0] for row in db.execute(query, (conversation_id,))]


def tip(db: Reader, session_id: str) -> Session:
    # The conversation knows: however many sessions there were, this is one look-up.
    row = db.execute(_POINTED_AT, (session_id,)).fetchone()
    pointed_at = None if row is None else session_of(row)
    if pointed_at is not None and pointed_at.ended_at is None:
        return pointed_at
    return _end_of(db, session_id if pointed_at is None else pointed_at.id)


def _end_of(db: Reader, session_id: str) -> Session:
    """Forward along the continuations, for a pointer that was left behind; a circle ends too."""
    wanted = "WHERE id IN (SELECT id FROM onward) ORDER BY serial DESC LIMIT 1"
    query = f"{_ONWARD} {SELECT_SESSION} {wanted}"
    row = db.execute(query, (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return session_of(row)


def tip_of_conversation(db: Reader, conversation_id: str) -> Session:
    """The session that a conversation's pointer names.

    Raises:
        SessionNotFound: no such conversation.
    """
    found = conversation(db, conversation_id)
    if found is None:
        raise SessionNotFound(conversation_id)
    return session(db, found.tip_session_id)


def lead(tx: Transaction, session_key: str, conversation_id: str) -> None:
    """Lead the key here, wherever it led before."""
    tx.execute(
        "INSERT INTO routes (session_key, conversation_id) VALUES (?, ?)"
        " ON CONFLICT (session_key) DO UPDATE SET conversation_id = excluded.conversation_id",
        (session_key, conversation_id),
    )


def move_tip(tx: Transaction, conversation_id: str, session_id: str) -> None:
    tx.execute(
        "UPDATE conversations SET tip_session_id = ? WHERE id = ?", (session_id, conversation_id)
    )


def reopen(tx: Transaction, session_id: str) -> None:
    tx.execute("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", (session_id,))


def set_compression(tx: Transaction, session_id: str, state: CompressionState) -> None:
    tx.execute(
        "UPDATE sessions SET compression = ? WHERE id = ? AND ended_at IS NULL",
        (dump_compression(state), session_id),
    )


def set_option(tx: Transaction, session_id: str, name: str, value: str | None) -> bool:
    found = session(tx, session_id)
    if found.ended_at is not None:
        return False
    options = {**found.prefix.model_config, name: value}
    if value is None:
        del options[name]
    tx.execute(
        "UPDATE sessions SET model_config = ? WHERE id = ?", (dump_json(options), session_id)
    )
    faultpoint("set_option.set")
    return True


def list_sessions(db: Reader, conversation_id: str | None, limit: int) -> list[SessionInfo]:
    # Two statements, because no index serves "this conversation, or any".
    where = "" if conversation_id is None else "WHERE s.conversation_id = ?2"
    query = f"{_INFO} {where} ORDER BY s.serial DESC LIMIT ?1"
    parameters = (max(0, limit),) if conversation_id is None else (max(0, limit), conversation_id)
    return [SessionInfo(*row) for row in db.execute(query, parameters)]


def session_infos(db: Reader, session_ids: tuple[str, ...]) -> list[SessionInfo]:
    found = []
    for session_id in session_ids:
        row = db.execute(f"{_INFO} WHERE s.id = ?", (session_id,)).fetchone()
        if row is not None:
            found.append(SessionInfo(*row))
    return found


def session_ids(db: Reader, beginning: str, limit: int) -> list[str]:
    # A range, which the index of ids serves; in a pattern % and _ would mean something.
    query = (
        "SELECT id FROM sessions WHERE id >= ?1 AND id < ?1 || char(1114111) ORDER BY id LIMIT ?2"
    )
    return [row[0] for row in db.execute(query, (beginning, max(0, limit)))]
