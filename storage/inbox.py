"""Owns what came in, in SQL: each message once, who answers it, and how far we have read."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from agent.errors import StoreError
from agent.mail import Address, Cursor, InboxItem, InboxRecord, OutboxDraft, OutboxItem, Receipt
from storage.codec import clean, dump_clean_json
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.outbox import owe_all
from storage.places import record_of_today, today_in
from storage.repair import is_newer, is_older_edit

DEDUPE_SECONDS = 7 * 86_400.0
"""Telegram may begin its update ids anew after a quiet week; messages are told apart for ever."""

_STORE = (
    "INSERT INTO inbox (platform, bot_id, chat_id, thread_id, reply_to_message_id, message_id,"
    " kind, session_key, owner, text, received_at, sent_at, update_id, payload, state)"
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'new'"
    " WHERE NOT EXISTS (SELECT 1 FROM moved_chats"
    " WHERE platform = ?1 AND bot_id = ?2 AND old_chat_id = ?3) ON CONFLICT DO NOTHING"
)
"""Nothing is stored in a chat that has moved, and nothing twice."""

_INBOX = (
    "SELECT id, platform, bot_id, chat_id, thread_id, reply_to_message_id, message_id, kind,"
    " session_key, owner, text, received_at, sent_at, update_id, payload, state FROM inbox"
)


# --- inbox --------------------------------------------------------------------------------------


def accept(tx: Transaction, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
    inbox_id = _store(tx, record)  # nearly always, and then it is the only statement
    if inbox_id is None:
        record = record_of_today(record, today_in(tx))
        inbox_id = _store_again(tx, record)
    fresh = inbox_id is not None
    if inbox_id is None:
        inbox_id = _first_of(tx, record)
    faultpoint("accept.inbox")
    if cursor is not None:
        set_cursor(tx, cursor)
        faultpoint("accept.cursor")
    return Receipt(inbox_id, fresh, record)


def _store(tx: Transaction, record: InboxRecord) -> int | None:
    """The new row's id; None: it is there already, or its chat is another one today."""
    address = record.address
    columns = (
        address.platform, address.bot_id, address.chat_id, address.thread_id,
        address.reply_to_message_id, record.message_id or None, record.kind, record.session_key,
        record.owner, clean(record.text), record.received_at, record.sent_at, record.update_id,
        dump_clean_json(record.payload),
    )  # fmt: skip
    inserted = tx.execute(_STORE, columns)
    return inserted.lastrowid if inserted.rowcount == 1 else None


def _store_again(tx: Transaction, record: InboxRecord) -> int | None:
    """The same in the chat of today, and where its update's number may have been given anew."""
    inbox_id = _store(tx, record)
    if inbox_id is not None:
        return inbox_id
    address = record.address
    if not _expire_update(
        tx, address.platform, address.bot_id, record.kind, record.update_id, record.received_at
    ):
        return None
    faultpoint("accept.expired")
    return _store(tx, record)


def _expire_update(
    tx: Transaction, platform: str, bot_id: str, kind: str, update_id: str | None, now: float
) -> bool:
    """Let a row that is a week older go on without its update's id, which has been given anew.

    Or a week newer: then the clock was wrong.
    """
    changed = tx.execute(
        "UPDATE inbox SET update_id = NULL WHERE platform = ? AND bot_id = ? AND kind = ?"
        " AND update_id = ? AND abs(received_at - ?) > ?",
        (platform, bot_id, kind, update_id, now, DEDUPE_SECONDS),
    )
    return changed.rowcount == 1


def _first_of(tx: Transaction, record: InboxRecord) -> int:
    (inbox_id,) = tx.execute(
        "SELECT min(id) FROM inbox WHERE platform = ?1 AND bot_id = ?2 AND kind = ?3"
        " AND (update_id = ?4 OR (chat_id = ?5 AND message_id = ?6))",
        (
            record.address.platform, record.address.bot_id, record.kind, record.update_id,
            record.address.chat_id, record.message_id,
        ),
    ).fetchone()  # fmt: skip
    return int(inbox_id)


def revise(tx: Transaction, record: InboxRecord) -> bool:
    found = tx.execute(
        "SELECT id, edit_update_id FROM inbox WHERE platform = ? AND bot_id = ? AND chat_id = ?"
        " AND message_id = ? AND kind = ? AND state = 'new'",
        (
            record.address.platform, record.address.bot_id, record.address.chat_id,
            record.message_id, record.kind,
        ),
    ).fetchone()  # fmt: skip
    if found is None:
        return False
    inbox_id, newest = found
    if is_older_edit(record.update_id, newest):
        return True
    tx.execute(
        "UPDATE inbox SET text = ?, payload = ?, edit_update_id = coalesce(?, edit_update_id)"
        " WHERE id = ?",
        (clean(record.text), dump_clean_json(record.payload), record.update_id, inbox_id),
    )
    faultpoint("revise.inbox")
    return True


def quarantine(
    tx: Transaction, platform: str, bot_id: str, update_id: str, raw: str, reason: str
) -> None:
    _expire_update(tx, platform, bot_id, "quarantine", update_id, tx.now)
    faultpoint("quarantine.expired")
    tx.execute(
        "INSERT INTO inbox (platform, bot_id, kind, update_id, session_key, owner, text, reason,"
        " received_at, sent_at, state)"
        " VALUES (?, ?, 'quarantine', ?, '', '', ?, ?, ?, ?, 'quarantined') ON CONFLICT DO NOTHING",
        (platform, bot_id, update_id, clean(raw), clean(reason), tx.now, tx.now),
    )


def open_inbox(db: sqlite3.Connection) -> list[InboxItem]:
    # Left alone, SQLite walks the whole table for the order.
    query = f"{_INBOX} INDEXED BY inbox_waiting WHERE state = 'new' ORDER BY id"
    return [_inbox_item(row) for row in db.execute(query)]


def newest_items(
    db: sqlite3.Connection, platform: str, bot_id: str, *, among: int
) -> list[InboxItem]:
    query = (
        f"{_INBOX} NOT INDEXED WHERE id > (SELECT max(id) FROM inbox) - ? AND platform = ?"
        " AND bot_id = ? AND state <> 'quarantined' ORDER BY id"
    )
    return [_inbox_item(row) for row in db.execute(query, (among, platform, bot_id))]


def inbox_items(db: sqlite3.Connection, inbox_ids: Sequence[int]) -> list[InboxItem]:
    wanted = json.dumps(list(inbox_ids))
    query = f"{_INBOX} WHERE id IN (SELECT value FROM json_each(?)) AND state <> 'quarantined'"
    return [_inbox_item(row) for row in db.execute(f"{query} ORDER BY id", (wanted,))]


def newest_of_turn(db: sqlite3.Connection | Transaction, turn_id: str) -> InboxRecord | None:
    """The newest message that a turn answers."""
    query = f"{_INBOX} WHERE turn_id = ? ORDER BY id DESC LIMIT 1"
    row = db.execute(query, (turn_id,)).fetchone()
    return None if row is None else _inbox_item(row).record


def claim(tx: Transaction, inbox_ids: Sequence[int], turn_id: str) -> None:
    tx.executemany(
        "UPDATE inbox SET state = 'claimed', turn_id = ? WHERE id = ? AND state = 'new'",
        [(turn_id, inbox_id) for inbox_id in inbox_ids],
    )


def all_answered(tx: Transaction, inbox_ids: Sequence[int]) -> bool:
    """Is nothing left to answer among these rows, of which at least one is known?"""
    states = [
        row[0]
        for inbox_id in inbox_ids
        for row in tx.execute("SELECT state FROM inbox WHERE id = ?", (inbox_id,))
    ]
    return bool(states) and all(state == "answered" for state in states)


def all_waiting(tx: Transaction, inbox_ids: Sequence[int]) -> bool:
    """Does every one of these rows wait, and is there one?"""
    waiting = [
        tx.execute("SELECT 1 FROM inbox WHERE id = ? AND state = 'new'", (inbox_id,)).fetchone()
        for inbox_id in inbox_ids
    ]
    return bool(waiting) and None not in waiting


def ids_of_turn(tx: Transaction, turn_id: str) -> tuple[int, ...]:
    query = "SELECT id FROM inbox WHERE turn_id = ? ORDER BY id"
    return tuple(row[0] for row in tx.execute(query, (turn_id,)))


def address_of(tx: Transaction, inbox_ids: Sequence[int]) -> Address | None:
    """Where to answer these messages: at the last of them."""
    if not inbox_ids:
        return None
    row = tx.execute(
        "SELECT platform, bot_id, chat_id, thread_id, message_id FROM inbox WHERE id = ?",
        (inbox_ids[-1],),
    ).fetchone()
    return Address(*row)


def answer_turn(tx: Transaction, turn_id: str) -> None:
    tx.execute("UPDATE inbox SET state = 'answered' WHERE turn_id = ?", (turn_id,))


def answer_inbox(
    tx: Transaction, inbox_ids: Sequence[int], outbox: Sequence[OutboxDraft] = ()
) -> tuple[OutboxItem, ...]:
    if all_answered(tx, inbox_ids):
        return ()
    tx.executemany(
        "UPDATE inbox SET state = 'answered' WHERE id = ? AND state IN ('new', 'claimed')",
        [(inbox_id,) for inbox_id in inbox_ids],
    )
    faultpoint("answer_inbox.answered")
    items = owe_all(tx, outbox, None, None)
    faultpoint("answer_inbox.owed")
    return items


# --- restarts -----------------------------------------------------------------------------------


def await_restart(
    tx: Transaction, inbox_id: int, outbox: Sequence[OutboxDraft] = ()
) -> tuple[OutboxItem, ...]:
    query = "SELECT 1 FROM inbox WHERE id = ? AND state <> 'quarantined'"
    if tx.execute(query, (inbox_id,)).fetchone() is None:
        raise StoreError(f"there is no row {inbox_id} that could ask for a restart")
    if all_answered(tx, (inbox_id,)):
        return ()
    items = answer_inbox(tx, (inbox_id,), outbox)
    tx.execute("INSERT INTO restarts_awaited (inbox_id) VALUES (?)", (inbox_id,))
    faultpoint("await_restart.noted")
    return items


def say_restarted(tx: Transaction, text: str) -> tuple[OutboxItem, ...]:
    places = tx.execute(
        "SELECT DISTINCT i.platform, i.bot_id, i.chat_id, i.thread_id"
        " FROM restarts_awaited r JOIN inbox i ON i.id = r.inbox_id ORDER BY 1, 2, 3, 4"
    ).fetchall()
    drafts = [OutboxDraft(Address(*place), text, "notice") for place in places]
    items = owe_all(tx, drafts, None, None)
    faultpoint("say_restarted.owed")
    tx.execute("DELETE FROM restarts_awaited")
    faultpoint("say_restarted.told")
    return items


# --- cursors ------------------------------------------------------------------------------------


def cursors(db: sqlite3.Connection, platform: str, bot_id: str) -> dict[str, str]:
    query = "SELECT channel_id, message_id FROM cursors WHERE platform = ? AND bot_id = ?"
    return dict(db.execute(query, (platform, bot_id)).fetchall())


def set_cursor(tx: Transaction, cursor: Cursor) -> None:
    place = (cursor.platform, cursor.bot_id, cursor.channel_id)
    if today_in(tx)(*place) != cursor.channel_id:
        return  # of a chat that is another one today
    row = tx.execute(
        "SELECT message_id FROM cursors WHERE platform = ? AND bot_id = ? AND channel_id = ?", place
    ).fetchone()
    if row is None or is_newer(cursor.message_id, row[0]):
        tx.execute(
            "INSERT OR REPLACE INTO cursors (platform, bot_id, channel_id, message_id)"
            " VALUES (?, ?, ?, ?)",
            (*place, cursor.message_id),
        )


# --- columns ------------------------------------------------------------------------------------


def _inbox_item(row: tuple[Any, ...]) -> InboxItem:
    (
        inbox_id, platform, bot_id, chat_id, thread_id, reply_to, message_id, kind, session_key,
        owner, text, received_at, sent_at, update_id, payload, state,
    ) = row  # fmt: skip
    record = InboxRecord(
        address=Address(platform, bot_id, chat_id, thread_id, reply_to),
        message_id=message_id or "",
        kind=kind,
        session_key=session_key,
        owner=owner,
        text=text,
        received_at=received_at,
        sent_at=sent_at,
        update_id=update_id,
        payload=json.loads(payload),
    )
    return InboxItem(inbox_id, record, state)
