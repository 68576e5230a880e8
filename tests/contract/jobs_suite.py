"""Owns the contract of `agent.jobs.ports.JobStore`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.jobs.nouns import (
    MAX_RUNS,
    SCHEDULED,
    STILL_AT_WORK,
    Action,
    Firing,
    Job,
    JobDraft,
    JobPlace,
    JobRefused,
    Misses,
    Schedule,
)
from agent.mail import Address
from agent.sessions import TurnTicket
from agent.store_ports import Store
from tests.contract.moving_suite import NEW, OLD, address, key, move
from tests.contract.store_suite import CHAT, KEY, OWNER, begin, inbound, said
from tests.fakes.clock import FakeClock

HOURLY = Schedule("every", "3600", "UTC")
ONCE = Schedule("once", "2030-01-01T09:00:00", "Europe/Berlin")
PLACE = JobPlace(KEY, OWNER, CHAT, {"chat_kind": "direct", "sender_id": "1"})
DUE = 1_800_000_600.0


def draft(
    text: str = "drink",
    *,
    kind: str = "text",
    place: JobPlace = PLACE,
    schedule: Schedule = HOURLY,
    origin: str = "person",
    due: float = DUE,
) -> JobDraft:
    action = Action("prompt" if kind == "prompt" else "text", text)
    return JobDraft(place, schedule, action, text, origin, due, 1_800_000_000.0)  # type: ignore[arg-type]


def firing(
    due: float = DUE, *, runs: bool = True, misses: Misses | None = None, over: bool = False
) -> Firing:
    return Firing(due, due if runs else None, misses, None if over else due + 3600)


async def asked(store: Store) -> tuple[Job, TurnTicket]:
    """A job whose prompt has begun its turn."""
    job = await store.add_job(draft("sum up", kind="prompt"))
    fired = await store.fire_job(job.id, firing())
    assert fired is not None
    assert fired.item is not None
    return job, await begin(store, "sum up", (fired.item.id,))


async def states(store: Store, job: Job) -> list[tuple[float, str, str, int]]:
    """The ledger, oldest first."""
    runs = await store.job_runs(job.id)
    return [(run.due_at, run.state, run.reason, run.count) for run in reversed(runs)]


class JobsContract:
    async def test_a_job_is_what_was_asked_for(self, store: Store, clock: FakeClock) -> None:
        place = replace(PLACE, sender={"sender_id": "1", "sender_role_ids": ["7", "9"]})
        job = await store.add_job(draft("drink \ud83d", place=place, schedule=ONCE))
        (view,) = await store.jobs_at(KEY)
        assert (view.job, view.last) == (job, None)
        assert (job.number, job.state, job.reason, job.origin) == (1, "active", "", "person")
        assert (job.place, job.schedule) == (place, ONCE)
        assert job.action == Action("text", "drink \ufffd")
        assert (job.next_run_at, job.last_run_at, job.created_at) == (DUE, None, clock.now())

    async def test_numbers_are_of_their_place_and_never_used_again(self, store: Store) -> None:
        other = replace(PLACE, session_key=key("-9"))
        jobs = [await store.add_job(draft(place=p)) for p in (PLACE, other, PLACE)]
        assert [job.number for job in jobs] == [1, 1, 2]
        await store.set_job(jobs[2].id, "cancelled", next_run_at=None)
        assert (await store.add_job(draft())).number == 3
        assert [view.job.number for view in await store.jobs_at(KEY)] == [1, 3]
        assert [view.job.number for view in await store.jobs_at(KEY, over=True)] == [1, 2, 3]

    async def test_a_place_has_so_many_and_no_more(self, store: Store) -> None:
        job = await store.add_job(draft(), most=2)
        await store.add_job(draft(), most=2)
        with pytest.raises(JobRefused, match="2 jobs here already"):
            await store.add_job(draft(), most=2)
        assert len(await store.jobs_at(KEY)) == 2
        await store.set_job(job.id, "cancelled", next_run_at=None)
        assert (await store.add_job(draft(), most=2)).number == 3

    async def test_one_person_of_several_has_so_many_and_no_more(self, store: Store) -> None:
        other = replace(PLACE, owner="telegram:2")
        jobs = [await store.add_job(draft(origin=o), most_each=2) for o in ("person", "tool")]
        with pytest.raises(JobRefused, match="one person can have 2 jobs in a group"):
            await store.add_job(draft(), most_each=2)
        await store.add_job(draft(place=other), most_each=2)
        await store.add_job(draft(place=other, origin="config"))
        await store.add_job(draft(place=other), most_each=2)
        await store.set_job(jobs[0].id, "paused", next_run_at=DUE)
        with pytest.raises(JobRefused):
            await store.add_job(draft(), most_each=2)
        await store.set_job(jobs[0].id, "cancelled", next_run_at=None)
        assert (await store.add_job(draft(), most_each=2)).number == 6

    async def test_what_is_over_stays_over(self, store: Store) -> None:
        job = await store.add_job(draft())
        paused = await store.set_job(job.id, "paused", next_run_at=DUE, reason="not allowed")
        assert paused is not None
        assert (paused.state, paused.reason, paused.next_run_at) == ("paused", "not allowed", DUE)
        assert await store.due_jobs(DUE) == []
        assert await store.next_job_at() is None
        again = await store.set_job(job.id, "active", next_run_at=DUE + 1)
        assert again is not None
        assert (again.state, again.reason) == ("active", "")
        await store.set_job(job.id, "cancelled", next_run_at=None)
        assert await store.set_job(job.id, "active", next_run_at=DUE) is None
        assert await store.set_job("job_unknown", "paused", next_run_at=None) is None
        assert await store.fire_job(job.id, firing()) is None

    async def test_due_jobs_come_the_longest_due_first(self, store: Store) -> None:
        late = await store.add_job(draft("late", due=DUE + 60))
        early = await store.add_job(draft("early"))
        await store.add_job(draft("later", due=DUE + 61))
        assert [v.job.id for v in await store.due_jobs(DUE + 60)] == [early.id, late.id]
        assert [v.job.id for v in await store.due_jobs(DUE + 60, limit=1)] == [early.id]
        assert await store.next_job_at() == DUE
        assert [v.job.name for v in await store.job_views()] == ["early", "late", "later"]

    async def test_a_text_is_owed_and_the_next_run_set_in_one(
        self, store: Store, clock: FakeClock
    ) -> None:
        job = await store.add_job(draft())
        fired = await store.fire_job(job.id, replace(firing(), text="late: drink"))
        assert fired is not None
        assert fired.owed is not None
        assert [item.id for item in await store.owed()] == [fired.owed.id]
        assert (fired.owed.draft.text, fired.owed.draft.address) == ("late: drink", CHAT)
        assert fired.run is not None
        assert (fired.run.state, fired.run.due_at) == ("done", DUE)
        assert (fired.job.next_run_at, fired.job.last_run_at) == (DUE + 3600, clock.now())
        assert (await store.jobs_at(KEY))[0].last == fired.run

    async def test_any_number_may_be_asked_for(self, store: Store) -> None:
        await store.add_job(draft())
        for number in (0, -1, 2, 10**30, -(10**30)):
            assert await store.job_at(KEY, number) is None

    async def test_a_due_time_runs_once(self, store: Store) -> None:
        job = await store.add_job(draft())
        assert await store.fire_job(job.id, firing()) is not None
        assert await store.fire_job(job.id, firing()) is None
        assert len(await store.owed()) == 1
        assert await store.ran_between(job.id, DUE - 1, DUE + 1) == [DUE]
        assert await store.ran_between(job.id, DUE + 1, DUE + 2) == []

    async def test_what_runs_once_is_done(self, store: Store) -> None:
        job = await store.add_job(draft(schedule=ONCE))
        fired = await store.fire_job(job.id, firing(over=True))
        assert fired is not None
        assert (fired.job.state, fired.job.next_run_at) == ("done", None)
        assert await store.jobs_at(KEY) == []
        assert await store.next_job_at() is None

    async def test_a_prompt_waits_in_its_conversation_like_a_message(self, store: Store) -> None:
        job = await store.add_job(draft("sum up", kind="prompt"))
        fired = await store.fire_job(job.id, firing())
        assert fired is not None
        assert fired.run is not None
        assert fired.item is not None
        assert await store.open_inbox() == [fired.item]
        record = fired.item.record
        assert (record.session_key, record.owner, record.text) == (KEY, OWNER, "sum up")
        assert record.address == CHAT
        assert record.payload == {
            "chat_kind": "direct",
            "sender_id": "1",
            SCHEDULED: {
                "id": job.id,
                "number": 1,
                "name": "sum up",
                "due_at": DUE,
                "due": "2027-01-15T08:10+00:00",
                "origin": "person",
            },
        }
        assert (fired.run.state, fired.run.inbox_id) == ("claimed", fired.item.id)
        assert await store.open_runs() == 1
        assert await store.settle_runs() == []

    @pytest.mark.parametrize(
        ("outcome", "state"), [("done", "done"), ("failed", "failed"), ("stopped", "failed")]
    )
    async def test_a_run_goes_as_its_turn_does(
        self, store: Store, outcome: str, state: str
    ) -> None:
        job, ticket = await asked(store)
        assert await store.settle_runs() == []
        await store.finish_turn(ticket, ticket.session_id, outcome, final=said("ok"))  # type: ignore[arg-type]
        (ended,) = await store.settle_runs()
        assert await store.open_runs() == 0
        assert (ended.job_id, ended.state) == (job.id, state)
        assert ended.ended_at is not None
        assert await store.settle_runs() == []

    async def test_a_prompt_that_is_refused_has_failed(self, store: Store) -> None:
        job = await store.add_job(draft("sum up", kind="prompt"))
        fired = await store.fire_job(job.id, firing())
        assert fired is not None
        assert fired.item is not None
        await store.answer_inbox([fired.item.id])
        (ended,) = await store.settle_runs()
        assert (ended.state, ended.reason) == ("failed", "its message was not taken")

    async def test_a_job_never_overlaps_itself(self, store: Store) -> None:
        job, ticket = await asked(store)
        for n in (1, 2):
            fired = await store.fire_job(job.id, firing(DUE + n * 3600))
            assert fired is not None
            assert (fired.run, fired.item) == (None, None)
            assert fired.missed is not None
            assert fired.missed.count == n
        await store.finish_turn(ticket, ticket.session_id, "done", final=said("ok"))
        fired = await store.fire_job(job.id, firing(DUE + 3 * 3600))
        assert fired is not None
        assert fired.run is not None
        assert await states(store, job) == [
            (DUE, "done", "", 1),
            (DUE + 3600, "missed", STILL_AT_WORK, 2),
            (DUE + 3 * 3600, "claimed", "", 1),
        ]

    async def test_missed_times_in_a_row_are_one_entry(
        self, store: Store, clock: FakeClock
    ) -> None:
        job = await store.add_job(draft())
        gone = Misses(DUE, DUE + 7200, 3, "not running")
        fired = await store.fire_job(job.id, replace(firing(runs=False), misses=gone))
        assert fired is not None
        assert fired.run is None
        assert fired.job.last_run_at is None
        await clock.advance(5)
        more = Misses(DUE + 10_800, DUE + 10_800, 1, "not running")
        again = Firing(DUE + 3600, None, more, DUE + 14_400)
        fired = await store.fire_job(job.id, again)
        assert fired is not None
        assert fired.missed is not None
        (entry,) = await store.job_runs(job.id)
        assert entry == fired.missed
        assert (entry.due_at, entry.until_at, entry.count) == (DUE, DUE + 10_800, 4)
        assert entry.claimed_at == clock.now()
        assert await store.owed() == []

    async def test_one_late_run_beside_what_was_missed(self, store: Store) -> None:
        job = await store.add_job(draft())
        gone = Misses(DUE, DUE + 3600, 2, "not running")
        fired = await store.fire_job(job.id, Firing(DUE, DUE + 7200, gone, DUE + 10_800))
        assert fired is not None
        assert len(await store.owed()) == 1
        assert await states(store, job) == [
            (DUE, "missed", "not running", 2),
            (DUE + 7200, "done", "", 1),
        ]

    async def test_a_time_that_comes_again_after_the_clock_was_set_back_is_new(
        self, store: Store
    ) -> None:
        job = await store.add_job(draft())
        await store.fire_job(job.id, firing())
        await store.set_job(job.id, "active", next_run_at=DUE)
        fired = await store.fire_job(job.id, firing())
        assert fired is not None
        assert [state for _, state, _, _ in await states(store, job)] == ["done"]

    async def test_the_ledger_keeps_the_newest_entries(self, store: Store) -> None:
        job = await store.add_job(draft())
        for n in range(MAX_RUNS + 5):
            assert await store.fire_job(job.id, firing(DUE + n * 3600)) is not None
        runs = await store.job_runs(job.id, limit=10_000)
        assert len(runs) == MAX_RUNS
        assert runs[0].due_at == DUE + (MAX_RUNS + 4) * 3600

    async def test_what_the_house_does_is_claimed_and_ended(self, store: Store) -> None:
        place = JobPlace("", "house", Address("house", "", ""))
        jobs = [
            await store.add_job(draft(name, place=place, origin="house")) for name in ("a", "b")
        ]
        ended, left = [await store.fire_job(job.id, firing()) for job in jobs]
        assert ended is not None
        assert left is not None
        assert ended.run is not None
        done = await store.end_run(ended.run.id, "done", "nothing to do")
        assert done is not None
        assert (done.state, done.reason) == ("done", "nothing to do")
        assert await store.end_run(ended.run.id, "failed") is None
        assert await store.settle_runs() == []
        assert await store.void_runs() == 1
        assert [s for _, s, _, _ in await states(store, jobs[1])] == ["failed"]
        assert (await store.open_inbox(), await store.owed()) == ([], [])
        assert [view.job.name for view in await store.jobs_of("house")] == ["a", "b"]

    async def test_a_job_becomes_another_one_under_its_number(self, store: Store) -> None:
        job = await store.add_job(draft(origin="config"))
        await store.fire_job(job.id, firing(over=True))
        changed = await store.change_job(
            job.id,
            place=replace(PLACE, owner="telegram:2", sender={"sender_id": "2"}),
            schedule=Schedule("cron", "0 9 * * *", "UTC"),
            action=Action("prompt", "new"),
            next_run_at=DUE + 5,
            anchor_at=DUE,
        )
        assert changed is not None
        assert (changed.number, changed.state, changed.next_run_at) == (1, "active", DUE + 5)
        assert (changed.schedule.kind, changed.action) == ("cron", Action("prompt", "new"))
        assert (changed.place.owner, changed.place.sender) == ("telegram:2", {"sender_id": "2"})
        assert len(await store.job_runs(job.id)) == 1
        elsewhere = replace(PLACE, session_key=key("-9"))
        assert (
            await store.change_job(
                job.id,
                place=elsewhere,
                schedule=HOURLY,
                action=Action("text", "x"),
                next_run_at=None,
                anchor_at=DUE,
            )
            is None
        )

    async def test_a_turns_tools_know_where_it_was_asked_for(self, store: Store) -> None:
        receipt = await store.accept(inbound(1))
        ticket = await begin(store, "remind me", (receipt.inbox_id,))
        place = await store.place_of_turn(ticket.turn_id)
        assert place is not None
        assert (place.session_key, place.owner) == (KEY, OWNER)
        assert place.address == replace(receipt.record.address, reply_to_message_id=None)
        assert await store.place_of_turn("turn_unknown") is None

    async def test_jobs_follow_their_chat(self, store: Store) -> None:
        old = JobPlace(key(OLD, thread="3"), OWNER, address(OLD, "3"))
        new = JobPlace(key(NEW), OWNER, address(NEW))
        first, second = [await store.add_job(draft(place=old)) for _ in range(2)]
        await store.set_job(first.id, "cancelled", next_run_at=None)
        there = await store.add_job(draft(place=new))
        assert await move(store)
        views = await store.jobs_at(key(NEW), over=True)
        assert [(v.job.id, v.job.number) for v in views] == [
            (there.id, 1), (first.id, 2), (second.id, 3),
        ]  # fmt: skip
        assert views[2].job.place.address == address(NEW)
        assert views[2].job.place.session_key == key(NEW)
        late = await store.add_job(draft(place=replace(old, session_key=key(OLD))))
        assert (late.place.session_key, late.place.address, late.number) == (
            key(NEW), address(NEW), 4,
        )  # fmt: skip
        assert [v.job.number for v in await store.jobs_at(key(OLD))] == [1, 3, 4]

    async def test_numbers_go_along_with_a_chat_that_moves(self, store: Store) -> None:
        old = JobPlace(key(OLD), OWNER, address(OLD))
        first = await store.add_job(draft(place=old))
        await store.set_job(first.id, "cancelled", next_run_at=None)
        await move(store)
        assert (await store.add_job(draft(place=old))).number == 2
