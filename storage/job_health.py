"""Owns what a look at the jobs from outside finds: which fail, were missed, are late."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

RECENT_SECONDS = 7 * 86_400
LATE_SECONDS = 600
_FAILING = """
SELECT jobs.name, run.reason FROM jobs JOIN job_runs AS run ON run.id = (
    SELECT max(id) FROM job_runs WHERE job_id = jobs.id AND state <> 'claimed'
) WHERE jobs.state IN ('active', 'paused') AND run.state = 'failed' ORDER BY run.id DESC
"""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """Names are as people gave them."""

    active: int = 0
    failing: tuple[tuple[str, str], ...] = ()
    """Name and reason of those whose last run failed."""
    paused: tuple[tuple[str, str], ...] = ()
    """Name and reason of those that were paused by themselves."""
    missed: int = 0
    """Due times of the last week at which nothing happened."""
    late: tuple[str, ...] = ()
    """Due for a while, and not run."""


def job_health(connection: sqlite3.Connection, now: float) -> JobHealth:
    """Read it; nothing from a file that is older than jobs."""
    (there,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'job_runs'"
    ).fetchone()
    if not there:
        return JobHealth()
    (active,) = connection.execute("SELECT count(*) FROM jobs WHERE state = 'active'").fetchone()
    paused = connection.execute(
        "SELECT name, reason FROM jobs WHERE state = 'paused' AND reason <> '' ORDER BY id"
    ).fetchall()
    (missed,) = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM job_runs WHERE state = 'missed' AND until_at > ?",
        (now - RECENT_SECONDS,),
    ).fetchone()
    late = connection.execute(
        "SELECT name FROM jobs WHERE state = 'active' AND next_run_at < ? ORDER BY next_run_at",
        (now - LATE_SECONDS,),
    ).fetchall()
    return JobHealth(
        int(active),
        tuple((str(name), str(reason)) for name, reason in connection.execute(_FAILING)),
        tuple((str(name), str(reason)) for name, reason in paused),
        int(missed),
        tuple(str(name) for (name,) in late),
    )
