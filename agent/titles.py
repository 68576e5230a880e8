"""Owns the numbers that continuations put behind titles, and the names without them (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(?s)(.*\S) #(\d{1,9})")


def split_number(title: str) -> tuple[str, int]:
    """A title without its number, and that; 1: it has none."""
    match = _NUMBERED.fullmatch(title)
    return (match[1], int(match[2])) if match else (title, 1)


def given_name(titles: Iterable[str | None]) -> str | None:
    """What a person called a conversation, of the titles of its sessions, root first.

    A continuation's title is its parent's, or that with a number one above the highest of its
    lineage. Such a one is nobody's word; another that ends in a number (“Ticket #42”) is.
    """
    name: str | None = None
    before: str | None = None
    highest: dict[str, int] = {}
    for title in titles:
        if title is None:
            name = None
        elif before is None or not _carried_on(before, title, highest):
            name = title
        if title is not None:
            base, number = split_number(title)
            highest[base] = max(number, highest.get(base, 1))
        before = title
    return name


def _carried_on(before: str, title: str, highest: dict[str, int]) -> bool:
    base = split_number(before)[0]
    return title in (before, f"{base} #{highest[base] + 1}")
