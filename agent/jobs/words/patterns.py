"""Owns how words become patterns, and numbers in words numbers (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from agent.jobs.words.vocabulary import CHINESE_DIGITS, NUMBERS

END = r"(?-i:(?![0-9A-Z_a-zÀ-ɏ]))"
"""No letter or digit goes on here. Chinese follows without a space."""
CHINESE_NUMBER = "[零〇一二两三四五六七八九十]{1,3}"
MARKS = "\u200b\u200e\u200f\u2060\ufeff\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Seen by nobody: they come with what is copied from a page, and with keyboards that also write
from right to left."""
_PLAIN = str.maketrans(f"：．，　、İıſ{MARKS}", f":., ,iis{' ' * len(MARKS)}")
"""Signs of other widths; and letters that a pattern in any case takes for others, which are in no
vocabulary."""


def narrowed(text: str) -> str:
    """Digits of any script and signs as plain ones: the same length, for places in the text."""
    if text.isascii():
        return text
    return "".join(_digit(ch) for ch in text.translate(_PLAIN))


def _digit(char: str) -> str:
    return char if char.isascii() or not char.isdecimal() else str(unicodedata.decimal(char))


def pattern(text: str) -> re.Pattern[str]:
    """In any case."""
    return re.compile(text, re.IGNORECASE)


def one_of(words: Iterable[str]) -> str:
    """One of these, the longest first; words of letters end where they end."""
    each = sorted(words, key=len, reverse=True)
    latin = "|".join(_spaced(word) for word in each if not is_chinese(word[-1]))
    chinese = "|".join(word for word in each if is_chinese(word[-1]))
    kinds = [f"(?:{latin}){END}" if latin else "", chinese]
    return f"(?:{'|'.join(filter(None, kinds))})"


def is_chinese(char: str) -> bool:
    """Is this a Chinese character?"""
    return "\u3400" <= char <= "\u9fff"


def _spaced(words: str) -> str:
    return r"\s+".join(re.escape(part) for part in words.split())


def plain_words(text: str) -> str:
    """As it stands in the vocabulary."""
    return " ".join(text.lower().split())


def chinese_number(text: str) -> int | None:
    """Up to 99; None: it is none."""
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return CHINESE_DIGITS.get(text) if len(text) == 1 else None
    high = 1 if not tens else CHINESE_DIGITS.get(tens)
    low = 0 if not ones else CHINESE_DIGITS.get(ones)
    return None if high is None or low is None else high * 10 + low


def number(text: str) -> float | None:
    """What a number in digits or words says; None: it is none."""
    text = plain_words(text)
    if text in NUMBERS:
        return NUMBERS[text]
    if re.fullmatch(r"\d{1,6}(?:[.,]\d{1,2})?", text, re.ASCII):
        return float(text.replace(",", "."))
    return chinese_number(text)
