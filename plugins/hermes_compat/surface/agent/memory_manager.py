"""Owns taking out of a text what the host wrote around memories (`agent.memory_manager`)."""

from __future__ import annotations

import re

from agent import brought

__all__ = ["sanitize_context"]

_TAG = r"<\s*{slash}\s*memory[-_]context\b[^<>]*>"
_OPEN = re.compile(_TAG.format(slash=""), re.IGNORECASE)
_CLOSE = re.compile(_TAG.format(slash="/"), re.IGNORECASE)
_NOTE = re.compile(
    r"\[System note:\s*The following is recalled memory[^\]]{0,400}\]\s*", re.IGNORECASE
)


def sanitize_context(text: object) -> str:
    """The text without fenced memories: neither the fence nor what is in it.

    What was remembered would be taken for something said, and be remembered anew. Known are ours,
    at the beginning, and ``<memory-context>`` anywhere; one that is never closed loses its marks
    only.
    """
    clean = brought.split("" if text is None else str(text))[1]
    parts: list[str] = []
    at = 0
    while (begin := _OPEN.search(clean, at)) is not None:
        end = _CLOSE.search(clean, begin.end())
        if end is None:
            break
        parts.append(clean[at : begin.start()])
        at = end.end()
    rest = "".join((*parts, clean[at:]))
    return _CLOSE.sub("", _OPEN.sub("", _NOTE.sub("", rest)))
