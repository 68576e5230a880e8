"""Owns how times and schedules are told: "Mon 1 Dec 09:00 Europe/Berlin, in 22 h" (pure)."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from agent.jobs import schedules
from agent.jobs.nouns import Schedule

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHORT_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_AT_HOUR = re.compile(r"(\d{1,2}) (\d{1,2}) (\*|\d{1,2}) (\*|\d{1,2}) (\*|[\d,-]+)")


def moment(instant: float, zone: str, now: float, *, named: bool = True) -> str:
    """A moment on the wall's clock there, with its weekday; the year where it is another one."""
    there = ZoneInfo(zone)
    at, today = datetime.fromtimestamp(instant, there), datetime.fromtimestamp(now, there)
    seconds = f":{at.second:02}" if at.second else ""
    year = f" {at.year}" if at.year != today.year else ""
    day = f"{_SHORT_DAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]}{year}"
    return f"{day} {at:%H:%M}{seconds}" + (f" {zone}" if named else "")


def stamp(instant: float, zone: str) -> str:
    """A moment in full, for tables: 2026-12-01 09:00 Europe/Berlin."""
    return f"{datetime.fromtimestamp(instant, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S} {zone}"


def distance(seconds: float) -> str:
    """How far away that is, in two units at the most: "in 1 h 30 min".

    By this people check what was understood: what they wrote must be found in it again.
    """
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"in {round(seconds)} s"
    if seconds < 10 * 60:
        return _in_two(seconds, 60, "min", 1, "s")
    if round(seconds / 60) < 48 * 60:  # said a second ago, two days are two days still
        return _in_two(seconds, 3600, "h", 60, "min")
    if seconds < 7 * 86_400:
        return _in_two(seconds, 86_400, "days", 3600, "h")
    return f"in {round(seconds / 86_400)} days"


def _in_two(seconds: float, large: int, large_name: str, small: int, small_name: str) -> str:
    """To the nearest small unit; what is none of a unit is left out."""
    larges, rest = divmod(round(seconds / small) * small, large)
    parts = ((larges, large_name), (rest // small, small_name))
    return "in " + " ".join(f"{count} {name}" for count, name in parts if count)


def next_run(instant: float, zone: str, now: float) -> str:
    """When, and how far away that is."""
    return f"{moment(instant, zone, now)}, {distance(instant - now)}"


def rhythm(schedule: Schedule) -> str:
    """How often, in words: "every weekday at 08:00"; once: "once"."""
    match schedule.kind:
        case "once":
            return "once"
        case "every":
            return f"every {_period(int(schedule.spec))}"
        case "cron":
            return _cron(schedule.spec)


def following(schedule: Schedule, after: float, anchor: float, now: float, count: int = 2) -> str:
    """The next few runs, without their zone; "": it comes once."""
    if schedule.kind == "once":
        return ""
    runs = schedules.upcoming(schedule, after, count, anchor)
    return ", ".join(moment(run, schedule.zone, now, named=False) for run in runs)


def _period(seconds: int) -> str:
    for size, one in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0:
            count = seconds // size
            return one if count == 1 else f"{count:,} {one}s"
    return f"{seconds} seconds"


def _cron(spec: str) -> str:
    """The ones that plain words make, in words; others as they stand."""
    match = _AT_HOUR.fullmatch(spec)
    if match is None:
        return f"cron {spec}"
    minute, hour, of_month, month, weekdays = match.groups()
    at = f"at {int(hour):02}:{int(minute):02}"
    match of_month, month, weekdays:
        case "*", "*", "*":
            return f"every day {at}"
        case "*", "*", "1-5":
            return f"every weekday {at}"
        case "*", "*", days if re.fullmatch(r"[0-7](?:,[0-7])*", days):
            numbers = sorted(
                {int(day) % 7 for day in days.split(",")}, key=lambda day: (day - 1) % 7
            )
            names = [_DAYS[number] for number in numbers]
            return f"every {_listed(names)} {at}"
        case day, "*", "*":
            return f"on day {day} of every month {at}"
        case day, number, "*" if day != "*" and 1 <= int(number) <= 12:
            return f"every year on {day} {_MONTHS[int(number) - 1]} {at}"
    return f"cron {spec}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
