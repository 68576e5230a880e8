"""Owns whiles and repeats as they are written: "in 20 minutes", "every weekday" (pure)."""

from __future__ import annotations

import re

from agent.jobs.words import dates
from agent.jobs.words.nouns import After, Cron, Found, MonthDay, Repeat, TimeUnclear
from agent.jobs.words.patterns import CHINESE_NUMBER, END, number, one_of, pattern, plain_words
from agent.jobs.words.vocabulary import (
    NUMBERS,
    PARTS,
    SHORT_WEEKDAYS,
    UNITS,
    WEEKDAYS,
)

_NUMBER = rf"(?P<number>\d{{1,6}}(?:[.,]\d{{1,2}})?(?![\d:])|{one_of(NUMBERS)}|{CHINESE_NUMBER})"
_AMOUNT = pattern(
    rf"{_NUMBER}\s*(?P<chinese_half>个半)?-?\s*(?P<unit>{one_of(UNITS)}|h(?=\d)|m(?=\d))"
    rf"(?P<half>\s+and\s+a\s+half{END})?"
)
_MINUTES = pattern(rf"([0-5]\d)(?!\s*{one_of(UNITS)})(?![:.]\d){END}")
_JOIN = pattern(r"\s*,?\s*(?:(?:and|und)\s+)?")
_IN = pattern(rf"(?:in|within){END}\s*(?:about\s+)?")
_FROM_NOW = pattern(rf"\s*(?:from\s+now{END}|[之以]?后)")
_EVERY = pattern(rf"(?:every|each|jede[nrsm]?|alle){END}\s*|每隔?")
_EACH_DAY = pattern(
    rf"(?P<day>day{END}|tag{END}|天|日)"
    rf"|(?P<work>(?:weekday|workday|working\s+day|business\s+day|werktag){END}|个?工作日)"
    rf"|(?P<end>(?:weekend|wochenende){END}|个?周末)"
    rf"|(?P<unit>(?:week|woche|month|monat|year|jahr){END}|个?星期(?![一二三四五六日天])"
    rf"|周(?![一二三四五六日天末])|个?月|年)"
    rf"|(?P<part>(?:morning|afternoon|evening|night|morgen|abend|nachmittag|vormittag){END})"
)
_UNIT_WORDS = {
    "week": "week", "woche": "week", "星期": "week", "周": "week", "month": "month",
    "monat": "month", "monats": "month", "月": "month", "year": "year", "jahr": "year",
    "年": "year",
}  # fmt: skip
_ADVERB = pattern(
    rf"(?P<day>daily|täglich){END}|(?P<hour>hourly|stündlich){END}"
    rf"|(?P<work>(?:on\s+)?weekdays|werktags){END}|(?P<workday>工作日)"
    rf"|(?P<end>(?:on\s+|at\s+)?weekends|am\s+wochenende){END}"
    rf"|(?P<week>weekly|wöchentlich){END}|(?P<month>monthly|monatlich){END}"
    rf"|(?P<year>yearly|annually|jährlich){END}"
)
_PLURALS = {f"{w}s": n for w, n in WEEKDAYS.items() if w[0] < "\u3400"}
_PLURAL = pattern(rf"(?:on\s+)?(?P<day>{one_of(_PLURALS)})")
_LISTED = {**WEEKDAYS, **SHORT_WEEKDAYS, **_PLURALS} | dict(
    zip("一二三四五六日天", (0, 1, 2, 3, 4, 5, 6, 6), strict=True)
)
_AND = pattern(r"\s*(?:,|&|/|和|及)\s*(?:(?:and|und)\s+)?(?:周|星期)?|\s+(?:and|und)\s+(?:on\s+)?")
_LIST_DAY = pattern(rf"(?P<day>{one_of(_LISTED)})\.?")
_TO = pattern(r"\s*(?:-|–|to\s+|through\s+|bis\s+|到|至)\s*(?:周|星期)?")
_RANGE = pattern(
    rf"(?:on\s+)?(?P<day>{one_of(WEEKDAYS)})"
    rf"(?=\s*(?:-|–|to\s+|through\s+|bis\s+|到|至)\s*{one_of(WEEKDAYS)})"
)
_OF_EVERY = pattern(
    rf"\s*(?:(?:of\s+|in\s+)?(?:every|each)\s+month|of\s+the\s+month|(?:jedes|jeden|im)\s+monats?){END}"
)
_OTHER = pattern(rf"(?:other|second|2nd|zweiten?|zweite[rs]?){END}")
_CRON = pattern(r"cron:?\s+(?P<spec>(?:[\d*/,a-z-]{1,40}\s+){4}[\d*/,a-z-]{1,40})(?=[\s:]|$)")
_MOST_SECONDS = 400 * 366 * 86_400


def cron(text: str, at: int) -> Found | None:
    """Five fields behind the word "cron"."""
    match = _CRON.match(text, at)
    return Found(Cron(" ".join(match["spec"].split())), match.end()) if match else None


def after(text: str, at: int) -> Found | None:
    """A while from now."""
    lead = _IN.match(text, at)
    begin = lead.end() if lead else at
    found = _amount(text, begin)
    if found is None:
        return None
    seconds, days, months, end = found
    trail = None if lead else _FROM_NOW.match(text, end)
    if trail:
        end = trail.end()
    bare = lead is None and trail is None
    if bare and not text[at : at + 1].isdigit():
        return None  # "a week" and "second" are words
    return Found(After(seconds, days, months, bare), end)


def _amount(text: str, at: int) -> tuple[int, int, int, int] | None:
    """Seconds, days, months, and where it ends."""
    seconds, days, months = 0.0, 0.0, 0.0
    end, begin = at, at
    while match := _AMOUNT.match(text, begin):
        count = number(match["number"])
        if count is None:
            break
        count += 0.5 if match["half"] or match["chinese_half"] else 0.0
        per = UNITS[plain_words(match["unit"])]
        seconds, days, months = (
            total + count * one for total, one in zip((seconds, days, months), per, strict=True)
        )
        end = match.end()
        if per == UNITS["h"] and (minutes := _MINUTES.match(text, end)):
            seconds, end = seconds + 60 * int(minutes[1]), minutes.end()  # "1h30"
            break
        joined = _JOIN.match(text, end)
        begin = joined.end() if joined else end
    if end == at:
        return None
    if not months.is_integer():
        raise TimeUnclear("Months and years come whole: say days instead, as in “in 45 days”.")
    if not days.is_integer():
        seconds, days = seconds + (days % 1) * 86_400, days // 1
    if seconds + days * 86_400 + months * 31 * 86_400 > _MOST_SECONDS:
        raise TimeUnclear("That is too far away: I plan ten years ahead at most.")
    return round(seconds), int(days), int(months), end


def repeat(text: str, at: int) -> Found | None:
    """What comes again."""
    if match := _ADVERB.match(text, at):
        return Found(_adverb(match), match.end())
    if match := _PLURAL.match(text, at) or _RANGE.match(text, at):
        return _weekdays(text, match.start("day"))
    if (found := dates.written(text, at)) and isinstance(found.piece, MonthDay):
        return None  # a day beside "every month", in a slot of its own
    every = _EVERY.match(text, at)
    return _every(text, every.end()) if every else None


def of_every_month(text: str, at: int) -> Found | None:
    """The words "of every month", behind a day of the month."""
    match = _OF_EVERY.match(text, at)
    return Found(Repeat(unit="month"), match.end()) if match else None


def _every(text: str, at: int) -> Found | None:
    if match := _OTHER.match(text, at):
        raise TimeUnclear(
            f"I can not do “every {match[0].strip()}”. I can do a period, as in “every 2 days”, or "
            "days of the week, as in “every monday and thursday at 9:00”."
        )
    if match := _EACH_DAY.match(text, at):
        return Found(_each(match), match.end())
    if found := _weekdays(text, at):
        return found
    if found := _period(text, at):
        return found
    if (written := dates.written(text, at)) and not isinstance(written.piece, MonthDay):
        return Found(Repeat(unit="year"), at)  # the date itself comes next
    return Found(Repeat(unit="month"), at) if written else None


def _period(text: str, at: int) -> Found | None:
    alone = re.compile(one_of(UNITS), re.IGNORECASE).match(text, at)
    if alone:
        seconds, days, months = UNITS[plain_words(alone[0])]
        end = alone.end()
    elif amount := _amount(text, at):
        seconds, days, months, end = amount
    else:
        return None
    if months:
        raise TimeUnclear(
            "Months as a period: say the day instead, as in “on the 1st of every month at 9:00”."
        )
    if not seconds and not days:
        raise TimeUnclear("That is no period. Say, for example, “every 2 hours”.")
    return Found(Repeat(seconds=seconds + days * 86_400), end)


def _each(match: re.Match[str]) -> Repeat:
    if match["day"]:
        return Repeat(weekdays=tuple(range(7)))
    if match["work"]:
        return Repeat(weekdays=(0, 1, 2, 3, 4))
    if match["end"]:
        return Repeat(weekdays=(5, 6))
    if match["part"]:
        word = plain_words(match["part"])
        part = "morning" if word == "morgen" else PARTS[word]
        return Repeat(weekdays=tuple(range(7)), part=part)
    unit = _UNIT_WORDS[plain_words(match["unit"]).removeprefix("个")]
    return Repeat(unit=unit)  # type: ignore[arg-type]


def _adverb(match: re.Match[str]) -> Repeat:
    if match["hour"]:
        return Repeat(seconds=3600)
    if match["work"] or match["workday"]:
        return Repeat(weekdays=(0, 1, 2, 3, 4))
    if match["end"]:
        return Repeat(weekdays=(5, 6))
    if match["week"]:
        return Repeat(unit="week")
    if match["month"]:
        return Repeat(unit="month")
    return Repeat(unit="year") if match["year"] else Repeat(weekdays=tuple(range(7)))


def _weekdays(text: str, at: int) -> Found | None:
    """One or several days of the week, "monday to friday"."""
    match = _LIST_DAY.match(text, at)
    if match is None or match["day"] in "一二三四五六日天":
        return None
    days, end = [_LISTED[plain_words(match["day"])]], match.end()
    while True:
        to, more = _TO.match(text, end), _AND.match(text, end)
        joint = to or more
        following = _LIST_DAY.match(text, joint.end()) if joint else None
        if following is None:
            return Found(Repeat(weekdays=tuple(sorted(set(days)))), end)
        last = _LISTED[plain_words(following["day"])]
        if to:
            day = days[-1]
            while day != last:
                day = (day + 1) % 7
                days.append(day)
        days.append(last)
        end = following.end()
