"""Owns the one task that lets jobs run when they are due: it waits, decides, has it stored.

Everything that has to survive is in the store; what is due is asked there, and a due run is one
transaction of it. So a crash at any moment neither loses a run nor lets one happen twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent.errors import StoreError
from agent.jobs import schedules
from agent.jobs.nouns import (
    Fired,
    Firing,
    Job,
    JobRefused,
    JobView,
    is_scheduled,
)
from agent.mail import InboxItem, OutboxDraft
from agent.ports import Clock
from agent.store_ports import Store
from gateway.delivery.outbox import Delivery
from gateway.jobs import job_text
from gateway.jobs.clock_watch import ClockWatch
from gateway.jobs.deciding import earlier_run, firing_of, refused
from gateway.jobs.house import House
from gateway.jobs.readers import Readers
from gateway.jobs.reporting import facts, report
from gateway.jobs.rights import Rights, RightsUnknown
from gateway.lanes.dispatch import Dispatch

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 30.0
"""So that a clock that jumped, or a machine that slept, is noticed."""
SHORT_WAIT_SECONDS = 5.0
"""While a run is at work, or the store does not answer."""
AT_ONCE = 100


class JobRunner:
    """Runs due jobs, of people, of the configuration and of the house."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rights: Rights,
        dispatch: Dispatch,
        delivery: Delivery,
        house: House,
        *,
        keep: Callable[[], Awaitable[bool]],
    ) -> None:
        """``keep``: lets the store hold what is configured; False: to be tried again later."""
        self._store = store
        self._clock = clock
        self._rights = rights
        self._readers = Readers(delivery)
        self._dispatch = dispatch
        self._delivery = delivery
        self._house = house
        self._keep = keep
        self._kept = False
        self._woken = asyncio.Event()
        self._stopped = False
        self._watch = ClockWatch(clock)
        self._in_doubt = True
        """Something may have been stored that was not handed over, or not entered."""
        self._at_work = True
        self._unsettled: set[str] = set()
        """Due jobs of which nobody could tell whether they may run."""

    def wake(self) -> None:
        """Something is due at another time by now."""
        self._woken.set()

    def keep_again(self) -> None:
        """The configuration is another one: look at what is wanted."""
        self._kept = False
        self._woken.set()

    async def run(self) -> None:
        """For ever, until cancelled."""
        await self._begin()
        while not self._stopped:
            self._woken.clear()
            await self._rest(await self.step())

    async def close(self, seconds: float = 1.0) -> None:
        """Nothing begins any more; what the house does is cancelled."""
        self._stopped = True
        self._woken.set()
        await self._house.close(seconds)

    async def step(self) -> float:
        """Do all that is due by now; gives back for how long nothing is."""
        try:
            return await self._step()
        except StoreError as exc:
            self._in_doubt = True
            log.warning("jobs wait: the store does not answer", extra={"error": repr(exc)})
        except Exception:  # the supervised border: jobs go on
            log.exception("jobs failed")
        return SHORT_WAIT_SECONDS

    async def _begin(self) -> None:
        while not self._stopped:
            try:
                await self._store.void_runs()
                return
            except StoreError as exc:
                log.warning("jobs wait: the store does not answer", extra={"error": repr(exc)})
                await self._rest(SHORT_WAIT_SECONDS)

    async def _step(self) -> float:
        if await self._is_clock_doubtful():
            return SHORT_WAIT_SECONDS
        if not self._kept:
            self._kept = await self._keep_named()
        await self._mind_the_clock()
        if self._in_doubt:
            await self._take_up()
        now = self._clock.now()
        await self._let_all_run(now)
        if self._at_work:
            await self._settle()
        following = await self._store.next_job_at()
        longest = SHORT_WAIT_SECONDS if self._at_work or not self._kept else LONGEST_WAIT_SECONDS
        if self._unsettled:
            return SHORT_WAIT_SECONDS
        return longest if following is None else min(max(following - now, 0.0), longest)

    async def _keep_named(self) -> bool:
        try:
            return await self._keep()
        except StoreError:
            raise
        except Exception:  # the supervised border: those that are stored go on
            log.exception("the configured jobs are not taken over")
            return True

    async def _let_all_run(self, now: float) -> None:
        """Each once; those that stay due are left for the next step."""
        tried: set[str] = set()
        while True:
            due = await self._store.due_jobs(now, limit=AT_ONCE + len(self._unsettled))
            jobs = [view.job for view in due if view.job.id not in tried & self._unsettled]
            if not jobs:
                break
            for job in jobs:
                await self._let_run(job, now)
                tried.add(job.id)
        self._unsettled &= {view.job.id for view in due}

    # one job

    async def _let_run(self, job: Job, now: float) -> None:
        try:
            schedules.checked(job.schedule)  # the machine's zones may be others by now
            why, firing = await self._judged(job, now)
            if firing is None:
                return
            fired = await self._store.fire_job(job.id, firing)
            self._unsettled.discard(job.id)
            if fired is None:
                return
            await self._hand_over(fired)
            if why in job_text.FOR_GOOD:
                await self._pause(fired.job, why)
        except StoreError:
            raise
        except JobRefused as exc:
            await self._pause(job, str(exc))
        except Exception:  # the supervised border: the others go on, and it is not tried on
            log.exception("a job can not be run", extra=facts(job))
            await self._pause(job, job_text.BROKEN)

    async def _judged(self, job: Job, now: float) -> tuple[str, Firing | None]:
        """(why not, what becomes of it); None: it stays due, for as long as it may be late."""
        try:
            why = await self._rights.why_not(job, now)
            if not why and not self._readers.has(job):
                why = job_text.CHAT_FORSAKEN
        except RightsUnknown:
            if (await self._decided(job, now)).run_at is None:
                return job_text.RIGHTS_UNKNOWN, refused(job, now, job_text.RIGHTS_UNKNOWN)
            if job.id not in self._unsettled:
                log.warning("job waits: who may run it can not be asked", extra=facts(job))
                self._unsettled.add(job.id)
            return "", None
        return why, refused(job, now, why) if why else await self._decided(job, now)

    async def _decided(self, job: Job, now: float) -> Firing:
        """For one that may run."""
        assert job.next_run_at is not None
        firing = firing_of(job, now, await self._store.ran_between(job.id, job.next_run_at, now))
        waited = job.id in self._unsettled
        if waited and firing.misses is not None:
            firing = replace(firing, misses=replace(firing.misses, reason=job_text.RIGHTS_UNKNOWN))
        if firing.run_at is not None and now - firing.run_at >= job_text.LATE_SECONDS:
            why = job_text.COULD_NOT_ASK if waited else job_text.WAS_DOWN
            return replace(firing, text=job_text.late(job, firing.run_at, why))
        return firing

    async def _pause(self, job: Job, why: str) -> None:
        log.warning("job paused", extra={**facts(job), "reason": why})
        paused = await self._store.set_job(
            job.id, "paused", next_run_at=job.next_run_at, reason=why
        )
        if why == job_text.CHAT_FORSAKEN:
            self._readers.give_up(job)
        elif paused is not None and await self._rights.is_heard(job, self._clock.now()):
            draft = OutboxDraft(job.place.address, job_text.paused(job, why), "notice")
            self._delivery.hand_over([await self._store.owe(draft)])

    async def _hand_over(self, fired: Fired) -> None:
        report(fired)
        if fired.owed is not None:
            self._delivery.hand_over([fired.owed])
        if fired.item is not None:
            self._at_work = True
            self._dispatch.replay(fired.item)
        if fired.job.origin == "house" and fired.run is not None:
            self._house.begin(fired.job, fired.run)

    # what is around them

    async def _settle(self) -> None:
        for run in await self._store.settle_runs():
            if run.state == "failed":
                log.warning("job failed", extra={"job_id": run.job_id, "reason": run.reason})
        self._at_work = await self._store.open_runs() > 0

    async def _take_up(self) -> None:
        """What was stored by a call whose outcome nobody learned is handed over now."""
        await self._delivery.refresh()
        for item in await self._store.open_inbox():
            if self._is_ours(item) and not self._dispatch.holds(item.id):
                self._dispatch.replay(item)
        self._in_doubt, self._at_work = False, True

    def _is_ours(self, item: InboxItem) -> bool:
        record = item.record
        return is_scheduled(record) and self._rights.serves(record.address.platform)

    async def _is_clock_doubtful(self) -> bool:
        if self._watch.is_absurd():
            return True
        if self._watch.is_new:
            jobs = [view.job for view in await self._store.job_views(limit=1_000_000)]
            known = (max(job.created_at, job.last_run_at or 0.0) for job in jobs)
            self._watch.begin(max(known, default=None))
        return self._watch.is_doubtful()

    async def _mind_the_clock(self) -> None:
        """At a start, and when the wall clock was set back: next runs too far off come nearer."""
        if not self._watch.was_set_back():
            return
        now = self._clock.now()
        for view in await self._store.job_views(limit=1_000_000):
            await self._bring_near(view, now)

    async def _bring_near(self, view: JobView, now: float) -> None:
        job = view.job
        if job.state != "active" or job.next_run_at is None or job.next_run_at <= now:
            return
        try:
            last_claim = view.last.claimed_at if view.last is not None else None
            ran = await self._store.ran_between(job.id, now, job.next_run_at)
            due = earlier_run(job, now, last_claim, ran)
        except JobRefused as exc:
            await self._pause(job, str(exc))
            return
        if due < job.next_run_at:
            await self._store.set_job(job.id, "active", next_run_at=due)
            log.info("job is due earlier", extra=facts(job))

    async def _rest(self, seconds: float) -> None:
        """Until the time is over or somebody wakes it."""
        woken = asyncio.ensure_future(self._woken.wait())
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({woken, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            timer.cancel()
