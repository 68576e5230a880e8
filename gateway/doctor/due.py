"""Owns the check of jobs and reminders: which fail, which were missed, which are late."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable

from agent.clock import SystemClock
from agent.counting import counted
from gateway.doctor.database_file import bytes_of, looked_into
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground

_MOST_NAMED = 3


def look(ground: Ground) -> Iterable[Finding]:
    """From the store."""
    # Inside: it brings the store.
    from gateway.wiring.stored_form import how_jobs_fare  # noqa: PLC0415

    said = Said("jobs")
    file = ground.home.database
    if not bytes_of(file) or not os.access(file, os.R_OK, effective_ids=True):
        return said.findings
    try:
        with looked_into(file, daemon_runs=ground.runs) as connection:
            if connection is None:
                return said.findings
            health = how_jobs_fare(connection, SystemClock().now())
    except (sqlite3.Error, OSError):  # what is wrong with the file is said under "database"
        return said.findings
    for name, reason in health.failing[:_MOST_NAMED]:
        said.warning(
            f"the last run of {name!r} failed: {reason}", "`posthouse jobs` shows its runs"
        )
    for name, reason in health.paused[:_MOST_NAMED]:
        said.warning(
            f"{name!r} was paused: {reason}", "`posthouse jobs`; /jobs in its chat resumes it"
        )
    if health.missed:
        said.note(
            f"{counted(health.missed, 'run was', 'runs were')} missed in the last 7 days "
            "(nothing ran then)",
            "`posthouse jobs` says which",
        )
    if ground.runs and health.late:
        said.warning(
            f"{', '.join(health.late[:_MOST_NAMED])}: due more than ten minutes ago, and not run",
            "see the log of the gateway",
        )
    if health.active and not said.findings:
        said.ok(f"{health.active:,} wait for their time, none of them in trouble")
    return said.findings
