"""Owns the benches of compaction (rows 4a-4f), and how long a compression holds the event loop.

Rows 4a and 4b run warm, as in a conversation that is compressed again: redaction and identifiers of
a text are remembered in memory. Row 4f is the same work for the first time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from agent.clock import RandomIds, SystemClock
from agent.compaction.calls import summary
from agent.compaction.calls.remembered import Remembered
from agent.compaction.calls.summariser import Summary
from agent.compaction.host.remembering import StateMemory
from agent.compaction.host.session import SessionCompactor
from agent.compaction.micro.passes import MicroCompactor, MicroParts
from agent.compaction.micro.progress import MicroSettings
from agent.compaction.plan import verbatim
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.messages import Draft, Message, Row
from agent.model_metadata import (
    TriggerRules,
    estimate_message_tokens,
    estimate_messages_tokens_rough,
)
from agent.prompt_caching import apply_anthropic_cache_control
from agent.redact import redact_sensitive_text
from agent.sessions import (
    CompressionState,
    LoadedSession,
    Session,
    SessionPrefix,
    TurnOpening,
    UsageAnchor,
    session_key,
)
from storage.sqlite import open_store
from tests.bench.measure import CJK, WORDS, Result, median
from tests.fakes.clock import SequentialIds
from tests.fakes.side_model import ScriptedSideModel


def conversation(count: int) -> list[Message]:
    """User, assistant with a tool call, 2 KB of result, assistant; every fifth text is CJK."""
    messages: list[dict[str, Any]] = []
    for k in range(count):
        words = (CJK * 10)[:200] if k % 5 == 0 else " ".join(WORDS * 4)[:200]
        text = f"{k} {words}"[:200]
        match k % 4:
            case 0:
                messages.append({"role": "user", "content": text})
            case 1:
                arguments = json.dumps({"path": f"/srv/app/{k}.py"})
                call = {"id": f"c{k}", "function": {"name": "read", "arguments": arguments}}
                messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
            case 2:
                body = f"{k} " + " ".join(WORDS * 40)[:2000]
                messages.append({"role": "tool", "tool_call_id": f"c{k - 1}", "content": body})
            case _:
                messages.append({"role": "assistant", "content": text})
        messages[-1]["_row"] = k + 1
    return cast(list[Message], messages)


def timed(call: Callable[[], object], repeat: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat * 1000


def alternate(
    ours: Callable[[], float], limit: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Call both in turns, so that a busy moment of the machine hits both."""
    pairs = [(ours(), limit()) for _ in range(rounds)]
    return [mine for mine, _ in pairs], [floor for _, floor in pairs]


SIZES = (100, 1000, 10_000)
MIB = 2**20
SUMMARY = "## Goal\n" + " ".join(WORDS * 120)[:6000]
Call = Callable[[], object]


def exponent(times: Sequence[tuple[int, float]]) -> float:
    """Slope of log(time) over log(size), by least squares."""
    points = [(math.log(size), math.log(max(taken, 1e-6))) for size, taken in times]
    x0 = sum(x for x, _ in points) / len(points)
    y0 = sum(y for _, y in points) / len(points)
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def budget(name: str, unit: str, ours: float, limit: float, note: str = "") -> Result:
    """A figure that has a limit of its own."""
    return Result(name, unit, [ours], [limit], at_most=1.0, note=note)


def run() -> list[Result]:
    return [
        *_compress_stubbed(),
        *_compress_whole(),
        *_cold(),
        *_per_turn_check(),
        *_micro_check(),
        _whole_estimate(),
        *_cache_marks(),
        *_loop_lag(),
    ]


def _series(
    name: str, ours: Callable[[int], Call], limit: Callable[[int], Call], ratio: float, note: str
) -> tuple[Result, float]:
    """The largest size against its limit twin, and the exponent over all sizes."""
    best: list[tuple[int, float]] = []
    mine: list[float] = []
    floor: list[float] = []
    for size in SIZES:
        work, twin = ours(size), limit(size)
        work()  # warm
        gc.collect()
        mine, floor = alternate(lambda work=work: timed(work), lambda twin=twin: timed(twin), 7)  # type: ignore[misc]
        best.append((size, min(mine)))
    return Result(name, "ms", mine, floor, at_most=ratio, note=note), exponent(best)


# --- 4a, 4b, 4f: one compression ----------------------------------------------------------------


class _Stubbed(ContextCompressor):
    """The summary falls from the sky: what is left is the plan and the new list."""

    def _summary(self, covered: Any, material: Any, force: bool) -> Summary:
        return Summary(SUMMARY, 1)


def _compression(messages: list[Message], kind: type[ContextCompressor]) -> Call:
    given = cast(list[dict[str, Any]], messages)

    def call() -> None:
        engine = kind("m", config_context_length=200_000, side_model=ScriptedSideModel(SUMMARY))
        engine.compress(given, current_tokens=160_000)
        assert engine.last_attempt.manifest["mode"] in ("summary", "prune")

    return call


def _sizes_and_copies(messages: list[Message]) -> Call:
    def size(message: Message) -> int:
        chars = len(cast(str, message["content"]) or "")
        for call in message.get("tool_calls") or ():
            chars += len(call["function"]["arguments"]) + len(call["function"]["name"])
        return chars

    return lambda: (sum(map(size, messages)), [dict(message) for message in messages])


def _peak_mib(call: Call) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def _compress_stubbed() -> list[Result]:
    data = {size: conversation(size) for size in SIZES}
    result, slope = _series(
        "4a compress 10k, summary stubbed",
        lambda size: _compression(data[size], _Stubbed),
        lambda size: _sizes_and_copies(data[size]),
        2.5,
        "limit: one pass of len(), shallow copies",
    )
    peak = _peak_mib(_compression(data[10_000], _Stubbed))
    return [
        result,
        budget("4a exponent 100 to 10k", "", slope, 1.05),
        budget("4a peak memory at 10k", "MiB", peak, 3.0),
    ]


def _compress_whole() -> list[Result]:
    data = {size: conversation(size) for size in SIZES}
    result, slope = _series(
        "4b compress 10k, with input",
        lambda size: _compression(data[size], ContextCompressor),
        lambda size: lambda: json.dumps(data[size], ensure_ascii=False),
        1.4,
        "limit: json.dumps of all",
    )
    return [result, budget("4b exponent 100 to 10k", "", slope, 1.05)]


def _cold() -> list[Result]:
    messages = conversation(10_000)
    redact = Remembered(redact_sensitive_text)
    identifiers = Remembered(verbatim.search)
    start = time.process_time()
    for message in messages:
        texts = [summary.shown_text(message)]
        texts += [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
        for text in texts:
            identifiers(redact(text))
    taken = (time.process_time() - start) * 1000
    note = "CPU of a worker; identifiers and redaction of every text"
    return [budget("4f cold, 10k messages", "ms", taken, 2000.0, note)]


# --- 4c, 4d, 4e: every turn ---------------------------------------------------------------------


def _loaded(count: int, *, state: str) -> LoadedSession:
    rows = tuple(
        Row(i + 1, "s", i + 1, message, 0.0, tokens=estimate_message_tokens(message))
        for i, message in enumerate(conversation(count))
    )
    session = Session(
        id="s",
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=SessionPrefix("bench", "m", "s" * 2000),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=count,
        anchor=UsageAnchor(90_000, 500, count - 2) if state == "usage" else None,
        compression=CompressionState(awaiting_usage=state == "unknown"),
    )
    return LoadedSession(session, rows)


def _per_turn_check() -> list[Result]:
    results = []
    for state in ("usage", "unknown"):
        checks: dict[int, Callable[[], float]] = {}
        for size in SIZES:
            engine = ContextCompressor(
                "m", config_context_length=200_000_000, side_model=ScriptedSideModel()
            )
            store: Any = None  # deciding needs none
            compactor = SessionCompactor(engine, store, SystemClock(), SequentialIds())
            loaded = _loaded(size, state=state)
            compactor.due(loaded)  # the first one counts all of it, once
            checks[size] = lambda c=compactor, at=loaded: timed(lambda: c.due(at), 500)  # type: ignore[misc]
        times = [[checks[size]() for size in SIZES] for _ in range(9)]
        slope = exponent([(size, min(t[i] for t in times)) for i, size in enumerate(SIZES)])
        at_10k = median([t[-1] for t in times])
        results += [
            budget(f"4c check of 10k, by {state}", "ms", at_10k, 0.02),
            budget(f"4c exponent, by {state}", "", max(0.0, slope), 0.1),
        ]
    return results


def _micro_check() -> list[Result]:
    """What micro-compaction looks at behind a turn in which it has nothing to do."""
    checks: dict[int, Callable[[], float]] = {}
    for size in SIZES:
        engine = ContextCompressor(
            "m",
            config_context_length=200_000_000,
            side_model=ScriptedSideModel(),
            rules=TriggerRules(max_threshold_tokens=None),
        )
        store: Any = None  # looking needs none
        parts = MicroParts(MicroSettings(enabled=True), ScriptedSideModel(), DaemonThreads(1))
        micro = MicroCompactor(parts, engine, StateMemory(store), store, SystemClock())
        loaded = _loaded(size, state="usage")
        if micro.plan(loaded, 100) is not None:  # the first look counts all of it, once
            raise RuntimeError("there is something to do")
        checks[size] = lambda m=micro, at=loaded: timed(lambda: m.plan(at, 100), 3000)  # type: ignore[misc]
    times = [[checks[size]() for size in SIZES] for _ in range(9)]
    slope = exponent([(size, min(t[i] for t in times)) for i, size in enumerate(SIZES)])
    return [
        budget("4c micro's look at 10k", "ms", median([t[-1] for t in times]), 0.02),
        budget("4c exponent, micro's look", "", max(0.0, slope), 0.1),
    ]


def _whole_estimate() -> Result:
    messages = conversation(1000)

    def one(message: Message) -> int:
        content = cast(str, message["content"])
        size = len(content) if content.isascii() else len(content.encode("utf-16-le"))
        for call in message.get("tool_calls") or ():
            size += len(call["function"]["arguments"]) + len(call["function"]["name"])
        return size

    mine, floor = alternate(
        lambda: timed(lambda: estimate_messages_tokens_rough(messages), 20),
        lambda: timed(lambda: sum(map(one, messages)), 20),
        15,
    )
    return Result("4d estimate of 1k messages", "ms", mine, floor, at_most=2.0)


def _cache_marks() -> list[Result]:
    messages: list[Any] = list(conversation(10_000))
    before = json.dumps(messages)

    def limit() -> list[Any]:
        marked = list(messages)
        for at in (0, -1, -2, -3):
            marked[at] = {**marked[at], "cache_control": {"type": "ephemeral"}}
        return marked

    def ours() -> list[Any]:
        return apply_anthropic_cache_control(messages, native_anthropic=True)

    mine, floor = alternate(lambda: timed(ours, 50), lambda: timed(limit, 50), 15)
    untouched = json.dumps(messages) == before
    note = "the input is untouched" if untouched else "THE INPUT HAS CHANGED"
    return [
        Result("4e cache marks at 10k", "ms", mine, floor, at_most=3.0, note=note),
        budget("4e the same", "ms", median(mine), 0.1),
    ]


# --- how long the event loop is held ------------------------------------------------------------


class _Lag:
    """The longest time for which the loop could do nothing else."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Lag:
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0.05)
        self.longest_ms = 0.0
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - before) * 1000 - 1)


async def _lag_of(messages: list[Message]) -> tuple[float, float]:
    """Longest lag while a conversation in the real store is compressed, and while nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder) / "lag.db", clock=SystemClock(), ids=RandomIds())
        try:
            prefix = SessionPrefix("bench", "m", "You are helpful.")
            key = session_key("bench", "1", "1", None, None)
            opening = TurnOpening(
                key, "bench:1", (), Draft({"role": "user", "content": "go"}), prefix
            )
            ticket = await store.begin_turn(opening)
            drafts = [Draft(cast(Message, _without_row(message))) for message in messages]
            for start in range(0, len(drafts), 500):
                await store.append(ticket, ticket.session_id, drafts[start : start + 500])
            loaded = await store.load(ticket.session_id, ticket=ticket)
            engine = ContextCompressor(
                "m", config_context_length=200_000, side_model=ScriptedSideModel(SUMMARY)
            )
            compactor = SessionCompactor(engine, store, SystemClock(), RandomIds())
            async with _Lag() as idle:
                await asyncio.sleep(1)
            async with _Lag() as lag:
                result = await compactor.compact(loaded, "manual")
            assert result.outcome == "compressed", result.reason
            return lag.longest_ms, idle.longest_ms
        finally:
            await store.close()


def _without_row(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if not key.startswith("_")}


def _loop_lag() -> list[Result]:
    gc.collect()
    gc.freeze()  # as the daemon does once it is warm
    long = conversation(10_000)
    huge = conversation(100)
    huge[2]["content"] = json.dumps({"output": " ".join(WORDS * 20_000), "exit": 0})[:2_000_000]
    results = []
    for name, messages in (("10k messages", long), ("a result of 2 MB", huge)):
        rounds = [asyncio.run(_lag_of(messages)) for _ in range(3)]
        lag = median([lag for lag, _ in rounds])
        idle = median([idle for _, idle in rounds])
        note = f"median of 3; idle machine {idle:.0f} ms"
        results.append(budget(f"loop held, {name}", "ms", lag, 50.0, note))
    return results
