"""Owns `agent.jobs.ports.JobStore` in SQL."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent.jobs.nouns import (
    Action,
    Job,
    JobDraft,
    JobPlace,
    JobRefused,
    JobState,
    JobView,
    Origin,
    Schedule,
    place_in,
    too_many_each_text,
    too_many_text,
)
from agent.mail import Address
from storage import inbox
from storage.codec import clean, dump_clean_json
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.job_runs import newest_run
from storage.places import address_of_today, key_of_today, today_in
from storage.sessions import Reader

_COLUMNS = (
    "id, session_key, number, origin, name, owner, platform, bot_id, chat_id, thread_id, sender,"
    " kind, spec, timezone, anchor_at, action, text, state, reason, next_run_at, last_run_at,"
    " created_at"
)
_JOB = f"SELECT {_COLUMNS} FROM jobs"
_LIVE = "state IN ('active', 'paused')"
_SET = "origin IN ('person', 'tool')"


def add_job(
    tx: Transaction, draft: JobDraft, *, most: int | None = None, most_each: int | None = None
) -> Job:
    place = place_of_today(tx, draft.place)
    if most is not None:
        query = f"SELECT count(*) FROM jobs WHERE session_key = ? AND {_LIVE}"
        if tx.execute(query, (place.session_key,)).fetchone()[0] >= most:
            raise JobRefused(too_many_text(most))
    if most_each is not None:
        query = (
            f"SELECT count(*) FROM jobs WHERE session_key = ? AND owner = ? AND {_SET} AND {_LIVE}"
        )
        if tx.execute(query, (place.session_key, place.owner)).fetchone()[0] >= most_each:
            raise JobRefused(too_many_each_text(most_each))
    number = _last(tx, place.session_key) + 1
    _give(tx, place.session_key, number)
    faultpoint("add_job.number")
    job_id, to, when = tx.new_id("job"), place.address, draft.schedule
    tx.execute(
        f"INSERT INTO jobs ({_COLUMNS})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'active', '', ?, NULL, ?)",
        (
            job_id, place.session_key, number, draft.origin, clean(draft.name), place.owner,
            to.platform, to.bot_id, to.chat_id, to.thread_id, dump_clean_json(place.sender),
            when.kind, when.spec, when.zone, draft.anchor_at, draft.action.kind,
            clean(draft.action.text), draft.next_run_at, tx.now,
        ),
    )  # fmt: skip
    faultpoint("add_job.job")
    return job_with(tx, job_id)


def jobs_at(db: Reader, session_key: str, *, over: bool = False) -> Sequence[JobView]:
    key = key_of_today(session_key, today_in(db))
    where = "session_key = ?" if over else f"session_key = ? AND {_LIVE}"
    return _views(db, f"{_JOB} WHERE {where} ORDER BY number", (key,))


def jobs_of(db: Reader, origin: Origin) -> Sequence[JobView]:
    return _views(db, f"{_JOB} WHERE origin = ? ORDER BY created_at, rowid", (origin,))


def job_views(db: Reader, *, limit: int = 1_000) -> Sequence[JobView]:
    query = f"{_JOB} WHERE {_LIVE} ORDER BY next_run_at IS NULL, next_run_at, rowid LIMIT ?"
    return _views(db, query, (limit,))


def job_at(db: Reader, session_key: str, number: int) -> JobView | None:
    if not 0 < number < 2**63:  # a model names any number; SQLite's end there
        return None
    key = key_of_today(session_key, today_in(db))
    found = _views(db, f"{_JOB} WHERE session_key = ? AND number = ?", (key, number))
    return found[0] if found else None


def place_of_turn(db: Reader, turn_id: str) -> JobPlace | None:
    found = inbox.newest_of_turn(db, turn_id)
    return None if found is None else place_in(found)


def set_job(
    tx: Transaction, job_id: str, state: JobState, *, next_run_at: float | None, reason: str = ""
) -> Job | None:
    changed = tx.execute(
        f"UPDATE jobs SET state = ?, next_run_at = ?, reason = ? WHERE id = ? AND {_LIVE}",
        (state, next_run_at, clean(reason), job_id),
    )
    faultpoint("set_job.job")
    return job_with(tx, job_id) if changed.rowcount else None


def change_job(
    tx: Transaction,
    job_id: str,
    *,
    place: JobPlace,
    schedule: Schedule,
    action: Action,
    next_run_at: float | None,
    anchor_at: float,
) -> Job | None:
    place = place_of_today(tx, place)
    state = "done" if next_run_at is None else "active"
    changed = tx.execute(
        "UPDATE jobs SET owner = ?, sender = ?, kind = ?, spec = ?, timezone = ?, action = ?,"
        " text = ?, next_run_at = ?, anchor_at = ?, state = ?, reason = ''"
        " WHERE id = ? AND session_key = ?",
        (
            place.owner, dump_clean_json(place.sender), schedule.kind, schedule.spec,
            schedule.zone, action.kind, clean(action.text), next_run_at, anchor_at, state,
            job_id, place.session_key,
        ),
    )  # fmt: skip
    faultpoint("change_job.job")
    return job_with(tx, job_id) if changed.rowcount else None


def due_jobs(db: Reader, now: float, *, limit: int = 100) -> Sequence[JobView]:
    where = "WHERE state = 'active' AND next_run_at <= ? ORDER BY next_run_at, rowid LIMIT ?"
    return _views(db, f"{_JOB} {where}", (now, limit))


def next_job_at(db: Reader) -> float | None:
    row = db.execute("SELECT min(next_run_at) FROM jobs WHERE state = 'active'").fetchone()
    return None if row[0] is None else float(row[0])


def move(tx: Transaction, old_key: str, key: str, chat_id: str) -> None:
    """A chat has got another id: its jobs follow, behind those that are there already."""
    last, number = _last(tx, old_key), _last(tx, key)
    if not last:
        return
    alone = number == 0
    numbers = tx.execute(
        "SELECT id, number FROM jobs WHERE session_key = ? ORDER BY number", (old_key,)
    ).fetchall()
    for job_id, old_number in numbers:
        number = old_number if alone else number + 1
        tx.execute(
            "UPDATE jobs SET session_key = ?, number = ?, chat_id = ?, thread_id = NULL"
            " WHERE id = ?",
            (key, number, chat_id, job_id),
        )
        faultpoint("move_chat.job")
    _give(tx, key, last if alone else number)
    tx.execute("DELETE FROM job_numbers WHERE session_key = ?", (old_key,))
    faultpoint("move_chat.jobs")


# --- rows ---------------------------------------------------------------------------------------


def place_of_today(db: Reader, place: JobPlace) -> JobPlace:
    """The place, or where its chat has gone."""
    today = today_in(db)
    return JobPlace(
        key_of_today(place.session_key, today),
        place.owner,
        address_of_today(place.address, today),
        place.sender,
    )


def job_with(db: Reader, job_id: str) -> Job:
    """By its id, which is known."""
    return _job_of(db.execute(f"{_JOB} WHERE id = ?", (job_id,)).fetchone())


def known_job(db: Reader, job_id: str) -> Job | None:
    """By its id."""
    row = db.execute(f"{_JOB} WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else _job_of(row)


def _views(db: Reader, query: str, parameters: tuple[Any, ...]) -> list[JobView]:
    jobs = [_job_of(row) for row in db.execute(query, parameters).fetchall()]
    return [JobView(job, newest_run(db, job.id)) for job in jobs]


def _job_of(row: tuple[Any, ...]) -> Job:
    (
        job_id, session_key, number, origin, name, owner, platform, bot_id, chat_id, thread_id,
        sender, kind, spec, timezone, anchor_at, action, text, state, reason, next_run_at,
        last_run_at, created_at,
    ) = row  # fmt: skip
    address = Address(platform, bot_id, chat_id, thread_id)
    return Job(
        id=job_id,
        number=number,
        name=name,
        place=JobPlace(session_key, owner, address, json.loads(sender)),
        schedule=Schedule(kind, spec, timezone),
        action=Action(action, text),
        origin=origin,
        state=state,
        reason=reason,
        next_run_at=next_run_at,
        last_run_at=last_run_at,
        created_at=created_at,
        anchor_at=anchor_at,
    )


def _last(db: Reader, session_key: str) -> int:
    query = "SELECT last FROM job_numbers WHERE session_key = ?"
    row = db.execute(query, (session_key,)).fetchone()
    return 0 if row is None else int(row[0])


def _give(tx: Transaction, session_key: str, number: int) -> None:
    tx.execute(
        "INSERT OR REPLACE INTO job_numbers (session_key, last) VALUES (?, ?)",
        (session_key, number),
    )
