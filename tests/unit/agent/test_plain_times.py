"""Plain times: a table of what is read, in three languages, and of what is asked back."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agent.jobs.words.nouns import TimeUnclear
from agent.jobs.words.reading import EXAMPLES, read_when, split

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 30, 11, 13, tzinfo=ZoneInfo(BERLIN)).timestamp()
"""A Monday."""
READ = """
tomorrow 9:00 = once 2026-12-01T09:00:00
tomorrow at 9am = once 2026-12-01T09:00:00
tomorrow at 9 = once 2026-12-01T09:00:00
in 20 minutes = once 2026-11-30T11:33:00
in 2h = once 2026-11-30T13:13:00
in 2 hours = once 2026-11-30T13:13:00
in 1h30m = once 2026-11-30T12:43:00
in 1 hour and 30 minutes = once 2026-11-30T12:43:00
in half an hour = once 2026-11-30T11:43:00
in an hour = once 2026-11-30T12:13:00
in a minute = once 2026-11-30T11:14:00
in 90 seconds = once 2026-11-30T11:14:30
in 2 days = once 2026-12-02T11:13:00
in 2 days at 9:00 = once 2026-12-02T09:00:00
in 3 weeks = once 2026-12-21T11:13:00
in a month = once 2026-12-30T11:13:00
on friday at 18:30 = once 2026-12-04T18:30:00
friday 18:30 = once 2026-12-04T18:30:00
fri 6pm = once 2026-12-04T18:00:00
next monday 9:00 = once 2026-12-07T09:00:00
this evening = once 2026-11-30T18:00:00
tonight = once 2026-11-30T20:00:00
tonight at 8 = once 2026-11-30T20:00:00
tonight 8pm = once 2026-11-30T20:00:00
noon = once 2026-11-30T12:00:00
at noon = once 2026-11-30T12:00:00
midnight = once 2026-12-01T00:00:00
tomorrow noon = once 2026-12-01T12:00:00
2026-12-24 18:00 = once 2026-12-24T18:00:00
2026-12-24T18:00 = once 2026-12-24T18:00:00
24.12. 18:00 = once 2026-12-24T18:00:00
24.12.2026 18:00 = once 2026-12-24T18:00:00
12/24/2026 6pm = once 2026-12-24T18:00:00
24/12/2026 18:00 = once 2026-12-24T18:00:00
december 24 at 6pm = once 2026-12-24T18:00:00
24 december 18:00 = once 2026-12-24T18:00:00
dec 24 2026 18:00 = once 2026-12-24T18:00:00
24th of december at 6pm = once 2026-12-24T18:00:00
at 8 = once 2026-12-01T08:00:00
at 8am = once 2026-12-01T08:00:00
8am = once 2026-12-01T08:00:00
at 14:00 = once 2026-11-30T14:00:00
14:00 = once 2026-11-30T14:00:00
today at 18:00 = once 2026-11-30T18:00:00
9:00 New York time = once 2026-11-30T09:00:00 America/New_York
09:00 UTC = once 2026-12-01T09:00:00 UTC
tomorrow 9:00 UTC = once 2026-12-01T09:00:00 UTC
tomorrow 9:00 Europe/London = once 2026-12-01T09:00:00 Europe/London
tomorrow morning = once 2026-12-01T09:00:00
in 1h30 = once 2026-11-30T12:43:00
tomorrow 21h30 = once 2026-12-01T21:30:00
tomorrow 9.30pm = once 2026-12-01T21:30:00
um 12:00 am Dienstag = once 2026-12-01T12:00:00
at 9 Eastern time = once 2026-11-30T09:00:00 America/New_York
9:00 beijing time = once 2026-12-01T09:00:00 Asia/Shanghai
at 3 in the afternoon = once 2026-11-30T15:00:00
5pm = once 2026-11-30T17:00:00
tomorrow 5:00 = once 2026-12-01T05:00:00
morgen um 5 Uhr = once 2026-12-01T05:00:00
每周五下午5点 = cron 0 17 * * 5
tomorrow afternoon at 3 = once 2026-12-01T15:00:00
monday morning = once 2026-12-07T09:00:00
the day after tomorrow at 9 = once 2026-12-02T09:00:00
quarter past 9 = once 2026-12-01T09:15:00
half past nine = once 2026-12-01T09:30:00
nine o'clock = once 2026-12-01T09:00:00
tomorrow at nine = once 2026-12-01T09:00:00
1st of december 9:00 = once 2026-12-01T09:00:00
on the 15th at 9 = once 2026-12-15T09:00:00
20 minutes = once 2026-11-30T11:33:00
every day at 9 = cron 0 9 * * *
morgen um 9 = once 2026-12-01T09:00:00
morgen 9:00 = once 2026-12-01T09:00:00
übermorgen um 8 Uhr = once 2026-12-02T08:00:00
in 20 Minuten = once 2026-11-30T11:33:00
in einer Stunde = once 2026-11-30T12:13:00
am Freitag um 18:30 = once 2026-12-04T18:30:00
heute abend = once 2026-11-30T18:00:00
heute um 20 Uhr = once 2026-11-30T20:00:00
24. Dezember 18:00 = once 2026-12-24T18:00:00
jeden Tag um 8 = cron 0 8 * * *
nächsten Montag um 9 = once 2026-12-07T09:00:00
明天9点 = once 2026-12-01T09:00:00
明天上午9点 = once 2026-12-01T09:00:00
明天下午3点半 = once 2026-12-01T15:30:00
20分钟后 = once 2026-11-30T11:33:00
2小时后 = once 2026-11-30T13:13:00
后天早上8点 = once 2026-12-02T08:00:00
下周一9点 = once 2026-12-07T09:00:00
12月24日18:00 = once 2026-12-24T18:00:00
今晚8点 = once 2026-11-30T20:00:00
每天早上8点 = cron 0 8 * * *
周五18:30 = once 2026-12-04T18:30:00
every weekday at 8 = cron 0 8 * * 1-5
every monday and thursday at 7:30 = cron 30 7 * * 1,4
every day at 22:00 = cron 0 22 * * *
every 2 hours = every 7200
every 90 minutes = every 5400
on the 1st of every month at 9 = cron 0 9 1 * *
cron 0 9 * * 1-5 = cron 0 9 * * 1-5
every hour = every 3600
every morning = cron 0 9 * * *
every morning at 8 = cron 0 8 * * *
every evening at 7 = cron 0 19 * * *
daily at 9 = cron 0 9 * * *
mondays at 9 = cron 0 9 * * 1
every monday, wednesday and friday at 6pm = cron 0 18 * * 1,3,5
monday to friday at 9 = cron 0 9 * * 1-5
every mon-fri at 9 = cron 0 9 * * 1-5
every weekend at 10 = cron 0 10 * * 0,6
every week on monday at 9 = cron 0 9 * * 1
every month on the 15th at 9 = cron 0 9 15 * *
every december 24 at 18:00 = cron 0 18 24 12 *
every year on december 24 at 18:00 = cron 0 18 24 12 *
every 31st at 9 = cron 0 9 31 * *
every 2 days = every 172800
every 2 weeks = every 1209600
in an hour and a half = once 2026-11-30T12:43:00
in 1 day and 2 hours = once 2026-12-01T13:13:00
in 45 days = once 2027-01-14T11:13:00
in 2 months = once 2027-01-30T11:13:00
20 minutes from now = once 2026-11-30T11:33:00
sat 9:00 = once 2026-12-05T09:00:00
friday next week at 9 = once 2026-12-11T09:00:00
morgen früh um 8 = once 2026-12-01T08:00:00
morgen früh = once 2026-12-01T09:00:00
heute Abend um 8 = once 2026-11-30T20:00:00
jeden Werktag um 8 = cron 0 8 * * 1-5
jeden Montag und Donnerstag um 7:30 = cron 30 7 * * 1,4
montags um 9 = cron 0 9 * * 1
alle 2 Stunden = every 7200
stündlich = every 3600
am 1. jedes Monats um 9 = cron 0 9 1 * *
in einer halben Stunde = once 2026-11-30T11:43:00
um halb 9 = once 2026-12-01T08:30:00
9 Uhr 30 = once 2026-12-01T09:30:00
24. Dezember um 18 Uhr = once 2026-12-24T18:00:00
每周一和周四7:30 = cron 30 7 * * 1,4
每周一、周四7:30 = cron 30 7 * * 1,4
每个工作日8点 = cron 0 8 * * 1-5
每2小时 = every 7200
每小时 = every 3600
每月1号9点 = cron 0 9 1 * *
半小时后 = once 2026-11-30T11:43:00
一个半小时后 = once 2026-11-30T12:43:00
十分钟后 = once 2026-11-30T11:23:00
下周五9点 = once 2026-12-11T09:00:00
明天早上8点 = once 2026-12-01T08:00:00
晚上8点半 = once 2026-11-30T20:30:00
中午12点 = once 2026-11-30T12:00:00
tomorrow 12am = once 2026-12-01T00:00:00
tomorrow 12pm = once 2026-12-01T12:00:00
tomorrow at 9:00 Tokyo time = once 2026-12-01T09:00:00 Asia/Tokyo
2026-12-24T18:00+05:00 = once 2026-12-24T14:00:00
2026-12-24T18:00Z = once 2026-12-24T19:00:00
2027-03-28 02:30 = once 2027-03-28T02:30:00
2027-10-31 02:30 = once 2027-10-31T02:30:00
next monday at 9 = once 2026-12-07T09:00:00
at half past nine = once 2026-12-01T09:30:00
quarter to 9 tomorrow = once 2026-12-01T08:45:00
tomorrow at nine pm = once 2026-12-01T21:00:00
tonight at 1 = once 2026-12-01T01:00:00
tonight at midnight = once 2026-12-01T00:00:00
5 minutes = once 2026-11-30T11:18:00
every minute = every 60
cron 0 9 * * 7 = cron 0 9 * * 7
in 20m = once 2026-11-30T11:33:00
this friday at 9 = once 2026-12-04T09:00:00
the 5th of may at 10 = once 2027-05-05T10:00:00
may 5 at 10 = once 2027-05-05T10:00:00
2036-12-01 09:00 = once 2036-12-01T09:00:00
"""
UNCLEAR = """
at 5 = Before dawn, or in the afternoon\\? Say “5:00” or “17:00”
tomorrow at three = Say “3:00” or “15:00”
half past 3 = Say “3:30” or “15:30”
明天3点 = Say “3:00” or “15:00”
every day at 4 o'clock = Say “4:00” or “16:00”
at 8 Christmas time = but not “Christmas time”
tomorrow = At what time of day
next friday at 10 = can be 2026-12-04 or 2026-12-11
next week = I find no time
tomorrow at midnight = both ends of a day
2026-12-24 = At what time of day
24.12.2026 = At what time of day
05/06/2027 9:00 = can be read in two ways
8 = I find no time
1 = I find no time
may = I find no time
sat = I find no time
sun = I find no time
mon = I find no time
march = I find no time
may 5 = At what time of day
second = I find no time
now = I find no time
today = At what time of day
today at 9 = has passed
yesterday = has passed
yesterday at 5 = has passed
last friday = I find no time
30.2. 9:00 = There is no day
2026-02-30 9:00 = There is no day
25:00 = is no time of day
tomorrow 25:00 = is no time of day
tomorrow at 9:75 = is no time of day
tomorrow 9:00 EST = not always the same zone
on the 15th = At what time of day
call mum = I find no time
hello = I find no time
eat 3 apples = I find no time
123456 = I find no time
99999999999999999999 = I find no time
in -5 minutes = I find no time
in 0 minutes = That is now
in 99999999 years = I find no time
5 minutes ago = but not
every week = On which day
every 2 days at 9 = but not
every other day at 9 = I can not do
every month = On which day
nächsten Freitag um 9 = can be 2026-12-04 or 2026-12-11
13pm = is no time of day
9:00 Europe/Nowhere = but not
monday = At what time of day
friday at midnight = both ends of a day
every 30 seconds = every minute at most
cron 99 * * * * = is no minute
2037-12-01 09:00 = too far away
"""


def table(text: str) -> list[tuple[str, str]]:
    lines = [line.partition(" = ") for line in text.strip().splitlines()]
    return [(phrase, meant) for phrase, _, meant in lines]


def meant(text: str, now: float = NOW, zone: str = BERLIN) -> str:
    schedule = read_when(text, now, zone).schedule
    return f"{schedule.kind} {schedule.spec}" + (
        f" {schedule.zone}" if schedule.zone != zone else ""
    )


def parts(text: str, now: float = NOW) -> tuple[str, str]:
    found = split(text, now, BERLIN)
    return found.meant.schedule.spec, found.text


@pytest.mark.parametrize(("phrase", "schedule"), table(READ))
def test_what_is_read(phrase: str, schedule: str) -> None:
    assert meant(phrase) == schedule


@pytest.mark.parametrize(("phrase", "question"), table(UNCLEAR))
def test_what_is_asked_back(phrase: str, question: str) -> None:
    with pytest.raises(TimeUnclear, match=question):
        read_when(phrase, NOW, BERLIN)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)).timestamp()


def test_an_hour_that_is_over_today_is_tomorrows() -> None:
    assert meant("at 8", at("2026-11-30T09:00")) == "once 2026-12-01T08:00:00"
    assert meant("at 8", at("2026-11-30T07:00")) == "once 2026-11-30T08:00:00"
    assert meant("on monday at 8", at("2026-11-30T09:00")) == "once 2026-12-07T08:00:00"


def test_at_one_in_the_night_tonight_has_begun() -> None:
    assert meant("tonight at 2", at("2026-12-01T01:00")) == "once 2026-12-01T02:00:00"
    assert meant("tonight at 8", at("2026-12-01T01:00")) == "once 2026-12-01T20:00:00"


def test_a_day_that_is_over_this_year_is_next_years() -> None:
    assert meant("24.11. 18:00") == "once 2027-11-24T18:00:00"
    assert meant("29.2. 9:00") == "once 2028-02-29T09:00:00"
    with pytest.raises(TimeUnclear, match="has passed already"):
        read_when("24.11.2026 18:00", NOW, BERLIN)


def test_the_clock_changes_are_told() -> None:
    assert (
        "left out on that day: it comes at 03:30" in read_when("28.3.2027 2:30", NOW, BERLIN).remark
    )
    assert "comes twice: I take the first" in read_when("31.10.2027 2:30", NOW, BERLIN).remark
    assert read_when("28.3.2027 3:30", NOW, BERLIN).remark == ""


def test_a_while_is_real_time_and_days_are_the_calendars() -> None:
    before = at("2027-03-27T18:00")  # the clocks go forward in the night
    assert meant("in 12 hours", before) == "once 2027-03-28T07:00:00"
    assert meant("in 1 day", before) == "once 2027-03-28T18:00:00"
    assert meant("in 1 day and 2 hours", before) == "once 2027-03-28T20:00:00"
    twice = datetime.fromisoformat("2027-10-31T02:10").replace(tzinfo=ZoneInfo(BERLIN), fold=1)
    assert meant("in 20 minutes", twice.timestamp()) == "once 2027-10-31T01:30:00 UTC"


@pytest.mark.parametrize(
    ("argument", "spec", "text"),
    [
        ("tomorrow 9:00 call mum", "2026-12-01T09:00:00", "call mum"),
        ("in 20 minutes to stretch", "2026-11-30T11:33:00", "stretch"),
        ("call mum tomorrow at 9", "2026-12-01T09:00:00", "call mum"),
        ("me to call mum tomorrow at 9.", "2026-12-01T09:00:00", "call mum"),
        ("me tomorrow at 9 to do my taxes", "2026-12-01T09:00:00", "to do my taxes"),
        ("every day at 8 drink 2 glasses", "0 8 * * *", "drink 2 glasses"),
        ("every dog has its day tomorrow at 9", "2026-12-01T09:00:00", "every dog has its day"),
        ("tomorrow 9:00 every dog has its day", "2026-12-01T09:00:00", "every dog has its day"),
        ("buy 3 mars tomorrow at 9", "2026-12-01T09:00:00", "buy 3 mars"),
        ("read 1984 at 18:00", "2026-11-30T18:00:00", "read 1984"),
        ("tomorrow 9:00: 10:00 is the deadline", "2026-12-01T09:00:00", "10:00 is the deadline"),
        ("may the force be with you at 9", "2026-12-01T09:00:00", "may the force be with you"),
        ("sun protection at 9", "2026-12-01T09:00:00", "sun protection"),
        ("9:00 New York time call bob", "2026-11-30T09:00:00", "call bob"),
        ("cron 0 9 * * 1-5 standup", "0 9 * * 1-5", "standup"),
        ("9:00 sun protection", "2026-12-01T09:00:00", "sun protection"),
        ("call mum sun 9:00", "2026-12-06T09:00:00", "call mum"),
        ("at 8 Christmas time shopping", "2026-12-01T08:00:00", "Christmas time shopping"),
        ("remind me in 1h30 to eat", "2026-11-30T12:43:00", "eat"),
        ("in 2 hours do it", "2026-11-30T13:13:00", "do it"),
        ("tomorrow at 9 two\n\nlines  here", "2026-12-01T09:00:00", "two\n\nlines  here"),
        ("tomorrow at 9\n- milk\n- eggs", "2026-12-01T09:00:00", "- milk\n- eggs"),
        ("tomorrow at 9 - milk", "2026-12-01T09:00:00", "milk"),
        ("明天9点开会", "2026-12-01T09:00:00", "开会"),
        ("提醒我20分钟后喝水", "2026-11-30T11:33:00", "喝水"),
        ("每天早上8点吃药", "0 8 * * *", "吃药"),
        ("morgen um 9 Mama anrufen", "2026-12-01T09:00:00", "Mama anrufen"),
        ("Mama anrufen morgen um 9", "2026-12-01T09:00:00", "Mama anrufen"),
        ("at ٩:٣٠ شاي", "2026-12-01T09:30:00", "شاي"),
        ("in २० minutes चाय ५", "2026-11-30T11:33:00", "चाय ५"),
        ("in 20 MİNUTES ÇAY İÇ", "2026-11-30T11:33:00", "ÇAY İÇ"),
        ("ın 20 mınuteſ tea", "2026-11-30T11:33:00", "tea"),
        ("tomorrow at 9: 12 and 18 eggs", "2026-12-01T09:00:00", "12 and 18 eggs"),
        ("tomorrow at 9 and bring 2 eggs", "2026-12-01T09:00:00", "and bring 2 eggs"),
        ("tomorrow at 9, 2 eggs", "2026-12-01T09:00:00", "2 eggs"),
    ],
)
def test_time_and_text(argument: str, spec: str, text: str) -> None:
    assert parts(argument) == (spec, text)


@pytest.mark.parametrize(
    ("argument", "question"),
    [
        ("call mum", "I find no time"),
        ("tomorrow call mum", "At what time of day"),
        ("call mum tomorrow", "At what time of day"),
        ("tomorrow 9 lives", "At what time of day"),
        ("every monday do the laundry at 9", "“every monday” and “at 9”"),
        ("tomorrow at 9", "what shall I say"),
        ("tomorrow 9:00 10:00 is the deadline", "“tomorrow 9:00: 10:00 is the deadline”"),
        ("tomorrow 9:00 Friday report", "“tomorrow 9:00: Friday report”"),
        ("tomorrow at 9 and at 10 call", "One time each"),
        ("every 2 hours at 9 drink", "One time each"),
        ("at 9 call mum tomorrow", "two times in that: “at 9” and “tomorrow”"),
        ("noon meeting prep tomorrow at 9", "two times in that"),
        ("Friday Night Lights starts tomorrow at 9", "two times in that"),
        ("20 minutes of silence", "“in 20 minutes of silence”"),
        ("every day at 9 until christmas call", "can not begin or end a repeat"),
        ("call mum tomorrow at 9 about dinner", "“tomorrow at 9: call mum about dinner”"),
        ("tomorrow at 9 EST call", "New York time"),
        ("see you 05/06/2027 at 9", "two ways"),
        ("first monday of every month at 9 pay", "I find no time"),
        ("x" * 9_000, "too long"),
        ("in 5 minutes \u200d\x00", "what shall I say"),
        ("every 0 minutes tea", "no period"),
        ("every day at 9 and 17 tea", "One time of day each.*“every day at 9: and 17 tea”"),
        ("every day at 9, 12 and 18 tea", "One time of day each"),
        ("jeden Tag um 9 und 17 Tee", "One time of day each"),
    ],
)
def test_what_could_be_read_in_two_ways_is_asked(argument: str, question: str) -> None:
    with pytest.raises(TimeUnclear, match=question):
        split(argument, NOW, BERLIN)


def test_every_example_is_understood() -> None:
    for example in EXAMPLES.split(", "):
        assert meant(example.strip("“”"))


@pytest.mark.parametrize("mark", ["\u200b", "\u200e", "\u200f", "\ufeff", "\u2066", "\u202e"])
def test_marks_that_nobody_sees_hide_no_time(mark: str) -> None:
    assert read_when(f"{mark}tomorrow{mark} 9:00{mark}", NOW, BERLIN).schedule.spec == (
        "2026-12-01T09:00:00"
    )
    found = split(f"{mark} tomorrow 9:00{mark} call {mark}mum", NOW, BERLIN)
    assert found.meant.schedule.spec == "2026-12-01T09:00:00"
    assert found.text.endswith(f"call {mark}mum")


@pytest.mark.parametrize("text", ["\u202enoos", "so\x00on", "soon\u2066", "so\x1b[2Kon"])
def test_what_is_said_back_turns_nothing_around(text: str) -> None:
    for read in (read_when, split):
        with pytest.raises(TimeUnclear) as said:
            read(text, NOW, BERLIN)
        assert not any(ch in str(said.value) for ch in "\x00\x1b\u202e\u2066")
