"""Owns a restart in SQL: the turns that were cut off, and what is given up after many crashes."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence

from agent.errors import StaleTurn
from agent.mail import Address, OutboxDraft
from agent.messages import Row
from agent.sessions import InterruptedTurn, LoadedSession, TurnTicket
from storage import changes, inbox, previews, rows, sessions, turns
from storage.codec import ROW_COLUMNS, decode_row
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.outbox import owe_all

_log = logging.getLogger(__name__)


def recover_turns(tx: Transaction, crash_limit: int, notice: str) -> list[InterruptedTurn]:
    query = (
        "SELECT id, conversation_id, session_id, user_row_id, session_key, owner, started_at,"
        f" crashes, crash_row_id, state FROM turns WHERE state IN {turns.OPEN_STATES}"
        " ORDER BY user_row_id"
    )
    newest = rows.newest_id(tx)
    # Whoever held a lease is gone. Left to expire, it would keep its conversation from being
    # compressed for so long that the window fills up.
    tx.execute("DELETE FROM leases")
    faultpoint("recover_turns.dropped_leases")
    recovered = []
    for row in tx.execute(query).fetchall():
        turn_id, conversation_id, _, user_row_id, key, owner, started_at, crashes, mark, state = row
        if state == "running":
            progress = _progress_since(tx, conversation_id, max(mark, user_row_id))
            crashes = 1 if progress else crashes + 1
            tx.execute(
                "UPDATE turns SET state = 'crashed', crashes = ?, crash_row_id = ? WHERE id = ?",
                (crashes, newest, turn_id),
            )
            faultpoint("recover_turns.counted")
        inbox_ids = inbox.ids_of_turn(tx, turn_id)
        if state != "interrupted" and crashes >= crash_limit:
            _set_aside(tx, turn_id, conversation_id, key, inbox_ids, notice)
            continue
        ticket = TurnTicket(*row[:4])
        orderly = state == "interrupted"
        recovered.append(
            InterruptedTurn(ticket, key, owner, inbox_ids, started_at, crashes, orderly)
        )
    return recovered


def _progress_since(tx: Transaction, conversation_id: str, row_id: int) -> bool:
    """Has the turn stored a step of its own? Copies, summaries and stubs are none."""
    query = (
        "SELECT EXISTS (SELECT 1 FROM messages m JOIN sessions s ON s.id = m.session_id"
        " WHERE m.id > ? AND s.conversation_id = ? AND m.role IN ('assistant', 'tool')"
        " AND m.kind IS NULL AND m.origin_id IS NULL)"
    )
    (found,) = tx.execute(query, (row_id, conversation_id)).fetchone()
    return bool(found)


def results_of_turn(db: sqlite3.Connection, ticket: TurnTicket) -> list[Row]:
    query = (
        f"SELECT {ROW_COLUMNS} FROM messages WHERE id > ? AND role = 'tool'"
        " AND kind IS NULL AND origin_id IS NULL"
        " AND session_id IN (SELECT id FROM sessions WHERE conversation_id = ?) ORDER BY id"
    )
    found = db.execute(query, (ticket.user_row_id, ticket.conversation_id))
    return [decode_row(row) for row in found]


def _set_aside(
    tx: Transaction,
    turn_id: str,
    conversation_id: str,
    session_key: str,
    inbox_ids: Sequence[int],
    notice: str,
) -> None:
    """A turn that always ends in a crash must not keep everybody else from being served."""
    _log.error("turn set aside after repeated crashes", extra={"turn_id": turn_id})
    address = inbox.address_of(tx, inbox_ids) or address_of_key(session_key)
    turns.end(tx, turn_id, "failed")
    faultpoint("recover_turns.failed")
    inbox.answer_turn(tx, turn_id)
    faultpoint("recover_turns.answered")
    if address is not None:
        draft = OutboxDraft(address, notice, "notice")
        owe_all(tx, previews.replaced(tx, turn_id, (draft,)), conversation_id, turn_id)
        faultpoint("recover_turns.owed")


def address_of_key(session_key: str) -> Address | None:
    """Where a session key's chat is, for a turn that no message began."""
    try:
        platform, bot_id, chat_id, thread_id, _ = json.loads(session_key)
    except (ValueError, TypeError):
        return None
    if not all(isinstance(name, str) for name in (platform, bot_id, chat_id)):
        return None
    return Address(platform, bot_id, chat_id, thread_id)


def resume_turn(tx: Transaction, ticket: TurnTicket) -> LoadedSession:
    if not turns.set_running(tx, ticket.turn_id):
        raise StaleTurn(ticket.turn_id)
    faultpoint("resume_turn.running")
    conversation = sessions.conversation(tx, ticket.conversation_id)
    assert conversation is not None  # the turn's row names it
    tip = turns.healed_tip(tx, conversation)
    return changes.load_repaired(tx, tip.id, ticket.turn_id)
