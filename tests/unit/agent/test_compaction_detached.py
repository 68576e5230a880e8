"""A stop while a compression runs: it goes on alone, and nobody waits or pays for it twice."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.errors import ModelTimeout, StoreUnavailable
from agent.ports import CompactionResult, Usage
from agent.sessions import LoadedSession
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import Bench, Foreign
from tests.fakes.side_model import Asked

HOW_LONG = 20.0
"""Never waited for, unless a test fails."""
LEASE = CompactionSettings().lease_ttl_seconds


class Slow:
    """An answer that is given when the test says so."""

    def __init__(self, answer: str | Exception = "## Goal\nlate") -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.answer = answer

    def __call__(self, asked: Asked) -> str:
        self.begun.set()
        assert self.may_end.wait(HOW_LONG)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def until(event: threading.Event) -> None:
    while not event.is_set():  # noqa: ASYNC110  (it is set in a worker thread)
        await asyncio.sleep(0.001)


async def stopped(
    compactor: SessionCompactor, loaded: LoadedSession, slow: Slow, **options: Any
) -> None:
    """A turn that compresses and is stopped in the middle of it."""
    turn = asyncio.ensure_future(compactor.compact(loaded, "loop", **options))
    await until(slow.begun)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    assert turn.cancelled()


async def free(bench: Bench, loaded: LoadedSession) -> None:
    """Until the lease is let go."""
    conversation = loaded.session.conversation_id
    while not await bench.store.acquire_lease(conversation, "test", LEASE):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await bench.store.release_lease(conversation, "test")


async def test_it_is_committed_when_nothing_moved(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    await stopped(bench.compactor, loaded, slow)
    assert not await bench.store.acquire_lease(loaded.session.conversation_id, "other", LEASE)
    slow.may_end.set()
    await free(bench, loaded)
    tip = await bench.store.tip(loaded.session.id)
    assert tip.parent_session_id == loaded.session.id
    assert len(bench.model.asked) == 1
    child = await bench.store.load(tip.id)
    assert not bench.compactor.due(child).due


async def test_the_next_turn_neither_waits_nor_pays(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow, "## Goal\npaid twice")
    loaded = await bench.talk(12)
    await stopped(bench.compactor, loaded, slow)
    ticket = await bench.work_on(1, 40)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    for trigger in ("preflight", "loop", "hygiene"):
        refused = await bench.compactor.compact(loaded, trigger)
        assert refused.outcome == "aborted"
        assert "already" in refused.reason
    loaded = await bench.compactor.note_usage(loaded, Usage(12_345))
    slow.may_end.set()
    await free(bench, loaded)
    # the turn is at work: nothing was moved under its feet
    assert (await bench.store.tip(loaded.session.id)).id == loaded.session.id
    # its next chance takes what is there
    ticket = await bench.work_on(1, 40)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    assert len(bench.model.asked) == 1
    contents = [str(row.message["content"]) for row in result.loaded.rows]
    assert "late" in next(text for text in contents if "## Goal" in text)
    assert contents[-5:-3] == ["go on", "step 0"]
    assert result.loaded.session.compression.count == 1


async def test_what_was_noted_meanwhile_is_not_undone(clock: FakeClock) -> None:
    slow = Slow(ModelTimeout("late"))
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    said: list[str] = []
    await stopped(bench.compactor, loaded, slow, notify=said.append)
    noted = await bench.compactor.note_usage(loaded, Usage(9_000), notify=said.append)
    assert noted.session.compression.pressure_tier == 0.85
    slow.may_end.set()
    await free(bench, loaded)
    state = (await bench.store.load(loaded.session.id)).session.compression
    assert state.pressure_tier == 0.85
    assert state.cooldown_until > clock.now()
    # the turn that wanted to know is over: the next failure is told
    assert not any(text.startswith("⚠") for text in said)
    await clock.advance(61)
    slow.answer = ModelTimeout("late again")
    await bench.compactor.compact(noted, "loop", notify=said.append)
    assert sum(text.startswith("⚠") for text in said) == 1


@pytest.mark.parametrize("trigger", ["overflow", "manual"])
async def test_who_can_not_go_on_without_waits_and_takes_it(clock: FakeClock, trigger: Any) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    await stopped(bench.compactor, loaded, slow)
    waiting = asyncio.ensure_future(
        bench.compactor.compact(loaded, trigger, overflow_proven=trigger == "overflow")
    )
    await asyncio.sleep(0.01)
    assert not waiting.done()
    slow.may_end.set()
    result: CompactionResult = await waiting
    assert len(bench.model.asked) == 1
    assert result.loaded.session.parent_session_id == loaded.session.id


async def test_who_stops_what_they_asked_for_keeps_the_conversation_as_it_was(
    clock: FakeClock,
) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    asked = asyncio.ensure_future(bench.compactor.compact(loaded, "manual"))
    await until(slow.begun)
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    slow.may_end.set()
    await free(bench, loaded)
    assert (await bench.store.tip(loaded.session.id)).id == loaded.session.id
    # paid for is paid for: the next one takes it
    assert (await bench.compactor.compact(loaded, "loop")).outcome == "compressed"
    assert len(bench.model.asked) == 1


async def test_what_the_store_could_not_take_is_not_paid_for_again(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(clock)
    loaded = await bench.talk(12)

    async def full(request: object) -> Any:
        raise StoreUnavailable("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(bench.store, "split", full)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await bench.compactor.compact(loaded, "loop")
    assert (await bench.compactor.compact(loaded, "loop")).outcome == "compressed"
    assert len(bench.model.asked) == 1
    # with another wish it is another summary
    again = await bench.talk(12)
    with monkeypatch.context() as broken:
        broken.setattr(bench.store, "split", full)
        with pytest.raises(StoreUnavailable):
            await bench.compactor.compact(again, "loop")
    assert (await bench.compactor.compact(again, "manual", focus="x")).outcome == "compressed"
    assert len(bench.model.asked) == 3


async def test_a_lease_that_can_not_be_released_takes_nothing_back(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(clock, ModelTimeout("late"))
    loaded = await bench.talk(12)

    async def full(*_: object) -> None:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(bench.store, "release_lease", full)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "aborted"
    assert "did not answer in time" in result.reason


async def test_a_new_conversation_gets_nothing_of_the_old_one(clock: FakeClock) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    await stopped(bench.compactor, loaded, slow)
    fresh = await bench.store.start_conversation("key", "test:1", loaded.session.prefix)
    slow.may_end.set()
    await free(bench, loaded)
    old = await bench.store.load(loaded.session.id)
    assert old.session.end_reason == "reset"
    assert old.rows == loaded.rows
    assert (await bench.store.tip(loaded.session.id)).id == loaded.session.id
    assert (await bench.store.load(fresh.id)).rows == ()


async def test_somebody_elses_engine_does_not_hold_up_the_next_turn(clock: FakeClock) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(messages: list[dict[str, Any]]) -> Any:
        begun.set()
        assert may_end.wait(HOW_LONG)
        return [{"role": "user", "content": "s"}, *messages[-2:]]

    engine = Foreign(work)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    turn = asyncio.ensure_future(bench.compactor.compact(loaded, "loop"))
    await until(begun)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    await bench.compactor.note_usage(loaded, Usage(9_000))
    assert engine.usages == []  # it is busy, and hears of it later
    may_end.set()
    await free(bench, loaded)
    tip = await bench.store.tip(loaded.session.id)
    assert tip.id != loaded.session.id
    while not engine.usages:  # noqa: ASYNC110  (it is told in a worker thread)
        await asyncio.sleep(0.001)
    assert engine.usages[0]["prompt_tokens"] == 9_000


async def test_a_crash_behind_the_stop_is_logged(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    bench = Bench(clock, slow)
    loaded = await bench.talk(12)
    await stopped(bench.compactor, loaded, slow)

    async def broken(request: object) -> Any:
        raise RuntimeError("the store is on fire")

    monkeypatch.setattr(bench.store, "split", broken)
    with caplog.at_level(logging.ERROR):
        slow.may_end.set()
        await free(bench, loaded)
        await asyncio.sleep(0)
    assert "detached work failed" in caplog.text
    assert (await bench.store.tip(loaded.session.id)).id == loaded.session.id


def test_the_end_of_the_loop_waits_for_nobody() -> None:
    slow = Slow()

    async def main() -> None:
        bench = Bench(FakeClock(), slow)
        loaded = await bench.talk(12)
        await stopped(bench.compactor, loaded, slow)

    try:
        started = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - started < HOW_LONG / 2
    finally:
        slow.may_end.set()


async def test_a_tool_at_work_is_never_answered_by_a_stand_in(clock: FakeClock) -> None:
    """Whoever compresses beside a running turn sees stand-ins for its open calls."""
    bench = Bench(clock)
    await bench.talk(12)
    ticket = await bench.work_on(1)
    call = {"id": "open", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    appended = await bench.append(ticket, asks)
    view = await bench.store.load(ticket.session_id)
    assert view.rows[-1].id < 0
    result = await bench.compactor.compact(view, "manual")
    assert result.outcome == "aborted"
    assert "tool is at work" in result.reason
    whole = await bench.store.load(ticket.session_id, ticket=ticket)
    assert whole.rows[-2].id == appended


async def test_the_child_of_a_running_turn_holds_its_rows_and_no_stand_ins(
    clock: FakeClock,
) -> None:
    bench = Bench(clock)
    ticket = await bench.work_on(14)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    result = await bench.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    assert all(row.id > 0 for row in result.loaded.rows)
    child = result.loaded.session.id
    assert (await bench.store.load(child, ticket=ticket)).rows == result.loaded.rows
    await bench.work_on(1)  # the turn goes on there
    await bench.end_work()
