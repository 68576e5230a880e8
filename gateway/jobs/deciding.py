"""Owns what becomes of a due job: run, run late, missed; and when it is due again (pure)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.jobs import schedules
from agent.jobs.nouns import Firing, Job, Misses

NOT_RUNNING = "the daemon was not running, or the machine was asleep"
SET_BACK_SECONDS = 2 * 86_400.0
"""A clock that was set back by more was wrong before: what ran in its future does not count."""


def firing_of(job: Job, now: float, ran: Collection[float]) -> Firing:
    """What to do about a job that is due by now; ``ran``: due times that have run already.

    However many times have passed, the newest is run if it is not too late, and only that.
    """
    assert job.next_run_at is not None
    schedule, anchor, first = job.schedule, job.anchor_at, job.next_run_at
    newest = schedules.newest_due(schedule, first, now, anchor)
    runs = newest not in ran and now - newest <= schedules.grace_seconds(schedule, newest, anchor)
    before = newest if runs else now + 1e-3
    gone = schedules.misses(schedule, first, before, anchor, reason=NOT_RUNNING)
    return Firing(
        first,
        newest if runs else None,
        _without(gone, ran),
        schedules.next_due(schedule, now, anchor),
    )


def refused(job: Job, now: float, why: str) -> Firing:
    """The same for one that may not run: all of it is missed."""
    assert job.next_run_at is not None
    first, anchor = job.next_run_at, job.anchor_at
    gone = schedules.misses(job.schedule, first, now + 1e-3, anchor, reason=why)
    return Firing(first, None, gone, schedules.next_due(job.schedule, now, anchor))


def earlier_run(job: Job, now: float, last_claim: float | None, ran: Collection[float]) -> float:
    """When a job is due by a clock that was set back, if that is before its stored next run.

    By a little: what has run does not run again. By much: the clock had been wrong, jobs go on.
    """
    assert job.next_run_at is not None
    if job.schedule.kind == "once":
        return job.next_run_at
    by_a_little = last_claim is None or last_claim - now <= SET_BACK_SECONDS
    for due in schedules.dues(job.schedule, now, job.anchor_at):
        if due >= job.next_run_at or not (by_a_little and due in ran):
            return min(due, job.next_run_at)
    return job.next_run_at


def _without(gone: Misses | None, ran: Collection[float]) -> Misses | None:
    """Those of them that have not run before the clock was set back."""
    if gone is None:
        return None
    count = gone.count - sum(gone.first_at <= due <= gone.last_at for due in ran)
    return replace(gone, count=count) if count > 0 else None
