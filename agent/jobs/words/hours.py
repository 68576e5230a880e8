"""Owns which hour of a day the pieces of a time mean (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time

from agent.jobs.words.nouns import Clock, Day, Part, TimeUnclear
from agent.jobs.words.slots import Slots
from agent.jobs.words.vocabulary import PART_HOURS

_MIDDAY = 12
_SMALL_HOURS = 5
"""Up to here the night goes on, for those who are still up."""
WHICH_DAY = {
    "": "I do not know on which days. Say, for example, “every weekday at 8:00”.",
    "week": "On which day of the week? Say, for example, “every monday at 9:00”.",
    "month": "On which day of the month? Say, for example, “on the 1st of every month at 9:00”.",
    "year": "On which day of the year? Say, for example, “every december 24 at 18:00”.",
}
_FITS: dict[Part, Callable[[int], bool]] = {
    "early": lambda hour: hour < 8,
    "morning": lambda hour: hour < _MIDDAY,
    "noon": lambda hour: 11 <= hour <= 14,
    "afternoon": lambda hour: 12 <= hour <= 18,
    "evening": lambda hour: hour >= 16,
    "night": lambda hour: hour >= 17 or hour < _SMALL_HOURS,
}


@dataclass(frozen=True, slots=True)
class Hour:
    """A time of day; ``days``: so many days behind the one that was named."""

    at: time
    days: int = 0
    midnight: bool = False
    """At one of both ends of that day: which is not said."""


def hour_of(slots: Slots) -> Hour:
    """The hour.

    Raises:
        TimeUnclear: none is said, or one that is not in that part of the day.
    """
    day, repeat, clock = slots.day, slots.repeat, slots.clock
    part = (
        (slots.part and slots.part.part)
        or (clock and clock.part)
        or (day.part if isinstance(day, Day) else None)
        or (repeat and repeat.part)
        or None
    )
    if clock is None:
        if part is None:
            raise TimeUnclear(_no_hour(slots))
        return Hour(time(PART_HOURS[part]))
    if clock.midnight:
        return Hour(time(0), 1 if part in ("night", "evening") else 0, midnight=part is None)
    if part is None:
        if clock.bare and 1 <= clock.hour <= _SMALL_HOURS:
            raise TimeUnclear(_which_half(clock))
        return Hour(time(clock.hour, clock.minute, clock.second))
    return _in_part(clock, part)


def _in_part(clock: Clock, part: Part) -> Hour:
    """Eight in the evening is 20:00; "tonight at 1" is after midnight."""
    hour, days = clock.hour, 0
    match part:
        case "afternoon" | "evening" if hour < _MIDDAY and not clock.sure:
            hour += _MIDDAY
        case "night" if not clock.sure:
            if hour == _MIDDAY or hour < _SMALL_HOURS:
                hour, days = hour % _MIDDAY, 1
            else:
                hour += _MIDDAY
        case "night" if hour < _SMALL_HOURS:
            days = 1
        case "noon" if hour < 3:
            hour += _MIDDAY
        case _:
            pass
    if not _FITS[part](hour):
        raise TimeUnclear(
            f"“{clock.hour}:{clock.minute:02}” and “{part}” do not go together. Say the hour as in "
            "“tomorrow at 18:30”."
        )
    return Hour(time(hour, clock.minute, clock.second), days)


def _which_half(clock: Clock) -> str:
    """At five in the morning nobody is reminded by accident."""
    early, late = (f"{hour}:{clock.minute:02}" for hour in (clock.hour, clock.hour + _MIDDAY))
    return f"Before dawn, or in the afternoon? Say “{early}” or “{late}”."


def _no_hour(slots: Slots) -> str:
    if slots.repeat and slots.repeat.unit and slots.day is None:
        return WHICH_DAY[slots.repeat.unit]
    example = "every day at 9:00" if slots.repeat else "tomorrow at 9:00"
    return f"At what time of day? Say it beside the day, as in “{example}”."
