"""Owns the operator's side of jobs: list, pause, resume, cancel, runs, by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo

from agent.errors import PosthouseError
from agent.jobs.nouns import Job, JobRefused, JobRun, JobView, Origin, Schedule
from agent.jobs.ports import JobStore
from agent.jobs.words import telling
from gateway.control import send_line
from gateway.jobs.desk import JobDesk
from gateway.jobs.doubts import Doubt

Answer = dict[str, Any]
"""JSON: what was asked for, or ``{"error": …}`` in words."""
MOST_RUNS = 50
SHORTEST_ID = 4
"""Characters of an id that are enough, where they name one job."""
_NOT_HERE: Mapping[Origin, str] = {
    "config": "this job stands in config.yaml: take it out there, then reload or restart",
    "house": "this is the daemon's own work, so it can not be cancelled; pause puts it off",
}


class JobOffice:
    """Answers requests ``{"action": "list" | "pause" | "resume" | "cancel" | "runs", …}``."""

    def __init__(
        self,
        desk: JobDesk,
        store: JobStore,
        *,
        doubts: Callable[[], Sequence[Doubt]] = list,
    ) -> None:
        """``doubts``: jobs of the configuration in force that can not run; some are not stored."""
        self._desk = desk
        self._store = store
        self._doubts = doubts

    async def serve(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One request of the command line, at the daemon's control socket."""
        await send_line(writer, await self.answer(request))

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Never fails: what goes wrong is said in words."""
        try:
            match request:
                case {"action": "list", "all": bool(over)}:
                    return {
                        "jobs": [self._shown(view) for view in await self._views(over)],
                        "remarks": [f"{doubt.name}: {doubt.text}" for doubt in self._doubts()],
                    }
                case {"action": "runs", "id": str(job_id)}:
                    job = (await self._one(job_id)).job
                    runs = await self._store.job_runs(job.id, limit=MOST_RUNS)
                    return {"job": job.id, "runs": [_run(run, job) for run in runs]}
                case {"action": "pause" | "resume" | "cancel" as action, "id": str(job_id)}:
                    return {"job": self._shown(await self._changed(action, job_id))}
                case _:
                    return {"error": "this request is not known; is it of another version?"}
        except PosthouseError as exc:
            return {"error": str(exc)}

    async def _views(self, over: bool) -> Sequence[JobView]:
        if not over:
            return await self._desk.everywhere()
        every = [view for origin in get_args(Origin) for view in await self._store.jobs_of(origin)]
        return sorted(every, key=lambda view: view.job.created_at)

    async def _one(self, job_id: str) -> JobView:
        views = await self._views(True)
        meant = [view for view in views if view.job.id == job_id]
        if not meant and len(job_id) >= SHORTEST_ID:
            meant = [view for view in views if view.job.id.startswith(job_id)]
        if not meant:
            raise JobRefused(f"there is no job {job_id[:40]!r}; `posthouse jobs --all` shows all")
        if len(meant) > 1:
            raise JobRefused(f"{len(meant)} jobs begin with {job_id[:40]!r}: write more of the id")
        return meant[0]

    async def _changed(self, action: str, job_id: str) -> JobView:
        view = await self._one(job_id)
        job = view.job
        match action:
            case "pause":
                job = await self._desk.pause(job.place, job.number)
            case "resume":
                job = await self._desk.resume(job.place, job.number)
            case _:
                if job.origin in _NOT_HERE:
                    raise JobRefused(_NOT_HERE[job.origin])
                job = await self._desk.cancel(job.place, job.number)
        return JobView(job, view.last)

    def _shown(self, view: JobView) -> Answer:
        job = view.job
        next_run = None
        if job.state == "active" and job.next_run_at is not None:
            next_run = telling.next_run(job.next_run_at, job.schedule.zone, self._desk.now())
        to = job.place.address
        return {
            # As the columns of the store's table are called.
            "id": job.id,
            "session_key": job.place.session_key,
            "number": job.number,
            "origin": job.origin,
            "name": job.name,
            "owner": job.place.owner,
            "platform": to.platform,
            "bot_id": to.bot_id,
            "chat_id": to.chat_id,
            "thread_id": to.thread_id,
            "kind": job.schedule.kind,
            "spec": job.schedule.spec,
            "timezone": job.schedule.zone,
            "action": job.action.kind,
            "state": job.state,
            "reason": job.reason,
            "next_run_at": job.next_run_at,
            "last_run_at": job.last_run_at,
            "created_at": job.created_at,
            # In words, and from the ledger.
            "schedule": _when(job.schedule, self._desk.now()),
            "next_run": next_run,
            "last_run": None if view.last is None else _run(view.last, job),
        }


def _when(schedule: Schedule, now: float) -> str:
    """As `telling.rhythm`; what comes once is told apart by its time, also when it is over."""
    rhythm = telling.rhythm(schedule)
    if schedule.kind != "once":
        return rhythm
    at = datetime.fromisoformat(schedule.spec).replace(tzinfo=ZoneInfo(schedule.zone))
    return f"{rhythm}, {telling.moment(at.timestamp(), schedule.zone, now, named=False)}"


def _run(run: JobRun, job: Job) -> Answer:
    return {
        "job_id": run.job_id,
        "due_at": run.due_at,
        "until_at": run.until_at,
        "due": telling.stamp(run.due_at, job.schedule.zone),
        "state": run.state,
        "count": run.count,
        "reason": run.reason,
        "claimed_at": run.claimed_at,
        "ended_at": run.ended_at,
    }
