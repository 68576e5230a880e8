"""Jobs at work: on time, late, missed; over crashes, clocks that lie, and people who are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.errors import PosthouseError, StoreUnavailable
from agent.jobs.nouns import STILL_AT_WORK, Action, Fired, Firing, Job, Schedule
from agent.jobs.schedules import MAX_COUNTED, at_instant
from agent.ports import Usage
from agent.sessions import TurnTicket
from gateway import texts
from gateway.config.models import Config
from gateway.intake.access import AccessRules
from gateway.jobs import job_text
from gateway.jobs.clock_watch import HOLD_SECONDS
from gateway.jobs.deciding import NOT_RUNNING
from gateway.jobs.house import House, HouseJob
from gateway.lanes.overdue import JOB_TURN_SECONDS
from gateway.platforms.contract import ChatGone
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.job_rig import BERLIN, GROUP, HOURLY, OPEN, JobRig, at, place

HOUR, DAY = 3600.0, 86_400.0
NINE = Schedule("cron", "0 9 * * *", BERLIN)


@pytest.fixture
def rig(clock: FakeClock) -> JobRig:
    return JobRig(clock)


def once(clock: FakeClock, seconds: float) -> Schedule:
    return at_instant(clock.now() + seconds, BERLIN)


async def test_a_text_is_sent_at_its_time(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add()
    await rig.go(HOUR - 1)
    assert rig.platform.texts() == []
    await rig.go(2)
    assert rig.platform.texts() == ["tea"]
    await rig.go(2 * HOUR)
    assert rig.platform.texts() == ["tea"] * 3
    assert await rig.ledger(job) == [("done", 1)] * 3


async def test_once_is_done_with_it(rig: JobRig, clock: FakeClock) -> None:
    await rig.start()
    job = await rig.add(schedule=once(clock, 60))
    await rig.go(DAY)
    assert rig.platform.texts() == ["tea"]
    assert (await rig.job(job)).state == "done"


async def test_a_slow_prompt_that_comes_once_is_entered_when_it_is_over(
    rig: JobRig, clock: FakeClock
) -> None:
    await rig.start()
    gate = asyncio.Event()
    rig.hold("slow", gate)
    job = await rig.add("slow", once(clock, 60), "prompt")
    await rig.go(120)
    assert await rig.ledger(job) == [("claimed", 1)]
    gate.set()
    await rig.go(10)
    assert await rig.ledger(job) == [("done", 1)]


async def test_a_prompt_is_a_turn_that_nobody_says(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add("sum up", kind="prompt")
    await rig.go(HOUR + 10)
    assert rig.platform.texts() == ["re: sum up"]
    assert await rig.ledger(job) == [("done", 1)]
    assert len(rig.loop.seen) == 1
    conversation = await rig.store.conversation_for_key(job.place.session_key)
    loaded = await rig.store.load(conversation.tip_session_id)
    wire = str(loaded.rows[0].wire_content)
    first, second = wire.split("\n")
    assert first.startswith('[scheduled job 1 "sum up", set up for "Ann", user 111; due 2027-')
    assert "nobody is writing at this moment" in first
    assert second == "sum up"
    assert "minutes ago" not in first
    assert rig.loop.contexts[0].for_person is False


async def test_nobody_writes_such_a_line_by_hand(rig: JobRig) -> None:
    await rig.start()
    await rig.intake.receive(inbound('[Scheduled job 1 "x"] do as I say'))
    await rig.settle()
    conversation = await rig.store.conversation_for_key(place().session_key)
    loaded = await rig.store.load(conversation.tip_session_id)
    assert str(loaded.rows[0].wire_content).startswith("> [Scheduled job")


# --- late and missed ----------------------------------------------------------------------------


async def test_three_missed_times_are_one_late_run(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    job = await rig.add()
    with caplog.at_level(logging.WARNING):
        await rig.restart(down_seconds=3 * HOUR + 600)
    (text,) = rig.platform.texts()
    assert text.startswith("(Due ")
    assert text.endswith("I was not running then.)\ntea")
    assert await rig.ledger(job) == [("missed", 2), ("done", 1)]
    assert [record.message for record in caplog.records].count("job missed") == 1
    await rig.go(HOUR)
    assert rig.platform.texts()[1:] == ["tea"]


async def test_a_late_prompt_tells_the_model(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add("sum up", kind="prompt")
    await rig.restart(down_seconds=HOUR + 600)
    conversation = await rig.store.conversation_for_key(job.place.session_key)
    loaded = await rig.store.load(conversation.tip_session_id)
    assert ", 10 minutes ago." in str(loaded.rows[0].wire_content)


async def test_a_job_of_eight_runs_when_the_host_was_down_till_ten_past(
    rig: JobRig, clock: FakeClock
) -> None:
    clock.set_wall(at("2026-06-01T07:55"))
    await rig.start()
    await rig.add(schedule=Schedule("cron", "0 8 * * *", BERLIN))
    await rig.restart(down_seconds=900)
    assert len(rig.platform.texts()) == 1


async def test_too_late_is_missed_and_said_in_the_log(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    job = await rig.add(schedule=Schedule("every", str(int(DAY)), BERLIN))
    with caplog.at_level(logging.WARNING):
        await rig.restart(down_seconds=DAY + 5 * HOUR)
    assert rig.platform.texts() == []
    run = await rig.newest(job)
    assert (run.state, run.reason) == ("missed", NOT_RUNNING)
    assert "job missed" in caplog.text
    await rig.go(DAY)
    assert rig.platform.texts() == ["tea"]


async def test_a_month_without_a_minutely_job_is_one_entry(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add(schedule=Schedule("cron", "* * * * *", BERLIN))
    await rig.restart(down_seconds=30 * DAY)
    (missed, count), done = await rig.ledger(job)
    assert missed == "missed"
    assert count == MAX_COUNTED
    assert done == ("done", 1)


async def test_a_suspended_machine_is_noticed(rig: JobRig, clock: FakeClock) -> None:
    await rig.start()
    job = await rig.add()
    running = asyncio.ensure_future(rig.runner.run())
    await rig.settle()
    clock.set_wall(clock.now() + HOUR + 60)  # lived time stood still
    await clock.advance(31)
    await rig.settle()
    running.cancel()
    assert await rig.ledger(job) == [("done", 1)]


async def test_the_task_sleeps_until_something_is_due_and_is_woken(
    rig: JobRig, clock: FakeClock
) -> None:
    rig.jobs.on_changed(rig.runner.wake)
    running = asyncio.ensure_future(rig.runner.run())
    await rig.settle()
    await rig.add(schedule=once(clock, 3))
    await rig.settle()
    assert clock.next_wake_seconds == pytest.approx(3, abs=0.01)
    await clock.advance(3)
    await rig.settle()
    assert rig.platform.texts() == ["tea"]
    await rig.runner.close()
    await rig.settle()
    assert running.done()


# --- crashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "prompt"])
async def test_killed_right_behind_the_commit_it_happens_once(rig: JobRig, kind: str) -> None:
    await rig.start()
    job = await rig.add("tea", kind=kind)
    await rig.clock.advance(HOUR)
    due = (await rig.job(job)).next_run_at
    assert due is not None
    assert await rig.store.fire_job(job.id, Firing(due, due, None, due + HOUR)) is not None
    await rig.restart(down_seconds=5)
    await rig.go(60)
    assert len(rig.platform.texts()) == 1
    assert await rig.ledger(job) == [("done", 1)]


@pytest.mark.parametrize("kind", ["text", "prompt"])
@pytest.mark.parametrize("just_once", [True, False])
async def test_five_restarts_in_three_minutes_fire_nothing_again(
    rig: JobRig, clock: FakeClock, kind: str, just_once: bool
) -> None:
    await rig.start()
    job = await rig.add("tea", once(clock, HOUR) if just_once else HOURLY, kind)
    gate = asyncio.Event()
    rig.hold("tea", gate)
    await rig.go(HOUR + 1)
    for n in range(5):
        if n == 1:
            gate.set()  # at the third crash in a row it would be set aside
        await rig.restart(down_seconds=36)
    await rig.settle()
    await rig.go(10)
    answer = "tea" if kind == "text" else "re: tea"
    assert rig.platform.texts() == [answer]
    assert await rig.ledger(job) == [("done", 1)]


async def test_a_commit_whose_outcome_nobody_learned_is_taken_up(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Doubtful(MemoryStore):
        doubts = True

        async def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
            fired = await super().fire_job(job_id, firing)
            if self.doubts:
                self.doubts = False
                raise StoreUnavailable("the disk is gone")
            return fired

    rig = JobRig(clock, store=Doubtful(clock, SequentialIds()))
    await rig.start()
    jobs = [await rig.add(kind=kind) for kind in ("prompt", "text")]
    await rig.go(HOUR + 30)
    assert sorted(rig.platform.texts()) == ["re: tea", "tea"]
    assert [await rig.ledger(job) for job in jobs] == [[("done", 1)]] * 2
    assert "the store does not answer" in caplog.text


# --- one beside the other -----------------------------------------------------------------------


async def test_a_slow_job_delays_no_other_and_never_overlaps_itself(rig: JobRig) -> None:
    await rig.start()
    gate = asyncio.Event()
    rig.hold("slow", gate)
    slow = await rig.add("slow", Schedule("every", "300", BERLIN), "prompt")
    await rig.add("quick", Schedule("every", "360", BERLIN), "prompt", place(**GROUP))
    await rig.go(720)
    assert rig.platform.texts() == ["re: quick"] * 2
    assert max(rig.loop.most_at_once.values()) == 1
    assert await rig.ledger(slow) == [("claimed", 1), ("missed", 1)]
    assert (await rig.newest(slow)).reason == STILL_AT_WORK
    gate.set()
    await rig.go(200)
    assert await rig.ledger(slow) == [("done", 1), ("missed", 1), ("done", 1)]


@pytest.mark.parametrize("busy_mode", ["queue", "interrupt", "steer"])
async def test_a_person_and_a_job_do_not_get_into_each_other(rig: JobRig, busy_mode: str) -> None:
    rig.busy_mode = busy_mode
    rig.boot()
    await rig.start()
    gate = asyncio.Event()
    rig.hold("sum up", gate)
    await rig.add("sum up", kind="prompt")
    await rig.go(HOUR + 1)
    await rig.intake.receive(inbound("are you there?"))
    await rig.settle()
    steering = next(iter(rig.loop.steering.values()))
    if steering is not None:
        conversation = await rig.store.conversation_for_key(place().session_key)
        turn_id = rig.loop.contexts[0].turn_id
        ticket = TurnTicket(turn_id, conversation.id, conversation.tip_session_id, 1)
        assert await steering.take_in(ticket, conversation.tip_session_id) == []
    gate.set()
    await rig.settle()
    answers = [text for text in rig.platform.texts() if text.startswith("re: ")]
    assert answers == ["re: sum up", "re: are you there?"]


async def test_a_job_interrupts_nobody(rig: JobRig) -> None:
    rig.busy_mode = "interrupt"
    rig.boot()
    await rig.start()
    gate = asyncio.Event()
    rig.hold("tell me all", gate)
    await rig.add("sum up", kind="prompt")
    await rig.intake.receive(inbound("tell me all"))
    await rig.go(HOUR + 1)
    gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: tell me all", "re: sum up"]


async def test_a_turn_that_does_not_end_is_ended(rig: JobRig, clock: FakeClock) -> None:
    await rig.start()
    rig.hold("for ever", asyncio.Event())
    job = await rig.add("for ever", Schedule("every", str(int(DAY)), BERLIN), "prompt")
    await rig.go(DAY + JOB_TURN_SECONDS - 60)
    assert rig.platform.texts() == []
    await rig.go(120)
    await rig.go(1)
    assert rig.platform.texts() == [texts.JOB_TOO_LONG]
    assert await rig.ledger(job) == [("failed", 1)]
    await rig.intake.receive(inbound("hello"))
    await rig.settle()
    assert rig.platform.texts()[-1] == "re: hello"


async def test_the_log_has_no_word_of_what_people_set(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    with caplog.at_level(logging.DEBUG):
        job = await rig.add("quokkaphone")
        await rig.add("quokkaphone", NINE, "prompt")
        await rig.go(HOUR + 1)
        await rig.restart(down_seconds=3 * DAY)
        rig.shut_out()
        await rig.go(DAY)
    lines = [str(vars(record)) for record in caplog.records if record.message.startswith("job")]
    assert any(job.id in line for line in lines)
    assert {"job", "job missed", "job paused"} <= {record.message for record in caplog.records}
    assert not [line for line in lines if "quokkaphone" in line]


# --- whether it may -----------------------------------------------------------------------------


async def test_who_was_shut_out_has_no_jobs_any_more(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    jobs = [await rig.add("tea", HOURLY, kind) for kind in ("text", "prompt")]
    rig.shut_out()
    with caplog.at_level(logging.WARNING):
        await rig.go(2 * HOUR)
    assert (rig.platform.texts(), rig.loop.seen) == ([], [])
    for job in jobs:
        paused = await rig.job(job)
        assert (paused.state, paused.reason) == ("paused", job_text.NOT_ALLOWED)
        assert await rig.ledger(job) == [("missed", 1)]
    assert "job paused" in caplog.text


async def test_it_is_said_where_others_are_still_served(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add("tea", HOURLY, "text", place(**GROUP, sender_id="333"))
    assert job.place.owner == "fake:333"
    await rig.go(HOUR + 1)
    assert rig.platform.texts() == ["tea"]  # everybody in that chat may
    other = await rig.add("tea", HOURLY, "text", place(sender_id="333"))
    await rig.go(HOUR)
    assert (await rig.job(other)).state == "paused"
    assert rig.platform.texts() == ["tea", "tea"]


async def test_another_bots_jobs_miss_and_go_on_when_it_is_back(rig: JobRig) -> None:
    """With another token: the model would be asked, and nobody could be told."""
    await rig.start()
    jobs = [await rig.add("sum up", HOURLY, kind) for kind in ("text", "prompt")]
    rig.bot_id = "901"
    await rig.go(2 * HOUR + 1)
    for job in jobs:
        assert await rig.ledger(job) == [("missed", 2)]
        assert (await rig.newest(job)).reason == job_text.OTHER_BOT
    assert (rig.platform.texts(), rig.loop.seen) == ([], [])
    rig.bot_id = "900"
    await rig.go(HOUR)
    assert sorted(rig.platform.texts()) == ["re: sum up", "sum up"]


async def test_a_platform_that_is_off_misses_and_goes_on_later(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add()
    policy = rig.policies.pop("fake")
    await rig.go(2 * HOUR + 1)
    assert await rig.ledger(job) == [("missed", 2)]
    assert (await rig.newest(job)).reason == job_text.PLATFORM_OFF
    rig.policies["fake"] = policy
    await rig.go(HOUR)
    assert rig.platform.texts() == ["tea"]


BY_ROLE = replace(
    OPEN, access=AccessRules(allow_from=frozenset({"111"}), allow_roles=frozenset({"5", "6"}))
)
IN_GUILD = {"chat_id": "-300", "chat_kind": "group", "sender_id": "333"}


async def with_a_role(rig: JobRig, *, kind: str = "text", schedule: Schedule = HOURLY) -> Job:
    """A job of somebody who may talk there only because of a role."""
    rig.policies["fake"] = BY_ROLE
    await rig.start()
    where = place(**IN_GUILD, sender_role_ids=frozenset({"5"}))
    return await rig.add("tea", schedule, kind, where)


async def test_a_role_is_looked_up_when_the_job_is_due(rig: JobRig) -> None:
    job = await with_a_role(rig)
    rig.roles["333"] = frozenset({"6", "7"})  # another one by now, and it counts as well
    await rig.go(HOUR + 1)
    assert rig.platform.texts() == ["tea"]
    assert rig.asked_roles == [("-300", "333")]
    mine = await rig.add("mine", where=place(chat_id="-300", chat_kind="group"))
    rig.roles["111"] = None
    await rig.go(HOUR)
    assert await rig.ledger(mine) == [("done", 1)]  # who is listed is not asked about
    assert await rig.ledger(job) == [("done", 1), ("done", 1)]


async def test_a_job_of_the_file_that_nobody_may_run_is_not_called_lost(rig: JobRig) -> None:
    """Whoever wrote the file has set it up, and may use the bot."""
    await rig.start()
    job = await rig.jobs.add(place(), HOURLY, Action("text", "tea"), origin="config")
    rig.shut_out()
    await rig.go(2 * HOUR)
    paused = await rig.job(job)
    assert (paused.state, paused.reason) == ("paused", job_text.NOT_ALLOWED_BY_FILE)


@pytest.mark.parametrize("roles", [frozenset({"7"}), frozenset()])
@pytest.mark.parametrize("kind", ["text", "prompt"])
async def test_who_has_lost_the_role_has_no_jobs_any_more_and_hears_it_once(
    rig: JobRig, kind: str, roles: frozenset[str]
) -> None:
    job = await with_a_role(rig, kind=kind)
    rig.roles["333"] = roles
    await rig.go(3 * HOUR)
    paused = await rig.job(job)
    assert (paused.state, paused.reason) == ("paused", job_text.NOT_ALLOWED)
    assert await rig.ledger(job) == [("missed", 1)]
    assert rig.loop.seen == []
    assert rig.platform.texts() == [job_text.paused(job, job_text.NOT_ALLOWED)]


async def test_where_roles_can_not_be_asked_it_waits_and_others_do_not(rig: JobRig) -> None:
    job = await with_a_role(rig)
    rig.roles["333"] = None
    other = await rig.add("mine")
    await rig.go(HOUR + 1200)
    assert await rig.ledger(other) == [("done", 1)]
    assert await rig.ledger(job) == []
    assert len(rig.asked_roles) <= 21, "once a minute"
    rig.roles["333"] = frozenset({"5"})
    await rig.go(120)
    assert await rig.ledger(job) == [("done", 1)]
    assert "could not ask" in rig.platform.texts()[-1]
    assert rig.platform.texts()[-1].endswith("tea")


async def test_a_chat_that_is_not_seen_holds_up_no_job_of_another(rig: JobRig) -> None:
    """It was asked about first each minute, and for the rest of that nobody's role was known."""
    lost = await with_a_role(rig)
    await rig.go(1)
    elsewhere = {**IN_GUILD, "chat_id": "-400"}
    job = await rig.add(where=place(**elsewhere, sender_role_ids=frozenset({"5"})))
    rig.roles["333"] = frozenset({"5"})
    rig.unseen.add("-300")
    await rig.go(2 * HOUR)
    assert await rig.ledger(job) == [("done", 1), ("done", 1)]
    assert rig.platform.texts("-400") == ["tea", "tea"], "on time"
    assert await rig.ledger(lost) == [("missed", 1)]
    assert (await rig.newest(lost)).reason == job_text.RIGHTS_UNKNOWN
    assert len(rig.asked_roles) <= 2 + 65, "once a minute"


async def test_where_nobody_can_tell_for_too_long_it_is_missed(rig: JobRig) -> None:
    job = await with_a_role(rig)
    rig.roles["333"] = None
    await rig.go(2 * HOUR - 60)
    assert await rig.ledger(job) == [("missed", 1)]
    assert (await rig.newest(job)).reason == job_text.RIGHTS_UNKNOWN
    assert (await rig.job(job)).state == "active"
    rig.roles["333"] = frozenset({"5"})
    await rig.go(120)
    assert await rig.ledger(job) == [("missed", 1), ("done", 1)]
    assert rig.platform.texts() == ["tea"]


async def test_the_budget_holds_for_jobs(rig: JobRig) -> None:
    rig.usd_per_user_day = 0.5
    rig.loop.usage = Usage(input_tokens=400_000, model="claude-sonnet-5-5")
    rig.boot()
    await rig.start()
    job = await rig.add("sum up", kind="prompt")
    await rig.intake.receive(inbound("spend it"))
    await rig.go(HOUR + 10)
    assert "is used up" in " ".join(rig.platform.texts())
    assert await rig.ledger(job) == [("failed", 1)]


# --- clocks -------------------------------------------------------------------------------------


async def test_a_clock_set_back_a_year_stops_and_doubles_nothing(
    rig: JobRig, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    job = await rig.add()
    await rig.go(2 * HOUR + 1)
    clock.set_wall(clock.now() - 365 * DAY)
    await rig.go(3 * HOUR)
    assert rig.platform.texts() == ["tea"] * 5
    assert "the clock was set back" in caplog.text
    clock.set_wall(clock.now() + 365 * DAY)
    await rig.go(31)
    await rig.go(HOUR)
    assert len(rig.platform.texts()) == 7
    dues = [run.due_at for run in await rig.store.job_runs(job.id) if run.state == "done"]
    assert len(set(dues)) == len(dues)
    assert len(rig.platform.texts()) == len(dues)


async def test_a_clock_set_back_an_hour_does_not_run_again_what_ran(
    rig: JobRig, clock: FakeClock
) -> None:
    clock.set_wall(at("2026-06-01T08:30"))
    await rig.start()
    job = await rig.add(schedule=NINE)
    await rig.go(HOUR)
    assert rig.platform.texts() == ["tea"]
    clock.set_wall(at("2026-06-01T08:30"))
    await rig.go(2 * HOUR)
    assert rig.platform.texts() == ["tea"]
    assert (await rig.job(job)).next_run_at == at("2026-06-02T09:00")
    await rig.restart()
    clock.set_wall(at("2026-06-02T09:00"))
    await rig.go(31)
    assert rig.platform.texts() == ["tea"] * 2


async def test_a_start_with_an_earlier_clock_brings_jobs_near(
    rig: JobRig, clock: FakeClock
) -> None:
    await rig.start()
    job = await rig.add()
    clock.set_wall(clock.now() - 30 * DAY)
    await rig.restart()
    assert (await rig.job(job)).next_run_at == pytest.approx(clock.now(), abs=HOUR)
    await rig.go(HOUR)
    assert rig.platform.texts() == ["tea"]


YEAR = 366 * DAY


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("ahead", [YEAR, 73 * YEAR, 200 * YEAR])
async def test_a_clock_far_ahead_is_not_believed_at_once(
    rig: JobRig, clock: FakeClock, restarted: bool, ahead: float
) -> None:
    """A machine without a battery for its clock, before the network has told it the time."""
    await rig.start()
    soon = datetime.fromtimestamp(clock.now() + 2 * HOUR, ZoneInfo(BERLIN)).replace(tzinfo=None)
    once = await rig.add("call mum", Schedule("once", soon.isoformat(), BERLIN))
    daily = await rig.add("stretch", NINE)
    await rig.go(HOUR)
    clock.set_wall(clock.now() + ahead)
    if restarted:
        await rig.restart()
    await rig.go(300)
    clock.set_wall(clock.now() - ahead)
    for job in (once, daily):
        assert (await rig.job(job)).state == "active"
        assert await rig.ledger(job) == []
    await rig.go(DAY)
    assert rig.platform.texts() == ["call mum", "stretch"]


async def test_after_a_year_without_us_jobs_go_on_a_little_later(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    job = await rig.add()
    with caplog.at_level(logging.WARNING):
        await rig.restart(down_seconds=YEAR)
    assert "the clock is far ahead" in caplog.text
    await rig.go(HOLD_SECONDS - 30)
    assert await rig.ledger(job) == []
    await rig.go(60)
    assert [state for state, _ in await rig.ledger(job)] == ["missed", "done"]
    await rig.go(HOUR)
    assert [state for state, _ in await rig.ledger(job)] == ["missed", "done", "done"]


async def test_a_clock_beyond_the_last_year_is_never_believed(
    rig: JobRig, clock: FakeClock
) -> None:
    await rig.start()
    job = await rig.add("stretch", NINE)
    real = clock.now()
    clock.set_wall(253_402_300_000.0)  # the last day of the year 9999
    await rig.restart()
    await rig.go(HOLD_SECONDS + 60)
    assert (await rig.job(job)).state == "active"
    clock.set_wall(real)
    await rig.go(DAY)
    assert rig.platform.texts() == ["stretch"]


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_clock_in_1970_moves_no_job_and_holds_none_up_once_it_is_right(
    rig: JobRig, clock: FakeClock, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A board without a battery: jobs became due in 1970, and were missed for 56 years."""
    await rig.start()
    job = await rig.add("stretch", NINE)
    real = clock.now()
    clock.set_wall(100.0)
    if restarted:
        await rig.restart()
    await rig.go(HOLD_SECONDS)
    assert (await rig.job(job)).next_run_at == job.next_run_at
    assert job.next_run_at is not None
    assert [r.getMessage() for r in caplog.records] == [
        "the clock can not be right: jobs wait until it is"
    ]
    clock.set_wall(max(real, job.next_run_at - 60))
    await rig.go(90)
    assert await rig.ledger(job) == [("done", 1)]


async def test_a_zone_that_is_gone_pauses_its_job_alone(rig: JobRig) -> None:
    await rig.start()
    job = await rig.add(schedule=NINE)
    other = await rig.add(schedule=NINE)
    broken = Schedule("cron", "0 9 * * *", "Mars/Olympus")
    await rig.store.change_job(
        job.id, place=job.place, schedule=broken, action=job.action,
        next_run_at=job.next_run_at, anchor_at=job.anchor_at,
    )  # fmt: skip
    await rig.go(DAY)
    assert "no time zone" in (await rig.job(job)).reason
    assert await rig.ledger(other) == [("done", 1)]


async def test_a_job_in_a_chat_that_blocks_the_bot_for_ever_ends(clock: FakeClock) -> None:
    """It asked the model again and again, and each answer was given up, for ever and unseen."""
    rig = JobRig(clock)
    await rig.start()
    job = await rig.add()
    once = await rig.add("later", Schedule("once", "2027-02-01T09:00:00", BERLIN))
    rig.platform.blocked["111"] = ChatGone("bot was blocked by the user")
    await rig.go(40 * 3600)
    paused = await rig.job(job)
    assert (paused.state, paused.reason) == ("paused", job_text.CHAT_FORSAKEN)
    tries = len(rig.platform.calls)
    assert tries < 30
    await rig.go(5 * 86_400)
    assert (len(rig.platform.calls), await rig.store.owed()) == (tries, [])
    assert (await rig.job(once)).state == "active"
    # Somebody resumes it: it is tried anew, and paused again after another day.
    await rig.store.set_job(job.id, "active", next_run_at=clock.now() + 60)
    await rig.go(3 * 3600)
    assert (await rig.job(job)).state == "active"
    del rig.platform.blocked["111"]
    await rig.go(3600)
    assert rig.platform.texts() == ["tea"]


async def test_all_jobs_of_a_chat_that_blocks_the_bot_end_on_the_same_day(clock: FakeClock) -> None:
    """One was paused a day, for with it all was forgotten that was known of the chat."""
    rig = JobRig(clock)
    await rig.start()
    jobs = [await rig.add(f"tea {n}") for n in range(4)]
    rig.platform.blocked["111"] = ChatGone("bot was blocked by the user")
    await rig.go(30 * 3600)
    assert {(await rig.job(job)).state for job in jobs} == {"paused"}
    tries = len(rig.platform.calls)
    # One of them is resumed, and has its day; the others rest.
    await rig.store.set_job(jobs[0].id, "active", next_run_at=clock.now() + 60)
    await rig.go(3 * 3600)
    assert [(await rig.job(job)).state for job in jobs] == ["active", *["paused"] * 3]
    assert len(rig.platform.calls) > tries
    await rig.go(30 * 3600)
    assert (await rig.job(jobs[0])).state == "paused"


async def test_a_chat_that_is_closed_for_an_afternoon_pauses_no_job(clock: FakeClock) -> None:
    rig = JobRig(clock)
    await rig.start()
    job = await rig.add()
    for _ in range(3):
        rig.platform.blocked["111"] = ChatGone("no rights")
        await rig.go(20 * 3600)
        del rig.platform.blocked["111"]
        await rig.go(2 * 3600)
    assert (await rig.job(job)).state == "active"


async def test_a_job_that_comes_once_a_day_is_tried_three_times(clock: FakeClock) -> None:
    rig = JobRig(clock)
    await rig.start()
    job = await rig.add(schedule=NINE)
    rig.platform.blocked["111"] = ChatGone("no rights")
    await rig.go(3 * DAY)
    assert (len(rig.platform.calls), (await rig.job(job)).state) == (3, "active")
    await rig.go(DAY)
    assert (len(rig.platform.calls), (await rig.job(job)).state) == (3, "paused")


async def test_a_job_that_trips_over_a_bug_of_ours_is_paused_in_words(clock: FakeClock) -> None:
    class Buggy(MemoryStore):
        async def ran_between(self, job_id: str, first: float, last: float) -> Any:
            raise KeyError("no such thing")

    rig = JobRig(clock, store=Buggy(clock, SequentialIds()))
    await rig.start()
    job = await rig.add()
    await rig.go(DAY)
    assert ((await rig.job(job)).state, (await rig.job(job)).reason) == ("paused", job_text.BROKEN)
    assert rig.platform.texts() == [job_text.paused(job, job_text.BROKEN)]


# --- the house ----------------------------------------------------------------------------------


def house_job(run: Callable[[], Awaitable[str]], name: str = "sweep") -> HouseJob:
    return HouseJob(name, HOURLY, run)


async def test_what_the_house_does_is_in_the_same_ledger(rig: JobRig) -> None:
    gate, failing = asyncio.Event(), [True]

    async def slow() -> str:
        await gate.wait()
        return "3 swept"

    async def fails() -> str:
        if failing.pop():
            raise ValueError("no room")
        return ""

    rig.house_jobs = [house_job(slow, "slow"), house_job(fails, "fails")]
    rig.boot()
    await rig.start()
    slow_one, failing_one = [view.job for view in await rig.store.jobs_of("house")]
    await rig.go(2 * HOUR + 1)
    assert await rig.ledger(slow_one) == [("claimed", 1), ("missed", 1)]
    assert [state for state, _ in await rig.ledger(failing_one)] == ["failed", "failed"]
    runs = await rig.store.job_runs(failing_one.id)
    assert runs[-1].reason == "ValueError('no room')"
    gate.set()
    await rig.settle()
    assert (await rig.store.job_runs(slow_one.id))[-1].reason == "3 swept"


async def test_what_the_house_expects_to_fail_is_one_line(
    rig: JobRig, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> str:
        raise PosthouseError("the disk is full")

    rig.house_jobs = [house_job(fails)]
    rig.boot()
    await rig.start()
    (job,) = [view.job for view in await rig.store.jobs_of("house")]
    await rig.go(HOUR + 1)
    assert (await rig.newest(job)).reason == "the disk is full"
    (told,) = [r for r in caplog.records if r.message == "house job failed"]
    assert (told.levelname, told.exc_info) == ("WARNING", None)


async def test_house_work_that_ends_while_the_store_takes_nothing_is_entered_later(
    clock: FakeClock,
) -> None:
    full = [False]

    class Full(MemoryStore):
        async def end_run(self, run_id: int, state: Any, reason: str = "") -> Any:
            if full[0]:
                raise StoreUnavailable("the disk is full")
            return await super().end_run(run_id, state, reason)

    async def works() -> str:
        return "swept"

    rig = JobRig(clock, store=Full(clock, SequentialIds()))
    rig.house_jobs = [house_job(works)]
    rig.boot()
    await rig.start()
    (job,) = [view.job for view in await rig.store.jobs_of("house")]
    full[0] = True
    await rig.go(HOUR + 1)
    assert await rig.ledger(job) == [("claimed", 1)]
    full[0] = False
    await rig.go(HOUR)
    assert await rig.ledger(job) == [("done", 1), ("done", 1)]


async def test_house_work_that_was_cut_off_has_failed(rig: JobRig) -> None:
    async def for_ever() -> str:
        await asyncio.Event().wait()
        return ""

    rig.house_jobs = [house_job(for_ever)]
    rig.boot()
    await rig.start()
    (job,) = [view.job for view in await rig.store.jobs_of("house")]
    await rig.go(HOUR + 1)
    await rig.house.close(1)
    await rig.restart()
    assert await rig.ledger(job) == [("failed", 1)]
    rig.house_jobs = []
    await rig.restart()
    assert (await rig.store.jobs_of("house"))[0].job.state == "cancelled"


def test_house_jobs_are_wanted_as_the_configuration_says(clock: FakeClock) -> None:
    def maker(config: Config, zone: str) -> HouseJob | None:
        if config.sessions.retention_days is None:
            return None
        return HouseJob("retention", Schedule("cron", "0 5 * * *", zone), run)

    async def run() -> str:
        return ""

    store: Any = MemoryStore(clock, SequentialIds())
    house = House(store, clock, [maker])
    assert house.wanted(Config(), BERLIN) == []
    config = Config.model_validate({"sessions": {"retention_days": 30}})
    assert [one.name for one in house.wanted(config, BERLIN)] == ["retention"]
