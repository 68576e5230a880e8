"""Owns the shape of ``jobs`` in config.yaml: what happens at set times, by name."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from agent.jobs import schedules
from agent.jobs.nouns import MAX_NAME_CHARS, MAX_TEXT_CHARS, JobRefused, Kind, Schedule
from gateway.config.sections.values import NumberOrText, Section

MAX_JOBS = 200
_LENGTH = re.compile(r"(\d{1,6}) ?(s|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _id(value: Any) -> Any:
    """Ids are texts here, and YAML reads numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _moment(value: Any) -> Any:
    """YAML reads a date and time by itself."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, date):
        raise ValueError("needs a time of the day as well, for example 2026-12-01 09:00")
    return value


def _length(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    match = _LENGTH.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a length of time, for example 90s, 30m, 2h or 1d")
    return str(int(match[1]) * _SECONDS[match[2][0]])


def _checked(kind: Kind) -> AfterValidator:
    def check(value: str) -> str:
        try:
            return schedules.checked(Schedule(kind, value, "UTC")).spec
        except JobRefused as exc:
            raise ValueError(str(exc)) from exc

    return AfterValidator(check)


def _known_zone(value: str) -> str:
    try:
        schedules.checked(Schedule("every", "60", value))
    except JobRefused as exc:
        raise ValueError(str(exc)) from exc
    return value


def _nothing_is_none(value: Any) -> Any:
    """``jobs:`` with nothing below it, or with comments only."""
    return [] if value is None else value


def _no_two(value: list[ConfiguredJob]) -> list[ConfiguredJob]:
    names = [job.name for job in value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two jobs have the name {twice!r}")
    if len(names) > MAX_JOBS:
        raise ValueError(f"more than {MAX_JOBS} jobs")
    return value


Id = Annotated[str, BeforeValidator(_id), Field(min_length=1, max_length=100), NumberOrText]


class JobTarget(Section):
    """Where a job belongs; /whoami in a chat says all of it."""

    platform: str = Field(min_length=1)
    """telegram, discord, console, or a platform of a plugin."""
    chat: Id | None = None
    """Its id; null: the direct chat with ``user``, where that is the same number (Telegram)."""
    thread: Id | None = None
    """A topic or a thread in that chat."""
    user: Id | None = None
    """For whom it runs: whose conversation it is, whose budget, and who has to be allowed."""
    direct: bool = False
    """A direct chat, where the ids do not tell (Discord)."""

    @model_validator(mode="after")
    def _somewhere(self) -> JobTarget:
        if self.chat is None and self.user is None and self.platform != "console":
            raise ValueError("needs a chat, or a user")
        if self.chat is None and self.platform == "discord":
            raise ValueError("needs a chat: on Discord a direct chat has an id of its own")
        return self


class ConfiguredJob(Section):
    """One job: a name, one way to say when, a place, and what to say or to ask."""

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    """What it is told apart by: under another name it is another job."""
    at: Annotated[str, BeforeValidator(_moment), _checked("once")] | None = None
    """Once: 2026-12-01 09:00, in the time zone."""
    every: Annotated[str, BeforeValidator(_length), _checked("every"), NumberOrText] | None = None
    """Again and again: 30m, 2h, 1d; real time, whatever the clock on the wall does."""
    cron: Annotated[str, _checked("cron")] | None = None
    """Five fields: minute, hour, day of the month, month, weekday (0 and 7 are Sunday)."""
    timezone: Annotated[str, AfterValidator(_known_zone)] | None = None
    """Of ``at`` and ``cron``; null: that of the configuration."""
    to: JobTarget
    """Where it belongs."""
    prompt: str | None = Field(None, min_length=1, max_length=MAX_TEXT_CHARS)
    """Asked in that chat's conversation; the answer is sent there."""
    text: str | None = Field(None, min_length=1, max_length=MAX_TEXT_CHARS)
    """Sent as it stands."""

    @model_validator(mode="after")
    def _one_of_each(self) -> ConfiguredJob:
        if sum(value is not None for value in (self.at, self.every, self.cron)) != 1:
            raise ValueError("needs exactly one of at, every and cron")
        if (self.prompt is None) == (self.text is None):
            raise ValueError("needs either prompt or text")
        return self

    def schedule(self, zone: str) -> Schedule:
        """When it runs; ``zone``: where it names none."""
        zone = self.timezone or zone
        if self.at is not None:
            return schedules.checked(Schedule("once", self.at, zone))
        if self.every is not None:
            return Schedule("every", self.every, zone)
        return Schedule("cron", self.cron or "", zone)


JobList = Annotated[list[ConfiguredJob], BeforeValidator(_nothing_is_none), AfterValidator(_no_two)]
