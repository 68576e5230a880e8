"""Refreeze: a changed prompt, tool list or model reaches a living conversation, once, unseen."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelOverloaded
from agent.messages import Draft, ToolSchema
from agent.sessions import CompressionState, Session, SessionPrefix
from gateway import texts
from gateway.turns.refreeze import differences
from storage.codec import clean, dump_json
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said
from tests.unit.gateway.test_turns import split_at_end

KEY = '["fake","900","111",null,"111"]'
CLOCK = ToolSchema("clock", "Tells the time")
PAGE = ToolSchema("page", "Reads a page", {"type": "object", "properties": {"url": {}}})
BEFORE = SessionPrefix("fake", "model-1", "be kind", (CLOCK, PAGE))

CHANGES = {
    "model": replace(BEFORE, model="model-2"),
    "system_prompt": replace(BEFORE, system_prompt="be brief"),
    "tools": replace(BEFORE, tools=(CLOCK,)),
}


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, ids: SequentialIds, tmp_path: Path
) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryStore(clock, ids)
        return
    opened = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    yield opened
    await opened.close()


async def say(rig: Rig, *words: str) -> None:
    for text in words:
        count = len(rig.platform.chat)
        await rig.intake.receive(inbound(text, message_id=f"{text}-{count}"))
        await rig.platform.wait_for(count + 1)
        await rig.settle()


async def chain(rig: Rig) -> list[Session]:
    conversation = await rig.store.conversation_for_key(KEY)
    return list(await rig.store.lineage(conversation.tip_session_id))


@pytest.mark.parametrize("what", list(CHANGES))
async def test_a_changed_configuration_reaches_the_next_turn(
    clock: FakeClock, store: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock, store=store)
    rig.prefix = BEFORE
    seen: list[SessionPrefix] = []

    async def look(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        seen.append(loaded.session.prefix)
        return said("seen")

    rig.loop.scripts |= {"two": look, "three": look}
    await say(rig, "one")
    rig.prefix = CHANGES[what]
    with caplog.at_level(logging.INFO):
        await say(rig, "two", "three")
    assert rig.platform.texts() == ["re: one", "seen", "seen"]
    assert seen == [CHANGES[what]] * 2
    parent, tip = await chain(rig)
    assert (parent.end_reason, parent.prefix, parent.message_count) == ("switch", BEFORE, 3)
    assert (tip.parent_session_id, tip.link, tip.end_reason) == (parent.id, "continuation", None)
    assert [text for _, text in await rig.rows(KEY)] == [
        "one", "re: one", "two", "seen", "three", "seen",
    ]  # fmt: skip
    assert rig.hygiene_calls == [parent.id, tip.id, tip.id]
    (line,) = [r for r in caplog.records if r.message == "refrozen"]
    assert line.__dict__["changed"] == what


async def test_it_does_not_touch_what_has_not_changed(clock: FakeClock, store: Any) -> None:
    """Neither the order of tools nor what the store has to clean is a change."""
    rig = Rig(clock, store=store)
    odd = ToolSchema("odd", "half a \ud83d", {"enum": ("a", "b"), "type": "object"})
    rig.prefix = replace(BEFORE, system_prompt="half \udc00 a letter", tools=(CLOCK, PAGE, odd))
    await say(rig, "one", "two")
    rig.prefix = replace(rig.prefix, tools=(odd, PAGE, CLOCK), model_config={"other": 1})
    await say(rig, "three")
    assert len(await chain(rig)) == 1


async def test_there_and_back_again(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store)
    for n, prefix in enumerate([BEFORE, CHANGES["model"], BEFORE]):
        rig.prefix = prefix
        await say(rig, f"m{n}")
    assert [s.end_reason for s in await chain(rig)] == ["switch", "switch", None]
    assert [text for role, text in await rig.rows(KEY) if role == "user"] == ["m0", "m1", "m2"]


async def test_an_empty_conversation_gets_it_with_its_first_message(
    clock: FakeClock, store: Any
) -> None:
    rig = Rig(clock, store=store)
    await say(rig, "/new")
    rig.prefix = CHANGES["tools"]
    await say(rig, "one")
    assert (await chain(rig))[-1].prefix.tools == (CLOCK,)
    assert await rig.rows(KEY) == [("user", "one"), ("assistant", "re: one")]


@pytest.mark.parametrize(("what", "hold"), [("model", 0), ("system_prompt", 777)])
async def test_a_hold_belongs_to_the_window_it_was_made_for(
    clock: FakeClock, store: Any, what: str, hold: int
) -> None:
    rig = Rig(clock, store=store)
    rig.prefix = BEFORE
    await say(rig, "one")
    state = CompressionState(count=3, hold_tokens=777, told_reason="so far")
    await store.set_compression((await chain(rig))[0].id, state)
    rig.prefix = CHANGES[what]
    await say(rig, "two")
    assert (await chain(rig))[-1].compression == state.changed(hold_tokens=hold)


async def test_thinking_is_left_behind_and_so_is_the_measure(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store)
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "ok"},
    ]

    async def think(*_: Any) -> Draft:
        return Draft({"role": "assistant", "content": "ok", "anthropic_content_blocks": blocks})

    rig.loop.scripts["one"] = think
    await say(rig, "one")
    before = await store.load((await chain(rig))[0].id)
    assert before.rows[-1].message["anthropic_content_blocks"] == blocks
    assert before.session.anchor is not None
    rig.prefix = CHANGES["model"]
    gate = asyncio.Event()
    rig.hold("two", gate)
    await rig.intake.receive(inbound("two", message_id="2"))
    await rig.loop.started("two")
    after = await store.load((await chain(rig))[-1].id)
    assert not any("anthropic_content_blocks" in row.message for row in after.rows)
    assert after.session.anchor is None
    gate.set()
    await rig.platform.wait_for(2)


async def test_killed_between_the_split_and_the_answer(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store)
    await say(rig, "one")
    rig.prefix = CHANGES["system_prompt"]
    rig.hold("two", asyncio.Event())
    await rig.intake.receive(inbound("two", message_id="2"))
    await rig.loop.started("two")
    rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    rig.boot()
    await rig.recovery.run()
    await rig.platform.wait_for(2)
    assert rig.platform.texts() == ["re: one", "re: two"]
    assert [s.end_reason for s in await chain(rig)] == ["switch", None]


async def test_a_turn_that_was_cut_off_goes_on_behind_the_new_prefix(
    clock: FakeClock, store: Any
) -> None:
    rig = Rig(clock, store=store)
    rig.prefix = BEFORE
    rig.hold("one", asyncio.Event())
    await rig.intake.receive(inbound("one", message_id="1"))
    await rig.loop.started("one")
    rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    rig.prefix = CHANGES["tools"]
    rig.boot()
    await rig.recovery.run()
    await rig.platform.wait_for(1)
    assert [s.prefix.tools for s in await chain(rig)] == [(CLOCK, PAGE), (CLOCK,)]
    assert await rig.rows(KEY) == [("user", "one"), ("assistant", "re: one")]


async def test_a_failing_turn_behind_it_ends_in_words(clock: FakeClock, store: Any) -> None:
    rig = Rig(clock, store=store)
    await say(rig, "one")
    rig.prefix = CHANGES["model"]

    async def fail(*_: Any) -> Draft:
        raise ModelOverloaded("busy")

    rig.loop.scripts["two"] = fail
    await say(rig, "two", "three")
    assert "".join(rig.platform.texts()) == f"re: one{texts.OVERLOADED}re: three"
    assert len(await chain(rig)) == 2


async def test_somebody_else_splits_at_the_same_moment(clock: FakeClock) -> None:
    rig = Rig(clock)
    await say(rig, "one")
    rig.prefix = CHANGES["model"]
    real = rig.store.split
    first = True

    async def overtaken(request: Any) -> Any:
        nonlocal first
        if first:
            first = False
            rig.store.split = real
            await split_at_end(rig, request.parent_id)
        return await real(request)

    rig.store.split = overtaken
    await say(rig, "two")
    assert [s.end_reason for s in await chain(rig)] == ["compression", "switch", None]
    assert [text for _, text in await rig.rows(KEY)] == ["one", "re: one", "two", "re: two"]


letters = st.text(alphabet=st.characters(), max_size=8)  # halves of surrogates included
schemas = st.dictionaries(
    letters,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | letters,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(letters, inner, max_size=2),
        max_leaves=5,
    ),
    max_size=3,
)
prefixes = st.builds(
    SessionPrefix,
    st.just("fake"),
    st.just("m"),
    letters,
    st.lists(st.builds(ToolSchema, letters, letters, schemas), max_size=3).map(tuple),
)


@given(prefixes, st.randoms(use_true_random=False))
def test_a_prefix_never_differs_from_what_the_store_makes_of_it(
    prefix: SessionPrefix, dice: Any
) -> None:
    tools = json.loads(dump_json([asdict(tool) for tool in prefix.tools]))
    dice.shuffle(tools)
    stored = replace(
        prefix,
        system_prompt=clean(prefix.system_prompt),
        tools=tuple(ToolSchema(**tool) for tool in tools),
    )
    assert differences(stored, prefix) == ()
    assert differences(stored, replace(prefix, system_prompt=prefix.system_prompt + "x")) == (
        "system_prompt",
    )
    assert differences(stored, replace(prefix, tools=(*prefix.tools, CLOCK))) == ("tools",)
