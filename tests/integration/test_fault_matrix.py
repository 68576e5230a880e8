"""Every failure of a summary at every place where one is made: no word lost, a reason told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.compaction.host.session import CompactionSettings
from agent.context_compressor import ContextCompressor
from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelConnectionError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
)
from agent.ports import Usage
from agent.sessions import LoadedSession
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.fault_scene import (
    WINDOW,
    Foreign,
    Scene,
    Work,
    check_kept,
    check_sendable,
)
from tests.fakes.scripted_model import ScriptedModel, answer, call
from tests.fakes.side_model import Answer, summary_response
from tests.fakes.store_invariants import check_invariants

CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}

FAILURES: dict[str, tuple[Answer, float]] = {
    "missing key": (ModelAuthError("no API key is configured"), 600),
    "401": (ModelAuthError("invalid x-api-key"), 60),
    "402": (ModelQuotaError("credit balance is too low"), 60),
    "404": (ModelNotFound("model: nobody"), 60),
    "429": (ModelRateLimited("slow down", retry_after_seconds=90), 90),
    "529": (ModelOverloaded("overloaded"), 60),
    "connection": (ModelConnectionError("reset"), 30),
    "timeout": (ModelTimeout("late"), 60),
    "no JSON": (json.JSONDecodeError("Expecting value", "", 0), 30),
    "a bug": (KeyError("content"), 60),
    "empty": ("", 60),
    "blank": (" \n\t", 60),
    "null": ("null", 60),
    "tool only": (summary_response(None, "tool_use", tool_calls=[CALL]), 60),
    "thinking only": (
        summary_response(None, anthropic_content_blocks=[{"type": "thinking", "thinking": "h"}]),
        60,
    ),
    "refusal": (summary_response("I can not help with that.", "refusal"), 60),
    "truncated": (summary_response("## Goal\nThey wanted", "max_tokens"), 60),
    "html": ("<html><body>502 Bad Gateway</body></html>", 60),
    "json": ('{"error": {"message": "busy"}}', 60),
    "larger than the text": (lambda asked: "word " * len(asked.prompt), 60),
    "echo": (lambda asked: asked.prompt, 60),
}
"""What the summary model does, and for how many seconds nothing is tried after it."""


def model_that_answers(*texts: str) -> ScriptedModel:
    return ScriptedModel(*texts, window=WINDOW)


async def preflight(scene: Scene) -> None:
    await scene.talked(15_000, "chat")
    model = model_that_answers("as before")
    assert await scene.turn(model) == "as before"
    model.verify()


async def loop(scene: Scene) -> None:
    await scene.talked(8_000, "chat")
    usage = Usage(input_tokens=500, cache_read_tokens=11_000)
    model = ScriptedModel(answer("", call("read"), usage=usage), "as before")
    assert await scene.turn(model) == "as before"
    model.verify()


async def overflow(scene: Scene) -> None:
    await scene.talked(8_000)
    model = ScriptedModel(ContextOverflow("prompt is too long", limit_tokens=7_000), "as before")
    assert await scene.turn(model) == "as before"
    model.verify()


async def hygiene(scene: Scene) -> None:
    await scene.talked(21_500)
    model = model_that_answers("as before")
    assert await scene.turn(model) == "as before"
    model.verify()


async def manual(scene: Scene) -> None:
    loaded = await scene.talked(15_000, "chat")
    result = await scene.compactor.compact(
        loaded, "manual", focus="the ledger", notify=scene.watcher.on_notice
    )
    assert result.outcome != "aborted" or result.reason
    if result.outcome == "aborted":
        scene.watcher.notices[:] = [result.reason]  # the command shows it


Trigger = Callable[[Scene], Awaitable[None]]
TRIGGERS: dict[str, Trigger] = {
    "preflight": preflight,
    "loop": loop,
    "overflow": overflow,
    "hygiene": hygiene,
    "manual": manual,
}


def reasons(scene: Scene) -> list[str]:
    """What the person was told, the warning that it is getting full left out."""
    return [text for text in scene.watcher.notices if "tokens" not in text]


async def lineage_rows(scene: Scene) -> list[Any]:
    tip = await scene.tip()
    found: list[Any] = []
    for session in await scene.store.lineage(tip.session.id):
        found.extend(await scene.rows_of(session.id))
    return found


async def goes_on(scene: Scene, *, healed: str = "## Goal\nhealthy again") -> LoadedSession:
    """Two further turns, the second after the cool-down with a summary model that works."""
    asked = len(scene.side.asked)
    model = model_that_answers("still here")
    assert await scene.turn(model, "next question") == "still here"
    model.verify()
    assert len(scene.side.asked) == asked  # nothing is tried before the cool-down is over
    before = await lineage_rows(scene)
    await scene.clock.advance(1000)
    scene.side.heal(healed)
    scene.restart()
    tip = await scene.tip()
    result = await scene.compactor.compact(tip, "manual")
    assert result.outcome in ("compressed", "not_needed"), result.reason
    model = model_that_answers("and for ever")
    assert await scene.turn(model, "last question") == "and for ever"
    model.verify()
    check_kept(before, await lineage_rows(scene))
    tip = await scene.tip()
    assert [row.kind for row in tip.rows].count("summary") <= 1
    check_sendable(tip)
    return tip


async def run(scene: Scene, trigger: str, cooldown_seconds: float) -> None:
    """One cell of the matrix."""
    watched: list[Any] = []
    talked = scene.talked

    async def talked_and_noted(tokens: int, *rest: Any) -> LoadedSession:
        loaded = await talked(tokens, *rest)
        watched.extend(await scene.rows_of(loaded.session.id))
        return loaded

    scene.talked = talked_and_noted  # type: ignore[method-assign]
    await TRIGGERS[trigger](scene)
    assert scene.side.asked
    check_kept(watched, await lineage_rows(scene))
    tip = await scene.tip()
    check_sendable(tip)
    state = tip.session.compression
    assert state.cooldown_until - scene.clock.now() == cooldown_seconds
    assert state.cooldown_reason
    if trigger == "overflow":
        manifest = tip.session.manifest
        assert manifest is not None
        assert manifest["mode"] == "deterministic"
    else:
        assert len(await scene.store.lineage(tip.session.id)) == 1
        assert len(reasons(scene)) == 1, scene.watcher.notices
        assert state.count == 0
    scene.restart()
    assert scene.compactor.blocked_for_hygiene(tip)
    await goes_on(scene)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_no_failure_at_no_place_loses_a_word(failure: str, trigger: str) -> None:
    """B05, B32: untouched, told once, cooled down, and the chat goes on."""
    broken, cooldown_seconds = FAILURES[failure]
    await run(Scene(broken), trigger, cooldown_seconds)


@pytest.mark.parametrize("trigger", ["preflight", "overflow", "manual"])
@pytest.mark.parametrize("failure", ["401", "timeout", "null", "truncated"])
async def test_the_same_over_sqlite(
    failure: str, trigger: str, tmp_path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    broken, cooldown_seconds = FAILURES[failure]
    store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    try:
        await run(Scene(broken, store=store, clock=clock), trigger, cooldown_seconds)
    finally:
        await store.close()
    check_invariants(tmp_path / "state.db")


@pytest.mark.parametrize("trigger", ["preflight", "loop", "hygiene", "manual"])
async def test_timeouts_in_a_row_wait_longer_each_time(trigger: str) -> None:
    """B32: 60, 300, 900 seconds, over restarts, and told once."""
    scene = Scene(ModelTimeout("late"))
    await TRIGGERS[trigger](scene)
    for seconds in (60.0, 300.0, 900.0, 900.0):
        tip = await scene.tip()
        assert tip.session.compression.cooldown_until - scene.clock.now() == seconds
        scene.restart()
        await scene.clock.advance(seconds + 1)
        result = await scene.compactor.compact(
            await scene.tip(), "hygiene", notify=scene.watcher.on_notice
        )
        assert result.outcome == "aborted"
    assert len(reasons(scene)) == 1
    await goes_on(scene)


@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_a_summary_that_tells_a_secret_is_stored_without_it(trigger: str) -> None:
    """B38."""
    scene = Scene(
        "## Goal\nuse https://admin:canary77pw@db.example.org and sk-ant-api03-canaryKEY1"
    )
    await TRIGGERS[trigger](scene)
    tip = await scene.tip()
    assert [row.kind for row in tip.rows].count("summary") == 1
    told = json.dumps([row.message for row in tip.rows]) + json.dumps(tip.session.manifest)
    assert "canary" not in told
    assert "[REDACTED]" in told


# --- engines of others --------------------------------------------------------------------------


def explodes(messages: list[dict[str, Any]]) -> Any:
    raise RuntimeError("boom")


def exits(messages: list[dict[str, Any]]) -> Any:
    raise SystemExit(3)


def recursive(messages: list[dict[str, Any]]) -> Any:
    return recursive(messages)


def wrecks(messages: list[dict[str, Any]]) -> Any:
    for message in messages:
        message["content"] = "gone"
        message.pop("_row", None)
    messages.clear()
    raise RuntimeError("and boom")


USELESS: dict[str, Work] = {
    "raises": explodes,
    "exits": exits,
    "never ends": recursive,
    "wrecks its input and raises": wrecks,
    "the same list": lambda messages: messages,
    "a copy of the list": lambda messages: [dict(m) for m in messages],
    "None": lambda messages: None,
    "empty": lambda messages: [],
    "a text": lambda messages: "done",
    "a tuple": lambda messages: tuple(messages[-2:]),
    "unknown roles": lambda messages: [{"role": "wizard", "content": "x"}],
    "numbers as content": lambda messages: [{"role": "user", "content": 5}],
    "no dicts": lambda messages: [None, 3],
    "broken calls": lambda messages: [{"role": "assistant", "content": "", "tool_calls": [{}]}],
    "calls that are no list": lambda messages: [
        {"role": "assistant", "content": "", "tool_calls": 7}
    ],
    "parts that are no dicts": lambda messages: [{"role": "user", "content": ["x", 1]}],
    "a larger list": lambda messages: [{"role": "user", "content": "also " * 50}, *messages],
    "twice the list": lambda messages: [*messages, *messages],
}


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("name", USELESS)
async def test_an_engine_that_gives_nothing_useful_changes_nothing(name: str, trigger: str) -> None:
    """B72: the old list stays, with a reason; only a proven overflow calls the built-in one."""
    engine = Foreign(USELESS[name])
    scene = Scene("## Goal\nby the built-in engine", engine=engine)
    await TRIGGERS[trigger](scene)
    assert engine.calls
    tip = await scene.tip()
    check_sendable(tip)
    if trigger == "overflow":
        assert [row.kind for row in tip.rows].count("summary") == 1
        assert scene.side.asked
        return
    assert scene.side.asked == []
    assert len(await scene.store.lineage(tip.session.id)) == 1
    assert all(row.kind is None for row in tip.rows)
    model = model_that_answers("still here")
    assert await scene.turn(model, "next question") == "still here"
    model.verify()


ODD: dict[str, Work] = {
    "orphan results": lambda messages: [
        {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        *messages[-3:],
    ],
    "unanswered calls": lambda messages: [
        {"role": "user", "content": "in short"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        *messages[-1:],
    ],
    "the newest request left out": lambda messages: [{"role": "user", "content": "all is well"}],
    "an assistant first": lambda messages: [
        {"role": "assistant", "content": "so far"},
        *messages[-1:],
    ],
    "a system row in the middle": lambda messages: [
        messages[0],
        {"role": "system", "content": "obey"},
        *messages[-1:],
    ],
    "rows of nobody": lambda messages: [
        {**m, "_row": 10**9 + i} for i, m in enumerate(messages[-4:])
    ],
    "a row twice": lambda messages: [messages[0], messages[0], *messages[-1:]],
    "private keys": lambda messages: [
        {**messages[0], "_secret": 1, "colour": "red"},
        *messages[-1:],
    ],
    "ids that are no texts": lambda messages: [
        {"role": "tool", "tool_call_id": {}, "content": "x"},
        *messages[-2:],
    ],
    "parts of odd types": lambda messages: [
        {"role": "user", "content": [{"type": []}]},
        *messages[-2:],
    ],
    "lone surrogates": lambda messages: [
        {"role": "user", "content": "half \ud83d"},
        *messages[-1:],
    ],
    "blank texts": lambda messages: [{"role": "user", "content": " "}, *messages[-1:]],
}


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("name", ODD)
async def test_an_odd_list_of_an_engine_is_made_sendable(name: str, trigger: str) -> None:
    """B72: what can be repaired is; the newest request is always there."""
    scene = Scene("## Goal\nx", engine=Foreign(ODD[name]))
    await TRIGGERS[trigger](scene)
    tip = await scene.tip()
    check_sendable(tip)
    asked = "and now?" if trigger != "manual" else None
    if asked is not None:
        assert any(row.message["content"] == asked for row in tip.rows)
    first = (await scene.store.lineage(tip.session.id))[0]
    assert all(row.kind is None for row in await scene.rows_of(first.id))
    model = model_that_answers("still here")
    assert await scene.turn(model, "next question") == "still here"
    model.verify()


@pytest.mark.parametrize("trigger", ["preflight", "hygiene", "manual", "overflow"])
async def test_an_engine_that_hangs_is_left_behind(trigger: str) -> None:
    """B72: it has a deadline; the turn goes on, and what comes late is thrown away."""
    gate, entered = threading.Event(), threading.Event()

    def hangs(messages: list[dict[str, Any]]) -> Any:
        entered.set()
        gate.wait(60)
        return messages[-2:]

    scene = Scene(
        "## Goal\nby the built-in engine",
        engine=Foreign(hangs),
        settings=CompactionSettings(compress_timeout_seconds=30),
    )
    try:
        async with asyncio.timeout(60):
            running = asyncio.ensure_future(TRIGGERS[trigger](scene))
            while not entered.is_set():  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(0.001)
            for _ in range(9):  # past the deadline of the one that hangs, and of nobody else
                await scene.clock.advance(5)
                await asyncio.sleep(0.001)
            await running
        tip = await scene.tip()
        check_sendable(tip)
        if trigger != "overflow":
            assert len(await scene.store.lineage(tip.session.id)) == 1
            assert len(reasons(scene)) == 1
            assert "30 s" in reasons(scene)[0]
        model = model_that_answers("still here")
        assert await scene.turn(model, "next question") == "still here"
        model.verify()
    finally:
        gate.set()


async def test_an_engine_that_delegates_to_ours_fails_as_softly() -> None:
    """B05 over a third-party engine: the inner compressor gives back the very list."""

    class Delegating(Foreign):
        def __init__(self, inner: ContextCompressor) -> None:
            super().__init__(lambda messages: inner.compress(messages, 15_000))

    for name, (broken, _) in FAILURES.items():
        scene = Scene(broken)
        inner = scene.builtin
        outer = Scene(engine=Delegating(inner))
        await preflight(outer)
        tip = await outer.tip()
        assert inner._last_compress_aborted, name
        assert len(await outer.store.lineage(tip.session.id)) == 1
        check_sendable(tip)
