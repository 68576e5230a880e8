"""The last net before the agent, sentence by sentence: when it fires, pays, speaks, and waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings
from agent.context_compressor import ContextCompressor
from agent.errors import ModelConnectionError
from agent.model_metadata import TriggerRules, triggers_for
from agent.ports import Usage
from agent.sessions import LoadedSession
from gateway.hygiene import (
    HygieneNet,
    HygieneResult,
    maybe_compress_session,
    should_compress_session,
)
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import WINDOW, Bench, Foreign
from tests.fakes.side_model import Asked


async def net(bench: Bench, loaded: LoadedSession, **options: Any) -> HygieneResult:
    """The net as if the process had just been started: all that it knows is stored."""
    return await maybe_compress_session(
        loaded,
        engine=bench.engine,
        store=bench.store,
        clock=bench.clock,
        settings=bench.settings,
        **{"notify": None, **options},
    )


def test_the_net_by_plain_values() -> None:
    assert not should_compress_session(3, True, enabled=True).fires
    assert should_compress_session(4, True, enabled=True).fires
    assert not should_compress_session(100, False, enabled=True).fires
    assert should_compress_session(5000, False, enabled=True).fires
    assert not should_compress_session(5000, True, enabled=False).fires


async def test_hygiene_pays_once_and_is_silent(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(17)
    said: list[str] = []
    outcomes = []
    for _ in range(3):
        result = await maybe_compress_session(
            loaded, engine=bench.engine, store=bench.store, clock=clock, notify=said.append
        )
        outcomes.append(result.outcome)
        loaded = await bench.store.load(result.session_id)
        assert result.loaded.rows == loaded.rows
    assert outcomes == ["compressed", "not_needed", "not_needed"]
    assert len(bench.model.asked) == 1
    assert said == []
    assert sum(row.tokens for row in loaded.rows) < 0.85 * WINDOW


async def test_three_messages_on_a_nearly_full_window_pay_for_one_summary(
    clock: FakeClock,
) -> None:
    bench = Bench(clock)
    bench.engine = ContextCompressor(
        "m", config_context_length=200_000, side_model=bench.model, clock=clock, max_tokens=8192
    )
    for k in range(278):
        anchor = Usage(30, 500, 178_000, 1_970) if k == 277 else None
        loaded = await bench.say(f"question {k} " + "q" * 1250, f"answer {k} " + "a" * 1250, anchor)
    for k in range(3):
        result = await maybe_compress_session(
            loaded, engine=bench.engine, store=bench.store, clock=clock, notify=None
        )
        if k == 0:
            assert result.tokens_before >= 180_000
        loaded = await bench.say("and now?", "this", Usage(60_000))
        await clock.advance(60)
    assert len(bench.model.asked) == 1
    assert sum(row.tokens for row in loaded.rows) < 170_000


async def test_hygiene_aborts_with_a_reason_once_and_the_turn_goes_on(clock: FakeClock) -> None:
    bench = Bench(clock, ModelConnectionError("gone"))
    loaded = await bench.talk(17)
    said: list[str] = []

    async def notify(text: str) -> None:
        said.append(text)

    for _ in range(3):
        loaded = await bench.store.load(loaded.session.id)
        result = await maybe_compress_session(
            loaded, engine=bench.engine, store=bench.store, clock=clock, notify=notify
        )
        assert result.outcome == "aborted"
        assert result.session_id == loaded.session.id
        await clock.advance(31)
    assert len(bench.model.asked) == 3
    assert len(said) == 1
    assert "connection" in said[0]


async def test_hygiene_ignores_anti_thrash_but_no_cooldown(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(17)
    now = clock.now()
    blocked = loaded.session.compression.changed(ineffective_count=2, blocked_at=now)
    await bench.store.set_compression(
        loaded.session.id, blocked.changed(cooldown_until=now + 50, cooldown_reason="quota")
    )
    loaded = await bench.store.load(loaded.session.id)
    net = HygieneNet(bench.store, clock)
    compactor = bench.fresh()
    assert await net(loaded, compactor, bench.notices.append) is loaded
    assert bench.model.asked == []
    await clock.advance(51)
    assert not compactor.due(loaded).due
    assert (await net(loaded, compactor, bench.notices.append)).session.id != loaded.session.id


async def test_hygiene_works_with_any_engine(clock: FakeClock) -> None:
    engine = Foreign(lambda messages: [{"role": "user", "content": "s"}, *messages[-2:]])
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(17)
    result = await maybe_compress_session(
        loaded, engine=engine, store=bench.store, clock=clock, notify=None
    )
    assert result.outcome == "compressed"
    assert result.session_id != loaded.session.id


# --- when it fires


@pytest.mark.parametrize("threshold", [0.10, 0.50, 0.85, 0.95, 1.0])
def test_it_lies_at_85_percent_whatever_the_threshold(threshold: float) -> None:
    triggers = triggers_for(200_000, TriggerRules(threshold=threshold), max_tokens=8192)
    assert triggers.hygiene_tokens == 170_000
    assert triggers.hygiene_rules == (triggers.threshold_tokens >= 170_000)


async def test_the_real_size_goes_before_the_estimate(clock: FakeClock) -> None:
    bench = Bench(clock)
    await bench.talk(17)
    small = await bench.say("x", "y", Usage(9_000, 10))
    assert sum(row.tokens for row in small.rows) > 0.85 * WINDOW
    result = await net(bench, small)
    assert result.outcome == "not_needed"
    assert result.tokens_before == 9_010
    dense = Bench(clock)
    await dense.talk(4)
    full = await dense.say("x", "y", Usage(1_000, 10, 15_000, 1_000))
    assert sum(row.tokens for row in full.rows) < 0.5 * WINDOW
    assert (await net(dense, full)).outcome == "compressed"


async def test_three_messages_are_left_to_the_loop(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.say("q" * 80_000, "a")
    ticket = await bench.work_on(0)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    assert len(loaded.rows) == 3
    assert (await net(bench, loaded)).outcome == "not_needed"
    await bench.end_work()
    ticket = await bench.work_on(0)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    assert (await net(bench, loaded)).outcome == "compressed"


async def test_many_small_messages_are_too_many(clock: FakeClock) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(20, 1)
    assert (await net(bench, loaded)).outcome == "not_needed"
    result = await net(bench, loaded, message_limit=40)
    assert result.outcome == "compressed"
    assert len(result.loaded.rows) < 40
    assert (await net(bench, result.loaded, message_limit=40)).outcome == "not_needed"


async def test_switched_off_it_does_nothing(clock: FakeClock) -> None:
    bench = Bench(clock, settings=CompactionSettings(enabled=False))
    loaded = await bench.talk(20)
    result = await net(bench, loaded, message_limit=10)
    assert (result.outcome, result.reason) == ("not_needed", "compression is off")


# --- paid once


async def test_in_place_the_session_stays_and_it_is_paid_for_once(clock: FakeClock) -> None:
    bench = Bench(clock, settings=CompactionSettings(in_place=True))
    loaded = await bench.talk(17)
    first = await net(bench, loaded)
    assert first.outcome == "compressed"
    assert first.session_id == loaded.session.id
    stored = await bench.store.load(first.session_id)
    assert stored.session.revision == loaded.session.revision + 1
    assert stored.rows == first.loaded.rows
    for _ in range(3):
        assert (await net(bench, await bench.store.load(stored.session.id))).outcome == "not_needed"
    assert len(bench.model.asked) == 1


def useless(bench_calls: list[int], *, paid: bool = True) -> Foreign:
    def work(messages: list[dict[str, Any]]) -> Any:
        bench_calls.append(len(messages))
        return messages if not paid else [{"role": "user", "content": "z" * 99_000}, *messages]

    return Foreign(work)


@pytest.mark.parametrize("paid", [True, False])
@pytest.mark.parametrize("nearly_full", [True, False])
async def test_what_can_not_be_made_shorter_is_not_tried_on_every_message(
    clock: FakeClock, paid: bool, nearly_full: bool
) -> None:
    calls: list[int] = []
    bench = Bench(clock, engine=useless(calls, paid=paid))
    loaded = await bench.talk(17, 2000 if nearly_full else 1)
    said: list[str] = []
    for _ in range(30):  # a message a minute
        result = await net(bench, loaded, notify=said.append, message_limit=30)
        assert result.outcome == "aborted"
        assert result.loaded.rows == loaded.rows
        await clock.advance(61)
        loaded = await bench.say("more", "of it")
    assert 1 <= len(calls) <= 5
    assert len(said) == 1


async def test_one_enormous_tool_group_costs_no_call(clock: FakeClock) -> None:
    bench = Bench(clock)
    ticket = await bench.work_on(0)
    calls = [{"id": f"c{k}", "function": {"name": "f", "arguments": "{}"}} for k in range(40)]
    await bench.append(ticket, {"role": "assistant", "content": None, "tool_calls": calls})
    for call in calls:
        await bench.append(ticket, {"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    said: list[str] = []
    for _ in range(5):
        loaded = await bench.store.load(ticket.session_id, ticket=ticket)
        result = await net(bench, loaded, notify=said.append, message_limit=30)
        assert result.outcome == "aborted"
        await clock.advance(10)
    assert bench.model.asked == []
    assert len(said) == 1


# --- alone


async def test_an_abort_leaves_everything_and_the_turn_goes_on(clock: FakeClock) -> None:
    bench = Bench(clock, ModelConnectionError("gone"))
    loaded = await bench.talk(17)
    compactor = bench.fresh()
    hygiene = HygieneNet(bench.store, clock)
    for _ in range(3):
        after = await hygiene(loaded, compactor, bench.notices.append)
        assert after.rows == loaded.rows
        assert after.session.id == loaded.session.id
    assert len(bench.model.asked) == 1  # in the cool-down nobody is asked
    assert len(bench.notices) == 1
    stored = await bench.store.load(loaded.session.id)
    assert stored.rows == loaded.rows
    # after a restart too
    await hygiene(stored, bench.fresh(), bench.notices.append)
    assert len(bench.model.asked) == 1
    assert len(bench.notices) == 1


async def test_only_the_own_conversation_waits(clock: FakeClock) -> None:
    may_end = threading.Event()

    def slow(asked: Asked) -> str:
        assert may_end.wait(20)
        return "## Goal\nslow"

    one, other = Bench(clock, slow), Bench(clock)
    first = asyncio.ensure_future(net(one, await one.talk(17)))
    for _ in range(3):
        assert (await net(other, await other.talk(17))).outcome == "compressed"
    assert not first.done()
    may_end.set()
    assert (await first).outcome == "compressed"
