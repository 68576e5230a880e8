"""Owns what is owed, in SQL: answers, and the parts in which they go out."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from agent.errors import StoreError
from agent.mail import (
    Address,
    OutboxDraft,
    OutboxItem,
    OutboxPart,
    PartDraft,
    SendState,
)
from storage.codec import clean, clean_json, dump_clean_json
from storage.database import Transaction
from storage.extras import extras_of, with_extras
from storage.faultpoint import faultpoint
from storage.places import address_of_today, today_in
from storage.repair import OVER, state_of_item

_OUTBOX = (
    "SELECT id, conversation_id, platform, bot_id, chat_id, thread_id, reply_to_message_id, text,"
    " kind, state, created_at, error, extras FROM outbox"
)
_PART = "SELECT id, outbox_id, n, state, payload, platform_message_id, attempts FROM outbox_parts"


def owe_all(
    tx: Transaction,
    drafts: Sequence[OutboxDraft],
    conversation_id: str | None,
    turn_id: str | None,
) -> tuple[OutboxItem, ...]:
    """Owe these answers, in this order."""
    return tuple(_owe(tx, draft, conversation_id, turn_id) for draft in drafts)


def owe(tx: Transaction, draft: OutboxDraft, conversation_id: str | None = None) -> OutboxItem:
    return _owe(tx, draft, conversation_id, None)


def _owe(
    tx: Transaction, draft: OutboxDraft, conversation_id: str | None, turn_id: str | None
) -> OutboxItem:
    address, text = address_of_today(draft.address, today_in(tx)), clean(draft.text)
    outbox_id = tx.execute(
        "INSERT INTO outbox (conversation_id, turn_id, platform, bot_id, chat_id, thread_id,"
        " reply_to_message_id, kind, text, extras, state, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'planned', ?)",
        (
            conversation_id, turn_id, address.platform, address.bot_id, address.chat_id,
            address.thread_id, address.reply_to_message_id, draft.kind, text,
            dump_clean_json(extras_of(draft)), tx.now,
        ),
    ).lastrowid  # fmt: skip
    assert outbox_id is not None
    faultpoint("owe.outbox")
    stored = with_extras(OutboxDraft(address, text, draft.kind), clean_json(extras_of(draft)))
    return OutboxItem(outbox_id, conversation_id, stored, "planned", tx.now)


def owed(db: sqlite3.Connection) -> list[OutboxItem]:
    where = "state IN ('planned', 'sending', 'unknown')"
    parts: dict[int, list[OutboxPart]] = {}
    of_owed = f"outbox_id IN (SELECT id FROM outbox WHERE {where})"
    for row in db.execute(f"{_PART} WHERE {of_owed} ORDER BY outbox_id, n"):
        parts.setdefault(row[1], []).append(_part(row))
    return [
        _outbox_item(row, tuple(parts.get(row[0], ())))
        for row in db.execute(f"{_OUTBOX} WHERE {where} ORDER BY id")
    ]


def plan_parts(
    tx: Transaction, outbox_id: int, parts: Sequence[PartDraft]
) -> tuple[OutboxPart, ...]:
    state = _state_of(tx, outbox_id)
    planned = _parts_of(tx, outbox_id)
    if planned or state in OVER:
        return planned
    for n, draft in enumerate(parts):
        tx.execute(
            "INSERT INTO outbox_parts (outbox_id, n, state, payload) VALUES (?, ?, 'planned', ?)",
            (outbox_id, n, dump_clean_json(draft.payload)),
        )
        faultpoint("plan_parts.part")
    if not parts:
        _follow_parts(tx, outbox_id, None)
    return _parts_of(tx, outbox_id)


def mark_part(
    tx: Transaction,
    part_id: int,
    state: SendState,
    *,
    platform_message_id: str | None = None,
    error: str | None = None,
) -> None:
    error = None if error is None else clean(error)
    row = tx.execute(
        "UPDATE outbox_parts SET state = ?, attempts = attempts + ?,"
        " platform_message_id = coalesce(?, platform_message_id), error = ? WHERE id = ?"
        " RETURNING outbox_id",
        (state, int(state == "sending"), platform_message_id, error, part_id),
    ).fetchall()
    if not row:
        raise StoreError(f"there is no outbox part {part_id}")
    faultpoint("mark_part.part")
    _follow_parts(tx, row[0][0], error)
    faultpoint("mark_part.item")


def fail_outbox(tx: Transaction, outbox_id: int, error: str) -> None:
    _state_of(tx, outbox_id)
    error = clean(error)
    tx.execute(
        "UPDATE outbox_parts SET state = 'failed', error = ?"
        " WHERE outbox_id = ? AND state <> 'sent'",
        (error, outbox_id),
    )
    faultpoint("fail_outbox.parts")
    tx.execute("UPDATE outbox SET state = 'failed', error = ? WHERE id = ?", (error, outbox_id))
    faultpoint("fail_outbox.item")


def _state_of(tx: Transaction, outbox_id: int) -> str:
    row = tx.execute("SELECT state FROM outbox WHERE id = ?", (outbox_id,)).fetchone()
    if row is None:
        raise StoreError(f"there is no outbox item {outbox_id}")
    return str(row[0])


def _follow_parts(tx: Transaction, outbox_id: int, error: str | None) -> None:
    state = state_of_item([part.state for part in _parts_of(tx, outbox_id)])
    tx.execute(
        "UPDATE outbox SET state = ?, error = coalesce(?, error) WHERE id = ?",
        (state, error, outbox_id),
    )


def _parts_of(tx: Transaction, outbox_id: int) -> tuple[OutboxPart, ...]:
    query = f"{_PART} WHERE outbox_id = ? ORDER BY n"
    return tuple(_part(row) for row in tx.execute(query, (outbox_id,)))


# --- columns ------------------------------------------------------------------------------------


def _outbox_item(row: tuple[Any, ...], parts: tuple[OutboxPart, ...]) -> OutboxItem:
    (
        outbox_id, conversation_id, platform, bot_id, chat_id, thread_id, reply_to, text, kind,
        state, created_at, error, extras,
    ) = row  # fmt: skip
    draft = OutboxDraft(Address(platform, bot_id, chat_id, thread_id, reply_to), text, kind)
    if extras != "{}":
        draft = with_extras(draft, json.loads(extras))
    return OutboxItem(outbox_id, conversation_id, draft, state, created_at, parts, error)


def _part(row: tuple[Any, ...]) -> OutboxPart:
    part_id, outbox_id, n, state, payload, platform_message_id, attempts = row
    return OutboxPart(
        part_id, outbox_id, n, state, json.loads(payload), platform_message_id, attempts
    )
