"""Owns what is shown of an answer that still grows: its beginning, nothing half in it (pure)."""

from __future__ import annotations

import re

from gateway.delivery.splitting import MIN_MARKDOWN_LIMIT, split_markdown, utf16_len

CURSOR = "▌"
ROOM_FOR_MARKS = 16
"""Of the limit, for the cursor and for what closes open marks."""
ROOM_FOR_WORDS = 100

_SENTENCE = re.compile(r"[.!?…:][\"')\]*_]*\s|[。！？\n]")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})(?:\](?:\([^()\s]{0,2000})?)?$")
_PAIRS = ("**", "~~", "||")
_FENCE_LINE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})")


def unfinished(text: str, limit: int) -> str:
    """Its beginning as a message within ``limit`` UTF-16 units, a cursor at its end; "": nothing.

    Markdown whose fences are closed, whose last line opens nothing that it does not close, and
    which ends in no half of a visible character.
    """
    room = limit - ROOM_FOR_MARKS
    is_cut = len(text) > 2 * limit
    text = _whole_characters(text[: 2 * limit]).rstrip()
    if not text:
        return ""
    messages = split_markdown(text, room)
    if not messages:
        return ""
    if len(messages) > 1 or is_cut or messages[0].strip() != text.strip():  # cut, or a fence closed
        return _with_cursor(messages[0])
    closed = _closed(messages[0])
    return _with_cursor(closed) if closed.strip() else ""


def finished(text: str, limit: int) -> str:
    """The same beginning, for a message that rests: no cursor, and room for some words more."""
    limit = max(limit - ROOM_FOR_WORDS, MIN_MARKDOWN_LIMIT + ROOM_FOR_MARKS)
    return unfinished(text, limit).replace(CURSOR, "").rstrip()


def is_worth_showing(text: str, least: int) -> bool:
    """Is there a sentence, or as much as one?"""
    return len(text.strip()) >= least or _SENTENCE.search(text.lstrip()) is not None


def is_beyond(text: str, limit: int) -> bool:
    """Will more of it change nothing any more?"""
    return len(text) > 2 * limit


def _with_cursor(message: str) -> str:
    last = message.rpartition("\n")[2]
    return f"{message}\n{CURSOR}" if _FENCE_LINE.match(last) else f"{message} {CURSOR}"


def _whole_characters(text: str) -> str:
    """Without a half of a visible character at its end; the rest of it is still to come."""
    while text and (text[-1] == "\u200d" or "\ud800" <= text[-1] <= "\udfff"):
        text = text[:-1]
    flags = len(text) - len(text.rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
    return text[:-1] if flags % 2 else text


def _closed(text: str) -> str:
    """With what its last line opens closed, or left away where nothing stands behind it yet."""
    head, line = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    if _FENCE_LINE.match(line):
        return text
    ticks = line.count("`") - 2 * line.count("``")
    if ticks % 2:
        line = line[:-1] if line.endswith("`") else line + "`"
        return head + line
    if "`" not in line:
        line = _LINK.sub(r"\1", line)
        for mark in _PAIRS:
            if line.count(mark) % 2:
                line = line.removesuffix(mark) if line.endswith(mark) else line + mark
    return (head + line).rstrip() if utf16_len(line) else head.rstrip()
