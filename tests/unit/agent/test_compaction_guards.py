"""The host's guards over a real store: blocked, held, told once; and the way out of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.compaction.host.memory_text import TIMEOUT_SECONDS
from agent.context_compressor import ContextCompressor
from agent.errors import ModelAuthError, ModelTimeout
from agent.ports import Usage
from agent.sessions import CompressionState, LoadedSession
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import WINDOW, Bench, Foreign
from tests.fakes.side_model import ScriptedSideModel


async def with_state(bench: Bench, loaded: LoadedSession, **fields: Any) -> LoadedSession:
    state = loaded.session.compression.changed(**fields)
    await bench.store.set_compression(loaded.session.id, state)
    return await bench.store.load(loaded.session.id)


async def test_growth_ends_a_block_also_after_a_restart(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(2)
    for _ in range(2):
        loaded = await with_state(bench, loaded, awaiting_usage=True)
        bench.compactor = bench.fresh()
        loaded = await bench.compactor.note_usage(loaded, Usage(11_000))
    loaded = await bench.say("x", "y", Usage(11_000))
    assert "too little room" in bench.compactor.due(loaded).reason
    restarted = bench.fresh()
    assert not restarted.due(loaded).due
    assert restarted.due(loaded).reason
    loaded = await bench.say("x", "y", Usage(13_300))
    assert restarted.due(loaded).due
    # and so does time
    loaded = await bench.say("x", "y", Usage(11_100))
    assert not restarted.due(loaded).due
    await clock.advance(301)
    assert restarted.due(loaded).due


async def test_a_fast_chat_on_a_small_window_is_never_blocked(clock: FakeClock) -> None:
    bench = Bench(clock)
    bench.engine = bench.builtin = ContextCompressor(
        "m", config_context_length=8000, side_model=bench.model, clock=clock, max_tokens=8192
    )
    bench.compactor = bench.fresh()
    compressions = 0
    for k in range(150):
        loaded = await bench.say(f"question {k} " + "q" * 900, f"answer {k} " + "a" * 1300)
        usage = Usage(sum(row.tokens for row in loaded.rows) + 20)
        loaded = await bench.compactor.note_usage(loaded, usage, notify=bench.notices.append)
        decision = bench.compactor.due(loaded)
        assert not decision.reason
        if decision.due:
            result = await bench.compactor.compact(loaded, "preflight")
            assert result.outcome == "compressed"
            compressions += 1
    assert compressions > 20
    assert not [text for text in bench.notices if text.startswith("⚠")]


async def test_compressions_with_nothing_new_in_between_end_with_one_notice(
    clock: FakeClock,
) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(12)
    for k in range(8):
        result = await bench.compactor.compact(loaded, "loop", notify=bench.notices.append)
        if result.outcome != "compressed":
            break
        # just under the threshold, and over it with the next word
        await bench.compactor.note_usage(result.loaded, Usage(9_900), notify=bench.notices.append)
        loaded = await bench.say(f"word {k}", "reply", Usage(10_100))
        loaded = await bench.compactor.note_usage(
            loaded, Usage(10_100), notify=bench.notices.append
        )
    assert result.loaded.session.compression.count == 4
    assert "too often" in result.reason
    told = [text for text in bench.notices if "too often" in text]
    assert len(told) == 1
    restarted = bench.fresh()
    loaded = await bench.say("again", "x", Usage(10_200))
    loaded = await restarted.note_usage(loaded, Usage(10_200), notify=bench.notices.append)
    assert not restarted.due(loaded).due
    assert [text for text in bench.notices if "too often" in text] == told
    # whoever asks gets it
    assert (await restarted.compact(loaded, "manual")).outcome == "compressed"


@pytest.mark.parametrize("foreign", [False, True])
async def test_an_undone_compression_is_not_done_again_at_once(
    clock: FakeClock, foreign: bool
) -> None:
    engine = Foreign(lambda messages: [{"role": "user", "content": "s"}, *messages[-2:]])
    bench = Bench(clock, engine=engine if foreign else None)
    loaded = await with_state(bench, await bench.talk(12), hold_tokens=16_000)
    decision = bench.compactor.due(loaded)
    assert not decision.due
    assert decision.reason == "compression is held until 16,000 tokens, after /uncompress"
    for trigger in ("preflight", "loop"):
        held = await bench.compactor.compact(loaded, trigger)
        assert held.loaded.session.id == loaded.session.id
        assert held.reason == decision.reason
    assert bench.compactor.blocked_for_hygiene(loaded) == ""
    if not foreign:
        bench.builtin.restore(loaded.session.compression)
        assert bench.builtin.should_compress_info(12_000) == (False, decision.reason)
    # over the held size it is time again, and with that the hold is over
    loaded = await bench.say("more", "text", Usage(16_100))
    assert bench.compactor.due(loaded).due
    done = await bench.compactor.compact(loaded, "loop")
    assert done.outcome == "compressed"
    assert done.loaded.session.compression.hold_tokens == 0


@pytest.mark.parametrize("trigger", ["overflow", "hygiene", "manual"])
async def test_a_hold_is_no_obstacle_where_the_window_is_full(
    clock: FakeClock, trigger: Any
) -> None:
    bench = Bench(clock)
    loaded = await with_state(bench, await bench.talk(12), hold_tokens=16_000)
    result = await bench.compactor.compact(loaded, trigger, overflow_proven=trigger == "overflow")
    assert result.outcome == "compressed"


async def test_no_more_than_three_in_one_turn_whatever_asks(clock: FakeClock) -> None:
    bench = Bench(clock)
    ticket = await bench.work_on(12)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    outcomes = []
    for _ in range(5):
        result = await bench.compactor.compact(loaded, "hygiene")
        outcomes.append(result.outcome)
        # the same turn works on and fills the window again
        if result.outcome == "compressed":
            ticket = await bench.work_on(12)
            loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    assert outcomes == ["compressed"] * 3 + ["aborted"] * 2
    assert "3 times" in result.reason
    assert (await bench.compactor.compact(loaded, "manual")).outcome == "compressed"
    await bench.end_work()
    fresh = await bench.talk(12)
    assert (await bench.compactor.compact(fresh, "loop")).outcome == "compressed"


async def test_an_overflow_goes_past_a_cooldown_once(clock: FakeClock) -> None:
    bench = Bench(clock, ModelAuthError("no"))
    loaded = await bench.talk(12)
    first = await bench.compactor.compact(loaded, "loop")
    assert first.outcome == "aborted"
    assert len(bench.model.asked) == 1
    second = await bench.compactor.compact(first.loaded, "overflow", overflow_proven=True)
    assert second.outcome == "compressed"
    assert len(bench.model.asked) == 2
    loaded = await bench.talk(12)
    third = await bench.compactor.compact(loaded, "overflow", overflow_proven=True)
    assert third.outcome == "compressed"
    assert len(bench.model.asked) == 2  # in the same cool-down the model is not asked again
    await clock.advance(61)
    await bench.compactor.compact(await bench.talk(12), "overflow", overflow_proven=True)
    assert len(bench.model.asked) == 3


async def test_a_foreign_engine_that_does_not_want_to_says_why_once(clock: FakeClock) -> None:
    class Cooling(Foreign):
        left = 100

        def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str]:
            self.left -= 1
            return False, f"quiet hours: {self.left} minutes"

    bench = Bench(clock, engine=Cooling(lambda messages: messages))
    loaded = await bench.talk(12)
    for _ in range(3):
        result = await bench.compactor.compact(loaded, "loop", notify=bench.notices.append)
        assert result.outcome == "not_needed"
        assert "quiet hours" in result.reason
    assert len(bench.notices) == 1
    assert "quiet hours" in bench.notices[0]


# --- what the memory adds


async def test_the_memory_is_asked_before_every_compression(clock: FakeClock) -> None:
    seen: list[int] = []

    async def remembered(messages: list[Any]) -> str:
        seen.append(len(messages))
        assert not any(key.startswith("_") for message in messages for key in message)
        return "the user is called Ada"

    bench = Bench(clock, memory_text=remembered)
    loaded = (await bench.compactor.compact(await bench.talk(12), "loop")).loaded
    assert "the user is called Ada" in bench.model.asked[0].prompt
    await bench.compactor.compact(await bench.talk(12), "manual")
    assert "the user is called Ada" in bench.model.asked[1].prompt
    assert len(seen) == 2
    assert loaded.rows

    given: list[str] = []

    class Reading(Foreign):
        def compress(  # type: ignore[override]
            self, messages: list[dict[str, Any]], *, memory_context: str = ""
        ) -> list[dict[str, Any]]:
            given.append(memory_context)
            return [{"role": "user", "content": "s"}, *messages[-2:]]

    other = Bench(clock, engine=Reading(lambda messages: messages), memory_text=remembered)
    assert (await other.compactor.compact(await other.talk(12), "loop")).outcome == "compressed"
    assert given == ["the user is called Ada"]


async def test_a_memory_that_fails_or_hangs_holds_nothing_up(clock: FakeClock) -> None:
    async def broken(messages: list[Any]) -> str:
        raise RuntimeError("no memory")

    async def odd(messages: list[Any]) -> Any:
        return 42

    for source in (broken, odd):
        bench = Bench(clock, memory_text=source)
        result = await bench.compactor.compact(await bench.talk(12), "loop")
        assert result.outcome == "compressed"
        assert "<memory>" not in bench.model.asked[0].prompt


async def test_a_memory_that_never_answers_is_left(clock: FakeClock) -> None:
    async def silent(messages: list[Any]) -> str:
        await asyncio.Event().wait()
        return "too late"

    bench = Bench(clock, memory_text=silent)
    loaded = await bench.talk(12)
    task = asyncio.ensure_future(bench.compactor.compact(loaded, "loop"))
    while clock.next_wake_seconds is None:  # noqa: ASYNC110  (nobody tells when it is asked)
        await asyncio.sleep(0)
    assert clock.next_wake_seconds == TIMEOUT_SECONDS
    assert not bench.model.asked
    await clock.advance(TIMEOUT_SECONDS)
    assert (await task).outcome == "compressed"
    assert "<memory>" not in bench.model.asked[0].prompt


# --- the engine alone


def test_the_engine_alone_is_released_by_growth_too() -> None:
    engine = ContextCompressor(
        "m", config_context_length=WINDOW, side_model=ScriptedSideModel(), clock=FakeClock()
    )
    engine.restore(CompressionState(awaiting_usage=True, ineffective_count=1))
    engine.update_from_response({"prompt_tokens": 11_000})
    assert engine.should_compress_info(11_500) == (False, "ineffective")
    assert engine.should_compress_info(13_200) == (True, None)


def test_an_abort_tells_what_it_cost() -> None:
    model = ScriptedSideModel("null", ModelTimeout("late"))
    engine = ContextCompressor(
        "m",
        config_context_length=WINDOW,
        side_model=model,
        clock=FakeClock(),
        summary_model_override="small",
    )
    messages: list[dict[str, Any]] = []
    for k in range(12):
        messages.append({"role": "user", "content": f"q{k} " + "q" * 2000})
        messages.append({"role": "assistant", "content": f"a{k} " + "a" * 2000})
    assert engine.compress(messages, current_tokens=12_000) is messages
    assert engine.last_attempt.cost["calls"] == 2
    assert engine.last_attempt.cost["failed_calls"] == 2
