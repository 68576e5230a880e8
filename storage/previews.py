"""Owns the messages in which running turns show what they have so far, in SQL."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agent.errors import StaleTurn
from agent.mail import Address, OutboxDraft
from agent.sessions import TurnTicket
from storage.codec import clean
from storage.database import Transaction
from storage.extras import LEFT, in_place_of
from storage.faultpoint import faultpoint
from storage.places import address_of_today, today_in

_RUNNING = "SELECT 1 FROM turns WHERE id = ? AND state = 'running'"


def note_preview(tx: Transaction, ticket: TurnTicket, address: Address, message_id: str) -> bool:
    if tx.execute(_RUNNING, (ticket.turn_id,)).fetchone() is None:
        raise StaleTurn(ticket.turn_id)
    if address_of_today(address, today_in(tx)) != address:
        return False
    tx.execute(
        "INSERT OR REPLACE INTO previews"
        " (turn_id, platform, bot_id, chat_id, thread_id, message_id, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            ticket.turn_id, address.platform, address.bot_id, address.chat_id, address.thread_id,
            clean(message_id), tx.now,
        ),
    )  # fmt: skip
    faultpoint("note_preview.noted")
    return True


def leave_preview(tx: Transaction, ticket: TurnTicket) -> None:
    if tx.execute(_RUNNING, (ticket.turn_id,)).fetchone() is None:
        raise StaleTurn(ticket.turn_id)
    query = "UPDATE previews SET platform = ? WHERE turn_id = ?"
    tx.execute(query, (LEFT, ticket.turn_id))
    faultpoint("leave_preview.left")


def left_preview_of(db: sqlite3.Connection, ticket: TurnTicket) -> str | None:
    query = "SELECT message_id FROM previews WHERE turn_id = ? AND platform = ?"
    found = db.execute(query, (ticket.turn_id, LEFT)).fetchone()
    return None if found is None else str(found[0])


def preview_of(db: sqlite3.Connection, ticket: TurnTicket) -> str | None:
    query = "SELECT message_id FROM previews WHERE turn_id = ? AND platform <> ?"
    found = db.execute(query, (ticket.turn_id, LEFT)).fetchone()
    return None if found is None else str(found[0])


def replaced(tx: Transaction, turn_id: str, drafts: Sequence[OutboxDraft]) -> Sequence[OutboxDraft]:
    """What a turn owes at its end, the first of it in its preview's place; that has no row then."""
    row = tx.execute(
        "DELETE FROM previews WHERE turn_id = ?"
        " RETURNING platform, bot_id, chat_id, thread_id, message_id",
        (turn_id,),
    ).fetchall()
    if not row:
        return drafts
    faultpoint("finish_turn.preview")
    *place, message_id = row[0]
    return in_place_of(message_id, Address(*place), drafts, today_in(tx))


def forget_chat(tx: Transaction, platform: str, bot_id: str, chat_id: str) -> None:
    """Its messages' numbers mean something else from now on."""
    tx.execute(
        "DELETE FROM previews WHERE platform = ? AND bot_id = ? AND chat_id = ?",
        (platform, bot_id, chat_id),
    )
