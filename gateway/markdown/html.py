"""Owns the few HTML tags that are layout; all others are left to be seen (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LINE_BREAK: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_FOLDED: Final = re.compile(r"</?details(?:\s[^>]{0,200})?>", re.IGNORECASE)
_SUMMARY: Final = re.compile(r"<summary>\s*([^\n]*?)\s*</summary>[ \t]*\n?", re.IGNORECASE)
_OF_FOLDS: Final = ("<details", "</details", "<summary", "</summary")


def can_be_unfolded(tags: Sequence[str]) -> bool:
    """Are there folded sections in it, whole ones? A lone ``<details>`` is talk about it."""
    whole = "".join(tags).lower()
    return all(tag in whole for tag in _OF_FOLDS)


def without_tags(html: str, *, is_break: bool, folds: bool) -> str:
    """A piece of HTML with line breaks as such, and folded sections under a title.

    ``one<br>two`` is a line break; ``a <br> b`` (not ``is_break``) is talk about one.
    """
    plain = LINE_BREAK.sub("\n", html) if is_break else html
    if not folds:
        return plain
    opened = _SUMMARY.sub(_title, _FOLDED.sub("", plain))
    return opened if opened.strip() or opened == plain else ""


def _title(match: re.Match[str]) -> str:
    return f"**{match[1]}**\n" if match[1] else ""
