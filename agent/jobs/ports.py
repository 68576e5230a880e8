"""Owns the Protocol of the store's jobs: each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.jobs.nouns import (
    Action,
    Fired,
    Firing,
    Job,
    JobDraft,
    JobPlace,
    JobRun,
    JobState,
    JobView,
    Origin,
    RunState,
    Schedule,
)


class JobStore(Protocol):
    """Jobs and the ledger of their runs. A place that was a chat follows it to its new id."""

    async def add_job(
        self, draft: JobDraft, *, most: int | None = None, most_each: int | None = None
    ) -> Job:
        """Store a job under its place's next number.

        Raises:
            JobRefused: ``most`` jobs of this place are not over, or ``most_each`` of those that
                this owner has set there (the configuration's do not count).
        """
        ...

    async def jobs_at(self, session_key: str, *, over: bool = False) -> Sequence[JobView]:
        """A place's jobs by number; with ``over`` also those that are done or cancelled."""
        ...

    async def jobs_of(self, origin: Origin) -> Sequence[JobView]:
        """All of this origin in every state, oldest first."""
        ...

    async def job_views(self, *, limit: int = 1_000) -> Sequence[JobView]:
        """Those of every place that are not over, by their next run."""
        ...

    async def job_at(self, session_key: str, number: int) -> JobView | None:
        """One of a place, in any state."""
        ...

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        """Where a turn was asked for, and by whom: the place of a job that it makes."""
        ...

    async def set_job(
        self, job_id: str, state: JobState, *, next_run_at: float | None, reason: str = ""
    ) -> Job | None:
        """Pause, resume, cancel, or put off. None, and nothing is stored: it is over, or unknown.

        Of a paused job the next run is kept for the day on which it is resumed.
        """
        ...

    async def change_job(
        self,
        job_id: str,
        *,
        place: JobPlace,
        schedule: Schedule,
        action: Action,
        next_run_at: float | None,
        anchor_at: float,
    ) -> Job | None:
        """Let a job be another one under the same number, active. None: there is none.

        The session key stays: a job that goes to another place is another job. A job that is done
        begins anew.
        """
        ...

    async def due_jobs(self, now: float, *, limit: int = 100) -> Sequence[JobView]:
        """Active jobs whose next run is not later than that, the longest due first."""
        ...

    async def next_job_at(self) -> float | None:
        """When the next active job is due; None: there is none."""
        ...

    async def ran_between(self, job_id: str, first: float, last: float) -> Sequence[float]:
        """Due times from the first to the last that the ledger knows as run, in order."""
        ...

    async def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        """Let a due job run: ledger, next run, and the row or the answer, all or nothing.

        A prompt becomes a waiting row in its conversation, a text an owed answer; house jobs are
        claimed only. Where the job's run before is not over (its row waits, or its turn runs) the
        due time is missed. None, and nothing is stored: the job is not active any more, or its
        next run is another one by now.
        """
        ...

    async def end_run(self, run_id: int, state: RunState, reason: str = "") -> JobRun | None:
        """How a claimed run went. None, and nothing is stored: it is not claimed (any more)."""
        ...

    async def settle_runs(self) -> Sequence[JobRun]:
        """Enter how claimed runs went whose rows are answered by now; gives back those entries."""
        ...

    async def open_runs(self) -> int:
        """How many prompts wait for their turn, or have it."""
        ...

    async def void_runs(self) -> int:
        """At a start: house jobs that were at work when the process ended have failed."""
        ...

    async def job_runs(self, job_id: str, *, limit: int = 20) -> Sequence[JobRun]:
        """A job's ledger, newest first."""
        ...
