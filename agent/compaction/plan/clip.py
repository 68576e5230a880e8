"""Owns the shortening of one text: head and tail stay, the cut says how much is missing."""

from __future__ import annotations

from agent.messages import Message, clean_text
from agent.model_metadata import estimate_tokens_rough


def recall_reference(message: Message) -> str:
    """How the original of a message is named to the model: ``recall ref m123``; "" if unknown."""
    row_id = message.get("_origin", message.get("_row"))
    return f"recall ref m{row_id}" if row_id is not None else ""


def clip(text: str, limit_chars: int, *, reference: str = "") -> str:
    """The text, at most about ``limit_chars`` long: its beginning, a note of the cut, its end."""
    if len(text) <= limit_chars:
        return text
    head = limit_chars * 8 // 11
    tail = max(0, limit_chars - head)
    reason = f"; {reference}" if reference else ""
    # in ASCII: a text that was counted at a glance still is
    note = f"[... {len(text) - head - tail} characters left out{reason} ...]"
    end = text[len(text) - tail :] if tail else ""
    return clean_text(f"{text[:head]}\n{note}\n{end}").rstrip("\n")


def clip_to_tokens(text: str, limit_tokens: int, *, reference: str = "") -> str:
    """`clip` by estimated tokens, so that CJK text is cut to the same cost as any other."""
    tokens = estimate_tokens_rough(text)
    if tokens <= limit_tokens:
        return text
    return clip(text, max(0, len(text) * limit_tokens // tokens), reference=reference)
