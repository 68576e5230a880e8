"""Owns which conversation a message belongs to, and who it is from (pure)."""

from __future__ import annotations

import json

from agent.sessions import is_session_key, session_key
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


def chat_of(key: str) -> tuple[str, str, str] | None:
    """Platform, bot and chat of a session key; None: `session_key` has not made it."""
    if not is_session_key(key):
        return None
    platform, bot_id, chat_id, _, _ = json.loads(key)
    return platform, bot_id, chat_id


def key_in(key: str, chat_id: str) -> str:
    """The key in the chat that its chat has become, where a thread's number means nothing."""
    platform, bot_id, _, _, user_id = json.loads(key)
    return session_key(platform, bot_id, chat_id, None, user_id)


def owner_of(message: InboundMessage) -> str:
    """The sender as the store names people."""
    return f"{message.platform}:{message.sender_id}"
