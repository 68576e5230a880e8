"""Owns which conversation a message belongs to, and who it is from (pure)."""

from __future__ import annotations

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


def owner_of(message: InboundMessage) -> str:
    """The sender as the store names people."""
    return f"{message.platform}:{message.sender_id}"
