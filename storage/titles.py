"""Owns titles (pure): what of a name is kept, numbers of continuations, and names that clash."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from agent.messages import clean_text, is_blank
from agent.titles import split_number

TITLE_CHARS = 100
_ZERO_WIDTH_JOINER = "\u200d"


def next_title(title: str | None, lineage_titles: Sequence[str | None]) -> str | None:
    """The title behind a compression: ``name #2``, one above the highest number of its lineage."""
    if title is None:
        return None
    base = split_number(title)[0]
    numbers = [
        number
        for other in lineage_titles
        if other is not None
        for other_base, number in [split_number(other)]
        if other_base == base
    ]
    return f"{base} #{max(numbers, default=1) + 1}"


def clean_title(wanted: str | None) -> str | None:
    """What of a person's name for a conversation is kept; None if nothing of it can be seen.

    Control and invisible characters go (an emoji's joiners stay), blanks become one, and of the
    rest `TITLE_CHARS` stay, never ending inside a visible character.
    """
    if wanted is None:
        return None
    text = " ".join(clean_text(wanted).split())
    seen = "".join(ch for place, ch in enumerate(text) if _is_kept(text, place))
    seen = _shortened(" ".join(seen.split()), TITLE_CHARS)
    return None if is_blank(seen) else seen


def taken_in(title: str | None) -> str | None:
    """A name that another store gave, as far as this one could have given it.

    What a continuation counts does not count against its length.
    """
    if title is None:
        return None
    base, number = split_number(title)
    kept = clean_title(base)
    if kept is None or kept == base:
        return None if kept is None else title
    return kept if number == 1 else f"{kept} #{number}"


def unique_title(title: str, taken: Iterable[str]) -> str:
    """This title, or ``name (2)`` and so on if one of the others has it, number or not."""
    bases = {split_number(other)[0].casefold() for other in taken}
    base = split_number(title)[0]
    if base.casefold() not in bases:
        return title
    counted = re.fullmatch(r"(?s)(.*\S) \(\d{1,3}\)", base)
    stem = counted[1] if counted else base
    for number in itertools.count(2):
        suffix = f" ({number})"
        candidate = _shortened(stem, TITLE_CHARS - len(suffix)) + suffix
        if candidate.casefold() not in bases:
            return candidate
    raise AssertionError("numbers do not end")


def _is_kept(text: str, place: int) -> bool:
    character = text[place]
    if character != _ZERO_WIDTH_JOINER:
        return unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
    around = text[max(0, place - 2) : place + 2]
    return place + 1 < len(text) and any(unicodedata.category(ch) == "So" for ch in around)


def _shortened(text: str, limit: int) -> str:
    end = min(len(text), limit)
    while 0 < end < len(text) and (_joins(text[end]) or text[end - 1] == _ZERO_WIDTH_JOINER):
        end -= 1
    return text[:end].rstrip()


def _joins(character: str) -> bool:
    """Does this belong to the visible character in front of it?"""
    return (
        unicodedata.combining(character) > 0
        or character in "\u200d\ufe0e\ufe0f\u20e3"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
