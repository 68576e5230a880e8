"""/remind and /jobs, and the operator's side: set, listed, paused, ended, by whom it may be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.jobs.nouns import MAX_JOBS, MAX_JOBS_EACH, Action, JobPlace, Schedule, place_in
from agent.mail import Address
from gateway.cli.jobs import _listing
from gateway.cli.main import build_parser
from gateway.commands import jobs as commands
from gateway.commands import jobs_text as texts
from gateway.commands.contract import Call, Said
from gateway.config.environment import local_zone
from gateway.intake.records import record_of
from gateway.jobs.office import JobOffice
from gateway.jobs.zone_names import name_of
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_lineage_commands import GROUP, SHARED, TWO_PEOPLE, below, say

KEY = '["fake","900","111",null,"111"]'
PLACE = JobPlace(KEY, "fake:111", Address("fake", "900", "111"))
"""It begins on Friday 15 January 2027, 9:00 in Berlin, and goes on by a minute with each answer."""


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryStore(clock, ids)
        return
    opened = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    yield opened
    await opened.close()


@pytest.fixture
def rig(clock: FakeClock, store: Any) -> Rig:
    made = Rig(clock, store=store, policy=TWO_PEOPLE)
    made.platform.limit = 4000
    return made


async def kept(rig: Rig) -> list[tuple[int, str, str, str]]:
    views = await rig.jobs.everywhere()
    return sorted(
        (view.job.number, view.job.action.text, view.job.schedule.spec, view.job.state)
        for view in views
    )


async def row(rig: Rig, text: str) -> Any:
    message = inbound(text, message_id="r1")
    record = record_of(message, kind="command", group_sessions_per_user=True, now=rig.clock.now())
    return await rig.store.accept(record)


async def test_a_reminder_is_confirmed_with_its_next_run_and_a_button(rig: Rig) -> None:
    answer = await say(rig, "/remind tomorrow 9:00 call mum")
    assert answer == "Set as job 1: call mum\nSat 16 Jan 09:00 Europe/Berlin, in 24 h."
    assert below(rig) == [("Cancel", "/jobs cancel 1")]
    assert await kept(rig) == [(1, "⏰ call mum", "2027-01-16T09:00:00", "active")]
    (view,) = await rig.jobs.everywhere()
    assert view.job.place.address == Address("fake", "900", "111")
    assert (view.job.origin, view.job.place.owner) == ("person", "fake:111")
    assert await say(rig, "/jobs cancel 1") == "Job 1 is cancelled: call mum"
    assert await kept(rig) == []
    assert await say(rig, "/jobs cancel 1") == "There is no job 1 here."


async def test_what_comes_again_is_confirmed_with_the_two_runs_behind(rig: Rig) -> None:
    answer = await say(rig, "/remind every weekday at 8 standup")
    assert answer == (
        "Set as job 1, every weekday at 08:00: standup\n"
        "First Mon 18 Jan 08:00 Europe/Berlin, in 2 days 23 h; "
        "then Tue 19 Jan 08:00, Wed 20 Jan 08:00."
    )
    answer = await say(rig, "/remind every 90 minutes drink")
    assert answer.startswith("Set as job 2, every 90 minutes: drink\nFirst Fri 15 Jan 10:31")


async def test_another_zone_is_kept_and_shown(rig: Rig) -> None:
    answer = await say(rig, "/remind 9:00 New York time call bob")
    assert answer.endswith("Fri 15 Jan 09:00 America/New_York, in 6 h.")


async def test_alone_it_explains_itself_and_its_examples_work(rig: Rig) -> None:
    usage = await say(rig, "/remind")
    assert usage == texts.REMIND_USAGE
    examples = [line for line in usage.splitlines() if line.startswith("/remind")]
    assert len(examples) == 3
    for example in examples:
        assert (await say(rig, example)).startswith("Set as job")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("call mum", "I find no time in “call mum”"),
        ("today at 8 tea", "has passed already. It is 09:00 now (Europe/Berlin)"),
        ("tomorrow tea", "At what time of day?"),
        ("5/6/2027 9:00 tea", "two ways"),
        ("every 10 seconds tea", "A job can run every minute at most"),
        ("cron 0 9 31 2 * tea", "would never run"),
    ],
)
async def test_what_can_not_be_read_is_asked_and_nothing_is_kept(
    rig: Rig, said: str, answer: str
) -> None:
    assert answer in await say(rig, f"/remind {said}")
    assert await kept(rig) == []


async def test_given_again_after_a_crash_it_finds_what_it_has_made(rig: Rig) -> None:
    record = (await row(rig, "/remind in 20 minutes tea")).record
    call = Call(record, "in 20 minutes tea", admin=False, shared=False)
    host: Any = SimpleNamespace(jobs=rig.jobs)
    first = await commands.remind(host, call)
    rig.clock.set_wall(rig.clock.now() + 90)
    again = await commands.remind(host, call)
    assert isinstance(first, Said)
    assert isinstance(again, Said)
    assert first.buttons == again.buttons
    assert len(await kept(rig)) == 1


async def test_a_long_text_is_kept_whole_or_not_at_all(rig: Rig) -> None:
    long = "word " * 300 + "end"
    assert (await say(rig, f"/remind {long} tomorrow 9:00")).startswith("Set as job 1")
    assert (await kept(rig))[0][1] == f"⏰ {long}"
    answer = await say(rig, f"/remind tomorrow 9:00 {'word ' * 1_000}")
    assert answer.startswith("A job's text has at most 4,000 characters")


async def test_what_came_late_counts_from_when_it_was_said(rig: Rig) -> None:
    """Said at 23:50, read at 0:10: tomorrow is today by now."""
    evening = datetime(2027, 1, 15, 23, 50, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    rig.clock.set_wall(evening + 20 * 60)
    answer = await say(rig, "/remind tomorrow 9:00 call mum", sent_at=evening)
    assert "Sat 16 Jan 09:00" in answer
    answer = await say(rig, "/remind in 5 minutes tea", sent_at=evening)
    assert "has passed already" in answer
    assert len(await kept(rig)) == 1


@pytest.mark.parametrize("sent_at", [0.0, 1_800_000_100.0, 1_799_999_990.0])
async def test_another_clock_at_the_platform_changes_nothing(rig: Rig, sent_at: float) -> None:
    assert "Fri 15 Jan 09:20 Europe" in await say(rig, "/remind in 20 minutes tea", sent_at=sent_at)


async def test_a_place_takes_so_many(rig: Rig) -> None:
    for n in range(MAX_JOBS):
        await rig.jobs.add(PLACE, Schedule("every", "3600", "UTC"), Action("text", f"n{n}"))
    answer = await say(rig, "/remind tomorrow 9:00 one more")
    assert answer.startswith(f"There are {MAX_JOBS} jobs here already")


async def test_one_person_does_not_fill_a_group(clock: FakeClock) -> None:
    rig = Rig(clock, policy=SHARED)
    for n in range(MAX_JOBS_EACH):
        assert f"job {n + 1}:" in await say(rig, "/remind in 2 hours tea", **GROUP)
    answer = await say(rig, "/remind in 2 hours tea", **GROUP)
    assert answer.startswith(f"One person can have {MAX_JOBS_EACH} jobs in a group")
    assert "cancel one of theirs first (/jobs shows them)" in answer
    number = MAX_JOBS_EACH + 1
    assert f"job {number}:" in await say(rig, "/remind in 2 hours x", **GROUP, sender_id="222")
    await say(rig, "/jobs cancel 1", **GROUP)
    assert f"job {number + 1}:" in await say(rig, "/remind in 2 hours tea", **GROUP)


async def test_the_list_has_ten_to_a_page_and_says_how_it_goes(rig: Rig) -> None:
    assert await say(rig, "/jobs") == texts.NO_JOBS
    for n in range(1, 12):
        await rig.jobs.add(PLACE, Schedule("cron", f"{n} 9 * * *", "UTC"), Action("text", f"t{n}"))
    await rig.jobs.add(PLACE, Schedule("once", "2028-01-01T09:00:00", "UTC"), Action("prompt", "x"))
    first = await say(rig, "/jobs")
    assert first.startswith("Set here, page 1 of 2:\n1: t1 (every day at 09:01)\n↳ next Fri 15 Jan")
    assert "\n10: t10" in first
    assert "\n11: t11" not in first
    assert "/jobs 2 shows more" in first
    second = await say(rig, "/jobs 2")
    assert "11: t11" in second
    assert "12: asks me: x\n↳ next Sat 1 Jan 2028 09:00 UTC, in 351 days" in second
    assert await say(rig, "/jobs 3") == texts.PAST_THE_END
    assert await say(rig, "/jobs pause #2") == (
        "Job 2 is paused: t2. /jobs resume 2 lets it go on."
    )
    assert "2: t2 (every day at 09:02)\n↳ paused" in await say(rig, "/jobs")
    assert (await say(rig, "/jobs resume 2")).startswith("Job 2 goes on: t2. Next Fri 15 Jan 09:02")
    for wrong in ("cancel", "cancel x", "what is this", "cancel 1 2", "0", "cancel -1"):
        assert await say(rig, f"/jobs {wrong}") == texts.JOBS_USAGE


async def test_in_a_group_a_job_is_its_owners_and_the_admins(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store, policy=SHARED)
    rig.platform.limit = 4000
    theirs = {**GROUP, "sender_id": "222", "sender_name": "Ann\nB"}
    await say(rig, "/remind tomorrow 9:00 buy milk", **theirs)
    await say(rig, "/remind tomorrow 10:00 cake", **GROUP)
    assert (await kept(rig))[0][1] == "⏰ Ann B: buy milk"
    assert "1: buy milk" in await say(rig, "/jobs", **theirs)
    for verb in ("pause", "resume", "cancel"):
        assert await say(rig, f"/jobs {verb} 2", **theirs) == texts.NOT_YOURS
    assert "is paused" in await say(rig, "/jobs pause 1", **theirs)
    assert "is cancelled" in await say(rig, "/jobs cancel 1", **GROUP)


async def test_another_place_sees_none_of_it(rig: Rig) -> None:
    await say(rig, "/remind tomorrow 9:00 my secret")
    other = {"chat_id": "222", "sender_id": "222"}
    assert await say(rig, "/jobs", **other) == texts.NO_JOBS
    assert await say(rig, "/jobs cancel 1", **other) == "There is no job 1 here."
    assert len(await kept(rig)) == 1


# --- the operator


async def test_what_comes_once_is_told_apart_by_its_time_also_when_paused(rig: Rig) -> None:
    office = JobOffice(rig.jobs, rig.store)
    for text in ("in 20 minutes tea", "in 30 minutes tea"):
        await say(rig, f"/remind {text}")
    (first, *_) = await rig.jobs.everywhere()
    await office.answer({"action": "pause", "id": first.job.id})
    shown = await office.answer({"action": "list", "all": False})
    assert sorted((job["number"], job["schedule"]) for job in shown["jobs"]) == [
        (1, "once, Fri 15 Jan 09:20"),
        (2, "once, Fri 15 Jan 09:31"),
    ]
    lines = _listing(shown, all_of_them=False).splitlines()
    assert lines[0].split()[:2] == ["ID", "NO."]
    assert sorted(line.split()[1] for line in lines[1:]) == ["1", "2"]


async def test_the_operator_lists_pauses_resumes_and_cancels(rig: Rig) -> None:
    office = JobOffice(rig.jobs, rig.store)
    job = await rig.jobs.add(
        PLACE, Schedule("cron", "0 9 * * 1-5", "Europe/Berlin"), Action("text", "standup")
    )
    (shown,) = (await office.answer({"action": "list", "all": False}))["jobs"]
    assert shown["id"] == job.id
    assert shown["schedule"] == "every weekday at 09:00"
    assert shown["next_run"] == "Mon 18 Jan 09:00 Europe/Berlin, in 3 days"
    assert shown["last_run"] is None
    paused = await office.answer({"action": "pause", "id": job.id})
    assert (paused["job"]["state"], paused["job"]["next_run"]) == ("paused", None)
    assert (await office.answer({"action": "resume", "id": job.id}))["job"]["state"] == "active"
    assert await office.answer({"action": "runs", "id": job.id}) == {"job": job.id, "runs": []}
    await office.answer({"action": "cancel", "id": job.id})
    assert (await office.answer({"action": "list", "all": False}))["jobs"] == []
    (over,) = (await office.answer({"action": "list", "all": True}))["jobs"]
    assert over["state"] == "cancelled"
    for request in ({"action": "pause", "id": job.id}, {"action": "runs", "id": "zzzz"}, {}):
        assert set(await office.answer(request)) == {"error"}


async def test_what_config_and_house_own_is_not_cancelled(rig: Rig) -> None:
    office = JobOffice(rig.jobs, rig.store)
    for origin in ("config", "house"):
        job = await rig.jobs.add(
            PLACE, Schedule("every", "3600", "UTC"), Action("text", origin), origin=origin
        )
        assert set(await office.answer({"action": "cancel", "id": job.id})) == {"error"}
        assert "job" in await office.answer({"action": "pause", "id": job.id})


async def test_the_beginning_of_an_id_is_enough_where_it_names_one(rig: Rig) -> None:
    office = JobOffice(rig.jobs, rig.store)
    for n in range(2):
        await rig.jobs.add(PLACE, Schedule("every", "3600", "UTC"), Action("text", f"n{n}"))
    first, second = [view.job.id for view in await rig.jobs.everywhere()]
    common = "".join(a for a, b in zip(first, second, strict=False) if a == b)
    assert first.startswith(common)
    assert "write more" in str(await office.answer({"action": "pause", "id": common}))
    assert "no job" in str(await office.answer({"action": "pause", "id": first[:2]}))


@pytest.mark.parametrize(
    ("line", "action", "all_of_them", "as_json"),
    [
        ("jobs", "list", False, False),
        ("jobs --all", "list", True, False),
        ("jobs list --all", "list", True, False),
        ("jobs --all --json list", "list", True, True),
        ("jobs list --json", "list", False, True),
        ("jobs runs job_1 --json", "runs", False, True),
        ("jobs --json cancel job_1", "cancel", False, True),
    ],
)
def test_options_stand_before_the_action_or_behind_it(
    line: str, action: str, all_of_them: bool, as_json: bool
) -> None:
    arguments = build_parser().parse_args(line.split())
    assert (arguments.action, arguments.all, arguments.json) == (action, all_of_them, as_json)


def test_the_words_for_times_are_not_there_before_somebody_needs_them() -> None:
    code = (
        "import sys, gateway.wiring.assembling, agent.tools.schedule\n"
        "print({'agent.jobs.words.reading', 'dateutil'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


# --- names of zones


def test_the_zone_of_the_system_has_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "zoneinfo" / "Europe"
    folder.mkdir(parents=True)
    data = files("tzdata").joinpath("zoneinfo", "Europe", "Berlin").read_bytes()
    (folder / "Berlin").write_bytes(data)
    link, copy, written = (tmp_path / name for name in ("localtime", "copy", "timezone"))
    link.symlink_to(folder / "Berlin")
    copy.write_bytes(data)
    assert name_of(ZoneInfo("Asia/Tokyo"), link, written) == "Asia/Tokyo"
    assert name_of(local_zone({}, link), link, written) == "Europe/Berlin"
    assert name_of(local_zone({}, copy), copy, written) == "UTC"
    written.write_text("Europe/Vienna\n")
    assert name_of(local_zone({}, copy), copy, written) == "Europe/Vienna"
    written.write_text("Etc/UTC\n")
    assert name_of(local_zone({}, copy), copy, written) == "UTC"
    assert name_of(local_zone({}, tmp_path / "none"), link, written) == "UTC"


def test_a_place_is_taken_from_a_message_without_what_it_answered(rig: Rig) -> None:
    record = record_of(
        inbound("x", message_id="5"), kind="command", group_sessions_per_user=True, now=1.0
    )
    assert record.address.reply_to_message_id == "5"
    assert place_in(record).address.reply_to_message_id is None
