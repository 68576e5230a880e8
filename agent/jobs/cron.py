"""Owns the five fields of cron: what they say, and the wall times that they name (pure).

Weekdays are those of cron: 0 and 7 are Sunday. Where both a day of the month and a weekday are
named, either is enough, as in cron. APScheduler's trigger walks the calendar; it counts weekdays
from Monday and wants both, so it is told names, and asked twice. It is asked in a world without
clock changes; what those do to a wall time is `agent.jobs.schedules`' business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

from agent.jobs.nouns import JobRefused

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days that each month can have."""
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PIECE = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)
MAX_CHARS = 200


class _Trigger(Protocol):
    """What is used of APScheduler's, which tells no types."""

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """The first time not before ``now``."""
        ...


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    """Names of its numbers, from ``low`` on."""


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """What five fields say."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday; never 7."""
    either: bool
    """A day of the month and a weekday are named: one of them is enough."""
    every_hour: bool
    """No hour is named: it counts real hours, not those of the clock on the wall."""

    def names(self, wall: datetime) -> bool:
        """Is this wall time one of them?"""
        day = wall.day in self.days
        weekday = wall.isoweekday() % 7 in self.weekdays
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and ((day or weekday) if self.either else (day and weekday))
        )

    def next_wall(self, after: datetime) -> datetime:
        """The first of its wall times behind this one; both without a zone."""
        # Moved by a microsecond: the trigger gives back its own beginning.
        begin = after.replace(tzinfo=UTC, microsecond=1)
        found = [trigger.get_next_fire_time(None, begin) for trigger in _triggers(self)]
        return min(f for f in found if f is not None).replace(tzinfo=None)


def plain(spec: str) -> str:
    """The five fields with single spaces between them; a name such as ``@daily`` written out."""
    fields = " ".join(spec.split()).lower()
    return _MACROS.get(fields, fields)


@lru_cache(1_024)
def parsed(spec: str) -> Cron:
    """What these fields say.

    Raises:
        JobRefused: they are no cron, or name no day that there is.
    """
    fields = plain(spec[: MAX_CHARS + 1]).split()
    if len(fields) != 5 or len(spec) > MAX_CHARS:
        raise JobRefused(
            f"{spec[:60]!r} is no cron: it has five fields (minute, hour, day of the month, month,"
            " weekday), for example 30 9 * * mon-fri"
        )
    minutes, hours, days, months, weekdays = (
        _numbers(text, field) for text, field in zip(fields, _FIELDS, strict=True)
    )
    weekdays = frozenset(number % 7 for number in weekdays)
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either and not any(day <= _LONGEST[month - 1] for day in days for month in months):
        raise JobRefused(f"{spec!r} would never run: none of these months has such a day")
    return Cron(minutes, hours, days, months, weekdays, either, len(hours) == 24)


def _numbers(text: str, field: _Field) -> frozenset[int]:
    numbers: set[int] = set()
    for piece in text.split(","):
        match = _PIECE.fullmatch(piece)
        if match is None:
            raise JobRefused(f"{piece!r} is no {field.name} of a cron")
        step = int(match[3] or 1)
        if match[1] is None:
            first, last = field.low, 6 if field.words is _DAYS else field.high
        else:
            first = _number(match[1], field)
            last = _number(match[2], field) if match[2] else (field.high if match[3] else first)
            if last == 0 and first > 0 and field.words is _DAYS:
                last = 7  # fri-sun
        if step == 0 or last < first:
            raise JobRefused(f"{piece!r} in a cron's {field.name} goes nowhere")
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(word: str, field: _Field) -> int:
    if word in field.words:
        return field.low + field.words.index(word)
    if not word.isdecimal() or not field.low <= int(word) <= field.high:
        raise JobRefused(
            f"{word!r} is no {field.name}: it goes from {field.low} to {field.high}"
            + (f", or {field.words[0]} to {field.words[-1]}" if field.words else "")
        )
    return int(word)


@lru_cache(256)
def _triggers(cron: Cron) -> tuple[_Trigger, ...]:
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - only where there is a cron

    days = _listed(cron.days, 31)
    weekdays = ",".join(_DAYS[number] for number in sorted(cron.weekdays))
    weekdays = "*" if len(cron.weekdays) == 7 else weekdays
    asked = [(days, "*"), ("*", weekdays)] if cron.either else [(days, weekdays)]
    return tuple(
        CronTrigger(
            minute=_listed(cron.minutes, 60),
            hour=_listed(cron.hours, 24),
            day=day,
            month=_listed(cron.months, 12),
            day_of_week=weekday,
            second="0",
            timezone=UTC,
        )
        for day, weekday in asked
    )


def _listed(numbers: frozenset[int], of: int) -> str:
    """As the trigger is told; it walks through a long list at each step."""
    return "*" if len(numbers) == of else ",".join(map(str, sorted(numbers)))
