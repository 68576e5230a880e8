"""What the host asks somebody else's engine beside compressing, and what it spares it."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.compaction.host.foreign import ForeignEngine, HostFacts
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.messages import Draft, to_engine
from agent.ports import TurnEnd, Usage
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import THREADS, WINDOW, Bench, Foreign, Work

USAGE = Usage(10, 5)
FINAL = Draft({"role": "assistant", "content": "done"})


def halves(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return messages[len(messages) // 2 :]


class Asked(Foreign):
    """Takes down what it is asked, and answers as a test says."""

    def __init__(self, work: Work, **answers: Any) -> None:
        super().__init__(work)
        self.answers, self.asked = answers, list[str]()
        self.memory: list[str] = []

    def answer(self, name: str, usual: Any) -> Any:
        self.asked.append(name)
        return self.answers.get(name, usual)

    def compress(  # type: ignore[override]
        self, messages: list[dict[str, Any]], memory_context: str = ""
    ) -> list[dict[str, Any]]:
        self.memory.append(memory_context)
        return halves(messages)

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        return bool(self.answer("content", True))

    def pending_compression_operation(self, messages: list[dict[str, Any]]) -> str | None:
        found: str | None = self.answer("operation", None)
        return found

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        return bool(self.answer("defer", False))

    def get_active_compression_failure_cooldown(self) -> Any:
        return self.answer("cooldown", None)

    def get_automatic_compaction_status_message(  # type: ignore[override]
        self, *, phase: str, default_message: str
    ) -> str | None:
        found: str | None = self.answer("status", default_message)
        return found


async def remembered(messages: list[Any]) -> str:
    return "the user is called Ada"


@pytest.mark.parametrize(
    ("operation", "trigger", "text"),
    [
        ("sanitize", "loop", ""),
        (None, "loop", "the user is called Ada"),
        ("sanitize", "manual", "the user is called Ada"),
    ],
)
async def test_the_memory_is_not_asked_for_a_clean_up(
    clock: FakeClock, operation: str | None, trigger: Any, text: str
) -> None:
    engine = Asked(halves, operation=operation)
    bench = Bench(clock, engine=engine, memory_text=remembered)
    await bench.compactor.compact(await bench.talk(12), trigger)
    assert engine.memory == [text]


async def test_nothing_to_compress_is_no_failure(clock: FakeClock) -> None:
    engine = Asked(halves, content=False)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    result = await bench.compactor.compact(loaded, "manual")
    assert (result.outcome, result.reason) == ("not_needed", "there is nothing to compress")
    assert engine.memory == []
    engine.answers.clear()
    assert (await bench.compactor.compact(loaded, "manual")).outcome == "compressed"


@pytest.mark.parametrize("answers", [{"defer": True}, {"cooldown": {"remaining_seconds": 9}}])
async def test_before_a_turn_an_engine_may_wait(clock: FakeClock, answers: dict[str, Any]) -> None:
    engine = Asked(halves, **answers)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    before = await bench.compactor.compact(loaded, "preflight", notify=bench.notices.append)
    assert before.outcome == "not_needed"
    assert not bench.notices
    assert (await bench.compactor.compact(loaded, "loop")).outcome == "compressed"


@pytest.mark.parametrize(
    ("answers", "emits", "heard"),
    [
        ({}, True, "Shortening this conversation"),
        ({"status": "one moment"}, True, "one moment"),
        ({"status": None}, True, None),
        ({"status": 7}, True, None),
        ({"status": "one moment"}, False, None),
    ],
)
async def test_what_the_user_reads_meanwhile(
    clock: FakeClock, answers: dict[str, Any], emits: bool, heard: str | None
) -> None:
    engine = Asked(halves, **answers)
    engine.emit_automatic_compaction_status = emits
    bench = Bench(clock, engine=engine)
    await bench.compactor.compact(await bench.talk(12), "loop", notify=bench.notices.append)
    assert [heard in n for n in bench.notices if heard] == ([True] if heard else [])
    assert len(bench.notices) == (heard is not None)


async def test_a_response_without_usage_is_told_once_behind_a_compression(clock: FakeClock) -> None:
    engine = Asked(halves)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    await bench.compactor.note_usage(loaded, None)
    after = (await bench.compactor.compact(loaded, "manual")).loaded
    assert engine.last_prompt_tokens == -1
    await bench.compactor.note_usage(after, None)
    await bench.compactor.note_usage(after, None)
    assert engine.usages == [{}]
    await bench.compactor.note_usage(after, USAGE)
    assert len(engine.usages) == 2


async def test_a_list_rewritten_in_its_place_has_no_known_size(clock: FakeClock) -> None:
    engine = Asked(halves)
    bench = Bench(clock, engine=engine, settings=CompactionSettings(in_place=True))
    loaded = await bench.talk(12)
    await bench.compactor.note_usage(loaded, USAGE)
    told = len(engine.told)
    engine.last_prompt_tokens = 10
    after = (await bench.compactor.compact(loaded, "manual")).loaded
    assert after.session.id == loaded.session.id
    assert engine.last_prompt_tokens == -1
    assert len(engine.told) == told


def around(bench: Bench, engine: Any, window: Callable[[], int]) -> SessionCompactor:
    foreign = ForeignEngine(
        engine,
        THREADS,
        bench.clock,
        timeout_seconds=5,
        window=window,
        facts=HostFacts(model_thresholds={"m": 0.5}),
    )
    return SessionCompactor(foreign, bench.store, bench.clock, bench.ids, threads=THREADS)


async def test_another_window_reaches_the_engine_before_it_decides(clock: FakeClock) -> None:
    windows = [WINDOW]
    engine = Asked(halves)
    bench = Bench(clock, engine=engine)
    compactor = around(bench, engine, lambda: windows[-1])
    assert compactor.foreign is not None
    await compactor.foreign.introduce("m")
    assert engine.model_thresholds == {"m": 0.5}
    assert engine.threshold_tokens == WINDOW // 2
    loaded = await bench.talk(2)
    assert compactor.hygiene_tokens == int(WINDOW * 0.85)
    windows.append(2000)
    assert compactor.hygiene_tokens == 1700
    assert (await compactor.compact(loaded, "loop")).outcome == "compressed"
    assert (engine.context_length, engine.threshold_tokens) == (2000, 1000)
    compactor.note_limit(1500)
    await compactor.compact(await bench.talk(1), "loop")
    assert engine.context_length == 1500


async def test_a_property_is_read_on_the_engines_thread_only(clock: FakeClock) -> None:
    readers: list[str] = []

    class Computed(Foreign):
        @property
        def threshold_tokens(self) -> int:
            readers.append(threading.current_thread().name)
            return 7000

        @threshold_tokens.setter
        def threshold_tokens(self, value: int) -> None:
            pass

    engine = Computed(halves)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(2)
    assert bench.compactor.threshold_tokens == 0  # nobody has asked it yet
    readers.clear()
    await bench.compactor.note_usage(loaded, USAGE)
    assert bench.compactor.due(loaded).threshold_tokens == 7000
    assert readers
    assert all(name.startswith("test-engine") for name in readers)


async def test_usage_waits_for_a_short_call_and_not_for_a_compression(clock: FakeClock) -> None:
    gate, begun = threading.Event(), threading.Event()

    class Slow(Asked):
        def on_turn_complete(
            self, messages: list[dict[str, Any]], usage: Any = None, **_: Any
        ) -> None:
            begun.set()
            assert gate.wait(20)
            self.asked.append("turn")

        def update_from_response(self, usage: dict[str, Any]) -> None:
            self.asked.append("usage")

        def compress(self, messages: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:  # type: ignore[override]
            begun.set()
            assert gate.wait(20)
            return halves(messages)

    engine = Slow(halves)
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    end = TurnEnd("t_1", USAGE, 1)
    behind = asyncio.ensure_future(bench.compactor.after_turn(loaded, FINAL, end))
    await asyncio.to_thread(begun.wait, 20)
    noted = asyncio.ensure_future(bench.compactor.note_usage(loaded, USAGE))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not noted.done()
    gate.set()
    await asyncio.gather(behind, noted)
    assert engine.asked == ["turn", "usage"]

    gate.clear()
    begun.clear()
    engine.asked.clear()
    compressing = asyncio.ensure_future(bench.compactor.compact(loaded, "manual"))
    await asyncio.to_thread(begun.wait, 20)
    await bench.compactor.note_usage(loaded, USAGE)  # returns at once, and is told afterwards
    assert "usage" not in engine.asked
    gate.set()
    await compressing
    assert engine.asked[-1] == "usage"


async def test_nothing_of_ours_can_be_reached_through_what_an_engine_is_given(
    clock: FakeClock,
) -> None:
    class Vandal(Foreign):
        def ruin(self, messages: list[dict[str, Any]]) -> None:
            for message in messages:
                for call in message.get("tool_calls", ()):
                    call["function"]["arguments"] = "ruined"
            messages.clear()

        def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
            self.ruin(messages)

        def on_turn_complete(self, messages: list[dict[str, Any]], *_: Any, **__: Any) -> None:
            self.ruin(messages)

        def select_context(self, request_messages: list[dict[str, Any]], **more: Any) -> None:
            self.ruin(more["conversation_messages"])
            self.ruin(request_messages)

        def prune_tool_results_only(
            self, messages: list[dict[str, Any]], current_tokens: int | None = None
        ) -> Any:
            self.ruin(messages)

        def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
            args["list"].clear()
            self.ruin(kwargs["messages"])
            return "done"

    engine = Vandal(lambda messages: engine.ruin(messages))
    settings = CompactionSettings(prune_from_tokens=1)
    bench = Bench(clock, engine=engine, settings=settings)
    ticket = await bench.work_on(3)
    loaded = await bench.store.load(ticket.session_id, ticket=ticket)
    before = copy.deepcopy(loaded)
    compactor = bench.compactor
    foreign = compactor.foreign
    assert foreign is not None
    arguments = {"list": [1]}
    assert await foreign.extras.run_tool("x", arguments, to_engine(loaded.rows)) == "done"
    sent = [row.message for row in loaded.rows]
    assert await compactor.select(loaded, sent, answer_tokens=10) is sent
    await compactor.after_turn(loaded, FINAL, TurnEnd(ticket.turn_id, USAGE))
    await compactor.compact(loaded, "prune")
    await compactor.compact(loaded, "manual")
    await foreign.ends(loaded)
    assert arguments == {"list": [1]}
    assert loaded == before
    assert (await bench.store.load(ticket.session_id, ticket=ticket)).rows == before.rows
