"""When jobs are due, against a walk through every minute of real time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.jobs import cron, schedules
from agent.jobs.nouns import Schedule

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
CHANGES = {
    "Europe/Berlin": ((2026, 10, 25), (2027, 3, 28)),
    "America/New_York": ((2026, 11, 1), (2027, 3, 14)),
    "Australia/Lord_Howe": ((2026, 4, 5), (2026, 10, 4)),
    "Asia/Kathmandu": ((2026, 10, 25),),
}
_DAYS = 3


@cache
def walls_of(zone: str, begin: float) -> tuple[tuple[float, datetime, bool], ...]:
    """Each real minute with its wall time, and whether that is there for the second time.

    The minutes of a gap come with it: as far behind the change as they stand in the gap.
    """
    zoned, walls = ZoneInfo(zone), []
    before: datetime | None = None
    for minute in range(_DAYS * 1440):
        instant = begin + minute * 60
        local = datetime.fromtimestamp(instant, zoned)
        wall = local.replace(tzinfo=None, fold=0)
        if before is not None:
            gap = int((wall - before).total_seconds() // 60) - 1
            for n in range(gap):
                walls.append((instant + n * 60, before + timedelta(minutes=n + 1), False))
        before = wall
        walls.append((instant, wall, bool(local.fold)))
    return tuple(walls)


def reference(spec: str, zone: str, begin: float) -> list[float]:
    fields = cron.parsed(spec)
    named = {
        instant
        for instant, wall, again in walls_of(zone, begin)
        if fields.names(wall) and (fields.every_hour or not again)
    }
    return sorted(named)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, high).map(lambda step: f"*/{step}")
    ranges_with_steps = st.tuples(ranges, st.integers(1, 9)).map(lambda p: f"{p[0]}/{p[1]}")
    piece = st.one_of(number.map(str), ranges, ranges_with_steps, steps)
    return st.one_of(st.just("*"), st.lists(piece, min_size=1, max_size=3).map(",".join))


specs = st.tuples(
    numbers(0, 59), st.one_of(st.just("*"), numbers(0, 4), numbers(0, 23)),
    st.one_of(st.just("*"), numbers(1, 28)), st.just("*"),
    st.one_of(st.just("*"), numbers(0, 7)),
).map(" ".join)  # fmt: skip
places = st.sampled_from(ZONES).flatmap(
    lambda zone: st.sampled_from(CHANGES[zone]).map(lambda day: (zone, day))
)


@given(specs, places, st.integers(0, 2 * 1440))
@settings(max_examples=120, deadline=None)
def test_cron_is_what_a_walk_through_every_minute_finds(
    spec: str, place: tuple[str, tuple[int, int, int]], skip: int
) -> None:
    zone, day = place
    begin = datetime(*day, tzinfo=UTC).timestamp() - 86_400
    expected = [due for due in reference(spec, zone, begin) if due > begin + skip * 60]
    schedule, after, found = Schedule("cron", spec, zone), begin + skip * 60, []
    for due in schedules.dues(schedule, after, 0.0):
        if due >= begin + _DAYS * 86_400 or len(found) == 40:
            break
        found.append(due)
    assert found == expected[:40]
    assert all(first < second for first, second in pairwise(found))


@given(
    st.sampled_from(ZONES),
    st.integers(60, 400_000),
    st.floats(0, 4e9),
    st.floats(0, 4e9),
)
def test_every_is_real_seconds_from_its_anchor(
    zone: str, seconds: int, anchor: float, after: float
) -> None:
    schedule = Schedule("every", str(seconds), zone)
    first, second = schedules.upcoming(schedule, after, 2, anchor)
    assert after < first <= after + seconds + 1e-3
    assert abs(second - first - seconds) < 1e-3
    assert abs(round((first - anchor) / seconds) * seconds + anchor - first) < 1e-3


@given(st.sampled_from(ZONES), st.floats(1.7e9, 4e9))
def test_a_moment_is_that_moment_in_every_zone(zone: str, instant: float) -> None:
    schedule = schedules.at_instant(instant, zone)
    due = schedules.next_due(schedule, instant - 1, 0.0)
    assert due is not None
    assert instant <= due < instant + 1
    assert schedules.next_due(schedule, due, 0.0) is None


@given(specs, st.sampled_from(ZONES), st.floats(1.7e9, 2.5e9))
@settings(max_examples=150, deadline=None)
def test_the_next_is_always_later(spec: str, zone: str, after: float) -> None:
    due = schedules.next_due(Schedule("cron", spec, zone), after, 0.0)
    assert due is not None
    assert due > after
    assert due % 60 == 0
