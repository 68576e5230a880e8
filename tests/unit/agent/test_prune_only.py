"""Old tool results get short between two rounds of tools, when that is worth a broken cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings
from agent.compaction.plan.prune import (
    MIN_RECLAIM_TOKENS,
    MIN_RESULT_CHARS,
    is_stand_in,
    prunable_results,
)
from agent.context_compressor import ContextCompressor
from agent.loop import LoopSettings, TurnLoop
from agent.messages import Draft, ToolSchema
from agent.ports import ToolContext, ToolResult, Usage
from agent.sessions import LoadedSession, TurnTicket
from agent.tools.registry import ToolRegistry
from tests.contract.prepared_suite import prepared_of
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import WINDOW, Bench, Foreign
from tests.fakes.scripted_model import ScriptedModel, answer, call, thought

WIDE = 400_000
FROM = 20_000
SETTINGS = CompactionSettings(prune_from_tokens=FROM)


def made(clock: FakeClock, engine: Any = None, settings: CompactionSettings = SETTINGS) -> Bench:
    bench = Bench(clock, engine=engine, settings=settings)
    if engine is None:
        bench.builtin.update_model("m", WIDE)
        bench.builtin.protect_last_n = 6
    return bench


async def worked(
    bench: Bench, rounds: int, chars: int = 12_000
) -> tuple[LoadedSession, TurnTicket]:
    """A turn in the middle of its tools."""
    ticket = await bench.work_on(rounds, chars)
    return await bench.store.load(ticket.session_id, ticket=ticket), ticket


async def test_old_results_get_short_in_one_revision(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, 10)
    decision = bench.compactor.due(loaded)
    assert (decision.due, decision.prune) == (False, True)
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "compressed"
    after = result.loaded
    assert after.session.revision == loaded.session.revision + 1
    assert after.session.id == loaded.session.id
    assert len(after.rows) == len(loaded.rows)
    short = [is_stand_in(row.message) for row in after.rows if row.message["role"] == "tool"]
    assert short == [True] * 7 + [False] * 3  # the newest six messages are three rounds
    assert [r.root_id for r in after.rows] == [r.root_id for r in loaded.rows]
    assert all("recall" in str(r.message["content"]) for r in after.rows if r.kind == "stub")
    state = after.session.compression
    assert state.count == 0
    assert not state.awaiting_usage
    assert bench.model.asked == []
    # the whole text stays where it was said
    rows = {row.id: row for row in await bench.store.all_rows(loaded.session.id)}
    assert all(rows[row.id].message == row.message for row in loaded.rows)


async def test_it_waits_until_as_much_has_grown_again(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, 10)
    size = bench.compactor.due(loaded).tokens
    loaded = (await bench.compactor.compact(loaded, "prune")).loaded
    runway = loaded.session.compression.prune_at_tokens
    reclaimed = size - bench.compactor.due(loaded).tokens
    assert runway >= size - reclaimed + max(reclaimed, FROM)
    for _ in range(20):
        bench.compactor = bench.fresh()  # also over a restart
        decision = bench.compactor.due(loaded)
        assert decision.prune == (decision.tokens >= runway)
        if decision.prune:
            break
        loaded, _ = await worked(bench, 1)
    assert decision.prune
    again = await bench.compactor.compact(loaded, "prune")
    assert again.outcome == "compressed"


@pytest.mark.parametrize("rounds", [10, 3])
async def test_what_was_noted_while_the_engine_looked_stays(clock: FakeClock, rounds: int) -> None:
    """Whether or not there was enough to prune."""
    bench = made(clock)
    loaded, _ = await worked(bench, rounds, 12_000 if rounds == 10 else 40_000)
    prune = bench.builtin.prune_tool_results_only
    loop = asyncio.get_running_loop()

    def noting(*given: Any) -> Any:
        noted = bench.compactor.note_usage(loaded, Usage(WIDE // 2), notify=bench.notices.append)
        asyncio.run_coroutine_threadsafe(noted, loop).result(20)
        return prune(*given)

    bench.builtin.prune_tool_results_only = noting  # type: ignore[method-assign,assignment]
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == ("compressed" if rounds == 10 else "not_needed")
    for state in (
        result.loaded.session.compression,
        (await bench.store.load(loaded.session.id)).session.compression,
    ):
        assert state.pressure_tier > 0
        assert state.prune_at_tokens > 0


@pytest.mark.parametrize(("rounds", "chars"), [(12, MIN_RESULT_CHARS - 200), (3, 40_000)])
async def test_not_for_short_results_and_not_in_the_protected_end(
    clock: FakeClock, rounds: int, chars: int
) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, rounds, chars)
    assert bench.compactor.due(loaded).prune
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "not_needed"
    assert result.loaded.session.revision == loaded.session.revision
    # and it is not looked at again at each step
    assert not bench.compactor.due(result.loaded).prune


async def test_not_for_too_little(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, 1, 4 * MIN_RECLAIM_TOKENS - 800)
    loaded, _ = await worked(bench, 9, 7_000)
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "not_needed"
    assert result.loaded.session.revision == loaded.session.revision


@pytest.mark.parametrize("settings", [CompactionSettings(), CompactionSettings(enabled=False)])
async def test_off(clock: FakeClock, settings: CompactionSettings) -> None:
    bench = made(clock, settings=settings)
    loaded, _ = await worked(bench, 10)
    assert not bench.compactor.due(loaded).prune
    assert (await bench.compactor.compact(loaded, "prune")).outcome != "compressed"


async def test_a_compression_that_is_due_comes_first(clock: FakeClock) -> None:
    bench = made(clock)
    bench.builtin.update_model("m", WINDOW)
    loaded, _ = await worked(bench, 10)
    decision = bench.compactor.due(loaded)
    assert (decision.due, decision.prune) == (True, False)


async def test_a_compression_begins_the_count_anew(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, 10)
    loaded = (await bench.compactor.compact(loaded, "prune")).loaded
    assert loaded.session.compression.prune_at_tokens
    done = await bench.compactor.compact(loaded, "manual")
    assert done.outcome == "compressed"
    assert done.loaded.session.compression.prune_at_tokens == 0


async def test_what_is_prepared_is_not_thrown_away_for_it(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, _ = await worked(bench, 10)

    assert await bench.store.save_prepared(prepared_of(loaded))
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "not_needed"
    assert await bench.store.prepared(loaded.session.id) is not None


async def test_somebody_who_moved_the_list_wins(clock: FakeClock) -> None:
    bench = made(clock)
    loaded, ticket = await worked(bench, 10)
    await bench.store.finish_turn(ticket, ticket.session_id, "done")
    await bench.store.undo(loaded.session.conversation_id)
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "not_needed"
    assert result.loaded.rows == ()


# --- somebody else's engine ---------------------------------------------------------------------


class Pruning(Foreign):
    """Prunes as a test says."""

    def __init__(self, prune: Any) -> None:
        super().__init__(lambda messages: messages)
        self.update_model("m", WIDE)
        self.prune = prune

    def prune_tool_results_only(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        return self.prune(messages)  # type: ignore[no-any-return]


def short(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    return [{**m, "content": "short"} if m["role"] == "tool" else m for m in messages], 3


def rewrites_what_was_said(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    return [{**m, "content": "short"} for m in messages], 3


def drops(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    return messages[:1], 3


def too_little(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    done = [dict(m) for m in messages]
    done[2]["content"] = "short"
    return done, 1


def in_place_and_silent(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    for message in messages:
        message["content"] = "gone"
    return messages, 0


def nonsense(messages: list[dict[str, Any]]) -> Any:
    return None


def raises(messages: list[dict[str, Any]]) -> Any:
    raise RuntimeError("no")


async def test_somebody_elses_engine_is_taken_at_its_word_and_checked(clock: FakeClock) -> None:
    bench = made(clock, Pruning(short))
    loaded, _ = await worked(bench, 10)
    assert bench.compactor.due(loaded).prune
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "compressed"
    tools = [row for row in result.loaded.rows if row.message["role"] == "tool"]
    assert {row.message["content"] for row in tools} == {"short"}
    assert {row.kind for row in tools} == {"stub"}


@pytest.mark.parametrize(
    "prune",
    [rewrites_what_was_said, drops, too_little, in_place_and_silent, nonsense, raises],
)
async def test_and_not_where_it_does_something_else(clock: FakeClock, prune: Any) -> None:
    bench = made(clock, Pruning(prune))
    loaded, _ = await worked(bench, 10, 12_000)
    result = await bench.compactor.compact(loaded, "prune")
    assert result.outcome == "not_needed"
    now = await bench.store.load(loaded.session.id)
    assert [r.id for r in now.rows] == [r.id for r in loaded.rows if r.id > 0]
    assert now.session.revision == loaded.session.revision


async def test_an_engine_without_it_is_not_asked(clock: FakeClock) -> None:
    bench = made(clock, Foreign(lambda messages: messages))
    loaded, _ = await worked(bench, 10)
    assert not bench.compactor.due(loaded).prune


# --- the built-in one, alone --------------------------------------------------------------------


def test_the_same_object_where_nothing_is_to_be_done() -> None:
    engine = ContextCompressor("m", config_context_length=WIDE)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    assert engine.prune_tool_results_only(messages) == (messages, 0)
    assert engine.prune_tool_results_only(messages)[0] is messages
    assert prunable_results([], 20) == {}


def test_it_changes_nothing_twice() -> None:
    engine = ContextCompressor("m", config_context_length=WIDE, protect_last_n=2)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    for n in range(6):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}" * 10_000})
    once, count = engine.prune_tool_results_only(messages)
    assert count == 5
    assert engine.prune_tool_results_only(once) == (once, 0)


# --- in the loop --------------------------------------------------------------------------------


async def test_the_loop_prunes_between_two_rounds_and_goes_on(clock: FakeClock) -> None:

    class Talkative:
        schema = ToolSchema("f", "says much")

        async def run(self, arguments: Any, context: ToolContext) -> ToolResult:
            return ToolResult("r" * 12_000)

    class Silent:
        def on_text(self, delta: str) -> None: ...
        def on_tool(self, name: str) -> None: ...
        def on_file(self, name: str) -> None: ...
        def on_notice(self, text: str) -> None: ...

    bench = made(clock)
    model = ScriptedModel(
        *(answer("", thought(), call("f"), usage=Usage(4_000 * n + 10)) for n in range(1, 9)),
        answer("done"),
        window=WIDE,
    )
    loop = TurnLoop(
        store=bench.store,
        model=model,
        tools=ToolRegistry([Talkative()], result_cap_tokens=lambda: 5_000),
        settings=LoopSettings(),
    )
    ticket = await bench.work_on(0)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    context = ToolContext(ticket.conversation_id, "test:1", True, ticket.turn_id)
    result = await loop(
        ticket, loaded, compactor=bench.compactor, context=context, observer=Silent()
    )
    model.verify()
    assert (result.text, result.compactions) == ("done", 0)
    tip = await bench.store.load(loaded.session.id, ticket=ticket)
    assert tip.session.revision >= 1
    assert sum(row.kind == "stub" for row in tip.rows) >= 2
    await bench.store.finish_turn(
        ticket, tip.session.id, "done", final=Draft({"role": "assistant", "content": "done"})
    )
