"""Owns the ledger of jobs in memory: what became of each due time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from agent.jobs.nouns import MAX_RUNS, JobRun, Misses, RunState, how_it_went
from agent.ports import Clock
from storage.codec import clean
from storage.memory_mailbox import MemoryMailbox
from storage.memory_tables import MemoryTables


class MemoryJobRuns:
    """The counterpart of `storage.job_runs`."""

    def __init__(self, tables: MemoryTables, mail: MemoryMailbox, clock: Clock) -> None:
        self._tables = tables
        self._mail = mail
        self._clock = clock
        self._runs: dict[int, JobRun] = {}
        self._next_run_id = 1

    def job_runs(self, job_id: str, *, limit: int = 20) -> list[JobRun]:
        own = (run for run in self.newest_first() if run.job_id == job_id)
        return list(islice(own, limit))

    def ran_between(self, job_id: str, first: float, last: float) -> Sequence[float]:
        return sorted(
            run.due_at
            for run in self._runs.values()
            if run.job_id == job_id and run.state != "missed" and first <= run.due_at <= last
        )

    def is_at_work(self, job_id: str) -> bool:
        """Is a run of this job not over?"""
        return any(run.state == "claimed" for run in self._runs.values() if run.job_id == job_id)

    def newest(self, job_id: str) -> JobRun | None:
        """The newest entry of a job."""
        return next(iter(self.job_runs(job_id, limit=1)), None)

    def forget(self, job_ids: set[str]) -> None:
        """Nothing of these jobs is left."""
        self._runs = {n: run for n, run in self._runs.items() if run.job_id not in job_ids}

    def end_run(self, run_id: int, state: RunState, reason: str = "") -> JobRun | None:
        run = self._runs.get(run_id)
        if run is None or run.state != "claimed":
            return None
        now = self._clock.now()
        run = replace(run, state=state, reason=clean(reason), ended_at=now)
        self._runs[run_id] = run
        return run

    def settle(self, job_id: str | None) -> list[JobRun]:
        ended: list[JobRun] = []
        for run in list(self._runs.values()):
            if run.state != "claimed" or run.inbox_id is None or job_id not in (None, run.job_id):
                continue
            if self._mail.state_of(run.inbox_id) in ("answered", None):
                turn = self._tables.turns.get(self._mail.turn_of(run.inbox_id) or "")
                over = self.end_run(run.id, *how_it_went(None if turn is None else turn.state))
                ended += [over] if over is not None else []
        return ended

    def open_runs(self) -> int:
        return sum(run.state == "claimed" and bool(run.inbox_id) for run in self._runs.values())

    def void_runs(self) -> int:
        open_ones = [
            run.id for run in self._runs.values() if run.state == "claimed" and not run.inbox_id
        ]
        for run_id in open_ones:
            self.end_run(run_id, "failed", "the process ended")
        return len(open_ones)

    def claim(self, job_id: str, due_at: float, inbox_id: int | None, *, over: bool) -> JobRun:
        now = self._clock.now()
        state: RunState = "done" if over else "claimed"
        run = JobRun(
            self._next_run_id, job_id, due_at, due_at, 1, state, "", now, now if over else None,
            inbox_id,
        )  # fmt: skip
        return self._enter(run)

    def miss(self, job_id: str, misses: Misses) -> JobRun:
        now, newest = self._clock.now(), self.newest(job_id)
        if newest is not None and newest.state == "missed" and newest.reason == misses.reason:
            told = replace(
                newest,
                until_at=misses.last_at,
                count=newest.count + misses.count,
                claimed_at=now,
                ended_at=now,
            )
            self._runs[newest.id] = told
            return told
        run = JobRun(
            self._next_run_id, job_id, misses.first_at, misses.last_at, misses.count, "missed",
            clean(misses.reason), now, now,
        )  # fmt: skip
        return self._enter(run)

    def _enter(self, run: JobRun) -> JobRun:
        again = [
            r.id for r in self._runs.values() if (r.job_id, r.due_at) == (run.job_id, run.due_at)
        ]
        for run_id in again:
            del self._runs[run_id]
        self._runs[run.id] = run
        self._next_run_id += 1
        for old in self.job_runs(run.job_id, limit=len(self._runs))[MAX_RUNS:]:
            if old.state != "claimed":
                del self._runs[old.id]
        return run

    def newest_first(self) -> Iterator[JobRun]:
        return reversed(self._runs.values())
