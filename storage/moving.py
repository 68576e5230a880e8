"""Owns a chat's move to another id in SQL: everything that leads to it follows."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import logging
import sqlite3

from storage import jobs, notes, previews, sessions
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.places import keys_of_chat, moved_keys, today_in

_log = logging.getLogger(__name__)

_OPEN_TURNS = "SELECT id FROM turns WHERE state IN ('running', 'interrupted', 'crashed')"
_RANGE = "session_key >= ? AND session_key < ?"


def move_chat(
    tx: Transaction, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str
) -> bool:
    today = today_in(tx)
    known, heir = today(platform, bot_id, old_chat_id), today(platform, bot_id, new_chat_id)
    if known == heir:
        return False  # said again, or said the other way round
    if known != old_chat_id:
        _log.warning("a chat that has moved moves again, elsewhere: ignored")
        return False
    tx.execute(
        "UPDATE moved_chats SET new_chat_id = ?"
        " WHERE platform = ? AND bot_id = ? AND new_chat_id = ?",
        (heir, platform, bot_id, old_chat_id),
    )
    tx.execute(
        "INSERT INTO moved_chats (platform, bot_id, old_chat_id, new_chat_id, moved_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (platform, bot_id, old_chat_id, heir, tx.now),
    )
    faultpoint("move_chat.known")
    _move_keys(tx, platform, bot_id, old_chat_id, heir)
    # Its message numbers say nothing about the new chat, which may have begun anew.
    tx.execute(
        "DELETE FROM cursors WHERE platform = ? AND bot_id = ? AND channel_id = ?",
        (platform, bot_id, old_chat_id),
    )
    faultpoint("move_chat.cursor")
    _move_owed(tx, platform, bot_id, old_chat_id, heir)
    return True


def _move_keys(tx: Transaction, platform: str, bot_id: str, old: str, heir: str) -> None:
    bounds = keys_of_chat(platform, bot_id, old)
    queries = (
        f"SELECT DISTINCT session_key FROM conversations WHERE {_RANGE}",
        f"SELECT session_key FROM routes WHERE {_RANGE}",
        f"SELECT DISTINCT session_key FROM inbox WHERE state = 'new' AND {_RANGE}",
        f"SELECT DISTINCT session_key FROM inbox WHERE turn_id IN ({_OPEN_TURNS}) AND {_RANGE}",
        f"SELECT session_key FROM turns WHERE id IN ({_OPEN_TURNS}) AND {_RANGE}",
        f"SELECT session_key FROM job_numbers WHERE {_RANGE}",
        "SELECT place FROM note_numbers WHERE place >= ? AND place < ?",
    )
    keys = [row[0] for query in queries for row in tx.execute(query, bounds).fetchall()]
    led: set[str] = set()
    for old_key, key in moved_keys(keys, heir).items():
        _move_route(tx, old_key, key, led)
        _move_waiting(tx, old_key, key, heir)
        jobs.move(tx, old_key, key, heir)
        notes.move(tx, old_key, key)


def _move_route(tx: Transaction, old_key: str, key: str, led: set[str]) -> None:
    """The old chat's conversation wins the new key; the first of them, where several want it."""
    tx.execute("UPDATE conversations SET session_key = ? WHERE session_key = ?", (key, old_key))
    faultpoint("move_chat.conversations")
    gone = tx.execute(
        "DELETE FROM routes WHERE session_key = ? RETURNING conversation_id", (old_key,)
    ).fetchall()
    faultpoint("move_chat.left_old_key")
    if gone and key not in led:
        led.add(key)
        sessions.lead(tx, key, gone[0][0])
        faultpoint("move_chat.led")


def _move_waiting(tx: Transaction, old_key: str, key: str, heir: str) -> None:
    """Messages that are not answered, and the turns that answer them."""
    change = (
        "UPDATE inbox SET session_key = ?, chat_id = ?, thread_id = NULL,"
        " reply_to_message_id = NULL, message_id = NULL WHERE session_key = ?"
    )
    tx.execute(f"{change} AND state = 'new'", (key, heir, old_key))
    faultpoint("move_chat.waiting")
    tx.execute(
        f"{change} AND state = 'claimed' AND turn_id IN ({_OPEN_TURNS})", (key, heir, old_key)
    )
    faultpoint("move_chat.claimed")
    tx.execute(
        f"UPDATE turns SET session_key = ? WHERE id IN ({_OPEN_TURNS}) AND session_key = ?",
        (key, old_key),
    )
    faultpoint("move_chat.turns")


def _move_owed(tx: Transaction, platform: str, bot_id: str, old: str, heir: str) -> None:
    """What is not sent yet. The numbers of parts that were sent are those of the old chat."""
    previews.forget_chat(tx, platform, bot_id, old)
    faultpoint("move_chat.previews")
    moved = tx.execute(
        "UPDATE outbox SET chat_id = ?, thread_id = NULL, reply_to_message_id = NULL,"
        " extras = json_remove(extras, '$.edits')"
        " WHERE state IN ('planned', 'sending', 'unknown')"
        " AND platform = ? AND bot_id = ? AND chat_id = ? RETURNING id",
        (heir, platform, bot_id, old),
    ).fetchall()
    faultpoint("move_chat.owed")
    tx.executemany(
        "UPDATE outbox_parts SET platform_message_id = NULL,"
        " payload = json_remove(payload, '$.edits') WHERE outbox_id = ?",
        moved,
    )
    faultpoint("move_chat.parts")


def moved_chats(db: sqlite3.Connection, platform: str, bot_id: str) -> dict[str, str]:
    query = "SELECT old_chat_id, new_chat_id FROM moved_chats WHERE platform = ? AND bot_id = ?"
    return dict(db.execute(query, (platform, bot_id)).fetchall())


def knows_chat(db: sqlite3.Connection, platform: str, bot_id: str, chat_id: str) -> bool:
    chat_id = today_in(db)(platform, bot_id, chat_id)
    bounds = keys_of_chat(platform, bot_id, chat_id)
    talked = f"SELECT 1 FROM conversations WHERE {_RANGE} LIMIT 1"
    waits = f"SELECT 1 FROM inbox WHERE state = 'new' AND {_RANGE} LIMIT 1"
    owed = (
        "SELECT 1 FROM outbox WHERE state IN ('planned', 'sending', 'unknown')"
        " AND platform = ? AND bot_id = ? AND chat_id = ? LIMIT 1"
    )
    return any(
        db.execute(query, parameters).fetchone() is not None
        for query, parameters in (
            (talked, bounds), (waits, bounds), (owed, (platform, bot_id, chat_id)),
        )
    )  # fmt: skip
