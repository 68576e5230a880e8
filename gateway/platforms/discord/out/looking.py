"""Owns how an earlier send of a part is recognised in a channel's history (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gateway.platforms.discord.reading import id_of

Match = Literal["sure", "answer", "bare"]
"""It is the one · it answers what is looked for, and says the same · it says the same."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What an earlier send of a part looks like."""

    own_id: int
    content: str
    sizes: list[int]
    """Of its files."""
    nonce: str
    reply_to: int | None = None
    interaction_id: int | None = None
    """Of the command or button that it may have answered in their own way."""

    def match(self, message: dict[str, Any]) -> Match | None:
        """None: it is another message."""
        author = message.get("author")
        if not isinstance(author, dict) or id_of(author.get("id")) != self.own_id:
            return None
        nonce = message.get("nonce")
        if nonce is not None:
            return "sure" if str(nonce) == self.nonce else None
        if message.get("content") != self.content or _sizes(message) != self.sizes:
            return None
        came_of = message.get("interaction_metadata")
        if isinstance(came_of, dict):
            return "answer" if id_of(came_of.get("id")) == self.interaction_id else None
        reference = message.get("message_reference")
        answered = id_of(reference.get("message_id")) if isinstance(reference, dict) else None
        if answered is None:
            return "bare"
        return "answer" if answered == self.reply_to else None


def _sizes(message: dict[str, Any]) -> list[int]:
    files = message.get("attachments")
    sizes = [one.get("size") for one in files if isinstance(one, dict)] if files else []
    return sorted(size for size in sizes if isinstance(size, int))
