"""Owns which days a word for a day can mean, seen from today (pure)."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import date, timedelta

from agent.jobs.words.nouns import Date, Day, MonthDay, TimeUnclear, Weekday

WEEKDAY_NAMES = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip


def days_of(day: Day | Weekday | Date | MonthDay | None, today: date) -> Iterator[date]:
    """Days that may be meant, in order."""
    match day:
        case None:
            yield from (today, today + timedelta(days=1))
        case Day():
            yield today + timedelta(days=day.days)
        case Weekday():
            yield from _of_week(day, today)
        case Date(month, of_month, None):
            for year in range(today.year, today.year + 9):
                if of_month <= calendar.monthrange(year, month)[1]:
                    yield date(year, month, of_month)
        case Date(month, of_month, year) if year is not None:
            try:
                yield date(year, month, of_month)
            except ValueError as exc:
                raise TimeUnclear(f"{year} has no such day.") from exc
        case MonthDay(of_month):
            for months in range(13):
                year, month = divmod(today.year * 12 + today.month - 1 + months, 12)
                if of_month <= calendar.monthrange(year, month + 1)[1]:
                    yield date(year, month + 1, of_month)


def _of_week(said: Weekday, today: date) -> Iterator[date]:
    coming = today + timedelta(days=(said.weekday - today.weekday()) % 7)
    monday = today - timedelta(days=today.weekday()) + timedelta(days=7)
    next_weeks = monday + timedelta(days=said.weekday)
    match said.which:
        case "coming":
            yield from (coming, coming + timedelta(days=7))
        case "next week":
            yield next_weeks
        case "next":
            if coming in (today, next_weeks):
                yield next_weeks
                return
            name = WEEKDAY_NAMES[coming.weekday()]
            raise TimeUnclear(
                f"“Next {name}” can be {coming:%Y-%m-%d} or {next_weeks:%Y-%m-%d}: say “on {name}” "
                f"for the first, the date “{next_weeks:%Y-%m-%d}” for the other."
            )
