"""Owns what each platform does not know of Markdown, and what a parser is spared (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_NESTING: Final = 20
"""Lists and quotes in each other, on one line: each would become an ever longer line of its own."""
MAX_OPENERS: Final = {"$": 2000, "\\(": 200, "\\[": 200, "```": 2000, "[": 8000}
"""Looking for the end of each takes time that grows with the text; no answer has so many."""
MAX_MARKS: Final = 10_000
"""Characters that may be markup: what a parser takes grows with them, and prose has few."""
LONGEST_LANGUAGE: Final = 24
RULE: Final = "————————"
_SAFE_LINK: Final = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_DEEP: Final = re.compile(
    rf"^(?:[ \t]*(?:>|(?:[-*+]|\d{{1,9}}[.)])(?=[ \t]))){{{MAX_NESTING}}}", re.MULTILINE
)
_LANGUAGE: Final = re.compile(r"[\w+\-.#]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a platform does not know by itself."""

    fences: bool = False
    """Its code blocks are those between ``` only, with one word behind the marks."""
    headings: bool = False
    """It has three levels of headings, and no underlined ones."""
    references: bool = False
    """Links have to stand where they are used; a label may not look like an address."""
    images: bool = False
    """A picture has to be a link."""
    entities: bool = False
    """It shows ``&amp;`` as it is written."""
    tasks: bool = False
    """It shows ``[x]`` as it is written, and so a rule of dashes."""
    spoiler: tuple[str, str] | None = None
    """What opens and closes one, where it is not ``||``."""
    strict_bold: bool = False
    """It reads ``**`` by the book, which CJK texts seldom do."""


TELEGRAM: Final = Dialect(spoiler=("<tg-spoiler>", "</tg-spoiler>"), strict_bold=True)
DISCORD: Final = Dialect(
    fences=True, headings=True, references=True, images=True, entities=True, tasks=True
)


def is_beyond_parsing(text: str) -> bool:
    """Would a parser take longer for it than any reader would thank us for?"""
    return (
        sum(text.count(char) for char in "*_[]`|<~$\\&") > MAX_MARKS
        or any(text.count(mark) > most for mark, most in MAX_OPENERS.items())
        or _DEEP.search(text) is not None
    )


def is_safe_link(url: str) -> bool:
    """May a reader be led there by a press? Other addresses are shown as text."""
    return _SAFE_LINK.match(url) is not None


def info_string(info: str) -> tuple[str, str]:
    """The word that says how to colour code, and what else stands there."""
    word, _, rest = info.partition(" ")
    if len(word) <= LONGEST_LANGUAGE and (not word or _LANGUAGE.fullmatch(word)):
        return word, rest.strip()
    return "", info
