"""Owns the metrics of what looks after itself: loop, store, jobs, backups, runs, reloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.crashes.runs import cut_off
from gateway.monitoring.exposition import Gauge, Metric
from gateway.monitoring.home_files import FileFacts
from gateway.monitoring.overview import Overview
from gateway.monitoring.stalls import LoopWatch


def upkeep_metrics(
    overview: Overview, watch: LoopWatch | None, reloads: Callable[[], Mapping[str, int]]
) -> list[Metric]:
    """Asked when somebody reads; what store and files say, `Overview.refresh` has asked before."""

    def queue(name: str) -> float | None:
        found = overview.queues()
        return None if found is None else found[name]

    def job(name: str) -> float | None:
        jobs = overview.jobs()
        return None if jobs is None else getattr(jobs, name)

    def file(number: Callable[[FileFacts], int]) -> float | None:
        files = overview.files()
        return None if files is None else float(number(files))

    found: list[Metric] = [
        Gauge(
            "posthouse_inbox_waiting",
            "Messages in the store that nobody has begun to answer.",
            lambda: queue("inbox"),
        ),
        Gauge(
            "posthouse_inbox_oldest_seconds",
            "How long the oldest of them waits.",
            lambda: queue("inbox_oldest_seconds") or _zero(overview),
        ),
        Gauge(
            "posthouse_outbox_oldest_seconds",
            "How long the oldest answer is owed.",
            lambda: queue("outbox_oldest_seconds") or _zero(overview),
        ),
        Gauge(
            "posthouse_outbox_in_doubt",
            "Owed answers that may have arrived.",
            lambda: queue("outbox_in_doubt"),
        ),
        Gauge(
            "posthouse_chats_refusing",
            "Chats that took none of their newest answers: they block the bot, or are gone.",
            lambda: queue("refusing_chats"),
        ),
        Gauge(
            "posthouse_database_bytes",
            "Size of the database and of its write-ahead log.",
            lambda: {(name,): float(size) for name, size in overview.file_bytes().items()},
            ("part",),
        ),
        Gauge(
            "posthouse_backups",
            "Backups that we know of.",
            lambda: file(lambda files: files.backups.count),
        ),
        Gauge(
            "posthouse_backup_age_seconds",
            "Since the newest backup was made.",
            overview.newest_backup_age,
        ),
        Gauge("posthouse_jobs_active", "Jobs that will run.", lambda: job("active")),
        Gauge(
            "posthouse_jobs_failed",
            "Jobs whose last run failed.",
            lambda: job("failed"),
        ),
        Gauge(
            "posthouse_job_next_timestamp_seconds",
            "When the next job is due.",
            lambda: job("next_at"),
        ),
        Gauge(
            "posthouse_starts",
            "Starts on this home, as far as its book of runs goes back.",
            lambda: file(lambda files: len(files.runs)),
        ),
        Gauge(
            "posthouse_runs_cut_off",
            "Of those runs, how many did not come to an end of their own.",
            lambda: file(lambda files: len(cut_off(files.runs))),
        ),
        Gauge(
            "posthouse_reloads_total",
            "Reloads of the configuration, by what came of them.",
            lambda: {(outcome,): float(count) for outcome, count in reloads().items()},
            ("outcome",),
            kind="counter",
        ),
    ]
    return [*found, *(_of_the_loop(watch) if watch is not None else [])]


def _zero(overview: Overview) -> float | None:
    """Nothing waits; None: nobody knows."""
    return None if overview.queues() is None else 0.0


def _of_the_loop(watch: LoopWatch) -> list[Metric]:
    return [
        Gauge(
            "posthouse_event_loop_lag_seconds",
            "The longest that the event loop was late, of the last minutes.",
            lambda: watch.lag().most if watch.lag().samples else None,
        ),
        Gauge(
            "posthouse_event_loop_lag_p99_seconds",
            "Of a hundred looks, how late it was in all but one.",
            lambda: watch.lag().p99 if watch.lag().samples else None,
        ),
        Gauge(
            "posthouse_event_loop_stalls_total",
            "How often it stood still for seconds.",
            lambda: float(watch.stalls),
            kind="counter",
        ),
    ]
