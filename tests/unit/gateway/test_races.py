"""Races: many seeds of delays at every await of the store; one run per conversation, in order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.messages import Draft, Keep
from agent.sessions import CompressionState, SplitRequest
from gateway import texts
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig, said

KEY = '["fake","900","111",null,"111"]'


class Dawdling:
    """A store whose every call takes a random number of steps, before and after."""

    def __init__(self, store: Any, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def slow(*args: Any, **kwargs: Any) -> Any:
            for _ in range(self._random.randrange(6)):
                await asyncio.sleep(0)
            result = await method(*args, **kwargs)
            for _ in range(self._random.randrange(6)):
                await asyncio.sleep(0)
            return result

        return slow


@pytest.mark.parametrize("seed", range(25))
async def test_quick_messages_run_one_at_a_time_in_order(clock: FakeClock, seed: int) -> None:
    rig = Rig(clock, store=Dawdling(MemoryStore(clock, SequentialIds()), seed))
    count = 6
    await asyncio.gather(
        *(rig.intake.receive(inbound(f"m{n}", message_id=str(n))) for n in range(count)),
        *(
            rig.intake.receive(inbound(f"o{n}", chat_id="o", message_id=str(n)))
            for n in range(count)
        ),
        *(rig.intake.receive(inbound(f"m{n}", message_id=str(n))) for n in range(count)),
    )
    await rig.settle()
    await rig.settle()
    assert set(rig.loop.most_at_once.values()) == {1}
    expected = [
        row for n in range(count) for row in (("user", f"m{n}"), ("assistant", f"re: m{n}"))
    ]
    assert await rig.rows(KEY) == expected
    assert rig.platform.texts("111") == [f"re: m{n}" for n in range(count)]
    assert rig.platform.texts("o") == [f"re: o{n}" for n in range(count)]


@pytest.mark.parametrize("seed", range(25))
async def test_stops_between_messages_lose_nothing(clock: FakeClock, seed: int) -> None:
    choose = random.Random(seed)
    rig = Rig(clock, store=Dawdling(MemoryStore(clock, SequentialIds()), seed))
    sent = []
    for n in range(12):
        text = "/stop" if choose.random() < 0.3 else f"m{n}"
        sent.append(text)
        await rig.intake.receive(inbound(text, message_id=str(n)))
        for _ in range(choose.randrange(30)):
            await asyncio.sleep(0)
    await rig.settle()
    await rig.settle()
    shown = rig.platform.texts()
    messages = [t for t in sent if t != "/stop"]
    answered = [t.removeprefix("re: ") for t in shown if t.startswith("re: ")]
    stopped = [t for t in shown if t.startswith(texts.STOPPED)]
    said = [text for role, text in await rig.rows(KEY) if role == "user"]
    assert said == messages  # every message is stored, once and in order, stopped or not
    assert [m for m in messages if m in answered] == answered
    assert len(shown) == len(answered) + sent.count("/stop")
    assert len(messages) - len(answered) <= len(stopped)
    assert set(rig.loop.most_at_once.values()) == {1}
    assert await rig.store.open_inbox() == []


@pytest.mark.parametrize("seed", range(10))
async def test_new_between_messages_keeps_conversations_apart(clock: FakeClock, seed: int) -> None:
    rig = Rig(clock, store=Dawdling(MemoryStore(clock, SequentialIds()), seed))
    await asyncio.gather(
        *(
            rig.intake.receive(inbound(text, message_id=str(n)))
            for n, text in enumerate(["a", "/new", "b", "/new", "c"])
        )
    )
    await rig.settle()
    await rig.settle()
    assert [t for t in rig.platform.texts() if t.startswith("re")] == ["re: a", "re: b", "re: c"]
    assert await rig.rows(KEY) == [("user", "c"), ("assistant", "re: c")]
    assert sorted(s.message_count for s in await rig.store.list_sessions()) == [2, 2, 2]


COMMANDS = (
    "/new", "/undo", "/undo 2", "/retry", "/branch", "/resume 1", "/resume 2", "/resume 3",
    "/uncompress", "/title t", "/compress", "/stop",
)  # fmt: skip
THREAD_KEY = '["fake","900","111","7","111"]'


@pytest.mark.parametrize("seed", range(30))
async def test_one_tip_and_one_way_to_it_whatever_two_chats_do(clock: FakeClock, seed: int) -> None:
    """One person in two chats leads both to the same conversations, while a third task splits."""
    choose = random.Random(seed)
    store = MemoryStore(clock, SequentialIds())
    rig = Rig(clock, store=Dawdling(store, seed))
    rig.platform.limit = 4000
    sent = 0

    async def slow(*_: Any) -> Draft:
        for _step in range(choose.randrange(120)):
            await asyncio.sleep(0)
        return said("slowly")

    async def chat(thread_id: str | None) -> None:
        nonlocal sent
        for n in range(14):
            sent += 1
            text = choose.choice(COMMANDS) if choose.random() < 0.6 else f"m{thread_id}{n}"
            rig.loop.scripts[text] = slow
            message = inbound(text, thread_id=thread_id, message_id=f"{thread_id}-{n}")
            await rig.intake.receive(message)
            for _ in range(choose.randrange(60)):
                await asyncio.sleep(0)

    async def splitter() -> None:
        for _ in range(12):
            for _ in range(choose.randrange(80)):
                await asyncio.sleep(0)
            led = await store.conversation_for_key(choose.choice([KEY, THREAD_KEY]))
            loaded = await store.load(led.tip_session_id) if led is not None else None
            if loaded is None or len(loaded.rows) < 3 or loaded.rows[-1].message["role"] == "tool":
                continue
            summary = Draft({"role": "user", "content": "what was said"}, kind="summary")
            await rig.store.split(
                SplitRequest(
                    conversation_id=loaded.session.conversation_id,
                    parent_id=loaded.session.id,
                    expected_revision=loaded.session.revision,
                    covered_row_id=loaded.last_row_id,
                    entries=(summary, *(Keep(row.id) for row in loaded.rows[-2:])),
                    compression=CompressionState(count=1),
                )
            )

    await asyncio.gather(chat(None), chat("7"), splitter())
    for _ in range(12):
        await rig.settle()
    assert max(rig.loop.most_at_once.values()) == 1
    live: Counter[str] = Counter()
    for info in await store.list_sessions(limit=1000):
        live[info.conversation_id] += info.ended_at is None
    assert max(live.values()) == 1
    for conversation_id in live:
        found = await store.conversation(conversation_id)
        assert found is not None
        tip = await store.tip(found.tip_session_id)
        assert tip.id == found.tip_session_id
        assert tip.end_reason in (None, "reset")
    ways = [await store.conversation_for_key(key) for key in (KEY, THREAD_KEY)]
    led = [way.id for way in ways if way is not None]
    assert len(led) == len(set(led))
    # A turn that was stopped says so in the answer to /stop; everything else has its own.
    shown = len(rig.platform.chat)
    stops = sum(text.startswith(texts.STOPPED) for text in rig.platform.texts())
    assert sent - stops <= shown <= sent
    assert await store.open_inbox() == []
    assert await store.recover_turns() == []


async def test_the_whole_way_on_sqlite(tmp_path: Path, clock: FakeClock) -> None:
    store = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    rig = Rig(clock, store=store)

    try:
        await asyncio.gather(
            *(rig.intake.receive(inbound(f"m{n}", message_id=str(n))) for n in range(5))
        )
        await rig.platform.wait_for(5)
        gate = asyncio.Event()
        rig.hold("long", gate)
        await rig.intake.receive(inbound("long", message_id="6"))
        await rig.intake.receive(inbound("waits", message_id="7"))
        async with asyncio.timeout(20):
            await rig.loop.started("long")
        rig.kill()
        await rig.settle()
        rig.boot()
        rig.loop.scripts.clear()
        report = await rig.recovery.run()
        assert (report.resumed, report.replayed) == (1, 1)
        await rig.platform.wait_for(7)
        assert rig.platform.texts() == [*(f"re: m{n}" for n in range(5)), "re: long", "re: waits"]
        assert rig.platform.chat[5].address.reply_to_message_id == "6"
        async with asyncio.timeout(20):
            assert await rig.dispatch.idle(1e9)
            assert await rig.delivery.idle(1e9)
        assert await store.owed() == []
        assert await store.open_inbox() == []
    finally:
        await rig.stop()
        await store.close()
