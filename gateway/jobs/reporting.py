"""Owns what the log says of jobs that run, and of those that do not: no word of theirs."""

from __future__ import annotations

import logging

from agent.jobs.nouns import Fired, Job

log = logging.getLogger(__name__)


def facts(job: Job) -> dict[str, object]:
    """Which job it is. What people set is called by their words, so by its number only."""
    named = {"job": job.name} if job.origin in ("config", "house") else {}
    return {"job_id": job.id, **named, "number": job.number, "origin": job.origin}


def report(fired: Fired) -> None:
    """One line for each due time; what was missed is a warning."""
    if fired.missed is not None:
        missed = fired.missed
        log.warning(
            "job missed",
            extra={**facts(fired.job), "times": missed.count, "reason": missed.reason},
        )
    if fired.run is not None:
        late = round(fired.run.claimed_at - fired.run.due_at, 1)
        log.info("job", extra={**facts(fired.job), "late_seconds": late})
