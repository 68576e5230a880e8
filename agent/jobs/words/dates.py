"""Owns days as they are written: words, weekdays, dates (pure). The home of dateutil's parser."""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.jobs.words.nouns import Date, Day, Found, Instant, MonthDay, TimeUnclear, Weekday
from agent.jobs.words.patterns import (
    CHINESE_NUMBER,
    END,
    number,
    one_of,
    pattern,
    plain_words,
)
from agent.jobs.words.vocabulary import DAYS, MONTHS, SHORT_WEEKDAYS, WEEKDAYS

if TYPE_CHECKING:
    from dateutil.parser import parser

_ON = r"(?:(?:on|am|den)\s+)?"
_DAY = pattern(rf"(?P<day>{one_of(DAYS)})")
_WEEKDAY = pattern(
    rf"(?:(?P<glue>on|am|this|coming|diesen|diesem|kommenden|(?P<next>next|nächsten|nächster)"
    rf"|这|本|(?P<week>下))\s*(?:个)?)?(?:(?P<full>{one_of(WEEKDAYS)})|(?P<short>{one_of(SHORT_WEEKDAYS)})\.?)"
    rf"(?:\s+(?P<later>next\s+week|nächste\s+woche))?"
)
_MONTH_WORDS = one_of(word for names in MONTHS for word in names)
_NAMED = pattern(
    rf"(?:(?:on\s+)?the\s+(?=\d)|{_ON})"
    rf"(?P<date>(?:\d{{1,2}}(?:st|nd|rd|th|\.)?\s*(?:of\s+)?(?:{_MONTH_WORDS})"
    rf"|(?:{_MONTH_WORDS})\.?\s+(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)?(?![\d:.]))"
    rf"\.?(?:,?\s+(?:19|20|21)\d\d(?![\d:.]))?){END}"
)
_ISO = pattern(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d(?::\d\d)?)(?:\.\d{1,6})?"
    rf"(?P<offset>Z|[+-]\d\d:?\d\d)?{END}"
)
_ISO_ZONED = pattern(
    rf"(?P<date>\d{{4}}-\d\d-\d\d)\s+(?P<time>\d\d:\d\d(?::\d\d)?)\s*(?P<offset>[+-]\d\d:?\d\d){END}"
)
_YEAR_FIRST = pattern(rf"{_ON}(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}})(?![\d:./-]){END}")
_DOTS = pattern(rf"{_ON}(\d{{1,2}})\.\s?(\d{{1,2}})\.(?:(\d{{4}}|\d\d)(?![\d:.]))?{END}")
_SLASHES = pattern(rf"{_ON}(\d{{1,2}})/(\d{{1,2}})(?:/(\d{{4}}|\d\d))?(?![\d:/]){END}")
_CHINESE = pattern(
    rf"(?:(\d{{4}})年)?(\d{{1,2}}|{CHINESE_NUMBER})月(\d{{1,2}}|{CHINESE_NUMBER})[日号]"
)
_ORDINAL = pattern(
    rf"(?:on\s+the\s+|on\s+|the\s+)?(\d{{1,2}})(?:st|nd|rd|th){END}"
    rf"|(?:am|den)\s+(\d{{1,2}})\.(?!\s*\d)(?!\s*{_MONTH_WORDS})|(\d{{1,2}})[号日]"
)


def instant(text: str, at: int) -> Found | None:
    """A date and a time in one, as machines write it."""
    match = _ISO.match(text, at) or _ISO_ZONED.match(text, at)
    if match is None:
        return None
    offset = (match["offset"] or "").upper()
    try:
        moment = datetime.fromisoformat(f"{match['date']}T{match['time']}{offset}")
    except ValueError as exc:
        raise _no_such(match[0]) from exc
    return Found(Instant(moment), match.end())


def day(text: str, at: int) -> Found | None:
    """A day here: "tomorrow", "on friday", "24.12.", "dec 24".

    Raises:
        TimeUnclear: there is no such day, or it could be two.
    """
    if match := _DAY.match(text, at):
        days, part = DAYS[plain_words(match["day"])]
        return Found(Day(days, part), match.end())
    return written(text, at) or weekday(text, at)


def weekday(text: str, at: int) -> Found | None:
    """A day of the week here."""
    match = _WEEKDAY.match(text, at)
    if match is None:
        return None
    word = plain_words(match["full"] or match["short"])
    name = WEEKDAYS.get(word, SHORT_WEEKDAYS.get(word, 0))
    week = bool(match["week"] or match["later"])
    which = "next week" if week else "next" if match["next"] else "coming"
    is_short = not match["full"] and not match["glue"]
    return Found(Weekday(name, which, is_short), match.end())  # type: ignore[arg-type]


def written(text: str, at: int) -> Found | None:
    """A date here. Raises as `day`."""
    if match := _YEAR_FIRST.match(text, at):
        return _date(match, int(match[3]), int(match[4]), int(match[1]))
    if match := _CHINESE.match(text, at):
        month, of_month = (int(number(match[n]) or 0) for n in (2, 3))
        return _date(match, month, of_month, int(match[1]) if match[1] else None)
    if match := _NAMED.match(text, at):
        return _named(match)
    if match := _DOTS.match(text, at):
        return _date(match, int(match[2]), int(match[1]), _year(match[3]))
    if match := _SLASHES.match(text, at):
        return _slashes(match)
    if match := _ORDINAL.match(text, at):
        of_month = int(match[1] or match[2] or match[3])
        if not 1 <= of_month <= 31:
            raise _no_such(match[0])
        return Found(MonthDay(of_month), match.end())
    return None


def _slashes(match: re.Match[str]) -> Found:
    first, second, year = int(match[1]), int(match[2]), _year(match[3])
    if first <= 12 and second <= 12 and first != second:
        shown = year or 2000
        one, two = (f"{shown}-{first:02}-{second:02}", f"{shown}-{second:02}-{first:02}")
        if year is None:
            one, two = f"{second}.{first}.", f"{first}.{second}."
        raise TimeUnclear(
            f"“{match[0].strip()}” can be read in two ways: say “{one}” or “{two}”"
            + (" (day.month.)." if year is None else " (year-month-day).")
        )
    month, of_month = (first, second) if second > 12 else (second, first)
    return _date(match, month, of_month, year)


def _year(text: str | None) -> int | None:
    return None if text is None else int(text) + (2000 if len(text) == 2 else 0)


def _date(match: re.Match[str], month: int, of_month: int, year: int | None) -> Found:
    try:
        date(year or 2000, month, of_month)  # 2000 has a 29 February
    except ValueError as exc:
        raise _no_such(match[0]) from exc
    return Found(Date(month, of_month, year), match.end())


def _named(match: re.Match[str]) -> Found:
    """With a month by name, by the library, which is lenient: it only gets what has the shape."""
    said = match["date"]
    of_month, *rest = (int(digits) for digits in re.findall(r"\d+", said))
    year = rest[0] if rest else None
    try:
        found = _parser().parse(said, default=datetime(2000, 1, 1))  # noqa: DTZ001 - a date only
    except (ValueError, OverflowError) as exc:
        raise _no_such(match[0]) from exc
    if found.day != of_month:  # "32 december" is a year to it
        raise _no_such(match[0])
    return Found(Date(found.month, found.day, year), match.end())


@lru_cache(1)
def _parser() -> parser:
    from dateutil.parser import parser, parserinfo  # noqa: PLC0415 - for months by name only

    class Info(parserinfo):
        JUMP = [" ", ".", ",", "of", "the", "st", "nd", "rd", "th"]  # noqa: RUF012 - as there
        MONTHS = list(MONTHS)  # type: ignore[arg-type]  # noqa: RUF012

    return parser(Info())


def _no_such(written_: str) -> TimeUnclear:
    return TimeUnclear(f"There is no day “{written_.strip()}”. Write it like 2026-12-24 or 24.12.")
