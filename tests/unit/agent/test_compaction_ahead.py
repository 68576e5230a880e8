"""Compression ahead of time: prepared while nobody waits, and put in force in a moment."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agent.compaction.host.ahead import MAX_CALLS_AN_HOUR, PREPARING
from agent.compaction.host.session import MAX_PER_TURN, CompactionSettings, SessionCompactor
from agent.compaction.plan.policy import held_text
from agent.errors import ModelAuthError, ModelTimeout, StoreUnavailable
from agent.lineages import UncompressRequest
from agent.messages import Draft, Keep
from agent.model_metadata import estimate_prefix_tokens
from agent.ports import CompactionResult, Usage
from agent.sessions import LoadedSession, SplitRequest, TurnOpening
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import PREFIX, Bench, Foreign
from tests.unit.agent.test_compaction_detached import Slow, free, until

LEVEL = 8_600
"""Measured tokens: above 85 % of the threshold of 10,000."""


def size(loaded: LoadedSession) -> int:
    return estimate_prefix_tokens(loaded.session.prefix) + sum(row.tokens for row in loaded.rows)


async def crowded(bench: Bench, tokens: int | None = None) -> LoadedSession:
    """A conversation whose last prompt was measured at the level; nothing is due yet."""
    loaded = await bench.talk(8)
    measured = max(LEVEL, size(loaded)) if tokens is None else tokens
    loaded = await bench.say("one more", "sure", Usage(measured))
    assert not bench.compactor.due(loaded).due or tokens is not None
    return loaded


async def grown(bench: Bench, chars: int = 6_000, *, due: bool = True) -> LoadedSession:
    """The next turn has begun, with a message that makes it due."""
    ticket = await bench.store.begin_turn(bench_opening("and now " + "n" * chars))
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    assert bench.compactor.due(loaded).due is due
    return loaded


def bench_opening(text: str) -> TurnOpening:
    return TurnOpening("key", "test:1", (), Draft({"role": "user", "content": text}), PREFIX)


async def prepared(bench: Bench, loaded: LoadedSession) -> bool:
    return await bench.store.prepared(loaded.session.id) is not None


# --- the road -----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
async def test_prepared_and_swapped_in(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, in_place: bool
) -> None:
    bench = Bench(clock, settings=CompactionSettings(in_place=in_place))
    loaded = await crowded(bench)
    done = await bench.compactor.prepare(loaded)
    assert (done.outcome, len(bench.model.asked)) == ("prepared", 1)
    before = (await bench.store.load(loaded.session.id)).session
    # Nothing is in force: the list, its revision and its anchor are as they were.
    assert before == replace(loaded.session, compression=before.compression)
    assert before.compression.count == 0
    await clock.advance(120)
    loaded = await grown(bench)
    with caplog.at_level(logging.INFO):
        result = await bench.compactor.compact(loaded, "preflight")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 1)
    assert "compression swapped in" in caplog.text
    (line,) = (r for r in caplog.records if r.getMessage() == "compression swapped in")
    assert vars(line)["prepared_seconds_ago"] == 120.0
    tip = result.loaded
    assert (tip.session.id == loaded.session.id) == in_place
    assert tip.rows[-1].message["content"] == loaded.rows[-1].message["content"]
    assert sum(row.kind == "summary" for row in tip.rows) == 1
    state = tip.session.compression
    assert (state.count, state.awaiting_usage) == (1, True)
    manifest = tip.session.manifest
    assert manifest is not None
    assert (manifest["mode"], manifest["prepared"]) == ("summary", True)
    assert manifest["prepared_at"] == clock.now() - 120
    assert manifest["cost"]["calls"] == 1
    assert not await prepared(bench, loaded)
    assert not await prepared(bench, tip)
    assert not bench.compactor.due(tip).due


async def test_it_survives_a_restart(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.compactor.prepare(await crowded(bench))
    bench.compactor = bench.fresh()
    result = await bench.compactor.compact(await grown(bench), "loop")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 1)


@pytest.mark.parametrize("trigger", ["hygiene", "overflow", "manual"])
async def test_every_compression_takes_it(clock: FakeClock, trigger: Any) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    result = await bench.compactor.compact(loaded, trigger, overflow_proven=trigger == "overflow")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 1)


async def test_what_was_noted_meanwhile_stays(clock: FakeClock) -> None:
    """The state is made at the swap, of what is remembered then."""
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    loaded = await bench.compactor.note_usage(loaded, Usage(9_700), notify=bench.notices.append)
    assert loaded.session.compression.pressure_tier == 0.95
    result = await bench.compactor.compact(await grown(bench), "loop")
    state = result.loaded.session.compression
    assert state.pressure_tier == 0.0  # armed again
    assert state.seen_row_id == loaded.last_row_id
    assert state.ahead_row_id == loaded.last_row_id


async def test_what_is_noted_while_the_lease_is_taken_stays(clock: FakeClock) -> None:
    """A turn beside it has its answer just then; the mark before the call takes nothing back."""
    bench = Bench(clock)
    loaded = await crowded(bench)
    acquire = bench.store.acquire_lease

    async def noted(*lease: Any) -> Any:
        await bench.compactor.note_usage(loaded, Usage(9_700), notify=bench.notices.append)
        return await acquire(*lease)

    bench.store.acquire_lease = noted  # type: ignore[method-assign,assignment]
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    state = (await bench.store.load(loaded.session.id)).session.compression
    assert (state.pressure_tier, state.ahead_row_id) == (0.95, loaded.last_row_id)


async def test_a_lease_that_is_not_let_go_takes_nothing_back(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)

    async def away(*_: Any) -> None:
        raise StoreUnavailable("gone")

    bench.store.release_lease = away  # type: ignore[method-assign,assignment]
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    assert "lease not released" in caplog.text


async def test_it_is_none_of_the_three_that_one_turn_may_make(clock: FakeClock) -> None:
    """It leaves more than one that is made at that moment, so the turn may need all of those."""
    bench = Bench(clock)
    await bench.compactor.prepare(await crowded(bench))
    ticket = await bench.work_on(2, 5_000)
    for made in range(1, MAX_PER_TURN + 3):
        loaded = await bench.store.load(
            (await bench.store.tip(ticket.session_id)).id, ticket=ticket
        )
        result = await bench.compactor.compact(loaded, "hygiene")
        assert result.prepared == (made == 1)
        assert (result.outcome == "compressed") == (made <= 1 + MAX_PER_TURN)
        ticket = await bench.work_on(9, 3_000)
    await bench.end_work()


# --- when ---------------------------------------------------------------------------------------


async def test_not_below_the_level_and_not_by_an_estimate(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(9)
    assert (await bench.compactor.prepare(loaded)).outcome == "not_needed"
    loaded = await bench.say("more", "x", Usage(8_400))
    assert not bench.compactor.is_crowded(loaded.session)
    assert (await bench.compactor.prepare(loaded)).outcome == "not_needed"
    loaded = await bench.say("more", "x", Usage(8_500))
    assert bench.compactor.is_crowded(loaded.session)
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    assert (await bench.compactor.prepare(loaded)).outcome == "not_needed"
    assert len(bench.model.asked) == 1


@pytest.mark.parametrize(
    "settings", [CompactionSettings(background=False), CompactionSettings(enabled=False)]
)
async def test_switched_off(clock: FakeClock, settings: CompactionSettings) -> None:
    bench = Bench(clock, settings=settings)
    loaded = await crowded(bench)
    assert not bench.compactor.is_crowded(loaded.session)
    assert (await bench.compactor.prepare(loaded)).outcome == "not_needed"
    assert bench.model.asked == []


async def test_somebody_elses_engine_compresses_in_the_lane_only(clock: FakeClock) -> None:
    engine = Foreign(lambda messages: messages[-2:])
    bench = Bench(clock, engine=engine)
    loaded = await crowded(bench)
    assert not bench.compactor.is_crowded(loaded.session)
    assert (await bench.compactor.prepare(loaded)).outcome == "not_needed"


async def test_a_hold_counts(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    state = loaded.session.compression.changed(hold_tokens=16_000)
    await bench.store.set_compression(loaded.session.id, state)
    loaded = await bench.store.load(loaded.session.id)
    done = await bench.compactor.prepare(loaded)
    assert (done.outcome, done.reason) == ("not_now", held_text(16_000))
    assert bench.model.asked == []


async def test_pruning_is_prepared_where_it_is_enough(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.work_on(24, chars=1_200)
    await bench.end_work()
    loaded = await bench.say("one more", "sure", Usage(LEVEL))
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    assert bench.model.asked == []
    kept = await bench.store.prepared(loaded.session.id)
    assert kept is not None
    assert kept.manifest["mode"] == "prune"
    result = await bench.compactor.compact(await grown(bench), "loop")
    assert result.outcome == "compressed"
    assert bench.model.asked == []
    assert result.loaded.session.manifest["prepared"] is True  # type: ignore[index]


async def test_nothing_between_head_and_tail_says_nothing_about_later(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.say("hi", "there")
    loaded = await bench.say("q", "a", Usage(LEVEL))
    done = await bench.compactor.prepare(loaded)
    assert done.outcome == "not_needed"
    state = (await bench.store.load(loaded.session.id)).session.compression
    assert (state.ineffective_count, state.ahead_row_id) == (0, 0)
    assert bench.model.asked == []


# --- who waits ----------------------------------------------------------------------------------


async def preparing(bench: Bench, slow: Slow, loaded: LoadedSession) -> asyncio.Future[Any]:
    task = asyncio.ensure_future(bench.compactor.prepare(loaded))
    await until(slow.begun)
    return task


async def test_a_turn_goes_on_beside_it(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    task = await preparing(bench, slow, await crowded(bench))
    ticket = await bench.work_on(2, 3_000)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    decision = bench.compactor.due(loaded)
    assert (decision.due, decision.reason) == (False, PREPARING)
    for trigger in ("preflight", "loop", "expired"):
        assert (await bench.compactor.compact(loaded, trigger)).loaded.rows == loaded.rows
    second = await bench.compactor.prepare(loaded)
    assert second.outcome == "not_now"
    slow.may_end.set()
    assert (await task).outcome == "prepared"
    # ready: the same turn takes it at its next chance
    assert bench.compactor.due(loaded).due
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    assert [r.root_id for r in result.loaded.rows[-4:]] == [r.id for r in loaded.rows[-4:]]
    assert len(bench.model.asked) == 1
    await bench.end_work()


@pytest.mark.parametrize("trigger", ["overflow", "manual", "hygiene"])
async def test_who_can_not_go_on_without_waits_for_one_call(clock: FakeClock, trigger: Any) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await crowded(bench)
    task = await preparing(bench, slow, loaded)
    waiting = asyncio.ensure_future(
        bench.compactor.compact(loaded, trigger, overflow_proven=trigger == "overflow")
    )
    await asyncio.sleep(0.01)
    assert not waiting.done()
    slow.may_end.set()
    result: CompactionResult = await waiting
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 1)
    assert (await task).outcome == "prepared"


async def test_a_focus_is_not_served_by_it(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    result = await bench.compactor.compact(loaded, "manual", focus="boats")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 2)
    assert not await prepared(bench, loaded)


async def test_who_asks_wants_what_was_said_since_to_be_in_it(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.compactor.prepare(await crowded(bench))
    loaded = await bench.say("later " + "q" * 3_000, "x")
    result = await bench.compactor.compact(loaded, "manual")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 2)
    assert not await prepared(bench, loaded)


async def test_cancelled_it_goes_on_alone(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await crowded(bench)
    task = await preparing(bench, slow, loaded)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    slow.may_end.set()
    await free(bench, loaded)
    assert await prepared(bench, loaded)


async def test_another_compactor_does_not_pay_beside_it(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await crowded(bench)
    task = await preparing(bench, slow, loaded)
    other = bench.fresh()
    assert (await other.prepare(loaded)).outcome == "not_now"
    grew = await grown(bench, due=False)
    assert (await other.compact(grew, "loop")).outcome == "aborted"
    slow.may_end.set()
    assert (await task).outcome == "prepared"
    assert (await other.compact(grew, "loop")).outcome == "compressed"
    assert len(bench.model.asked) == 1


# --- the conversation moves on ------------------------------------------------------------------


async def undo(bench: Bench, loaded: LoadedSession) -> None:
    await bench.store.undo(loaded.session.conversation_id)


async def new(bench: Bench, loaded: LoadedSession) -> None:
    await bench.store.start_conversation("key", "test:1", loaded.session.prefix)


async def compressed(bench: Bench, loaded: LoadedSession) -> None:
    session = loaded.session
    await bench.store.split(
        SplitRequest(
            session.conversation_id,
            session.id,
            session.revision,
            loaded.last_row_id,
            (Draft({"role": "user", "content": "s"}, kind="summary"), Keep(loaded.last_row_id)),
            session.compression.changed(count=1),
        )
    )


async def refrozen(bench: Bench, loaded: LoadedSession) -> None:
    session = loaded.session
    await bench.store.split(
        SplitRequest(
            session.conversation_id,
            session.id,
            session.revision,
            loaded.last_row_id,
            tuple(Keep(row.id) for row in loaded.rows),
            session.compression,
            end_reason="switch",
        )
    )


@pytest.mark.parametrize("step", [undo, new, compressed, refrozen])
async def test_an_answer_that_comes_too_late_is_thrown_away(
    clock: FakeClock, step: Any, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await crowded(bench)
    task = await preparing(bench, slow, loaded)
    await step(bench, loaded)
    before = await bench.store.lineage(loaded.session.id)
    slow.may_end.set()
    with caplog.at_level(logging.INFO):
        assert (await task).outcome == "not_now"
    assert "prepared compression discarded" in caplog.text
    assert await bench.store.lineage(loaded.session.id) == before
    for session in before:
        assert await bench.store.prepared(session.id) is None


@pytest.mark.parametrize("step", [undo, new, compressed, refrozen])
async def test_what_is_prepared_does_not_outlive_its_list(clock: FakeClock, step: Any) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    await step(bench, loaded)
    tip = await bench.store.load((await bench.store.tip(loaded.session.id)).id)
    assert not await prepared(bench, tip)
    # and whoever still holds the old list gets nowhere with it
    result = await bench.compactor.compact(loaded, "hygiene")
    if step in (compressed, refrozen):
        assert result.loaded.session.id == tip.session.id
    assert len([s for s in await bench.store.lineage(loaded.session.id) if s.ended_at is None]) <= 1


async def test_a_fork_and_an_undone_compression_are_prepared_anew(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    fork = await bench.store.branch(loaded.session.id, "other", "test:1")
    assert await bench.store.prepared(fork.id) is None
    assert await prepared(bench, loaded)
    result = await bench.compactor.compact(loaded, "manual")
    child = result.loaded
    back = await bench.store.uncompress(
        UncompressRequest(
            child.session.conversation_id,
            child.session.id,
            child.session.revision,
            child.last_row_id,
            child.session.compression.changed(hold_tokens=16_000),
        )
    )
    assert back.applied
    whole = await bench.store.load(back.tip.id)
    assert (await bench.compactor.prepare(whole)).outcome in ("not_needed", "not_now")
    assert len(bench.model.asked) == 1


async def test_one_that_does_not_fit_any_more_is_thrown_away(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    # one huge turn behind it
    grew = await grown(bench, chars=30_000)
    with caplog.at_level(logging.INFO):
        result = await bench.compactor.compact(grew, "loop")
    assert "it would not fit any more" in str([vars(r).get("reason") for r in caplog.records])
    assert not await prepared(bench, loaded)
    assert len(bench.model.asked) == 2
    assert result.loaded.rows[-1].message["content"] == grew.rows[-1].message["content"]


async def test_what_is_measured_beyond_the_estimate_counts(clock: FakeClock) -> None:
    """The list is twice as large as it looks, and so is what is prepared."""
    bench = Bench(clock)
    loaded = await bench.talk(8)
    loaded = await bench.say("x", "y", Usage(2 * size(loaded)))
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    kept = await bench.store.prepared(loaded.session.id)
    assert kept is not None
    # By the estimate alone there would just be room.
    grew = await grown(bench, chars=4 * (9_700 - kept.tokens))
    result = await bench.compactor.compact(grew, "loop")
    assert len(bench.model.asked) == 2
    assert result.outcome == "compressed"


# --- money --------------------------------------------------------------------------------------


async def test_a_failure_cools_down_and_is_not_told(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(clock, ModelTimeout("late"))
    loaded = await crowded(bench)
    with caplog.at_level(logging.WARNING):
        assert (await bench.compactor.prepare(loaded)).outcome == "failed"
    assert "compression not prepared" in caplog.text
    state = (await bench.store.load(loaded.session.id)).session.compression
    assert state.cooldown_until == clock.now() + 60
    assert state.told_reason == ""
    for _ in range(3):
        assert (await bench.compactor.prepare(loaded)).outcome == "not_now"
    # the lane keeps to the same cool-down
    await grown(bench, due=False)
    assert len(bench.model.asked) == 1
    await clock.advance(61)
    bench.model.heal("## Goal\nx")
    loaded = await bench.store.load(loaded.session.id)
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"
    assert len(bench.model.asked) == 2


async def test_a_missing_key_waits_ten_minutes(clock: FakeClock) -> None:
    bench = Bench(clock, ModelAuthError("no api key"))
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    state = (await bench.store.load(loaded.session.id)).session.compression
    assert state.cooldown_until > clock.now()


async def test_a_useless_summary_is_not_bought_twice(clock: FakeClock) -> None:
    bench = Bench(clock, "w " * 40_000)
    loaded = await crowded(bench)
    done = await bench.compactor.prepare(loaded)
    assert done.outcome == "failed"
    asked = len(bench.model.asked)
    assert (await bench.compactor.prepare(loaded)).outcome == "not_now"
    assert len(bench.model.asked) == asked


async def test_a_clock_that_is_set_back_does_not_lock_it(clock: FakeClock) -> None:
    bench = Bench(clock, ModelTimeout("late"), "## Goal\nx")
    loaded = await crowded(bench)
    await bench.compactor.prepare(loaded)
    clock.set_wall(clock.now() - 86_400)
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"


async def test_killed_in_the_middle_of_the_call_it_is_not_paid_for_again(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await crowded(bench)
    task = await preparing(bench, slow, loaded)
    await bench.store.recover_turns()  # the next process: leases are void
    bench.compactor = bench.fresh()
    loaded = await bench.store.load(loaded.session.id)
    done = await bench.compactor.prepare(loaded)
    assert (done.outcome, len(bench.model.asked)) == ("not_needed", 1)
    # the conversation itself pays once more, when it has to
    slow.may_end.set()
    await task
    await bench.store.discard_prepared(loaded.session.id)
    result = await bench.compactor.compact(await grown(bench), "loop")
    assert (result.outcome, len(bench.model.asked)) == ("compressed", 2)


async def test_taking_back_and_saying_again_buys_no_summary_each_time(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    for _ in range(5):
        await bench.compactor.prepare(loaded)
        await bench.store.undo(loaded.session.conversation_id)
        loaded = await bench.say("again", "sure", Usage(LEVEL))
    assert len(bench.model.asked) == 1


async def test_so_many_an_hour_and_no_more(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    for n in range(MAX_CALLS_AN_HOUR + 3):
        await bench.compactor.prepare(loaded)
        await bench.store.discard_prepared(loaded.session.id)
        loaded = await bench.say(f"{n} " + "q" * 5_000, "a", Usage(LEVEL))
        await clock.advance(60)
    assert len(bench.model.asked) == MAX_CALLS_AN_HOUR
    await clock.advance(3_600)
    assert (await bench.compactor.prepare(loaded)).outcome == "prepared"


# --- the cache has expired anyway ---------------------------------------------------------------


async def cold(bench: Bench, seconds: float) -> tuple[LoadedSession, LoadedSession]:
    """The start of a turn so long after the last answer; before and after."""
    await bench.compactor.prepare(await crowded(bench))
    await bench.clock.advance(seconds)
    ticket = await bench.store.begin_turn(bench_opening("hello again"))
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    assert not bench.compactor.due(loaded).due
    return loaded, await bench.compactor.swap_if_cold(loaded)


async def test_swapped_early_when_the_cache_has_expired(clock: FakeClock) -> None:
    bench = Bench(clock)
    before, after = await cold(bench, 301)
    assert after.session.parent_session_id == before.session.id
    assert after.rows[-1].message["content"] == "hello again"
    assert len(bench.model.asked) == 1


async def test_not_while_the_provider_still_has_it(clock: FakeClock) -> None:
    bench = Bench(clock)
    before, after = await cold(bench, 299)
    assert after is before
    clock.set_wall(clock.now() - 86_400)  # set back: nobody knows, so it is left alone
    assert await bench.compactor.swap_if_cold(before) is before


async def test_without_a_cache_nothing_is_lost_by_swapping(clock: FakeClock) -> None:
    bench = Bench(clock, settings=CompactionSettings(cache_ttl_seconds=0.0))
    before, after = await cold(bench, 1)
    assert after.session.parent_session_id == before.session.id


async def test_cold_but_nothing_is_prepared(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await crowded(bench)
    await clock.advance(10_000)
    assert await bench.compactor.swap_if_cold(loaded) is loaded
    assert bench.model.asked == []


async def test_two_that_swap_at_once_make_one_child(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.compactor.prepare(await crowded(bench))
    loaded = await grown(bench)
    others: list[SessionCompactor] = [bench.compactor, bench.fresh(), bench.fresh()]
    results = await asyncio.gather(*(each.compact(loaded, "loop") for each in others))
    assert [r.outcome for r in results].count("compressed") == 1
    chain = await bench.store.lineage(loaded.session.id)
    assert len(chain) == 2
    assert len(bench.model.asked) == 1
