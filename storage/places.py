"""Owns where a chat is today: chats that got another id, and what that does to a session key."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace

from agent.mail import Address, InboxRecord
from agent.sessions import key_in, place_of
from storage.database import Transaction

Today = Callable[[str, str, str], str]
"""Platform, bot, chat → the chat's id of today: the same one, unless it has moved."""


def keys_of_chat(platform: str, bot_id: str, chat_id: str) -> tuple[str, str]:
    """The range of a chat's session keys: from the first text on, in front of the second."""
    beginning = json.dumps([platform, bot_id, chat_id], separators=(",", ":"))[:-1] + ","
    return beginning, beginning + chr(0x10FFFF)


def moved_keys(keys: Iterable[str], chat_id: str) -> dict[str, str]:
    """Each key of a chat that moves → its key there.

    Where two become one, the key of the chat itself comes before those of its threads.
    """
    threads_last = sorted(set(keys), key=lambda key: (not _has_no_thread(key), key))
    return {key: key_in(key, chat_id) for key in threads_last}


def _has_no_thread(key: str) -> bool:
    place = place_of(key)
    return place is not None and place[3] is None


def key_of_today(key: str, today: Today) -> str:
    """The key, or the one that it has become."""
    place = place_of(key)
    if place is None:
        return key
    heir = today(*place[:3])
    return key if heir == place[2] else key_in(key, heir)


def address_of_today(address: Address, today: Today) -> Address:
    """The address, or the chat's new one: no thread and no message of the old one is there."""
    heir = today(address.platform, address.bot_id, address.chat_id)
    if heir == address.chat_id:
        return address
    return replace(address, chat_id=heir, thread_id=None, reply_to_message_id=None)


def record_of_today(record: InboxRecord, today: Today) -> InboxRecord:
    """The message, or what it is in the new chat, where its number is another message's."""
    address = address_of_today(record.address, today)
    if address is record.address:
        return record
    key = key_in(record.session_key, address.chat_id)
    return replace(record, address=address, message_id="", session_key=key)


def today_in(db: sqlite3.Connection | Transaction) -> Today:
    """By the table of moved chats, in which every old id leads to the id of today."""

    def today(platform: str, bot_id: str, chat_id: str) -> str:
        found = db.execute(
            "SELECT new_chat_id FROM moved_chats"
            " WHERE platform = ? AND bot_id = ? AND old_chat_id = ?",
            (platform, bot_id, chat_id),
        ).fetchone()
        return chat_id if found is None else str(found[0])

    return today
