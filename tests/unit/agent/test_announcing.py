"""What somebody else's engine is told of where its conversation is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.errors import StoreError
from agent.messages import Keep
from agent.ports import Usage
from agent.sessions import EndReason, LoadedSession, SplitRequest
from tests.fakes.clock import FakeClock
from tests.fakes.compaction_bench import Bench, Foreign

USAGE = Usage(10, 5)


class Listening(Foreign):
    """Takes down what it is told, in order."""

    def __init__(self) -> None:
        super().__init__(lambda messages: messages[-2:])
        self.heard: list[tuple[Any, ...]] = []

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.heard.append(("start", session_id, kwargs.get("boundary_reason")))

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        self.heard.append(("end", session_id, len(messages)))

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.heard.append(("usage", usage["prompt_tokens"]))

    def update_model(self, model: str, context_length: int, *args: Any, **more: Any) -> None:
        super().update_model(model, context_length, *args, **more)
        self.model = model


async def moved(bench: Bench, loaded: LoadedSession, reason: EndReason) -> LoadedSession:
    """Somebody else than the compactor makes a child: a refreeze, or what undoes a compression."""
    result = await bench.store.split(
        SplitRequest(
            conversation_id=loaded.session.conversation_id,
            parent_id=loaded.session.id,
            expected_revision=loaded.session.revision,
            covered_row_id=loaded.last_row_id,
            entries=tuple(Keep(row.id) for row in loaded.rows),
            compression=loaded.session.compression,
            end_reason=reason,
        )
    )
    assert result.applied
    return await bench.store.load(result.tip.id)


async def test_the_first_session_is_told_before_anything_else_and_once(clock: FakeClock) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    loaded = await bench.say("x", "y")
    await bench.compactor.note_usage(loaded, USAGE)
    await bench.compactor.note_usage(loaded, USAGE)
    assert engine.heard == [("start", loaded.session.id, None), ("usage", 10), ("usage", 10)]


@pytest.mark.parametrize("reason", ["switch", "uncompress"])
async def test_a_session_that_somebody_else_made_is_told_with_its_reason(
    clock: FakeClock, reason: EndReason
) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    old = await bench.talk(2)
    await bench.compactor.note_usage(old, USAGE)
    new = await moved(bench, old, reason)
    await bench.compactor.note_usage(new, USAGE)
    assert engine.heard[2:] == [
        ("end", old.session.id, 4),
        ("start", new.session.id, reason),
        ("usage", 10),
    ]
    assert engine.last_prompt_tokens == -1  # nobody knows the new list's size but its usage


async def test_a_compression_is_told_where_it_begins_and_where_it_ends(clock: FakeClock) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    old = await bench.talk(12)
    await bench.compactor.note_usage(old, USAGE)
    moved_on = await moved(bench, old, "switch")
    result = await bench.compactor.compact(moved_on, "manual")
    assert result.outcome == "compressed"
    assert [told[1:] for told in engine.heard if told[0] == "start"] == [
        (old.session.id, None),
        (moved_on.session.id, "switch"),
        (result.loaded.session.id, "compression"),
    ]


async def test_whoever_still_holds_the_old_session_does_not_lead_back(clock: FakeClock) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    old = await bench.talk(2)
    await bench.compactor.note_usage(old, USAGE)
    await bench.compactor.note_usage(await moved(bench, old, "switch"), USAGE)
    heard = len(engine.heard)
    await bench.compactor.note_usage(old, USAGE)
    assert engine.heard[heard:] == [("usage", 10)]


async def test_a_session_that_is_gone_is_no_reason_to_fail(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    loaded = await bench.say("x", "y")
    gone = replace(loaded, session=replace(loaded.session, id="s_gone"))
    await bench.compactor.note_usage(gone, USAGE)
    await bench.compactor.note_usage(loaded, USAGE)
    assert [told for told in engine.heard if told[0] == "usage"] == [("usage", 10)] * 2
    assert "was not told of a session" in caplog.text


async def test_a_lowered_window_comes_with_the_models_name(clock: FakeClock) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    loaded = await bench.talk(12)
    bench.compactor.note_limit(5000)
    await bench.compactor.compact(loaded, "manual")
    assert (engine.model, engine.context_length) == ("m", 5000)


class Hiccup:
    """The store, which once can not look up a conversation."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def conversation(self, conversation_id: str) -> Any:
        if self.fails:
            raise StoreError("the disk is full")
        return await self._store.conversation(conversation_id)


async def test_what_the_store_kept_from_it_is_told_later(clock: FakeClock) -> None:
    engine = Listening()
    bench = Bench(clock, engine=engine)
    store: Any = Hiccup(bench.store)
    bench.store = store
    bench.compactor = bench.fresh()
    old = await bench.talk(2)
    await bench.compactor.note_usage(old, USAGE)
    new = await moved(bench, old, "switch")
    store.fails = True
    await bench.compactor.note_usage(new, USAGE)
    store.fails = False
    await bench.compactor.note_usage(new, USAGE)
    told = [heard for heard in engine.heard if heard[0] != "usage"]
    assert told == [
        ("start", old.session.id, None),
        ("end", old.session.id, 4),
        ("start", new.session.id, "switch"),
    ]
