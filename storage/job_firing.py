"""Owns the one transaction in which a due job runs: ledger, next run, and its row or its answer."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from agent.jobs.nouns import (
    STILL_AT_WORK,
    Fired,
    Firing,
    Job,
    JobRun,
    Misses,
    draft_for,
    record_for,
)
from agent.mail import InboxItem
from storage import inbox, job_runs, outbox
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.jobs import job_with, known_job


def fire_job(tx: Transaction, job_id: str, firing: Firing) -> Fired | None:
    job = known_job(tx, job_id)
    if job is None or job.state != "active" or job.next_run_at != firing.expected_run_at:
        return None
    job_runs.settle(tx, job_id)
    missed = None if firing.misses is None else job_runs.miss(tx, job_id, firing.misses)
    run_at = firing.run_at
    if run_at is not None and job_runs.is_at_work(tx, job_id):
        missed = job_runs.miss(tx, job_id, Misses(run_at, run_at, 1, STILL_AT_WORK))
        run_at = None
    over = firing.next_run_at is None
    tx.execute(
        "UPDATE jobs SET next_run_at = ?, state = ?, last_run_at = coalesce(?, last_run_at)"
        " WHERE id = ?",
        (
            firing.next_run_at, "done" if over else "active",
            None if run_at is None else tx.now, job_id,
        ),
    )  # fmt: skip
    faultpoint("fire_job.advanced")
    if run_at is None:
        return Fired(job_with(tx, job_id), None, missed=missed)
    return _run(tx, job, run_at, firing, missed)


def _run(tx: Transaction, job: Job, due_at: float, firing: Firing, missed: JobRun | None) -> Fired:
    if job.origin == "house":
        run = job_runs.claim(tx, job.id, due_at, None, over=False)
        return Fired(job_with(tx, job.id), run, missed=missed)
    if job.action.kind == "text":
        owed = outbox.owe(tx, draft_for(job, firing), None)
        faultpoint("fire_job.owed")
        run = job_runs.claim(tx, job.id, due_at, None, over=True)
        return Fired(job_with(tx, job.id), run, owed=owed, missed=missed)
    receipt = inbox.accept(tx, record_for(job, due_at, tx.now), None)
    faultpoint("fire_job.accepted")
    run = job_runs.claim(tx, job.id, due_at, receipt.inbox_id, over=False)
    item = InboxItem(receipt.inbox_id, receipt.record, "new")
    return Fired(job_with(tx, job.id), run, item=item, missed=missed)
