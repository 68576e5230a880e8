"""Owns the pages in which a tool gives back a long text (pure)."""

from __future__ import annotations

from agent.errors import ToolError
from agent.model_metadata import estimate_tokens_rough


def text_page(what: str, text: str, offset: int, limit: int, room: int) -> str:
    """The text from a character on, at most ``limit`` characters and ``room`` tokens of it.

    Under a line that says which part of what it is; the last line says where it goes on.

    Raises:
        ToolError: it ends before that.
    """
    if not text:
        return f"{what} is empty."
    if offset >= len(text):
        raise ToolError(f"it has {len(text)} characters; offset {offset} is behind its end")
    end = page_end(text, offset, limit, room)
    page = text[offset:end]
    head = f"{what}, characters {offset} to {end} of {len(text)}"
    more = f"\n[goes on: offset {end}]" if end < len(text) else ""
    return f"{head}\n{page}{more}"


def page_end(text: str, offset: int, limit: int, room: int) -> int:
    """Where the page ends that begins there: at most ``limit`` characters and ``room`` tokens."""
    page = text[offset : offset + min(limit, room * 4)]
    tokens = estimate_tokens_rough(page)
    if tokens > room:
        page = page[: max(1, len(page) * room // tokens)]
    return offset + len(page)
