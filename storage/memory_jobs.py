"""Owns jobs in memory, for the in-memory store."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

from agent.jobs.nouns import (
    STILL_AT_WORK,
    Action,
    Fired,
    Firing,
    Job,
    JobDraft,
    JobPlace,
    JobRefused,
    JobState,
    JobView,
    Misses,
    Origin,
    Schedule,
    draft_for,
    record_for,
    too_many_each_text,
    too_many_text,
)
from agent.mail import Address, InboxItem, OutboxDraft
from agent.ports import Clock, IdSource
from storage.codec import clean, clean_json
from storage.memory_job_runs import MemoryJobRuns
from storage.memory_mailbox import MemoryMailbox
from storage.memory_tables import MemoryTables
from storage.places import address_of_today, key_of_today

_LIVE = ("active", "paused")
_SET = ("person", "tool")


class MemoryJobs:
    """The counterpart of `storage.jobs` and `storage.job_firing`."""

    def __init__(
        self,
        tables: MemoryTables,
        mail: MemoryMailbox,
        runs: MemoryJobRuns,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._tables = tables
        self._mail = mail
        self._runs = runs
        self._clock = clock
        self._ids = ids
        self._jobs: dict[str, Job] = {}
        self._last: dict[str, int] = {}

    # jobs

    def add_job(
        self, draft: JobDraft, *, most: int | None = None, most_each: int | None = None
    ) -> Job:
        place = self._of_today(draft.place)
        live = [j for j in self._at(place.session_key) if j.state in _LIVE]
        if most is not None and len(live) >= most:
            raise JobRefused(too_many_text(most))
        theirs = [j for j in live if j.place.owner == place.owner and j.origin in _SET]
        if most_each is not None and len(theirs) >= most_each:
            raise JobRefused(too_many_each_text(most_each))
        number = self._last[place.session_key] = self._last.get(place.session_key, 0) + 1
        job = Job(
            id=self._ids.new("job"),
            number=number,
            name=clean(draft.name),
            place=place,
            schedule=draft.schedule,
            action=_cleaned(draft.action),
            origin=draft.origin,
            state="active",
            reason="",
            next_run_at=draft.next_run_at,
            last_run_at=None,
            created_at=self._clock.now(),
            anchor_at=draft.anchor_at,
        )
        self._jobs[job.id] = job
        return job

    def jobs_at(self, session_key: str, *, over: bool = False) -> list[JobView]:
        found = self._at(key_of_today(session_key, self._tables.today))
        return [self._view(job) for job in found if over or job.state in _LIVE]

    def jobs_of(self, origin: Origin) -> list[JobView]:
        found = (job for job in self._jobs.values() if job.origin == origin)
        return [self._view(job) for job in sorted(found, key=lambda job: job.created_at)]

    def job_views(self, *, limit: int = 1_000) -> list[JobView]:
        live = [job for job in self._jobs.values() if job.state in _LIVE]
        live.sort(key=lambda job: (job.next_run_at is None, job.next_run_at or 0.0))
        return [self._view(job) for job in live[:limit]]

    def job_at(self, session_key: str, number: int) -> JobView | None:
        found = self._at(key_of_today(session_key, self._tables.today))
        return next((self._view(job) for job in found if job.number == number), None)

    def set_job(
        self, job_id: str, state: JobState, *, next_run_at: float | None, reason: str = ""
    ) -> Job | None:
        job = self._jobs.get(job_id)
        if job is None or job.state not in _LIVE:
            return None
        job = replace(job, state=state, next_run_at=next_run_at, reason=clean(reason))
        self._jobs[job_id] = job
        return job

    def change_job(
        self,
        job_id: str,
        *,
        place: JobPlace,
        schedule: Schedule,
        action: Action,
        next_run_at: float | None,
        anchor_at: float,
    ) -> Job | None:
        job, place = self._jobs.get(job_id), self._of_today(place)
        if job is None or job.place.session_key != place.session_key:
            return None
        job = replace(
            job,
            place=replace(job.place, owner=place.owner, sender=place.sender),
            schedule=schedule,
            action=_cleaned(action),
            state="done" if next_run_at is None else "active",
            reason="",
            next_run_at=next_run_at,
            anchor_at=anchor_at,
        )
        self._jobs[job_id] = job
        return job

    def due_jobs(self, now: float, *, limit: int = 100) -> list[JobView]:
        due = [(at, job) for at, job in self._active() if at <= now]
        due.sort(key=lambda pair: pair[0])
        return [self._view(job) for _, job in due[:limit]]

    def next_job_at(self) -> float | None:
        return min((at for at, _ in self._active()), default=None)

    def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        job = self._jobs.get(job_id)
        if job is None or job.state != "active" or job.next_run_at != firing.expected_run_at:
            return None
        self._runs.settle(job_id)
        missed = None if firing.misses is None else self._runs.miss(job_id, firing.misses)
        run_at = firing.run_at
        if run_at is not None and self._runs.is_at_work(job_id):
            missed = self._runs.miss(job_id, Misses(run_at, run_at, 1, STILL_AT_WORK))
            run_at = None
        now = self._clock.now()
        changed = self._jobs[job_id] = replace(
            job,
            next_run_at=firing.next_run_at,
            state="done" if firing.next_run_at is None else "active",
            last_run_at=job.last_run_at if run_at is None else now,
        )
        if run_at is None:
            return Fired(changed, None, missed=missed)
        if job.origin == "house":
            return Fired(changed, self._runs.claim(job_id, run_at, None, over=False), missed=missed)
        if job.action.kind == "text":
            (owed,) = self._mail.owe([draft_for(job, firing)], None, now)
            run = self._runs.claim(job_id, run_at, None, over=True)
            return Fired(changed, run, owed=owed, missed=missed)
        receipt = self._mail.accept(record_for(job, run_at, now), None)
        run = self._runs.claim(job_id, run_at, receipt.inbox_id, over=False)
        item = InboxItem(receipt.inbox_id, receipt.record, "new")
        return Fired(changed, run, item=item, missed=missed)

    # forgetting

    def count_of(self, owner: str) -> int:
        """Jobs of this person that are not over."""
        return sum(job.state in _LIVE for job in self._of_person(owner))

    def said_for(self, owner: str) -> list[OutboxDraft]:
        """What their jobs say, and where."""
        return [
            OutboxDraft(job.place.address, job.action.text)
            for job in self._of_person(owner)
            if job.action.kind == "text" and job.action.text
        ]

    def forget_person(self, owner: str) -> None:
        """Delete them; those that the operator has set up for somebody stay."""
        gone = {job.id for job in self._of_person(owner)}
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id not in gone}
        self._runs.forget(gone)

    def _of_person(self, owner: str) -> list[Job]:
        return [j for j in self._jobs.values() if j.place.owner == owner and j.origin in _SET]

    # places

    def places(self) -> set[str]:
        return set(self._last)

    def move(self, moved: Mapping[str, str], chat_id: str) -> None:
        """A chat has got another id: its jobs follow, behind those that are there already."""
        for old_key, key in moved.items():
            moving, last = self._at(old_key), self._last.pop(old_key, 0)
            if not last:
                continue
            number = self._last.get(key, 0)
            alone = number == 0
            for job in moving:
                number = job.number if alone else number + 1
                to = job.place.address
                address = Address(to.platform, to.bot_id, chat_id)
                place = replace(job.place, session_key=key, address=address)
                self._jobs[job.id] = replace(job, number=number, place=place)
            self._last[key] = last if alone else number

    def _of_today(self, place: JobPlace) -> JobPlace:
        today = self._tables.today
        return JobPlace(
            key_of_today(place.session_key, today),
            place.owner,
            address_of_today(place.address, today),
            copy.deepcopy(clean_json(place.sender)),
        )

    def _at(self, key: str) -> list[Job]:
        found = (job for job in self._jobs.values() if job.place.session_key == key)
        return sorted(found, key=lambda job: job.number)

    def _active(self) -> list[tuple[float, Job]]:
        return [
            (job.next_run_at, job)
            for job in self._jobs.values()
            if job.state == "active" and job.next_run_at is not None
        ]

    def _view(self, job: Job) -> JobView:
        return JobView(job, self._runs.newest(job.id))


def _cleaned(action: Action) -> Action:
    return Action(action.kind, clean(action.text))
