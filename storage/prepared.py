"""Owns `agent.prepared.Shelf` in SQL.

Plain functions over a transaction (or, for reads, a connection); `storage.store` runs them.
"""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from agent.prepared import Prepared
from storage import sessions
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.prepared_form import dump_payload, load_payload
from storage.repair import check_plan

_ACTIVE_IDS = "SELECT id FROM messages WHERE session_id = ? AND active = 1 ORDER BY seq"


def save_prepared(tx: Transaction, prepared: Prepared) -> bool:
    session = sessions.session(tx, prepared.session_id)
    tip = sessions.tip_of_conversation(tx, session.conversation_id)
    if tip.id != session.id or session.ended_at is not None:
        return False
    ids = [row[0] for row in tx.execute(_ACTIVE_IDS, (session.id,))]
    if session.revision != prepared.revision or prepared.covered_row_id not in ids:
        return False
    covered = ids.index(prepared.covered_row_id) + 1
    check_plan(prepared.entries, ids[:covered], later=len(ids) - covered)
    tx.execute(
        "INSERT INTO prepared (session_id, revision, covered_row_id, payload, created_at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET"
        " revision = excluded.revision, covered_row_id = excluded.covered_row_id,"
        " payload = excluded.payload, created_at = excluded.created_at",
        (session.id, prepared.revision, prepared.covered_row_id, dump_payload(prepared), tx.now),
    )
    faultpoint("prepared.saved")
    return True


def prepared(db: sessions.Reader, session_id: str) -> Prepared | None:
    query = (
        "SELECT revision, covered_row_id, payload, created_at FROM prepared WHERE session_id = ?"
    )
    found = db.execute(query, (session_id,)).fetchone()
    if found is None:
        return None
    revision, covered_row_id, payload, created_at = found
    return load_payload(session_id, revision, covered_row_id, payload, created_at)


def discard_prepared(tx: Transaction, session_id: str) -> bool:
    done = tx.execute("DELETE FROM prepared WHERE session_id = ?", (session_id,))
    faultpoint("prepared.discarded")
    return done.rowcount > 0


def crowded(db: sessions.Reader, prompt_tokens: int, *, since: float, limit: int = 20) -> list[str]:
    # By the row of the last answer: clocks jump, and it says when the conversation was used.
    query = (
        "SELECT c.id FROM conversations c JOIN sessions s ON s.id = c.tip_session_id"
        " JOIN messages m ON m.id = s.anchor_row_id"
        " WHERE s.ended_at IS NULL AND s.anchor_prompt_tokens + s.anchor_output_tokens >= ?"
        " AND m.created_at >= ?"
        " AND NOT EXISTS (SELECT 1 FROM prepared p WHERE p.session_id = s.id)"
        " ORDER BY s.anchor_row_id DESC LIMIT ?"
    )
    return [row[0] for row in db.execute(query, (prompt_tokens, since, max(0, limit)))]
