"""Owns what a reading of a plain time is made of, and how it is refused (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent.errors import PosthouseError
from agent.jobs.nouns import Schedule

Part = Literal["early", "morning", "noon", "afternoon", "evening", "night"]
"""Of a day."""


class TimeUnclear(PosthouseError):
    """No time, or no single one; the text asks back, for people and models."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as it was written; ``sure``: no part of the day makes another hour of it."""

    hour: int
    minute: int = 0
    second: int = 0
    sure: bool = False
    midnight: bool = False
    """The word: at which end of a day, it does not say."""
    part: Part | None = None
    """Said in one word with it."""
    bare: bool = False
    """An hour in so few words that it may be one of either half of the day."""


@dataclass(frozen=True, slots=True)
class DayPart:
    """A part of a day; ``clear``: it stands for itself, as in "in the evening"."""

    part: Part
    clear: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """Counted from today."""

    days: int
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Weekday:
    """Monday is 0. ``which``: the coming one, one of next week, or one of the two."""

    weekday: int
    which: Literal["coming", "next", "next week"] = "coming"
    short: bool = False
    """Names such as "sat" are words as well: only beside a time they are days."""


@dataclass(frozen=True, slots=True)
class Date:
    """A date, without its year perhaps."""

    month: int
    day: int
    year: int | None = None


@dataclass(frozen=True, slots=True)
class MonthDay:
    """A day of a month, as in "the 15th"."""

    day: int


@dataclass(frozen=True, slots=True)
class After:
    """A while from now: days and more by the calendar, the rest in real seconds."""

    seconds: int = 0
    days: int = 0
    months: int = 0
    bare: bool = False
    """Without "in": where text follows it may be the beginning of that."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """What comes again: a period, days of the week, or a week, a month, a year."""

    seconds: int = 0
    weekdays: tuple[int, ...] = ()
    unit: Literal["", "week", "month", "year"] = ""
    """It takes a day beside it."""
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Instant:
    """An ISO date and time; with an offset perhaps."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields."""

    spec: str


@dataclass(frozen=True, slots=True)
class Zone:
    """An IANA name."""

    name: str


Piece = (
    Clock | DayPart | Day | Weekday | Date | MonthDay | After | Repeat | Instant | Cron | Zone
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A piece in a text, and where it ends."""

    piece: Piece
    end: int


@dataclass(frozen=True, slots=True)
class Meant:
    """What a plain time means."""

    schedule: Schedule
    remark: str = ""
    """What whoever wrote it should know; "": nothing."""


@dataclass(frozen=True, slots=True)
class Split:
    """A time, and the text beside it, word for word."""

    meant: Meant
    text: str
