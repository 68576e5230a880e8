"""Owns what the daemon does by itself at set times, in the same ledger as everybody's jobs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agent.errors import PosthouseError, StoreError
from agent.jobs.nouns import HOUSE, Action, Job, JobPlace, JobRun, RunState, Schedule
from agent.jobs.ports import JobStore
from agent.mail import Address
from agent.ports import Clock
from gateway.config.models import Config
from gateway.jobs.keeping import Wanted
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

PLACE = JobPlace("", HOUSE, Address(HOUSE, "", ""))
AGAIN_SECONDS = 5.0
"""Between two tries to enter how a run went."""


@dataclass(frozen=True, slots=True)
class HouseJob:
    """One of them."""

    name: str
    schedule: Schedule
    run: Callable[[], Awaitable[str]]
    """Does it, and says in few words what came of it. What it raises is a failed run."""


HouseMaker = Callable[[Config, str], HouseJob | None]
"""One of them by the configuration in force and its zone's name; None: it is not wanted."""


class House:
    """All of them, and those that are at work."""

    def __init__(self, store: JobStore, clock: Clock, makers: Sequence[HouseMaker] = ()) -> None:
        self._store = store
        self._clock = clock
        self._makers = list(makers)
        self._jobs: dict[str, HouseJob] = {}
        self._at_work = TaskOwner(clock)

    def wanted(self, config: Config, zone: str) -> list[Wanted]:
        """As they are to stand in the store."""
        made = [maker(config, zone) for maker in self._makers]
        self._jobs = {job.name: job for job in made if job is not None}
        return [
            Wanted(job.name, PLACE, job.schedule, Action("prompt", job.name))
            for job in self._jobs.values()
        ]

    def begin(self, job: Job, run: JobRun) -> None:
        """Do it, beside everything else."""
        self._at_work.spawn(self._do(job, run), name=f"house job {job.name}")

    async def close(self, seconds: float) -> None:
        """Nothing begins any more; what is at work is cancelled, and has failed."""
        await self._at_work.cancel(seconds)

    async def _do(self, job: Job, run: JobRun) -> None:
        state, said = await self._done(job.name)
        while True:
            try:
                await self._store.end_run(run.id, state, said)
                return
            except StoreError as exc:  # left open, it would be at work until the next start
                log.warning(
                    "a house job's end waits: the store does not take it",
                    extra={"job": job.name, "error": repr(exc)},
                )
            await self._clock.sleep(AGAIN_SECONDS)

    async def _done(self, name: str) -> tuple[RunState, str]:
        """How it went, and what came of it."""
        one = self._jobs.get(name)
        if one is None:
            return "failed", "it is not wanted any more"
        try:
            said = await one.run()
        except PosthouseError as exc:  # expected; its text says all there is to say
            log.warning("house job failed", extra={"job": name, "reason": str(exc)})
            return "failed", str(exc)[:500]
        except Exception as exc:  # the supervised border: the others go on
            log.exception("house job failed", extra={"job": name})
            return "failed", repr(exc)[:500]
        log.info("house job", extra={"job": name, "result": said})
        return "done", said
