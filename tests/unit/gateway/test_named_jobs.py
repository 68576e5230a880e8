"""Jobs of config.yaml: checked with their places, kept by their names, changed at a reload."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ConfigError
from agent.jobs.nouns import Firing, Job, JobRefused, Schedule
from agent.sessions import session_key
from gateway.config.loading import parse_config
from gateway.config.models import Config
from gateway.jobs.configured import NamedJobs, place_of
from gateway.jobs.desk import JobDesk
from gateway.jobs.house import House
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.unit.gateway.job_rig import BERLIN, OPEN, at

HOUR, DAY = 3600.0, 86_400.0


def config_of(*jobs: str, more: str = "") -> Config:
    lines = "\n".join(f"  - {{{job}}}" for job in jobs)
    return parse_config(f"jobs:\n{lines}\n{more}", "c.yaml")[0]


TEA = "name: tea, cron: '30 6 * * *', to: {platform: telegram, user: 111}, text: Tea"


class Rig:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store: Any = MemoryStore(clock, SequentialIds())
        self.config = Config()
        self.zone = BERLIN
        self.bots: dict[str, str] = {"telegram": "7"}
        self.off: set[str] = set()
        house = House(self.store, clock)
        self.named = NamedJobs(
            self.store,
            clock,
            house,
            config=lambda: self.config,
            zone=lambda: self.zone,
            bot_of=self.bots.get,
            policy_of=lambda platform: None if platform in self.off else OPEN,
        )

    async def keep(self, *jobs: str) -> bool:
        self.config = config_of(*jobs) if jobs else Config()
        return await self.named.keep()

    async def jobs(self) -> list[Job]:
        return [view.job for view in await self.store.jobs_of("config")]


@pytest.fixture
def rig(clock: FakeClock) -> Rig:
    clock.set_wall(at("2026-10-20T12:00"))
    return Rig(clock)


async def test_a_job_of_the_file_stands_in_the_store_once(rig: Rig) -> None:
    for _ in range(3):
        assert await rig.keep(TEA)
    (job,) = await rig.jobs()
    assert (job.name, job.number, job.state) == ("tea", 1, "active")
    assert job.schedule == Schedule("cron", "30 6 * * *", BERLIN)
    assert job.next_run_at == at("2026-10-21T06:30")
    assert job.place.owner == "telegram:111"
    assert job.place.session_key == session_key("telegram", "7", "111", None, "111")
    assert job.place.sender["chat_kind"] == "direct"


async def test_a_changed_one_is_another_under_its_number(rig: Rig) -> None:
    await rig.keep(TEA)
    await rig.keep(TEA.replace("30 6", "0 7"))
    (job,) = await rig.jobs()
    assert (job.number, job.next_run_at) == (1, at("2026-10-21T07:00"))
    await rig.keep(TEA.replace("30 6", "0 7").replace("text: Tea", "prompt: Is it time for tea"))
    (job,) = await rig.jobs()
    assert (job.action.kind, job.next_run_at) == ("prompt", at("2026-10-21T07:00"))


async def test_one_that_is_gone_is_cancelled_and_may_come_back(rig: Rig) -> None:
    await rig.keep(TEA)
    await rig.keep()
    assert [job.state for job in await rig.jobs()] == ["cancelled"]
    await rig.keep(TEA)
    assert [(job.number, job.state) for job in await rig.jobs()] == [
        (1, "cancelled"), (2, "active"),
    ]  # fmt: skip


async def test_from_the_chat_it_can_be_paused_but_not_ended(rig: Rig, clock: FakeClock) -> None:
    """A reload would bring back what somebody was told is cancelled."""
    await rig.keep(TEA)
    (job,) = await rig.jobs()
    desk = JobDesk(rig.store, clock, zone=lambda: rig.zone)
    with pytest.raises(JobRefused, match="/jobs pause 1 lets it rest"):
        await desk.cancel(job.place, 1)
    await desk.pause(job.place, 1)
    await rig.keep(TEA)
    assert [(job.number, job.state) for job in await rig.jobs()] == [(1, "paused")]


async def test_another_zone_recomputes_once_what_follows_it(rig: Rig) -> None:
    await rig.keep(TEA, TEA.replace("name: tea", "name: fixed, timezone: Asia/Kathmandu"))
    before = {job.name: job.next_run_at for job in await rig.jobs()}
    rig.zone = "Europe/Lisbon"
    await rig.named.keep()
    after = {job.name: job.next_run_at for job in await rig.jobs()}
    assert after["tea"] == at("2026-10-21T06:30", "Europe/Lisbon")
    assert after["fixed"] == before["fixed"] == at("2026-10-21T06:30", "Asia/Kathmandu")
    await rig.named.keep()
    assert {job.name: job.next_run_at for job in await rig.jobs()} == after


async def test_the_same_again_leaves_what_is_due_and_what_is_done(
    rig: Rig, clock: FakeClock
) -> None:
    soon = "name: soon, at: 2026-10-20 13:00, to: {platform: console}, text: x"
    hourly = "name: hourly, every: 1h, to: {platform: console}, text: x"
    await rig.keep(soon, hourly)
    await clock.advance(3 * HOUR)
    await rig.keep(soon, hourly)
    assert [job.next_run_at for job in await rig.jobs()] == [at("2026-10-20T13:00")] * 2
    first = (await rig.jobs())[0]
    await rig.store.set_job(first.id, "active", next_run_at=first.next_run_at)
    await rig.store.fire_job(first.id, Firing(first.next_run_at, first.next_run_at, None, None))
    await rig.keep(soon, hourly)
    assert [job.state for job in await rig.jobs()] == ["done", "active"]


async def test_a_time_that_has_passed_makes_no_job(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    assert await rig.keep("name: old, at: 2026-10-01 13:00, to: {platform: console}, text: x")
    assert await rig.jobs() == []
    assert "has passed before it was known" in caplog.text


async def test_a_bot_that_is_not_known_yet_is_waited_for(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.keep(TEA)
    rig.bots = {}
    rig.named._bot_of = rig.bots.get
    assert not await rig.keep(TEA)
    assert [job.state for job in await rig.jobs()] == ["active"]  # it is only not known where
    rig.off.add("telegram")
    assert await rig.named.keep()
    assert await rig.named.keep()
    assert caplog.text.count("its platform is switched off") == 1


async def test_one_that_was_paused_by_itself_gets_another_chance(rig: Rig) -> None:
    await rig.keep(TEA)
    (job,) = await rig.jobs()
    await rig.store.set_job(job.id, "paused", next_run_at=job.next_run_at, reason="not allowed")
    await rig.named.keep()
    assert (await rig.jobs())[0].state == "active"
    await rig.store.set_job(job.id, "paused", next_run_at=job.next_run_at)
    await rig.named.keep()
    assert (await rig.jobs())[0].state == "paused"  # somebody has said so


async def test_a_chat_that_has_moved_is_found_under_its_old_id(rig: Rig) -> None:
    group = "name: g, every: 1d, to: {platform: telegram, chat: -5, user: 111}, text: x"
    await rig.keep(group)
    await rig.store.move_chat("telegram", "7", "-5", "-1005")
    for _ in range(2):
        await rig.named.keep()
    (job,) = await rig.jobs()
    assert (job.number, job.state, job.place.address.chat_id) == (1, "active", "-1005")


@pytest.mark.parametrize(
    ("target", "key", "sender"),
    [
        ({"platform": "console"}, ("console", "posthouse", "local", None, "local"), "direct"),
        ({"platform": "telegram", "user": "5"}, ("telegram", "7", "5", None, "5"), "direct"),
        ({"platform": "telegram", "chat": "5"}, ("telegram", "7", "5", None, "5"), "direct"),
        (
            {"platform": "telegram", "chat": "-9", "thread": "3", "user": "5"},
            ("telegram", "7", "-9", "3", "5"),
            "group",
        ),
        ({"platform": "telegram", "chat": "-9"}, ("telegram", "7", "-9", None, None), "group"),
        (
            {"platform": "discord", "chat": "8", "user": "5", "direct": True},
            ("discord", "7", "8", None, "5"),
            "direct",
        ),
        (
            {"platform": "discord", "chat": "8", "user": "5"},
            ("discord", "7", "8", None, "5"),
            "group",
        ),
    ],
)
def test_where_a_job_belongs(target: dict[str, Any], key: Any, sender: str) -> None:
    job = {"name": "x", "every": "1h", "to": target, "text": "x"}
    config = Config.model_validate({"jobs": [job]})
    place = place_of(config.jobs[0].to, lambda _: "7", lambda _: OPEN)
    assert place is not None
    assert place.session_key == session_key(*key)
    assert place.sender["chat_kind"] == sender
    assert place.sender.get("shared", False) is (key[4] is None)


@pytest.mark.parametrize(
    ("job", "where", "why"),
    [
        ("cron: 0 9 * * 8", "2:5: jobs.0.cron", "is no weekday"),
        ("cron: 0 9 30 2 *", "2:5: jobs.0.cron", "would never run"),
        ("every: 5s", "2:5: jobs.0.every", "every minute at most"),
        ("every: often", "2:5: jobs.0.every", "must be a length of time"),
        ("at: 2026-12-01", "2:5: jobs.0.at", "needs a time of the day"),
        ("at: tomorrow", "2:5: jobs.0.at", "no date and time"),
        ("every: 1h, timezone: Mars", "jobs.0.timezone", "no time zone name"),
        ("every: 1h, at: 2026-12-01 09:00", "jobs.0", "exactly one of at, every and cron"),
        ("every: 1h, prompt: y", "jobs.0", "either prompt or text"),
        ("every: 1h, when: y", "jobs.0", "when"),
    ],
)
def test_a_wrong_one_is_refused_with_its_place(job: str, where: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(f"{job}, name: x, to: {{platform: console}}, text: x")
    (problem,) = caught.value.problems
    assert why in problem
    assert where.rpartition(" ")[2] in problem


def test_wrong_places_and_names_are_refused() -> None:
    for target, why in (
        ("{platform: telegram}", "needs a chat, or a user"),
        ("{platform: discord, user: 5}", "has an id of its own"),
    ):
        with pytest.raises(ConfigError, match=why):
            config_of(f"name: x, every: 1h, text: x, to: {target}")
    with pytest.raises(ConfigError, match="two jobs have the name 'tea'"):
        config_of(TEA, TEA)


def test_an_empty_list_is_no_job() -> None:
    assert parse_config("jobs:\n  # - {name: later}\n", "c.yaml")[0].jobs == []


def test_what_yaml_makes_of_times_and_numbers_is_understood() -> None:
    config = config_of(
        "name: a, at: 2026-12-01 09:00:00, to: {platform: telegram, chat: -100123}, text: x",
        "name: b, every: 7200, to: {platform: telegram, user: 123}, text: x",
        "name: c, every: 2 hours, to: {platform: console}, text: x",
    )
    assert [job.schedule("UTC").spec for job in config.jobs] == [
        "2026-12-01T09:00:00", "7200", "7200",
    ]  # fmt: skip
    assert config.jobs[0].to.chat == "-100123"
