"""Owns what people, the model and the command line do to jobs: make, pause, resume, cancel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.jobs import schedules
from agent.jobs.nouns import (
    MAX_JOBS,
    MAX_JOBS_EACH,
    Action,
    Job,
    JobDraft,
    JobPlace,
    JobRefused,
    JobState,
    JobView,
    Origin,
    Schedule,
    as_name,
    checked_action,
)
from agent.jobs.ports import JobStore
from agent.ports import Clock
from gateway.intake.keys import is_personal


class JobDesk:
    """One desk for commands, the tool, and the command line."""

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        *,
        zone: Callable[[], str],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the parts.

        ``zone``: the IANA name for people who say none, as it is now.
        ``changed``: told when the next run may be another.
        """
        self._store = store
        self._clock = clock
        self._zone = zone
        self._changed = changed

    @property
    def zone(self) -> str:
        """Of people who say none."""
        return self._zone()

    def on_changed(self, changed: Callable[[], None]) -> None:
        """Whom to tell when the next run may be another."""
        self._changed = changed

    def now(self) -> float:
        """By the clock that jobs go by."""
        return self._clock.now()

    async def add(
        self,
        place: JobPlace,
        schedule: Schedule,
        action: Action,
        *,
        name: str = "",
        origin: Origin = "person",
    ) -> Job:
        """Make a job.

        Raises:
            JobRefused: it would never run, says nothing or too much, or the place has too many,
                or this person in a shared one.
        """
        action = checked_action(action)
        schedule, now = schedules.checked(schedule), self._clock.now()
        due = schedules.next_due(schedule, now, now)
        if due is None:
            raise JobRefused(schedules.over_text(schedule))
        draft = JobDraft(place, schedule, action, as_name(name or action.text), origin, due, now)
        most_each = None if is_personal(place.session_key) else MAX_JOBS_EACH
        job = await self._store.add_job(draft, most=MAX_JOBS, most_each=most_each)
        self._changed()
        return job

    async def of(self, place: JobPlace) -> Sequence[JobView]:
        """The place's jobs that are not over, by number."""
        return await self._store.jobs_at(place.session_key)

    async def everywhere(self) -> Sequence[JobView]:
        """Those of every place that are not over, by their next run: for the operator."""
        return await self._store.job_views()

    async def place_of_turn(self, turn_id: str) -> JobPlace | None:
        """Where a turn was asked for (`agent.ports.ToolContext.turn_id`), for its tools."""
        return await self._store.place_of_turn(turn_id)

    async def pause(self, place: JobPlace, number: int) -> Job:
        """Let it not run until it is resumed.

        Raises:
            JobRefused: there is no such job, or it is over.
        """
        job = (await self._live(place, number)).job
        return await self._set(job, "paused", job.next_run_at)

    async def resume(self, place: JobPlace, number: int) -> Job:
        """Let a paused job run again, from its next time on: what was due meanwhile is not made up.

        Raises:
            JobRefused: there is no such job, it is over, or its only time has passed.
        """
        job = (await self._live(place, number)).job
        if job.state == "active":
            return job
        due = schedules.next_due(job.schedule, self._clock.now(), job.anchor_at)
        if due is None:
            raise JobRefused(
                f"the time of job {number} has passed while it was paused: make a new one"
            )
        return await self._set(job, "active", due)

    async def cancel(self, place: JobPlace, number: int) -> Job:
        """End it for good.

        Raises:
            JobRefused: there is no such job, it is over, or it stands in the configuration, which
                would bring it back.
        """
        job = (await self._live(place, number)).job
        if job.origin == "config":
            raise JobRefused(
                f"job {number} stands in the configuration, where only the operator ends it: "
                f"/jobs pause {number} lets it rest"
            )
        return await self._set(job, "cancelled", None)

    async def _live(self, place: JobPlace, number: int) -> JobView:
        view = await self._store.job_at(place.session_key, number)
        if view is None or view.job.state in ("done", "cancelled"):
            raise JobRefused(f"there is no job {number} here")
        return view

    async def _set(self, job: Job, state: JobState, next_run_at: float | None) -> Job:
        changed = await self._store.set_job(job.id, state, next_run_at=next_run_at)
        self._changed()
        if changed is None:
            raise JobRefused(f"job {job.number} is over by now")
        return changed
