"""Owns which schedule the pieces of a time mean, at a moment and in a zone (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from agent.jobs import schedules
from agent.jobs.nouns import JobRefused, Schedule
from agent.jobs.words.calendar_days import WEEKDAY_NAMES, days_of
from agent.jobs.words.hours import WHICH_DAY, Hour, hour_of
from agent.jobs.words.nouns import (
    After,
    Date,
    Day,
    Instant,
    Meant,
    MonthDay,
    Repeat,
    TimeUnclear,
    Weekday,
)
from agent.jobs.words.slots import Slots

MAX_YEARS_AHEAD = 10


def meaning(slots: Slots, now: float, zone: str) -> Meant:
    """The schedule.

    Raises:
        TimeUnclear: the time has passed, does not say enough, or could be two.
    """
    zone = slots.zone.name if slots.zone else zone
    local = datetime.fromtimestamp(now, ZoneInfo(zone)).replace(tzinfo=None)
    try:
        meant = _meaning(slots, _Now(now, local, zone))
        if schedules.next_due(schedules.checked(meant.schedule), now, now) is None:
            raise TimeUnclear(_passed(meant.schedule, local))
    except JobRefused as refused:
        raise TimeUnclear(_sentence(str(refused))) from refused
    except (OverflowError, ValueError) as exc:
        raise TimeUnclear(_far()) from exc
    return meant


@dataclass(frozen=True, slots=True)
class _Now:
    instant: float
    local: datetime
    zone: str

    @property
    def today(self) -> date:
        return self.local.date()

    def once(self, wall: datetime) -> Meant:
        if wall.year > self.local.year + MAX_YEARS_AHEAD:
            raise TimeUnclear(_far())
        schedule = Schedule("once", wall.isoformat(timespec="seconds"), self.zone)
        return Meant(schedule, _clock_change(wall, self.zone))


def _meaning(slots: Slots, now: _Now) -> Meant:
    if slots.cron:
        return Meant(Schedule("cron", slots.cron.spec, now.zone))
    if slots.instant:
        return _instant(slots.instant, now)
    if slots.after and not slots.clock and not slots.part:
        return _after(slots.after, now)
    if slots.repeat and slots.repeat.seconds:
        return Meant(Schedule("every", str(slots.repeat.seconds), now.zone), _counted(slots.repeat))
    if isinstance(slots.day, Day) and slots.day.days < 0:
        raise TimeUnclear("That day has passed. Say a time to come, as in “tomorrow at 9:00”.")
    hour = hour_of(slots)
    if slots.repeat:
        return _repeat(slots.repeat, slots.day, hour, now)
    if slots.after:
        return now.once(_on(_later_day(slots.after, now), hour))
    return now.once(_first_future(slots, hour, now))


# --- once ---------------------------------------------------------------------------------------


def _instant(said: Instant, now: _Now) -> Meant:
    if said.at.tzinfo is None:
        return now.once(said.at)
    schedule = schedules.at_instant(said.at.timestamp(), now.zone)
    now.once(datetime.fromisoformat(schedule.spec))  # within bounds
    return Meant(schedule)


def _after(after: After, now: _Now) -> Meant:
    if not (after.seconds or after.days or after.months):
        raise TimeUnclear("That is now. Say a time to come, as in “in 20 minutes”.")
    if not (after.days or after.months):
        return Meant(schedules.at_instant(now.instant + after.seconds, now.zone))
    wall = datetime.combine(_later_day(after, now), now.local.time().replace(microsecond=0))
    meant = now.once(wall)
    if not after.seconds:
        return meant
    due = schedules.next_due(meant.schedule, now.instant, now.instant)
    if due is None:
        return meant
    return Meant(schedules.at_instant(due + after.seconds, now.zone))


def _later_day(after: After, now: _Now) -> date:
    from dateutil.relativedelta import relativedelta  # noqa: PLC0415 - seldom needed

    step = relativedelta(months=after.months, days=after.days)
    return now.today + step


def _on(day: date, hour: Hour) -> datetime:
    return datetime.combine(day + timedelta(days=hour.days), hour.at)


def _first_future(slots: Slots, hour: Hour, now: _Now) -> datetime:
    """The first day of those that may be meant on which the hour is still to come."""
    is_open = not slots.day or (isinstance(slots.day, Day) and slots.day.days == 0)
    if hour.midnight and not is_open:
        day = next(days_of(slots.day, now.today))
        name = WEEKDAY_NAMES[day.weekday()]
        one, two = (f"{day + timedelta(days=n)} 00:00" for n in (0, 1))
        raise TimeUnclear(
            f"Midnight is at both ends of a day. Say “{one}” ({name} begins) or “{two}” "
            f"({name} ends)."
        )
    if hour.midnight and slots.day:
        hour = Hour(hour.at, 1)
    walls = [_on(day, hour) for day in days_of(slots.day, now.today)]
    if isinstance(slots.day, Day) and slots.day.part == "night" and now.local.time() < time(5):
        walls.insert(0, walls[0] - timedelta(days=1))  # "tonight at 2", said at one
    for wall in walls:
        if wall > now.local:
            return wall
    raise TimeUnclear(_over(walls[-1], slots, now))


# --- again and again ----------------------------------------------------------------------------


def _repeat(
    repeat: Repeat, day: Day | Weekday | Date | MonthDay | None, hour: Hour, now: _Now
) -> Meant:
    if hour.days and len(repeat.weekdays) != 7:  # every night at 1 is every day at 1
        raise TimeUnclear("Say the day on which that hour is, as in “every saturday at 1:00”.")
    if hour.at.second:
        raise TimeUnclear("What comes again comes at whole minutes.")
    at, remark = f"{hour.at.minute} {hour.at.hour}", ""
    match repeat.unit, day:
        case "", None:
            spec = f"{at} * * {_cron_weekdays(repeat.weekdays)}"
        case "week", Weekday(weekday):
            spec = f"{at} * * {_cron_weekdays((weekday,))}"
        case "month", MonthDay(of_month):
            spec = f"{at} {of_month} * *"
            if of_month > 28:
                remark = f"Only months that have a {of_month}. count."
        case "year", Date(month, of_month):
            spec = f"{at} {of_month} {month} *"
            if (month, of_month) == (2, 29):
                remark = "Only leap years count."
        case _:
            raise TimeUnclear(WHICH_DAY[repeat.unit])
    return Meant(Schedule("cron", spec, now.zone), remark)


def _cron_weekdays(weekdays: tuple[int, ...]) -> str:
    """Cron counts from Sunday."""
    if len(weekdays) == 7:
        return "*"
    if weekdays == (0, 1, 2, 3, 4):
        return "1-5"
    return ",".join(str(number) for number in sorted((day + 1) % 7 for day in weekdays))


# --- words --------------------------------------------------------------------------------------


def _counted(repeat: Repeat) -> str:
    return "The days are counted from now." if repeat.seconds % 86_400 == 0 else ""


def _clock_change(wall: datetime, zone: str) -> str:
    """What the clocks do to this time of this day; "": nothing."""
    there = ZoneInfo(zone)
    first = wall.replace(tzinfo=there, fold=0).timestamp()
    shown = datetime.fromtimestamp(first, there).replace(tzinfo=None, fold=0)
    if shown != wall:
        return (
            f"The clocks go forward there, so {wall:%H:%M} is left out on that day: it comes at "
            f"{shown:%H:%M}."
        )
    second = wall.replace(tzinfo=there, fold=1).timestamp()
    if second != first:
        return f"The clocks go back there, so {wall:%H:%M} comes twice: I take the first."
    return ""


def _over(wall: datetime, slots: Slots, now: _Now) -> str:
    said = f"{wall:%a} {wall.day} {wall:%b %Y %H:%M}"
    again = f"It is {now.local:%H:%M} now ({now.zone})."
    if isinstance(slots.day, Day) and slots.day.days == 0:
        return f"{said} has passed already. {again} Did you mean “tomorrow at {wall:%H:%M}”?"
    return f"{said} has passed already. {again} Say a time to come."


def _passed(schedule: Schedule, local: datetime) -> str:
    when = schedule.spec.replace("T", " ")
    return f"{when} has passed already; it is {local:%Y-%m-%d %H:%M} now ({schedule.zone})."


def _far() -> str:
    return f"That is too far away: I plan {MAX_YEARS_AHEAD} years ahead at most."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
