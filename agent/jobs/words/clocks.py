"""Owns times of day, parts of a day and zones, as they are written (pure)."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from agent.jobs.words.nouns import Clock, DayPart, Found, TimeUnclear, Zone
from agent.jobs.words.patterns import (
    CHINESE_NUMBER,
    END,
    number,
    one_of,
    pattern,
    plain_words,
)
from agent.jobs.words.vocabulary import (
    CITIES,
    NO_CITIES,
    NUMBERS,
    PARTS,
    SHORT_ZONES,
    WEEKDAYS,
)

_HALF = (
    r"(?P<half>[ap]\.?\s?m\b\.?)"
    # "um 12:00 am Montag" is German
    rf"(?!\s+(?:\d{{1,2}}\.|{one_of((*WEEKDAYS, 'wochenende', 'abend', 'morgen'))}))"
)
_AT = r"(?:(?P<at>at|@|um|gegen)\s*)"
_NO_HOURS = ("a", "an", "a couple of", "ein", "eine", "einer", "einem")
_HOURS = [
    word
    for word, count in NUMBERS.items()
    if word not in _NO_HOURS and word[0] < "\u3400" and count in range(1, 13)
]
_DIGITS = pattern(
    rf"{_AT}?(?P<hour>\d{{1,2}})(?:(?P<sep>[:.h])(?P<minute>\d\d)(?::(?P<second>\d\d))?)?(?!\d|:\d)"
    rf"(?:\s*{_HALF}|\s*(?P<uhr>uhr|o'?clock)(?:\s+(?P<after>[0-5]\d)(?![\d:.]))?|(?P<h>h))?{END}"
)
_WORDS = pattern(rf"{_AT}?(?P<hour>{one_of(_HOURS)})(?:\s*{_HALF}|\s*(?P<uhr>uhr|o'?clock))?{END}")
_FRACTION = pattern(
    rf"{_AT}?(?P<how>half\s+past|quarter\s+past|quarter\s+to|halb|viertel\s+nach|viertel\s+vor)"
    rf"\s+(?P<hour>\d{{1,2}}|{one_of(_HOURS)})(?:\s*{_HALF}|\s*uhr)?(?![\d:.]){END}"
)
_NOON = ("noon", "midday", "mittags", "正午")
_NAMED = pattern(
    rf"(?:at\s+|um\s+)?(?P<name>{one_of((*_NOON, 'midnight', 'mitternacht', '午夜'))})"
)
_CHINESE = pattern(
    rf"(?P<part>{'|'.join(w for w in PARTS if not w.isascii() and w[0] >= chr(0x3400))})?\s*"
    rf"(?P<hour>\d{{1,2}}|{CHINESE_NUMBER})\s*[点點时](?![间候])钟?"
    rf"(?:(?P<half>半)|(?P<quarter>[一三])刻|(?P<minute>\d{{1,2}}|{CHINESE_NUMBER})分?)?"
)
_CHINESE_DIGITS = pattern(
    rf"(?P<part>{'|'.join(w for w in PARTS if w[0] >= chr(0x3400))})\s*"
    rf"(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?!\d|:\d)"
)
_PART = pattern(
    rf"(?P<clear>in\s+the\s+|this\s+|at\s+(?=night)|am\s+|in\s+der\s+(?=nacht))?"
    rf"(?P<part>{one_of(PARTS)})"
)
_ZONE = pattern(
    rf"(?P<utc>utc|gmt){END}|(?P<iana>[a-z]{{2,14}}/[a-z_+\-]{{2,30}}(?:/[a-z_]{{2,20}})?){END}"
    rf"|(?P<city>[a-z]{{3,15}}(?:[ _][a-z]{{2,15}}){{0,2}}?)\s+(?:time|zeit){END}"
)
_REGIONS = (
    "Africa/", "America/", "Antarctica/", "Arctic/", "Asia/", "Atlantic/", "Australia/", "Europe/",
    "Indian/", "Pacific/",
)  # fmt: skip
_SHORT_ZONE = re.compile(rf"(?:{'|'.join(SHORT_ZONES)}){END}")


def clock(text: str, at: int) -> Found | None:
    """A time of day here. A bare number is one only behind "at", or with what makes it one.

    Raises:
        TimeUnclear: there is no such time.
    """
    if match := _NAMED.match(text, at):
        is_noon = plain_words(match["name"]) in _NOON
        found = Clock(12, sure=True) if is_noon else Clock(0, sure=True, midnight=True)
        return Found(found, match.end())
    if match := _FRACTION.match(text, at):
        return _fraction(match)
    if match := _CHINESE.match(text, at) or _CHINESE_DIGITS.match(text, at):
        return _chinese(match)
    if match := _DIGITS.match(text, at) or _WORDS.match(text, at):
        return _western(match)
    return None


def _western(match: re.Match[str]) -> Found | None:
    groups = match.groupdict()
    half, uhr = groups["half"], groups["uhr"]
    if not (groups["at"] or half or uhr or groups.get("sep") in (":", "h", "H")):
        return None
    hour = int(number(match["hour"]) or 0)
    minute = int(groups.get("minute") or groups.get("after") or 0)
    second = int(groups.get("second") or 0)
    sure = hour > 12 or hour == 0 or bool(half)
    if half:
        if not 1 <= hour <= 12:
            raise _no_such(match[0])
        hour = hour % 12 + (12 if half[0] in "pP" else 0)
    bare = not half and not groups.get("sep") and (uhr or "").lower() != "uhr"
    return Found(_valid(Clock(hour, minute, second, sure, bare=bare), match[0]), match.end())


def _fraction(match: re.Match[str]) -> Found:
    hour, how = int(number(match["hour"]) or 0), plain_words(match["how"])
    half = match["half"]
    if half:
        hour = hour % 12 + (12 if half[0] in "pP" else 0)
    backwards = how in ("halb", "quarter to", "viertel vor")
    minute = {"quarter past": 15, "viertel nach": 15, "half past": 30, "halb": 30}.get(how, 45)
    hour = (hour - 1) % 24 if backwards else hour
    sure = bool(half) or hour > 12
    return Found(_valid(Clock(hour, minute, 0, sure, bare=not half), match[0]), match.end())


def _chinese(match: re.Match[str]) -> Found:
    groups = match.groupdict()
    hour = int(number(match["hour"]) or 0)
    if groups.get("half"):
        minute = 30
    elif groups.get("quarter"):
        minute = 15 if groups["quarter"] == "一" else 45
    else:
        minute = int(number(groups["minute"]) or 0) if groups["minute"] else 0
    part = PARTS[match["part"]] if match["part"] else None
    said = Clock(hour, minute, 0, hour > 12 or hour == 0, part=part, bare=True)
    return Found(_valid(said, match[0]), match.end())


def _valid(said: Clock, written: str) -> Clock:
    if said.hour > 24 or said.minute > 59 or said.second > 59:
        raise _no_such(written)
    if said.hour == 24:
        if said.minute or said.second:
            raise _no_such(written)
        return Clock(0, sure=True, midnight=True)
    return said


def _no_such(written: str) -> TimeUnclear:
    return TimeUnclear(
        f"“{written.strip()}” is no time of day: hours go from 0 to 23, as in 18:30."
    )


def part(text: str, at: int) -> Found | None:
    """A part of a day here."""
    match = _PART.match(text, at)
    if match is None:
        return None
    word = plain_words(match["part"])
    return Found(DayPart(PARTS[word], bool(match["clear"]) or word.endswith("s")), match.end())


def zone(text: str, at: int) -> Found | None:
    """The name of a time zone here.

    Raises:
        TimeUnclear: it is a short name, which says too little.
    """
    if match := _SHORT_ZONE.match(text, at):
        raise TimeUnclear(
            f"“{match[0]}” is not always the same zone. Name a place instead, for example "
            f"“9:00 {SHORT_ZONES[match[0]]}”, or UTC."
        )
    match = _ZONE.match(text, at)
    if match is None:
        return None
    if match["utc"]:
        return Found(Zone("UTC"), match.end())
    wanted = plain_words(match["iana"] or match["city"]).replace(" ", "_")
    name = _places().get(wanted)
    return Found(Zone(name), match.end()) if name else None


@lru_cache(1)
def _places() -> dict[str, str]:
    """Names and cities, in small letters, to names."""
    listed = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    names = sorted(listed, key=lambda name: (name.count("/"), name), reverse=True)
    own = [name for name in names if "/" in name and not name.startswith("Etc/")]
    cities = {name.rpartition("/")[2].lower(): name for name in own if name.startswith(_REGIONS)}
    words = dict.fromkeys(NO_CITIES, "")
    return cities | words | CITIES | {name.lower(): name for name in own}
