"""The host's side over a real store: three outcomes only, each stored, each paid for once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings
from agent.compaction.plan.boundary import is_summary
from agent.errors import ModelConnectionError, ModelTimeout
from agent.messages import orphan_results, unanswered_calls
from agent.ports import Usage
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import PREFIX, Bench, Foreign, Work


async def test_over_the_threshold_it_splits_and_nothing_is_lost(clock: FakeClock) -> None:
    bench = Bench(clock)
    parent = await bench.talk(12)
    decision = bench.compactor.due(parent)
    assert decision.due
    assert decision.threshold_tokens == 10_000
    result = await bench.compactor.compact(parent, "loop")
    assert result.outcome == "compressed"
    child = result.loaded
    assert child.session.parent_session_id == parent.session.id
    assert child.session.prefix == PREFIX
    assert child.session.compression.count == 1
    assert child.session.compression.awaiting_usage
    manifest = child.session.manifest
    assert manifest is not None
    assert manifest["user_messages"]["unnamed"] == 0
    assert result.tokens_after < result.tokens_before
    assert [row.kind for row in child.rows].count("summary") == 1
    assert child.rows[-1].message == parent.rows[-1].message
    assert all(row.kind or row.origin_id for row in child.rows)
    tip = await bench.store.tip(parent.session.id)
    assert tip.id == child.session.id
    originals = await bench.store.all_rows(parent.session.id)
    assert [row.message for row in originals] == [row.message for row in parent.rows]
    # the size is unknown now: no estimate starts the next compression
    assert not bench.compactor.due(child).due
    assert not bench.fresh().due(child).due
    assert await bench.store.acquire_lease(child.session.conversation_id, "other", 60)


async def test_in_place_keeps_the_session(clock: FakeClock) -> None:
    bench = Bench(clock, settings=CompactionSettings(in_place=True))
    before = await bench.talk(12)
    result = await bench.compactor.compact(before, "loop")
    assert result.outcome == "compressed"
    assert result.loaded.session.id == before.session.id
    assert result.loaded.session.revision > before.session.revision
    assert not bench.compactor.due(result.loaded).due


async def test_real_usage_decides_and_the_state_survives_a_restart(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(2, 10)
    assert not bench.compactor.due(loaded).due
    cached = Usage(input_tokens=12, cache_read_tokens=11_000, cache_write_tokens=200)
    loaded = await bench.say("hello", "hi", cached)
    loaded = await bench.compactor.note_usage(loaded, cached)
    assert bench.compactor.due(loaded).due
    assert bench.compactor.due(loaded).tokens == 11_212

    loaded = (await bench.compactor.compact(await bench.talk(12), "loop")).loaded
    for _ in range(2):
        loaded = await bench.compactor.note_usage(loaded, Usage(input_tokens=12_000))
        again = replace(
            loaded.session, compression=loaded.session.compression.changed(awaiting_usage=True)
        )
        await bench.store.set_compression(again.id, again.compression)
        bench.compactor = bench.fresh()
        loaded = await bench.store.load(again.id)
    assert loaded.session.compression.ineffective_count == 2


async def test_an_abort_changes_nothing_and_is_told_once(clock: FakeClock) -> None:
    bench = Bench(clock, ModelTimeout("late"))
    loaded = await bench.talk(12)
    said: list[str] = []
    first = await bench.compactor.compact(loaded, "loop", notify=said.append)
    assert first.outcome == "aborted"
    assert "did not answer in time" in first.reason
    assert first.loaded.rows == loaded.rows
    second = await bench.compactor.compact(first.loaded, "loop", notify=said.append)
    assert second.outcome == "aborted"
    assert len(bench.model.asked) == 1
    await clock.advance(61)
    third = await bench.compactor.compact(first.loaded, "loop", notify=said.append)
    assert third.outcome == "aborted"
    assert len(bench.model.asked) == 2
    assert len(said) == 1
    assert "Nothing was dropped" in said[0]
    # after a restart the cool-down still holds, and nothing is told again
    restarted = bench.fresh()
    stored = await bench.store.load(loaded.session.id)
    assert not restarted.due(stored).due
    assert "next try in" in restarted.due(stored).reason
    assert (await bench.store.tip(loaded.session.id)).id == loaded.session.id


async def test_an_overflow_is_survived_without_a_model(clock: FakeClock) -> None:
    bench = Bench(clock, ModelConnectionError("gone"))
    loaded = await bench.talk(12)
    aborted = await bench.compactor.compact(loaded, "loop")
    assert aborted.outcome == "aborted"
    result = await bench.compactor.compact(aborted.loaded, "overflow", overflow_proven=True)
    assert result.outcome == "compressed"
    assert result.loaded.session.compression.fallback_streak == 1


async def test_a_lowered_window_moves_the_trigger(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(3)
    assert not bench.compactor.due(loaded).due
    bench.compactor.note_limit(5000)
    bench.compactor.note_limit(9000)
    assert bench.compactor.due(loaded).threshold_tokens == 2500
    assert bench.compactor.due(loaded).due


async def test_pressure_is_told_to_the_user_and_not_to_the_model(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.say("x", "y")
    for tokens in (8_600, 8_700):
        loaded = await bench.compactor.note_usage(
            loaded, Usage(input_tokens=tokens), notify=bench.notices.append
        )
    assert len(bench.notices) == 1
    assert "8,600/10,000" in bench.notices[0]
    stored = await bench.store.load(loaded.session.id)
    assert len(stored.rows) == 2
    assert stored.session.compression.pressure_tier == 0.85


async def test_pressure_under_a_hold_is_that_on_the_hold(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.say("x", "y")
    state = loaded.session.compression.changed(hold_tokens=16_000)
    await bench.store.set_compression(loaded.session.id, state)
    loaded = await bench.store.load(loaded.session.id)
    for tokens in (9_900, 12_000, 13_700):
        loaded = await bench.compactor.note_usage(
            loaded, Usage(input_tokens=tokens), notify=bench.notices.append
        )
    assert len(bench.notices) == 1
    assert "13,700/16,000" in bench.notices[0]


async def test_two_at_once_pay_once(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(12)
    results = await asyncio.gather(
        bench.compactor.compact(loaded, "loop"), bench.fresh().compact(loaded, "loop")
    )
    assert sorted(result.outcome for result in results) == ["aborted", "compressed"]
    assert len(bench.model.asked) == 1
    late = await bench.fresh().compact(loaded, "loop")
    assert late.outcome == "not_needed"
    assert late.loaded.session.parent_session_id == loaded.session.id


async def test_what_was_said_meanwhile_is_behind_the_summary(clock: FakeClock) -> None:
    bench: Bench

    def answer(asked: object) -> str:
        appended = asyncio.run_coroutine_threadsafe(bench.say("meanwhile", "noted"), loop)
        appended.result(20)
        return "## Goal\nx"

    loop = asyncio.get_running_loop()
    bench = Bench(clock, answer)
    loaded = await bench.talk(12)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    assert [row.message["content"] for row in result.loaded.rows[-2:]] == ["meanwhile", "noted"]


async def test_manual_says_why_there_is_nothing_to_do(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.say("x", "y")
    result = await bench.compactor.compact(loaded, "manual", focus="z")
    assert result.outcome == "not_needed"
    assert "nothing to compress" in result.reason
    assert bench.model.asked == []
    long = await bench.talk(12)
    done = await bench.compactor.compact(long, "manual", focus="the key sk-ant-xxx")
    assert done.outcome == "compressed"
    assert "sk-ant" not in bench.model.asked[0].prompt


async def test_switched_off_only_the_user_compresses(clock: FakeClock) -> None:
    bench = Bench(clock, settings=CompactionSettings(enabled=False))
    loaded = await bench.talk(12)
    assert not bench.compactor.due(loaded).due
    assert (await bench.compactor.compact(loaded, "overflow")).outcome == "aborted"
    assert (await bench.compactor.compact(loaded, "manual")).outcome == "compressed"


# --- engines of others


def orphaned(messages: list[dict[str, Any]]) -> Any:
    return [
        {"role": "assistant", "content": "a summary of mine"},
        {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "lost", "function": {"name": "f", "arguments": "{}"}}],
        },
        *messages[-2:],
    ]


async def test_a_foreign_result_is_repaired_marked_and_announced(clock: FakeClock) -> None:
    engine = Foreign(orphaned)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    rows = result.loaded.rows
    messages = [row.message for row in rows]
    assert not orphan_results(messages)
    assert not unanswered_calls(messages)
    assert messages[0]["role"] == "user"
    assert all(row.kind is not None or row.origin_id is not None for row in rows)
    (first_id, first), (session_id, keywords) = engine.told
    assert first_id == loaded.session.id
    assert first["model"] == loaded.session.prefix.model
    assert "boundary_reason" not in first
    assert session_id == result.loaded.session.id
    assert keywords["boundary_reason"] == "compression"
    assert keywords["old_session_id"] == loaded.session.id
    assert keywords["conversation_id"] == "key"
    assert engine.last_prompt_tokens == -1
    usage = Usage(10, 5, 3, 2)
    await bench.compactor.note_usage(result.loaded, usage)
    assert engine.usages[0]["prompt_tokens"] == 15
    assert set(engine.usages[0]) >= {"completion_tokens", "total_tokens", "reasoning_tokens"}


async def test_a_foreign_result_that_lost_the_newest_request_gets_it_back(
    clock: FakeClock,
) -> None:
    bench = Bench(clock, engine=Foreign(lambda messages: [{"role": "user", "content": "short"}]))
    loaded = await bench.talk(12)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    assert result.loaded.rows[-1].message["content"] == loaded.rows[-2].message["content"]


def explode(messages: list[dict[str, Any]]) -> Any:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "work",
    [
        lambda messages: messages,
        lambda messages: None,
        lambda messages: [],
        lambda messages: "text",
        lambda messages: [{"role": "wizard", "content": "x"}],
        lambda messages: [{"role": "user", "content": 5}],
        lambda messages: [{"role": "assistant", "content": None, "tool_calls": [{"id": 5}]}],
        lambda messages: [{"role": "user", "content": "a summary too"}, *messages],
        lambda messages: messages.clear() or messages,
        explode,
    ],
)
async def test_a_foreign_engine_that_fails_changes_nothing(clock: FakeClock, work: Work) -> None:
    bench = Bench(clock, engine=Foreign(work))
    loaded = await bench.talk(12)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome in ("aborted", "not_needed")
    assert result.reason
    stored = await bench.store.load(loaded.session.id)
    assert stored.rows == loaded.rows
    assert stored.session.ended_at is None
    # proven not to fit: the built-in engine steps in
    rescued = bench.fresh(fallback=bench.builtin)
    saved = await rescued.compact(result.loaded, "overflow", overflow_proven=True)
    assert saved.outcome == "compressed"
    assert any(is_summary(row.message) for row in saved.loaded.rows)


async def test_a_stand_in_that_is_late_is_not_asked_a_second_time_at_once(clock: FakeClock) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(asked: object) -> str:
        begun.set()
        assert may_end.wait(20)
        return "## Goal\nlate"

    settings = CompactionSettings(compress_timeout_seconds=5)
    bench = Bench(clock, slow, engine=Foreign(explode), settings=settings)
    rescued = bench.fresh(fallback=bench.builtin)
    loaded = await bench.talk(12)
    first = asyncio.ensure_future(rescued.compact(loaded, "overflow", overflow_proven=True))
    assert await asyncio.to_thread(begun.wait, 20)
    await clock.advance(6)
    assert "did not answer" in (await first).reason
    second = await rescued.compact(loaded, "overflow", overflow_proven=True)
    assert "still busy" in second.reason
    assert len(bench.model.asked) == 1
    may_end.set()
