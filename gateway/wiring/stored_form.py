"""Owns what the doctor is told of a stored file: its form, is it sound, how its jobs fare."""

from __future__ import annotations

import sqlite3

from storage.job_health import JobHealth, job_health
from storage.migrate import first_applied, shipped
from storage.search import soundness
from storage.upkeep import looked_over


def newest_form() -> int:
    """The number of the last migration that this version brings."""
    return shipped()[-1].version


def damage(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """What can not be mended, and what can: indexes, which are made anew."""
    found = looked_over(connection)
    lines = found.lines()
    return lines[: len(found.pages)], lines[len(found.pages) :]


def index_damage(connection: sqlite3.Connection) -> str | None:
    """What is wrong with the search index, every word of it read: as a backup reads it."""
    connection.execute("PRAGMA query_only=0")  # for a table in memory; the file is opened to read
    try:
        return soundness.trouble(connection, thorough=True)
    finally:
        connection.execute("PRAGMA query_only=1")


def begun_at(connection: sqlite3.Connection) -> float | None:
    """When the file was made; None: it has nothing in it yet."""
    return first_applied(connection)


def how_jobs_fare(connection: sqlite3.Connection, now: float) -> JobHealth:
    """Of those that are not over."""
    return job_health(connection, now)
