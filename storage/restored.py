"""Owns what becomes of a copy that is put to use: what was under way in it is over by then.

Copies bear a mark. Between the copy and its use the original went on: it sent what was owed,
answered what waited, ran what was due. Doing it again would say everything twice.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence

from agent.jobs import schedules
from agent.jobs.nouns import JobRefused, Schedule
from storage.turns import OPEN_STATES

_log = logging.getLogger(__name__)

RESTORED = "restored from a backup"
_MARK = "copied_at"
_CURSORS = "cursors_of_replaced"
_A_MOMENT = 1e-3

CursorRow = tuple[str, str, str, str]


def mark_as_copy(db: sqlite3.Connection, now: float) -> None:
    """The copy is one, whoever puts it in place, and however. The copy of one is as old as that."""
    db.execute("INSERT OR IGNORE INTO facts (name, value) VALUES (?, ?)", (_MARK, repr(now)))


def carry_cursors(db: sqlite3.Connection, rows: Sequence[CursorRow]) -> None:
    """How far the channels were read by the store that the copy takes the place of."""
    _set(db, _CURSORS, json.dumps(rows))


def cursors_of(db: sqlite3.Connection) -> list[CursorRow]:
    """How far the channels were read."""
    return db.execute("SELECT platform, bot_id, channel_id, message_id FROM cursors").fetchall()


def settle(db: sqlite3.Connection, now: float) -> bool:
    """In a copy that begins its life as a store: end what was under way. Once; True: it was one."""
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    if _MARK not in facts:
        return False
    db.execute("BEGIN IMMEDIATE")
    try:
        counts = _end_all(db, now)
        db.execute("DELETE FROM cursors")
        db.executemany(
            "INSERT INTO cursors (platform, bot_id, channel_id, message_id) VALUES (?, ?, ?, ?)",
            json.loads(facts.get(_CURSORS, "[]")),
        )
        db.execute("DELETE FROM facts WHERE name IN (?, ?)", (_MARK, _CURSORS))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    _log.info(
        "this database is a copy made %.0f min ago: what was under way in it is not taken up",
        max(0.0, now - float(facts[_MARK])) / 60,
        extra=counts,
    )
    return True


def _end_all(db: sqlite3.Connection, now: float) -> dict[str, int]:
    owed = "state IN ('planned', 'sending', 'unknown')"
    failed = f"SET state = 'failed', error = '{RESTORED}' WHERE {owed}"
    db.execute(f"UPDATE outbox_parts {failed}")
    answers = db.execute(f"UPDATE outbox {failed}").rowcount
    stopped = f"SET state = 'stopped', ended_at = ? WHERE state IN {OPEN_STATES}"
    turns = db.execute(f"UPDATE turns {stopped}", (now,)).rowcount
    waiting = db.execute(
        "UPDATE inbox SET state = 'answered' WHERE state IN ('new', 'claimed')"
    ).rowcount
    missed = _miss_jobs(db, now)
    for table in ("leases", "previews", "restarts_awaited"):
        db.execute(f"DELETE FROM {table}")
    return {"answers": answers, "turns": turns, "waiting_messages": waiting, "missed_jobs": missed}


def _miss_jobs(db: sqlite3.Connection, now: float) -> int:
    """What was due since has run in the original, or nowhere; here it is told as missed."""
    db.execute(
        "UPDATE job_runs SET state = 'failed', reason = ?, ended_at = ? WHERE state = 'claimed'",
        (RESTORED, now),
    )
    due = db.execute(
        "SELECT id, kind, spec, timezone, anchor_at, next_run_at FROM jobs"
        " WHERE state = 'active' AND origin <> 'house' AND next_run_at <= ?",
        (now,),
    ).fetchall()
    for job_id, kind, spec, zone, anchor, first in due:
        schedule = Schedule(kind, spec, zone)
        try:
            gone = schedules.misses(schedule, first, now + _A_MOMENT, anchor, reason=RESTORED)
            following = schedules.next_due(schedule, now, anchor)
        except JobRefused as exc:  # this machine's zones are others
            db.execute(
                "UPDATE jobs SET state = 'paused', reason = ? WHERE id = ?", (str(exc), job_id)
            )
            continue
        if gone is not None:
            db.execute(
                "INSERT OR IGNORE INTO job_runs (job_id, due_at, until_at, count, state, reason,"
                " claimed_at, ended_at) VALUES (?, ?, ?, ?, 'missed', ?, ?, ?)",
                (job_id, gone.first_at, gone.last_at, gone.count, RESTORED, now, now),
            )
        state = "done" if following is None else "active"
        db.execute(
            "UPDATE jobs SET next_run_at = ?, state = ? WHERE id = ?", (following, state, job_id)
        )
    return len(due)


def _set(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))
