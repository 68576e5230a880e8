"""Owns jobs and their ledger in memory, for the in-memory store."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from agent.jobs.nouns import (
    MAX_RUNS,
    STILL_AT_WORK,
    Action,
    Fired,
    Firing,
    Job,
    JobDraft,
    JobPlace,
    JobRefused,
    JobRun,
    JobState,
    JobView,
    Misses,
    Origin,
    RunState,
    Schedule,
    draft_for,
    how_it_went,
    record_for,
    too_many_text,
)
from agent.mail import Address, InboxItem, OutboxDraft
from agent.ports import Clock, IdSource
from storage.codec import clean, clean_json
from storage.memory_mailbox import MemoryMailbox
from storage.memory_tables import MemoryTables
from storage.places import address_of_today, key_of_today

_LIVE = ("active", "paused")


class MemoryJobs:
    """The counterpart of `storage.jobs`, `storage.job_runs` and `storage.job_firing`."""

    def __init__(
        self, tables: MemoryTables, mail: MemoryMailbox, clock: Clock, ids: IdSource
    ) -> None:
        self._tables = tables
        self._mail = mail
        self._clock = clock
        self._ids = ids
        self._jobs: dict[str, Job] = {}
        self._last: dict[str, int] = {}
        self._runs: dict[int, JobRun] = {}
        self._next_run_id = 1

    # jobs

    def add_job(self, draft: JobDraft, most: int | None) -> Job:
        place = self._of_today(draft.place)
        live = [j for j in self._at(place.session_key) if j.state in _LIVE]
        if most is not None and len(live) >= most:
            raise JobRefused(too_many_text(most))
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

    def jobs_at(self, session_key: str, over: bool) -> list[JobView]:
        found = self._at(key_of_today(session_key, self._tables.today))
        return [self._view(job) for job in found if over or job.state in _LIVE]

    def jobs_of(self, origin: Origin) -> list[JobView]:
        found = (job for job in self._jobs.values() if job.origin == origin)
        return [self._view(job) for job in sorted(found, key=lambda job: job.created_at)]

    def job_views(self, limit: int) -> list[JobView]:
        live = [job for job in self._jobs.values() if job.state in _LIVE]
        live.sort(key=lambda job: (job.next_run_at is None, job.next_run_at or 0.0))
        return [self._view(job) for job in live[:limit]]

    def job_at(self, session_key: str, number: int) -> JobView | None:
        found = self._at(key_of_today(session_key, self._tables.today))
        return next((self._view(job) for job in found if job.number == number), None)

    def set_job(
        self, job_id: str, state: JobState, next_run_at: float | None, reason: str
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

    def due_jobs(self, now: float, limit: int) -> list[JobView]:
        due = [(at, job) for at, job in self._active() if at <= now]
        due.sort(key=lambda pair: pair[0])
        return [self._view(job) for _, job in due[:limit]]

    def next_job_at(self) -> float | None:
        return min((at for at, _ in self._active()), default=None)

    def failed_runs(self, since: float, limit: int) -> list[JobView]:
        failed = [
            run
            for run in self._newest_first()
            if run.state in ("failed", "missed") and run.claimed_at >= since
        ]
        return [JobView(self._jobs[run.job_id], run) for run in failed[:limit]]

    # the ledger

    def job_runs(self, job_id: str, limit: int) -> list[JobRun]:
        own = (run for run in self._newest_first() if run.job_id == job_id)
        return list(islice(own, limit))

    def ran_between(self, job_id: str, first: float, last: float) -> Sequence[float]:
        return sorted(
            run.due_at
            for run in self._runs.values()
            if run.job_id == job_id and run.state != "missed" and first <= run.due_at <= last
        )

    def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        job = self._jobs.get(job_id)
        if job is None or job.state != "active" or job.next_run_at != firing.expected_run_at:
            return None
        self.settle(job_id)
        missed = None if firing.misses is None else self._miss(job_id, firing.misses)
        run_at = firing.run_at
        if run_at is not None and any(
            run.state == "claimed" for run in self._runs.values() if run.job_id == job_id
        ):
            missed = self._miss(job_id, Misses(run_at, run_at, 1, STILL_AT_WORK))
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
            return Fired(changed, self._claim(job_id, run_at, None, over=False), missed=missed)
        if job.action.kind == "text":
            (owed,) = self._mail.owe([draft_for(job, firing)], None, now)
            run = self._claim(job_id, run_at, None, over=True)
            return Fired(changed, run, owed=owed, missed=missed)
        receipt = self._mail.accept(record_for(job, run_at, now), None)
        run = self._claim(job_id, run_at, receipt.inbox_id, over=False)
        item = InboxItem(receipt.inbox_id, receipt.record, "new")
        return Fired(changed, run, item=item, missed=missed)

    def end_run(self, run_id: int, state: RunState, reason: str) -> JobRun | None:
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

    def void_runs(self) -> int:
        open_ones = [
            run.id for run in self._runs.values() if run.state == "claimed" and not run.inbox_id
        ]
        for run_id in open_ones:
            self.end_run(run_id, "failed", "the process ended")
        return len(open_ones)

    def _claim(self, job_id: str, due_at: float, inbox_id: int | None, *, over: bool) -> JobRun:
        now = self._clock.now()
        state: RunState = "done" if over else "claimed"
        run = JobRun(
            self._next_run_id, job_id, due_at, due_at, 1, state, "", now, now if over else None,
            inbox_id,
        )  # fmt: skip
        return self._enter(run)

    def _miss(self, job_id: str, misses: Misses) -> JobRun:
        now, newest = self._clock.now(), next(iter(self.job_runs(job_id, 1)), None)
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
        for old in self.job_runs(run.job_id, len(self._runs))[MAX_RUNS:]:
            if old.state != "claimed":
                del self._runs[old.id]
        return run

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
        self._runs = {n: run for n, run in self._runs.items() if run.job_id not in gone}

    def _of_person(self, owner: str) -> list[Job]:
        ours = ("person", "tool")
        return [j for j in self._jobs.values() if j.place.owner == owner and j.origin in ours]

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

    def _newest_first(self) -> Iterator[JobRun]:
        return reversed(self._runs.values())

    def _view(self, job: Job) -> JobView:
        return JobView(job, next(iter(self.job_runs(job.id, 1)), None))


def _cleaned(action: Action) -> Action:
    return Action(action.kind, clean(action.text))
