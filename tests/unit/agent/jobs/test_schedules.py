"""When schedules are due: the cases that other schedulers have got wrong."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agent.jobs import schedules
from agent.jobs.nouns import JobRefused, Misses, Schedule

BERLIN = "Europe/Berlin"


def at(wall: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo(zone)).timestamp()


def runs(spec: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    due = schedules.upcoming(Schedule("cron", spec, zone), at(after, zone), count, 0.0)
    return [datetime.fromtimestamp(d, ZoneInfo(zone)).strftime("%a %d %H:%M%z") for d in due]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("0 9 * * 1-5", ["Fri 23 09:00+0200", "Mon 26 09:00+0100", "Tue 27 09:00+0100"]),
        ("0 9 * * mon-fri", ["Fri 23 09:00+0200", "Mon 26 09:00+0100", "Tue 27 09:00+0100"]),
        ("0 3 * * 0", ["Sun 25 03:00+0100", "Sun 01 03:00+0100", "Sun 08 03:00+0100"]),
        ("0 3 * * 7", ["Sun 25 03:00+0100", "Sun 01 03:00+0100", "Sun 08 03:00+0100"]),
        ("15 10 * * 1,7", ["Sun 25 10:15+0100", "Mon 26 10:15+0100", "Sun 01 10:15+0100"]),
        ("0 8 * * 5-7", ["Sat 24 08:00+0200", "Sun 25 08:00+0100", "Fri 30 08:00+0100"]),
        ("0 8 * * FRI-SUN", ["Sat 24 08:00+0200", "Sun 25 08:00+0100", "Fri 30 08:00+0100"]),
        ("0 12 * * */2", ["Sat 24 12:00+0200", "Sun 25 12:00+0100", "Tue 27 12:00+0100"]),
        ("0 12 1 * 1", ["Mon 26 12:00+0100", "Sun 01 12:00+0100", "Mon 02 12:00+0100"]),
        ("@weekly", ["Sun 25 00:00+0200", "Sun 01 00:00+0100", "Sun 08 00:00+0100"]),
        ("0 9 24/3 oct *", ["Sat 24 09:00+0200", "Tue 27 09:00+0100", "Fri 30 09:00+0100"]),
    ],
)
def test_weekdays_are_those_of_cron(spec: str, expected: list[str]) -> None:
    assert runs(spec, "2026-10-23T08:00:01", 3) == expected


def test_a_local_time_that_comes_twice_runs_once() -> None:
    assert runs("30 2 * * *", "2026-10-24T12:00", 3) == [
        "Sun 25 02:30+0200", "Mon 26 02:30+0100", "Tue 27 02:30+0100",
    ]  # fmt: skip
    second = at("2026-10-25T02:30") + 3600 - 60  # 02:29, for the second time
    due = schedules.next_due(Schedule("cron", "30 2 * * *", BERLIN), second, 0.0)
    assert due == at("2026-10-26T02:30")


def test_a_local_time_that_is_left_out_runs_once_behind_the_gap() -> None:
    assert runs("30 2 * * *", "2027-03-27T12:00", 2) == ["Sun 28 03:30+0200", "Mon 29 02:30+0200"]
    assert runs("30 2,3 * * *", "2027-03-27T12:00", 2) == [
        "Sun 28 03:30+0200", "Mon 29 02:30+0200",
    ]  # fmt: skip


def test_half_an_hour_of_change() -> None:
    zone = "Australia/Lord_Howe"
    assert runs("15 2 * * *", "2026-10-03T12:00", 2, zone) == [
        "Sun 04 02:45+1100", "Mon 05 02:15+1100",
    ]  # fmt: skip
    assert runs("45 1 * * *", "2026-04-04T12:00", 2, zone) == [
        "Sun 05 01:45+1100", "Mon 06 01:45+1030",
    ]  # fmt: skip


def test_without_an_hour_it_goes_by_real_time() -> None:
    assert runs("*/30 * * * *", "2026-10-25T01:45", 5) == [
        "Sun 25 02:00+0200", "Sun 25 02:30+0200", "Sun 25 02:00+0100", "Sun 25 02:30+0100",
        "Sun 25 03:00+0100",
    ]  # fmt: skip


def test_every_two_hours_are_real_hours() -> None:
    begin = at("2026-10-25T00:00")
    due = schedules.upcoming(Schedule("every", "7200", BERLIN), begin, 3, begin)
    assert due == [begin + 7200, begin + 14_400, begin + 21_600]
    before = schedules.next_due(Schedule("every", "7200", BERLIN), begin - 9e8, begin)
    assert before is not None
    assert begin - 9e8 < before <= begin - 9e8 + 7200


def test_a_day_that_a_zone_left_out() -> None:
    assert runs("0 9 30 12 *", "2011-12-29T12:00", 2, "Pacific/Apia") == [
        "Sat 31 09:00+1400", "Sun 30 09:00+1400",
    ]  # fmt: skip


def test_once_is_over_when_its_time_is() -> None:
    schedule = schedules.checked(Schedule("once", "2026-10-25 02:30", BERLIN))
    assert schedule.spec == "2026-10-25T02:30:00"
    due = at("2026-10-25T02:30")
    assert schedules.next_due(schedule, due - 1, 0.0) == due
    assert schedules.next_due(schedule, due, 0.0) is None
    aware = schedules.checked(Schedule("once", "2026-12-01T08:00:00+00:00", BERLIN))
    assert aware.spec == "2026-12-01T09:00:00"


def test_a_moment_in_the_hour_that_comes_twice_is_kept() -> None:
    second = at("2026-10-25T02:30") + 3600
    schedule = schedules.at_instant(second, BERLIN)
    assert schedule.zone == "UTC"
    assert schedules.next_due(schedule, second - 1, 0.0) == second


@pytest.mark.parametrize(
    ("kind", "spec", "zone", "why"),
    [
        ("cron", "0 9 30 2 *", BERLIN, "would never run"),
        ("cron", "0 9 31 4,6,9,11 *", BERLIN, "would never run"),
        ("cron", "0 9 * *", BERLIN, "five fields"),
        ("cron", "@reboot", BERLIN, "five fields"),
        ("cron", "60 9 * * *", BERLIN, "goes from 0 to 59"),
        ("cron", "0 9 * * 8", BERLIN, "or sun to sat"),
        ("cron", "0 9 * foo *", BERLIN, "'foo' is no month"),
        ("cron", "0 9-7 * * *", BERLIN, "goes nowhere"),
        ("cron", "0 */0 * * *", BERLIN, "goes nowhere"),
        ("cron", "0 9, * * *", BERLIN, "is no hour"),
        ("cron", "0 9 * * " + "1," * 200 + "1", BERLIN, "no cron"),
        ("cron", "٣ 9 * * *", BERLIN, "is no minute"),
        ("every", "59", BERLIN, "every minute at most"),
        ("every", "-60", BERLIN, "no number of seconds"),
        ("every", "9" * 11, BERLIN, "once a year at least"),
        ("once", "tomorrow", BERLIN, "no date and time"),
        ("once", "9999-01-01T00:00", BERLIN, "not within the years"),
        ("cron", "0 9 * * *", "Mars/Olympus", "no time zone"),
        ("cron", "0 9 * * *", "../etc/passwd", "no time zone"),
        ("cron", "0 9 * * *", "", "no time zone"),
    ],
)
def test_what_nobody_could_tell_is_refused(kind: str, spec: str, zone: str, why: str) -> None:
    with pytest.raises(JobRefused, match=why):
        schedules.checked(Schedule(kind, spec, zone))  # type: ignore[arg-type]


def test_a_leap_day_is_waited_for() -> None:
    assert runs("0 9 29 2 *", "2026-01-01T00:00", 1)[0].startswith("Tue 29")


def test_grace_grows_with_the_distance_within_bounds() -> None:
    due = at("2026-06-01T09:00")

    def grace(kind: str, spec: str) -> float:
        schedule = Schedule(kind, spec, BERLIN)  # type: ignore[arg-type]
        return schedules.grace_seconds(schedule, due, due)

    assert grace("every", "60") == 900
    assert grace("every", "7200") == 3600
    assert grace("cron", "0 9 * * *") == 4 * 3600
    assert grace("once", "2026-06-01T09:00:00") == 86_400


def test_what_was_missed_is_told_in_one_and_counted_to_a_bound() -> None:
    minutely = Schedule("every", "60", BERLIN)
    told = schedules.misses(minutely, 600.0, 600.0 + 180, 0.0, reason="off")
    assert told == Misses(600.0, 720.0, 3, "off")
    assert schedules.misses(minutely, 600.0, 600.0, 0.0, reason="off") is None
    month = schedules.misses(minutely, 600.0, 600.0 + 30 * 86_400, 0.0, reason="off")
    assert month is not None
    assert month.count == schedules.MAX_COUNTED
    assert schedules.newest_due(minutely, 600.0, 30 * 86_400.0 + 30, 0.0) == 30 * 86_400.0
    assert schedules.newest_due(minutely, 600.0, 600.0, 0.0) == 600.0
