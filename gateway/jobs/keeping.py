"""Owns how the jobs that are named somewhere (configuration, house) come to stand in the store.

By their names: one that is new is made, one that has changed is another one under its number with
its next run computed anew, one that is gone is cancelled; what it did stays in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from agent.jobs import schedules
from agent.jobs.nouns import Action, Job, JobDraft, JobPlace, Origin, Schedule
from agent.jobs.ports import JobStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as it is to be."""

    name: str
    place: JobPlace
    schedule: Schedule
    action: Action


async def keep(
    store: JobStore, origin: Origin, wanted: Sequence[Wanted], now: float, *, known: set[str]
) -> None:
    """Let the store hold these of this origin; ``known``: names that are kept in any case.

    Called again with the same it changes nothing, but for one that was paused by itself: it gets
    another chance.
    """
    newest: dict[str, Job] = {}
    for view in await store.jobs_of(origin):
        if view.job.state != "cancelled":
            newest[view.job.name] = view.job
    names = {one.name for one in wanted} | known
    for name, job in newest.items():
        if name not in names and job.state != "done":
            await store.set_job(job.id, "cancelled", next_run_at=None)
            log.info("job is gone", extra={"job": name})
    for one in wanted:
        await _keep_one(store, origin, one, newest.get(one.name), now)


async def _keep_one(
    store: JobStore, origin: Origin, one: Wanted, job: Job | None, now: float
) -> None:
    if job is not None and job.place.session_key != one.place.session_key:
        if job.state != "done":
            await store.set_job(job.id, "cancelled", next_run_at=None)
        job = None
    if job is None:
        due = schedules.next_due(one.schedule, now, now)
        if due is None:
            log.warning("a job's only time has passed before it was known", extra={"job": one.name})
            return
        draft = JobDraft(one.place, one.schedule, one.action, one.name, origin, due, now)
        await store.add_job(draft)
        log.info("job is new", extra={"job": one.name})
    elif not _is_same(job, one):
        anchor = job.anchor_at if job.schedule == one.schedule else now
        due = schedules.next_due(one.schedule, now, anchor)
        if job.schedule == one.schedule and job.state != "paused":
            due = job.next_run_at
        await store.change_job(
            job.id,
            place=one.place,
            schedule=one.schedule,
            action=one.action,
            next_run_at=due,
            anchor_at=anchor,
        )
        log.info("job has changed", extra={"job": one.name})
    elif job.state == "paused" and job.reason:
        due = schedules.next_due(job.schedule, now, job.anchor_at)
        await store.set_job(job.id, "active" if due else "cancelled", next_run_at=due)


def _is_same(job: Job, one: Wanted) -> bool:
    return (job.schedule, job.action, job.place.owner, job.place.sender) == (
        one.schedule,
        one.action,
        one.place.owner,
        one.place.sender,
    )
