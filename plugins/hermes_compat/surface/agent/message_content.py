"""Owns the plain text of a message's content (`agent.message_content`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten_message_text"]

_NAMES = ("text", "content", "input_text", "output_text", "summary_text")
_NO_TEXT = ("image", "audio", "video", "file")


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """What can be read in a content: a string, a list of parts, one part, or None."""
    if isinstance(content, list | tuple):
        return sep.join(text for part in content if (text := _text_of(part)))
    return _text_of(content)


def _text_of(part: Any) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    kind = str(_read(part, "type") or "").lower().removeprefix("input_")
    if kind.startswith(_NO_TEXT):
        return ""
    found = next((value for name in _NAMES if isinstance(value := _read(part, name), str)), None)
    if found is not None:
        return found
    return "" if isinstance(part, Mapping) else str(part)


def _read(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)
