"""Owns leases in SQL: who compresses a conversation, and until when.

Plain functions over a transaction; `storage.store` runs them.
"""

# ruff: noqa: D103 - each is the port's method of that name
from __future__ import annotations

from agent.errors import SessionNotFound
from storage.database import Transaction
from storage.sessions import conversation


def acquire_lease(tx: Transaction, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
    if conversation(tx, conversation_id) is None:
        raise SessionNotFound(conversation_id)
    # One that ends further off than any lease lasts was written before the clock was set back.
    changed = tx.execute(
        "INSERT INTO leases (conversation_id, holder, generation, expires_at) VALUES (?, ?, 1, ?)"
        " ON CONFLICT (conversation_id) DO UPDATE SET holder = excluded.holder,"
        "  generation = generation + 1, expires_at = excluded.expires_at"
        " WHERE holder = excluded.holder OR expires_at <= ? OR expires_at > excluded.expires_at",
        (conversation_id, holder, tx.now + ttl_seconds, tx.now),
    )
    return changed.rowcount == 1


def release_lease(tx: Transaction, conversation_id: str, holder: str) -> None:
    tx.execute(
        "DELETE FROM leases WHERE conversation_id = ? AND holder = ?", (conversation_id, holder)
    )
