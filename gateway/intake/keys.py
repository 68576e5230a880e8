"""Owns which conversation a message belongs to, and who it is from (pure)."""

from __future__ import annotations

import json

from agent.sessions import session_key
from gateway.platforms.contract import InboundMessage


def key_for(message: InboundMessage, *, group_sessions_per_user: bool) -> str:
    """The session key of a message.

    A direct chat always names its user as well, so that a platform that does not tell its direct
    chats apart can not join two people's histories.
    """
    user = message.sender_id
    personal = message.chat_kind == "direct" or group_sessions_per_user
    return session_key(
        message.platform,
        message.bot_id,
        message.chat_id,
        message.thread_id,
        user if personal else None,
    )


def is_personal(key: str) -> bool:
    """Is a conversation with this key one person's own, wherever it takes place?"""
    try:
        return json.loads(key)[4] is not None
    except (ValueError, TypeError, LookupError):
        return False  # nobody's: whoever wants it has to be where it is


def owner_of(message: InboundMessage) -> str:
    """The sender as the store names people."""
    return f"{message.platform}:{message.sender_id}"


def place_for(owner: str, key: str, *, direct: bool) -> str:
    """Whose lasting things may be seen in a conversation (`agent.ports.ToolContext.place`)."""
    return owner if direct else key
