"""Owns a gateway with jobs: what runs them, on a clock that a test moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from agent.jobs.nouns import Action, Job, JobPlace, JobRun, Schedule, place_in
from agent.mail import Address
from gateway.config.models import Config
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.records import record_of
from gateway.jobs.house import House, HouseJob
from gateway.jobs.keeping import keep
from gateway.jobs.rights import Rights
from gateway.jobs.runner import LONGEST_WAIT_SECONDS, JobRunner
from gateway.platforms.contract import ChatGone
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

BERLIN = "Europe/Berlin"
HOURLY = Schedule("every", "3600", BERLIN)
OPEN = PlatformPolicy(
    AccessRules(
        allow_from=frozenset({"111", "222"}),
        allow_chats=frozenset({"-100"}),
        admins=frozenset({"111"}),
    ),
    require_mention=False,
)
GROUP = {"chat_id": "-100", "chat_kind": "group"}


def at(wall: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo(zone)).timestamp()


def place(*, shared: bool = False, **changes: Any) -> JobPlace:
    message = inbound("/remind", **changes)
    record = record_of(message, kind="command", group_sessions_per_user=not shared, now=0.0)
    return place_in(record)


class JobRig(Rig):
    """`boot` again stands for a restart; `go` lets time pass as the runner's own waits do."""

    def __init__(self, clock: Any, **parts: Any) -> None:
        self.house_jobs: list[HouseJob] = []
        self.roles: dict[str, frozenset[str] | None] = {}
        """What the platform says of people; None: it does not answer."""
        self.unseen: set[str] = set()
        """Chats that the bot does not see."""
        self.asked_roles: list[tuple[str, str]] = []
        self.bot_id: str | None = None
        """Of the bot that is logged in; None: it is not known yet."""
        super().__init__(clock, **{"policy": OPEN, **parts})

    def boot(self) -> None:
        super().boot()
        self.house = House(
            self.store, self.clock, [lambda config, zone, job=job: job for job in self.house_jobs]
        )
        rights = Rights(self.gate, self.roles_of, self.clock, self.bot_of)
        self.runner = JobRunner(
            self.store, self.clock, rights, self.dispatch, self.delivery, self.house,
            keep=self.keep,
        )  # fmt: skip

    def bot_of(self, platform: str) -> str | None:
        return self.bot_id

    async def roles_of(self, address: Address, user_id: str) -> frozenset[str] | None:
        self.asked_roles.append((address.chat_id, user_id))
        if address.chat_id in self.unseen:
            raise ChatGone("unknown channel")
        return self.roles[user_id]

    async def keep(self) -> bool:
        wanted = self.house.wanted(Config(), BERLIN)
        await keep(self.store, "house", wanted, self.clock.now(), known=set())
        return True

    async def start(self) -> None:
        """As the daemon does: what the last run left, then jobs."""
        await self.recovery.run()
        await self.runner._begin()
        await self.runner.step()
        await self.settle()

    async def restart(self, *, down_seconds: float = 0.0) -> None:
        """kill -9, and after a while another process."""
        self.kill()
        await self.settle()
        await self.clock.advance(down_seconds)
        self.boot()
        await self.start()

    async def go(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while True:
            wait = await self.runner.step()
            await self.settle()
            left = end - self.clock.now()
            if left <= 0:
                return
            due = await self.store.next_job_at()
            if wait == LONGEST_WAIT_SECONDS:  # nothing is at work: straight to what is due
                wait = left if due is None else due - self.clock.now()
            await self.clock.advance(min(max(wait, 0.001), left))

    async def add(
        self,
        text: str = "tea",
        schedule: Schedule = HOURLY,
        kind: str = "text",
        where: JobPlace | None = None,
    ) -> Job:
        action = Action("prompt" if kind == "prompt" else "text", text)
        return await self.jobs.add(where or place(), schedule, action)

    async def ledger(self, job: Job) -> list[tuple[str, int]]:
        """State and count of its entries, oldest first."""
        runs = await self.store.job_runs(job.id, limit=1_000)
        return [(run.state, run.count) for run in reversed(runs)]

    async def newest(self, job: Job) -> JobRun:
        (run,) = await self.store.job_runs(job.id, limit=1)
        return run  # type: ignore[no-any-return]

    async def job(self, job: Job) -> Job:
        view = await self.store.job_at(job.place.session_key, job.number)
        return view.job  # type: ignore[no-any-return]

    def shut_out(self, *, chat: bool = False) -> None:
        """111 may not talk any more, nor (``chat``) anybody in the group."""
        access = replace(OPEN.access, allow_from=frozenset({"222"}))
        self.policies["fake"] = replace(
            OPEN, access=replace(access, allow_chats=frozenset()) if chat else access
        )
