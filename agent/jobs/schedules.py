"""Owns when a schedule is due: instants from wall times, over any change of the clock (pure).

A wall time that a clock change brings twice counts once, the first time; one that it leaves out
counts once as well, as far behind the change as it stands in the gap (02:30 becomes 03:30). A cron
that names no hour goes by real time: twice through the hour that comes twice. ``every`` is real
seconds from its anchor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from agent.jobs import cron
from agent.jobs.nouns import MIN_EVERY_SECONDS, JobRefused, Misses, Schedule

MAX_EVERY_SECONDS = 366 * 86_400
LAST_YEAR = 2200
LAST_INSTANT = datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp()
GRACE_SECONDS = 900.0
"""A run is made up for at least so long after its time …"""
MAX_GRACE_SECONDS = 4 * 3600.0
"""… and at most so long, but for"""
ONCE_GRACE_SECONDS = 86_400.0
"""what happens only once: late is better than never."""
MAX_COUNTED = 500
"""Missed times are counted up to this: a number to look at, and each holds the loop for 0.1 ms."""


def checked(schedule: Schedule) -> Schedule:
    """The same in the one form in which it is stored.

    Raises:
        JobRefused: nobody could tell when that is.
    """
    _zone(schedule.zone)
    match schedule.kind:
        case "once":
            return replace(schedule, spec=_wall(schedule).isoformat(timespec="seconds"))
        case "every":
            return replace(schedule, spec=str(_seconds(schedule.spec)))
        case "cron":
            cron.parsed(schedule.spec)
            return replace(schedule, spec=cron.plain(schedule.spec))


def at_instant(instant: float, zone: str) -> Schedule:
    """Once, at this moment: told in the zone, or in UTC where the zone has that time twice."""
    instant = math.ceil(instant)
    local = datetime.fromtimestamp(instant, _zone(zone))
    if _instant(local.replace(tzinfo=None, fold=0), _zone(zone)) != instant:
        local, zone = datetime.fromtimestamp(instant, UTC), "UTC"
    return Schedule("once", local.replace(tzinfo=None).isoformat(timespec="seconds"), zone)


def next_due(schedule: Schedule, after: float, anchor: float) -> float | None:
    """The first due time later than ``after``; None: there is none any more.

    Raises:
        JobRefused: nobody could tell when that is.
    """
    match schedule.kind:
        case "once":
            instant = _instant(_wall(schedule), _zone(schedule.zone))
            return instant if instant > after else None
        case "every":
            seconds = _seconds(schedule.spec)
            due = anchor + (math.floor((after - anchor) / seconds) + 1) * seconds
            return due if due > after else due + seconds  # a fraction was lost
        case "cron":
            return _next_of_cron(cron.parsed(schedule.spec), _zone(schedule.zone), after)


def dues(schedule: Schedule, after: float, anchor: float) -> Iterator[float]:
    """All due times later than ``after``, in order."""
    due = next_due(schedule, after, anchor)
    while due is not None:
        yield due
        due = next_due(schedule, due, anchor)


def upcoming(schedule: Schedule, after: float, count: int, anchor: float) -> list[float]:
    """The next few of them."""
    return list(islice(dues(schedule, after, anchor), count))


def over_text(schedule: Schedule) -> str:
    """Why a job with this schedule would never run, in words."""
    return f"{schedule.spec.replace('T', ' ')} ({schedule.zone}) has passed already"


def grace_seconds(schedule: Schedule, due: float, anchor: float) -> float:
    """How late a run may be: half of what lies between it and the next, within bounds."""
    following = next_due(schedule, due, anchor)
    if following is None:
        return ONCE_GRACE_SECONDS
    return min(max(GRACE_SECONDS, (following - due) / 2), MAX_GRACE_SECONDS)


def newest_due(schedule: Schedule, first: float, now: float, anchor: float) -> float:
    """The newest due time up to now, as far as a late run could matter; else ``first``."""
    newest = first
    for due in dues(schedule, max(first, now - MAX_GRACE_SECONDS), anchor):
        if due > now:
            break
        newest = due
    return newest


def misses(
    schedule: Schedule, first: float, before: float, anchor: float, *, reason: str
) -> Misses | None:
    """What was due from ``first`` on and before ``before``, told in one; counted up to a bound."""
    if first >= before:
        return None
    count, last = 1, first
    for due in dues(schedule, first, anchor):
        if due >= before or count >= MAX_COUNTED:
            break
        count, last = count + 1, due
    return Misses(first, last, count, reason)


# --- wall times ---------------------------------------------------------------------------------


def _next_of_cron(fields: cron.Cron, zone: ZoneInfo, after: float) -> float | None:
    """Instants do not follow in the order of their wall times where the clock changes.

    So it is looked as far back, and as far on behind the first find, as the clock jumps there.
    """
    jump = _jump(zone, after)
    wall = _local(after, zone) - jump
    best: float | None = None
    until: datetime | None = None
    while True:
        wall = fields.next_wall(wall)
        if until is not None and wall > until:
            return best
        if wall.year > LAST_YEAR:
            return best
        instants = _instants(wall, zone, twice=fields.every_hour)
        later = [instant for instant in instants if instant > after]
        if later and (best is None or min(later) < best):
            best = min(later)
        if best is not None and until is None:
            until = wall + max(jump, _jump(zone, best))
            if until == wall:
                return best


def _instants(wall: datetime, zone: ZoneInfo, *, twice: bool) -> tuple[float, ...]:
    first = _instant(wall, zone)
    if not twice:
        return (first,)
    second = wall.replace(tzinfo=zone, fold=1).timestamp()
    return (first, second) if _local(second, zone) == wall else (first,)


def _instant(wall: datetime, zone: ZoneInfo) -> float:
    """With the offset from before a change: the first of two, and behind a gap."""
    return wall.replace(tzinfo=zone, fold=0).timestamp()


def _local(instant: float, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)


def _jump(zone: ZoneInfo, instant: float) -> timedelta:
    """How far the clock jumps so near to this moment that it matters; mostly not at all."""
    days = [_offset(zone, instant + days * 86_400) for days in (-2, -1, 0, 1, 2)]
    jump = max(days) - min(days)
    near = jump.total_seconds() + 1
    if not jump or _offset(zone, instant - near) == _offset(zone, instant + near):
        return timedelta()
    return jump


def _offset(zone: ZoneInfo, instant: float) -> timedelta:
    return datetime.fromtimestamp(instant, zone).utcoffset() or timedelta()


@lru_cache(256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise JobRefused(f"{name[:60]!r} is no time zone name, for example Europe/Berlin") from exc


def _wall(schedule: Schedule) -> datetime:
    try:
        wall = datetime.fromisoformat(schedule.spec)
    except ValueError as exc:
        raise JobRefused(
            f"{schedule.spec[:60]!r} is no date and time, for example 2026-12-01 09:00"
        ) from exc
    if not 1970 < wall.year < LAST_YEAR:
        raise JobRefused(f"{schedule.spec} is not within the years that a job can be set for")
    if wall.tzinfo is not None:
        wall = wall.astimezone(_zone(schedule.zone)).replace(tzinfo=None)
    return wall.replace(fold=0, microsecond=0)


def _seconds(spec: str) -> int:
    if not spec.strip().isdecimal() or len(spec) > 12:
        raise JobRefused(f"{spec[:60]!r} is no number of seconds")
    seconds = int(spec)
    if not MIN_EVERY_SECONDS <= seconds <= MAX_EVERY_SECONDS:
        raise JobRefused("a job can run every minute at most, and once a year at least")
    return seconds
