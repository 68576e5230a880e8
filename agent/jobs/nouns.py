"""Owns the nouns of jobs: when, where, what; a job and its runs; and how long it may be late."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from agent.errors import PosthouseError
from agent.mail import Address, InboxItem, InboxRecord, OutboxDraft, OutboxItem
from agent.messages import clean_text, is_blank

Kind = Literal["once", "every", "cron"]
ActionKind = Literal["text", "prompt"]
JobState = Literal["active", "paused", "done", "cancelled"]
"""active → paused → active; done (a job that ran once) and cancelled are for ever."""
Origin = Literal["person", "config", "tool", "house"]
RunState = Literal["claimed", "done", "failed", "missed"]
"""claimed → done | failed. *missed*: did not happen; ``count`` of them in a row are one entry."""

MAX_JOBS = 50
"""Of one place that are not over: each of them may cost money while nobody looks."""
MAX_JOBS_EACH = 20
"""Of these, one person's in a place that several share: the others have to find room."""
MAX_NAME_CHARS = 60
MAX_TEXT_CHARS = 4_000
MIN_EVERY_SECONDS = 60
MAX_RUNS = 500
"""Entries of the ledger that are kept of a job."""
SCHEDULED = "job"
"""In the payload of a row: which job it is from, and for when it was due."""
HOUSE = "house"
"""The owner of what the daemon does by itself."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs."""

    kind: Kind
    spec: str
    """once: the local wall time (``2026-12-01T09:00:00``); every: whole seconds (``7200``); cron:
    five fields, weekdays as in cron (0 and 7 are Sunday)."""
    zone: str
    """IANA name; always there, so that no process's own zone matters."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a job does: sends this text as it stands, or asks it in its conversation."""

    kind: ActionKind
    text: str


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job belongs, and for whom it runs."""

    session_key: str
    owner: str
    """``platform:user id``: who may not use us any more has no jobs any more."""
    address: Address
    """Without a message that it replies to."""
    sender: dict[str, Any] = field(default_factory=dict)
    """What the gate and a turn need of the owner, as in an inbox row's payload."""


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A job to be stored."""

    place: JobPlace
    schedule: Schedule
    action: Action
    name: str
    """For people; of jobs of the configuration and of the house what they are told apart by."""
    origin: Origin
    next_run_at: float
    anchor_at: float
    """From where ``every`` counts."""


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job."""

    id: str
    number: int
    """Within its place; never used again."""
    name: str
    place: JobPlace
    schedule: Schedule
    action: Action
    origin: Origin
    state: JobState
    reason: str
    """Why it is paused by itself, in words; "": it is not."""
    next_run_at: float | None
    """None: it is over."""
    last_run_at: float | None
    created_at: float
    anchor_at: float


@dataclass(frozen=True, slots=True)
class JobRun:
    """An entry of the ledger: what became of one due time, or of several that were missed."""

    id: int
    job_id: str
    due_at: float
    """Of missed ones: the first."""
    until_at: float
    """Of missed ones: the last."""
    count: int
    state: RunState
    reason: str
    claimed_at: float
    ended_at: float | None
    inbox_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as people are told of it."""

    job: Job
    last: JobRun | None
    """The newest entry of its ledger."""


@dataclass(frozen=True, slots=True)
class Misses:
    """Due times at which nothing happened."""

    first_at: float
    last_at: float
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Firing:
    """What is to become of a due job: decided outside, stored in one transaction."""

    expected_run_at: float
    """The stored next run that this was decided by; another one by now: nothing is stored."""
    run_at: float | None
    """The due time that is run; None: all of them are missed."""
    misses: Misses | None
    next_run_at: float | None
    """None: the job is over."""
    text: str | None = None
    """Said in place of the job's own text: one that is late says so."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What a firing has made."""

    job: Job
    run: JobRun | None
    """None: nothing ran."""
    item: InboxItem | None = None
    """The waiting row of a prompt."""
    owed: OutboxItem | None = None
    """A text on its way."""
    missed: JobRun | None = None
    """The ledger's entry of what was missed."""


class JobRefused(PosthouseError):
    """A job can not be made or changed; the text says why and what to do, for model and people."""


# --- pure ---------------------------------------------------------------------------------------

_KEPT_OF_SENDER = (
    "chat_kind", "sender_id", "sender_name", "sender_role_ids", "parent_chat_id", "shared",
)  # fmt: skip


def place_in(record: InboxRecord) -> JobPlace:
    """Where a job belongs that somebody asks for with this message."""
    sender = {name: record.payload[name] for name in _KEPT_OF_SENDER if name in record.payload}
    address = replace(record.address, reply_to_message_id=None)
    return JobPlace(record.session_key, record.owner, address, sender)


def record_for(job: Job, due_at: float, now: float) -> InboxRecord:
    """The row in which a job's prompt waits for its turn."""
    due = datetime.fromtimestamp(due_at, ZoneInfo(job.schedule.zone)).isoformat(timespec="minutes")
    scheduled = {
        "id": job.id, "number": job.number, "name": job.name, "due_at": due_at, "due": due,
        "origin": job.origin,
    }  # fmt: skip
    return InboxRecord(
        address=job.place.address,
        message_id="",
        kind="message",
        session_key=job.place.session_key,
        owner=job.place.owner,
        text=job.action.text,
        received_at=now,
        sent_at=now,
        payload={**job.place.sender, SCHEDULED: scheduled},
    )


def draft_for(job: Job, firing: Firing) -> OutboxDraft:
    """What is owed for a job that sends a text."""
    return OutboxDraft(job.place.address, firing.text or job.action.text, "notice")


def is_scheduled(record: InboxRecord) -> bool:
    """Is this row a job's, and nobody there who says it?"""
    return SCHEDULED in record.payload


def too_many_text(most: int) -> str:
    """Why a place gets no more jobs, in words."""
    return f"there are {most} jobs here already, and more are not possible: cancel one first"


def too_many_each_text(most: int) -> str:
    """Why a person gets no more jobs in a place that several share, in words."""
    return (
        f"one person can have {most} jobs in a group, so that there is room for the others, and "
        "whoever asks has that many here: cancel one of theirs first (/jobs shows them)"
    )


STILL_AT_WORK = "the run before it was still at work"


def how_it_went(turn_state: str | None) -> tuple[RunState, str]:
    """A run's end, by the end of its turn; None: there was no turn."""
    match turn_state:
        case "done":
            return "done", ""
        case "failed":
            return "failed", "its turn failed"
        case "stopped":
            return "failed", "its turn was stopped"
        case _:
            return "failed", "its message was not taken"


def as_name(text: str) -> str:
    """A short name on one line, from any text."""
    shown = "".join(
        ch if unicodedata.category(ch)[0] != "C" or _joins(ch) else " "
        for ch in clean_text(text[:2_000])
    )
    line = " ".join(shown.split()).strip(f" {_JOINERS}")
    if len(line) <= MAX_NAME_CHARS:
        return line
    cut = line[: MAX_NAME_CHARS - 1]
    if _joins(line[len(cut)]) or _joins(cut[-1]):
        cut = cut.rpartition(" ")[0] or cut  # one picture of several: whole, or not at all
    return cut.rstrip(f" {_JOINERS}") + "…"


_JOINERS = "\u200c\u200d"


def _joins(char: str) -> bool:
    """Without it a family is four people, a flag another one, and Persian another word."""
    return char in _JOINERS or "\U000e0020" <= char <= "\U000e007f"


def checked_action(action: Action) -> Action:
    """The same, cleaned.

    Raises:
        JobRefused: there is nothing in it, or too much.
    """
    text = clean_text(action.text).replace("\x00", "").strip()
    if is_blank(text):
        raise JobRefused("there is nothing to say in this job: add the words")
    if len(text) > MAX_TEXT_CHARS:
        raise JobRefused(
            f"a job's text has at most {MAX_TEXT_CHARS:,} characters, and this one {len(text):,}: "
            "say it shorter"
        )
    return Action(action.kind, text)
