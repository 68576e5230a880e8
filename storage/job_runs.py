"""Owns the ledger of jobs in SQL: what became of each due time."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.jobs.nouns import MAX_RUNS, JobRun, Misses, RunState, how_it_went
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.sessions import Reader

RUN = (
    "SELECT id, job_id, due_at, until_at, count, state, reason, claimed_at, ended_at, inbox_id"
    " FROM job_runs"
)


def run_of(row: tuple[Any, ...]) -> JobRun:
    """A row of `RUN`."""
    return JobRun(*row)


def newest_run(db: Reader, job_id: str) -> JobRun | None:
    """The newest entry of a job."""
    query = f"{RUN} WHERE job_id = ? ORDER BY id DESC LIMIT 1"
    row = db.execute(query, (job_id,)).fetchone()
    return None if row is None else run_of(row)


def job_runs(db: Reader, job_id: str, *, limit: int = 20) -> Sequence[JobRun]:
    query = f"{RUN} WHERE job_id = ? ORDER BY id DESC LIMIT ?"
    return [run_of(row) for row in db.execute(query, (job_id, limit)).fetchall()]


def ran_between(db: Reader, job_id: str, first: float, last: float) -> Sequence[float]:
    query = (
        "SELECT due_at FROM job_runs WHERE job_id = ? AND due_at BETWEEN ? AND ?"
        " AND state <> 'missed' ORDER BY due_at"
    )
    return [row[0] for row in db.execute(query, (job_id, first, last)).fetchall()]


def is_at_work(db: Reader, job_id: str) -> bool:
    """Is a run of this job not over?"""
    query = "SELECT 1 FROM job_runs INDEXED BY job_runs_open WHERE job_id = ? AND state = 'claimed'"
    return db.execute(query, (job_id,)).fetchone() is not None


def claim(
    tx: Transaction, job_id: str, due_at: float, inbox_id: int | None, *, over: bool
) -> JobRun:
    """Enter that this due time is run; ``over``: all there is to do is stored with it."""
    # Of a time before the clock was set back by far: that it comes again is new.
    tx.execute("DELETE FROM job_runs WHERE job_id = ? AND due_at = ?", (job_id, due_at))
    state: RunState = "done" if over else "claimed"
    ended_at = tx.now if over else None
    run_id = tx.execute(
        "INSERT INTO job_runs (job_id, due_at, until_at, state, claimed_at, ended_at, inbox_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (job_id, due_at, due_at, state, tx.now, ended_at, inbox_id),
    ).lastrowid
    assert run_id is not None
    faultpoint("fire_job.claimed")
    _forget_old(tx, job_id)
    return JobRun(run_id, job_id, due_at, due_at, 1, state, "", tx.now, ended_at, inbox_id)


def miss(tx: Transaction, job_id: str, misses: Misses) -> JobRun:
    """Enter missed times; where the newest entry tells of the same, it tells of these as well."""
    newest = newest_run(tx, job_id)
    if newest is not None and newest.state == "missed" and newest.reason == misses.reason:
        told = replace(
            newest,
            until_at=misses.last_at,
            count=newest.count + misses.count,
            claimed_at=tx.now,
            ended_at=tx.now,
        )
        tx.execute(
            "UPDATE job_runs SET until_at = ?, count = ?, claimed_at = ?, ended_at = ?"
            " WHERE id = ?",
            (told.until_at, told.count, tx.now, tx.now, told.id),
        )
        faultpoint("fire_job.missed_more")
        return told
    tx.execute("DELETE FROM job_runs WHERE job_id = ? AND due_at = ?", (job_id, misses.first_at))
    run_id = tx.execute(
        "INSERT INTO job_runs (job_id, due_at, until_at, count, state, reason, claimed_at,"
        " ended_at) VALUES (?, ?, ?, ?, 'missed', ?, ?, ?)",
        (
            job_id, misses.first_at, misses.last_at, misses.count, clean(misses.reason), tx.now,
            tx.now,
        ),
    ).lastrowid  # fmt: skip
    assert run_id is not None
    faultpoint("fire_job.missed")
    _forget_old(tx, job_id)
    return JobRun(
        run_id, job_id, misses.first_at, misses.last_at, misses.count, "missed",
        clean(misses.reason), tx.now, tx.now,
    )  # fmt: skip


def end_run(tx: Transaction, run_id: int, state: RunState, reason: str = "") -> JobRun | None:
    changed = tx.execute(
        "UPDATE job_runs SET state = ?, reason = ?, ended_at = ?"
        " WHERE id = ? AND state = 'claimed'",
        (state, clean(reason), tx.now, run_id),
    )
    faultpoint("end_run.run")
    if not changed.rowcount:
        return None
    return run_of(tx.execute(f"{RUN} WHERE id = ?", (run_id,)).fetchone())


def settle_runs(tx: Transaction) -> Sequence[JobRun]:
    return settle(tx, None)


def settle(tx: Transaction, job_id: str | None) -> list[JobRun]:
    """`settle_runs`, of one job or of all."""
    one = "" if job_id is None else " AND r.job_id = ?"
    over = tx.execute(
        "SELECT r.id, t.state FROM job_runs r INDEXED BY job_runs_open"
        " LEFT JOIN inbox i ON i.id = r.inbox_id LEFT JOIN turns t ON t.id = i.turn_id"
        " WHERE r.state = 'claimed' AND r.inbox_id IS NOT NULL"
        f" AND (i.id IS NULL OR i.state = 'answered'){one} ORDER BY r.id",
        () if job_id is None else (job_id,),
    ).fetchall()
    ended = [end_run(tx, run_id, *how_it_went(state)) for run_id, state in over]
    return [run for run in ended if run is not None]


def open_runs(db: Reader) -> int:
    query = (
        "SELECT count(*) FROM job_runs INDEXED BY job_runs_open"
        " WHERE state = 'claimed' AND inbox_id IS NOT NULL"
    )
    return int(db.execute(query).fetchone()[0])


def void_runs(tx: Transaction) -> int:
    changed = tx.execute(
        "UPDATE job_runs INDEXED BY job_runs_open"
        " SET state = 'failed', reason = 'the process ended', ended_at = ?"
        " WHERE state = 'claimed' AND inbox_id IS NULL",
        (tx.now,),
    )
    faultpoint("void_runs.runs")
    return changed.rowcount


def _forget_old(tx: Transaction, job_id: str) -> None:
    tx.execute(
        "DELETE FROM job_runs WHERE job_id = ?1 AND state <> 'claimed' AND id <= (SELECT id"
        " FROM job_runs WHERE job_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (job_id, MAX_RUNS),
    )
    faultpoint("fire_job.forgotten")
