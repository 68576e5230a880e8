"""Owns making a message of a line that somebody typed (pure)."""

from __future__ import annotations

from agent.messages import clean_text
from gateway.platforms.contract import InboundMessage

PLATFORM = "console"
BOT_ID = "posthouse"
"""Not the user's id: a bot ignores itself."""
CHAT_ID = "local"
USER_ID = "local"


def convert(line: str, *, message_id: str, now: float) -> InboundMessage | None:
    """The line as a message of the console's one direct chat; None for a blank line."""
    text = clean_text(line).strip("\r\n")
    if not text.strip():
        return None
    return InboundMessage(
        platform=PLATFORM,
        bot_id=BOT_ID,
        chat_id=CHAT_ID,
        chat_kind="direct",
        message_id=message_id,
        sender_id=USER_ID,
        sender_name="you",
        text=text,
        sent_at=now,
    )
