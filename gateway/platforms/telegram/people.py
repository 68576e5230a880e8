"""Owns whose words a message holds: who speaks, and who is only passed on (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.messages import clean_text
from gateway.platforms.telegram.values import identifier

MAX_TITLE_CHARS = 200
"""Of a group; Telegram takes no more than 128."""
_CHANNEL_FORWARDER = 777000
"""The account in whose name Telegram copies channel posts into a linked group."""


def speaker(message: Mapping[str, Any], my_id: int) -> tuple[str, str] | None:
    """Id and name of whoever speaks; None if that is a bot or nobody.

    An anonymous admin speaks as the group, and somebody may speak as a channel: Telegram then
    shows a bot of its own as the sender, and the chat in ``sender_chat`` is the one that counts.

    Raises:
        Exception: nobody can have such an id.
    """
    voice = message.get("sender_chat")
    if voice is not None:
        return _chat_that_speaks(voice), _title(voice)
    person = message.get("from")
    if person is None or person.get("is_bot"):
        return None
    if person["id"] in (_CHANNEL_FORWARDER, my_id):
        return None
    return identifier(person["id"]), person_of(person)


def _chat_that_speaks(voice: Mapping[str, Any]) -> str:
    """Its id, which is never one of a person's: access lists hold both."""
    chat_id = identifier(voice["id"])
    if not chat_id.startswith("-"):
        raise ValueError("a chat that speaks with the id of a person")
    return chat_id


def forwarded_from(message: Mapping[str, Any]) -> str | None:
    """Whose words are passed on; None: the sender's own. What an inline bot wrote is the bot's."""
    origin = message.get("forward_origin")
    if origin is not None:
        for key in ("sender_user", "sender_chat", "chat"):
            if origin.get(key):
                who = person_of(origin[key]) if key == "sender_user" else _title(origin[key])
                return clean_text(who)
        return clean_text(str(origin.get("sender_user_name") or ""))
    if message.get("forward_date") is not None:  # a server of before the origin had a type
        return clean_text(str(message.get("forward_sender_name") or ""))
    if message.get("via_bot") is not None:
        return clean_text(person_of(message["via_bot"]))
    return None


def person_of(person: Mapping[str, Any]) -> str:
    """What somebody is called."""
    names = (person.get("first_name"), person.get("last_name"))
    full = " ".join(str(name) for name in names if name)
    return full or str(person.get("username") or "")


def title_of(chat: Mapping[str, Any]) -> str | None:
    """What a group is called; None: nothing."""
    return clean_text(_title(chat)).strip()[:MAX_TITLE_CHARS] or None


def _title(chat: Mapping[str, Any]) -> str:
    return str(chat.get("title") or chat.get("username") or "")
