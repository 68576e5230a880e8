"""The host's side over a real store: three outcomes only, each stored, each paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.compaction.boundary import is_summary
from agent.compaction.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.errors import ModelConnectionError, ModelTimeout
from agent.messages import Draft, Message, orphan_results, unanswered_calls
from agent.ports import Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, TurnTicket
from gateway.hygiene import HygieneNet, maybe_compress_session, should_compress_session
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import Answer, ScriptedSideModel

PREFIX = SessionPrefix("test", "m", "be kind")
WINDOW = 20_000
THREADS = DaemonThreads(4, name="test-engine")


class Bench:
    """A store with one conversation, an engine and a compactor."""

    def __init__(
        self,
        clock: FakeClock,
        *answers: Answer,
        engine: ContextEngine | None = None,
        settings: CompactionSettings | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock
        self.ids = SequentialIds()
        self.store = MemoryStore(clock, self.ids)
        self.model = ScriptedSideModel(*answers)
        self.builtin = ContextCompressor(
            "m", config_context_length=WINDOW, side_model=self.model, clock=clock
        )
        self.engine = engine or self.builtin
        self.settings = settings
        self.notices: list[str] = []
        self.compactor = self.fresh(**options)
        self.ticket: TurnTicket | None = None

    def fresh(self, **options: Any) -> SessionCompactor:
        """A compactor without memory of its own, as after a restart."""
        return SessionCompactor(
            self.engine,
            self.store,
            self.clock,
            self.ids,
            self.settings,
            threads=THREADS,
            **options,
        )

    async def say(self, text: str, reply: str, usage: Usage | None = None) -> LoadedSession:
        opening = TurnOpening(
            "key", "test:1", (), Draft(cast(Message, {"role": "user", "content": text})), PREFIX
        )
        ticket = await self.store.begin_turn(opening)
        final = Draft(cast(Message, {"role": "assistant", "content": reply}))
        await self.store.finish_turn(
            ticket, ticket.session_id, "done", final=final, anchor_usage=usage
        )
        return await self.store.load(ticket.session_id)

    async def talk(self, count: int, chars: int = 2000) -> LoadedSession:
        for k in range(count):
            loaded = await self.say(f"question {k} " + "q" * chars, f"answer {k} " + "a" * chars)
        return loaded


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

Work = Callable[[list[dict[str, Any]]], Any]


class Foreign(ContextEngine):
    """An engine that does what a test says, with the arguments of the oldest ones."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.usages: list[dict[str, Any]] = []
        self.update_model("m", WINDOW)
        self.threshold_tokens = WINDOW // 2

    @property
    def name(self) -> str:
        return "foreign"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.usages.append(usage)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.threshold_tokens

    def compress(  # type: ignore[override]
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self.work(messages))

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.told.append((session_id, kwargs))
        raise RuntimeError("not interested")


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
    session_id, keywords = engine.told[0]
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


# --- the last net


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
