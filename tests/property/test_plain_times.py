"""Plain times beside any text: the text is kept word for word, or a question is asked."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agent.jobs import schedules
from agent.jobs.nouns import Schedule
from agent.jobs.words import telling
from agent.jobs.words.nouns import TimeUnclear
from agent.jobs.words.reading import read_when, split

NOW = 1_796_033_580.0
"""2026-11-30 11:13 in Berlin."""
BERLIN = "Europe/Berlin"
TIMES = (
    "tomorrow 9:00", "tomorrow at 9am", "in 20 minutes", "in 2h", "on friday at 18:30",
    "2026-12-24 18:00", "24.12. 18:00", "every weekday at 8", "every monday and thursday at 7:30",
    "every day at 22:00", "every 2 hours", "on the 1st of every month at 9", "tomorrow at noon",
    "morgen um 9:00", "9:00 UTC", "december 24 at 6pm", "cron 0 9 * * 1-5", "in einer Stunde",
)  # fmt: skip
WORDS = (
    "call", "mum", "every", "at", "on", "in", "9", "20", "may", "sat", "sun", "second", "march",
    "to", "and", "the", "monday", "tomorrow", "10:30", "1st", "noon", "night", "minutes", "me",
    "24.12.", "am", "um", "of", "UTC", "明天", "9点", "time", "day", "a", "half", "until", ":", "-",
    "5/6", "morning", "cron", "week", "next", "\n", "ünïcode", "🥚",
)  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
mixed = st.lists(st.sampled_from((*WORDS, *TIMES)), max_size=8).map(" ".join)
harmless = st.lists(
    st.sampled_from(("call", "mum", "Bob", "the", "3", "eggs", "1984", "x2", "sun", "tea", "🥚")),
    min_size=1,
    max_size=6,
).map(" ".join)


def spec(when: str) -> Schedule:
    return read_when(when, NOW, BERLIN).schedule


@given(when=st.sampled_from(TIMES), text=harmless)
def test_text_without_words_of_time_is_kept_before_and_behind(when: str, text: str) -> None:
    assume(not text.startswith(("3", "1984")))
    assume(not text.endswith("sun"))  # "sun 9:00" is a day, and so is "9:00 sun"
    behind, before = split(f"{when} {text}", NOW, BERLIN), split(f"{text} {when}", NOW, BERLIN)
    assert (behind.meant.schedule, behind.text) == (spec(when), text)
    assert (before.meant.schedule, before.text) == (spec(when), text)


@given(when=st.sampled_from(TIMES), text=texts)
@example(when="tomorrow 9:00", text="every day")
@example(when="in 2h", text="at 9")
def test_any_text_behind_a_colon_is_the_text(when: str, text: str) -> None:
    text = text.strip(" :-\n")
    assume(text)
    found = split(f"{when}: {text}", NOW, BERLIN)
    assert (found.meant.schedule, found.text) == (spec(when), text)


@given(argument=st.one_of(texts, st.text(max_size=60), mixed))
def test_whatever_is_typed_no_word_is_lost_or_made(argument: str) -> None:
    """Text and time are pieces of what was typed, and the time alone means the same."""
    try:
        found = split(argument, NOW, BERLIN)
    except TimeUnclear:
        return
    assert found.text.strip()
    assert found.text in argument
    schedule = found.meant.schedule
    due = schedules.next_due(schedules.checked(schedule), NOW, NOW)
    assert due is not None
    assert due > NOW
    first, _, last = argument.rpartition(found.text)
    alone = f"{first} {last}".strip(" .!?:;,-–—\n")
    assert alone


@given(text=st.text(max_size=250))
def test_reading_anything_ends_in_a_schedule_or_a_question(text: str) -> None:
    try:
        schedule = read_when(text, NOW, BERLIN).schedule
    except TimeUnclear:
        return
    assert schedules.next_due(schedules.checked(schedule), NOW, NOW) is not None


@pytest.mark.parametrize("when", TIMES)
def test_what_is_told_of_a_schedule_names_its_zone(when: str) -> None:
    schedule = spec(when)
    due = schedules.next_due(schedule, NOW, NOW)
    assert due is not None
    told = telling.next_run(due, schedule.zone, NOW)
    assert schedule.zone in told
    assert ", in " in told
    assert telling.rhythm(schedule)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "in 0 s"),
        (90, "in 90 s"),
        (150, "in 2 min 30 s"),
        (599.9, "in 10 min"),
        (1199.7, "in 20 min"),
        (5399.6, "in 1 h 30 min"),
        (7200, "in 2 h"),
        (86_400, "in 24 h"),
        (47 * 3600, "in 47 h"),
        (48 * 3600 - 1, "in 2 days"),
        (53 * 3600, "in 2 days 5 h"),
        (10 * 86_400, "in 10 days"),
    ],
)
def test_a_distance_is_told_as_it_was_said(seconds: float, told: str) -> None:
    assert telling.distance(seconds) == told


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("every weekday at 8", "every weekday at 08:00"),
        ("every weekend at 10", "every Saturday and Sunday at 10:00"),
        ("every sun, mon and thu at 7:30", "every Monday, Thursday and Sunday at 07:30"),
        ("on the 1st of every month at 9", "on day 1 of every month at 09:00"),
        ("every december 24 at 18:00", "every year on 24 Dec at 18:00"),
        ("every 90 minutes", "every 90 minutes"),
        ("every 2 days", "every 2 days"),
        ("cron */5 * * * *", "cron */5 * * * *"),
        ("tomorrow 9:00", "once"),
    ],
)
def test_a_rhythm_is_told_as_it_was_said(when: str, told: str) -> None:
    assert telling.rhythm(spec(when)) == told


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    day=st.sampled_from(("tomorrow", "on saturday", "every day", "2027-03-28", "24.12.")),
)
def test_a_clock_time_is_never_another_one(hour: int, minute: int, day: str) -> None:
    schedule = spec(f"{day} at {hour}:{minute:02}")
    if schedule.kind == "cron":
        assert schedule.spec.split()[:2] == [str(minute), str(hour)]
    else:
        assert schedule.spec.endswith(f"T{hour:02}:{minute:02}:00")


zones = st.sampled_from(
    (BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")
)
moments = st.floats(1_767_225_600, 1_893_456_000) | st.sampled_from(
    # within an hour of a change of the clock: Berlin 2027, New York 2027
    (1_806_195_000.0, 1_806_196_200.0, 1_824_944_400.0, 1_824_948_000.0, 1_805_007_000.0)
)


@given(now=moments, zone=zones, minutes=st.integers(1, 100_000))
def test_a_while_is_as_long_as_it_was_said_to_be(now: float, zone: str, minutes: int) -> None:
    schedule = read_when(f"in {minutes} minutes", now, zone).schedule
    due = schedules.next_due(schedule, now, now)
    assert due is not None
    assert 0 <= due - now - minutes * 60 < 1


@given(now=moments, zone=zones, hour=st.integers(0, 23), minute=st.integers(0, 59))
@example(now=1_806_195_000.0, zone=BERLIN, hour=2, minute=30)
def test_a_time_of_day_is_within_a_day_and_reads_as_it_was_said(
    now: float, zone: str, hour: int, minute: int
) -> None:
    meant = read_when(f"{hour}:{minute:02}", now, zone)
    due = schedules.next_due(meant.schedule, now, now)
    assert due is not None
    assert 0 < due - now <= 26 * 3600
    local = datetime.fromtimestamp(due, ZoneInfo(zone))
    if meant.remark.startswith("The clocks go forward"):
        assert (local.hour, local.minute) != (hour, minute)
    else:
        assert (local.hour, local.minute) == (hour, minute)


@given(now=moments, zone=zones, days=st.integers(1, 3_000))
def test_days_are_the_calendars(now: float, zone: str, days: int) -> None:
    local = datetime.fromtimestamp(now, ZoneInfo(zone))
    schedule = read_when(f"in {days} days at 12:00", now, zone).schedule
    assert schedule.spec == f"{local.date() + timedelta(days=days)}T12:00:00"
