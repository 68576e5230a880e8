"""The last net before the agent, sentence by sentence: when it fires, pays, speaks, and waits."""

from __future__ import annotations

from agent.context_compressor import ContextCompressor
from agent.errors import ModelConnectionError
from agent.ports import Usage
from gateway.hygiene import HygieneNet, maybe_compress_session, should_compress_session
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import WINDOW, Bench, Foreign


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
