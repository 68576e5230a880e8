"""The gateway with the real loop, compressor and SQLite: a chat that outgrows its window."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.auxiliary_client import LoopSideModel
from agent.clock import RandomIds, SystemClock
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.llm.offline import OfflineModel
from agent.loop import LoopSettings, TurnLoop
from agent.model_metadata import TriggerRules, triggers_for
from agent.ports import ModelResponse, SideModel
from agent.tools.recall import RecallTool
from agent.tools.registry import ToolRegistry
from gateway.hygiene import HygieneNet
from gateway.turns.compactors import CompactorCache
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
WINDOW_TOKENS = 8_000


class GatedSideModel:
    """A side model that answers when the gate is open."""

    def __init__(self, model: SideModel) -> None:
        self._model = model
        self.asked = 0
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def complete(
        self,
        *,
        system: str,
        prompt: str,
        max_tokens: int,
        timeout_seconds: float,
        model: str | None = None,
    ) -> ModelResponse:
        self.asked += 1
        self.begun.set()
        assert self.open.wait(timeout_seconds)
        return self._model.complete(
            system=system,
            prompt=prompt,
            max_tokens=max_tokens,
            timeout_seconds=timeout_seconds,
            model=model,
        )


class Road(Rig):
    """The rig with nothing faked but platform and model."""

    def __init__(self, store: SqlStore, loop: asyncio.AbstractEventLoop) -> None:
        self._model = OfflineModel(window_tokens=WINDOW_TOKENS)
        self._event_loop = loop
        self._threads = DaemonThreads()
        super().__init__(SystemClock(), store=store, platform=FakePlatform(limit=2000))

    def boot(self) -> None:
        clock, ids, rules = self.clock, RandomIds(), TriggerRules()
        tools = ToolRegistry([RecallTool(self.store)])
        triggers = triggers_for(WINDOW_TOKENS, rules, max_tokens=8192, model=self._model.name)
        side = self.side = GatedSideModel(LoopSideModel(self._model, self._event_loop))

        def compactor(conversation_id: str) -> SessionCompactor:
            engine = ContextCompressor(
                self._model.name,
                config_context_length=WINDOW_TOKENS,
                side_model=side,
                clock=clock,
                rules=rules,
            )
            settings = CompactionSettings()
            return SessionCompactor(engine, self.store, clock, ids, settings, threads=self._threads)

        self.agent_loop = TurnLoop(
            store=self.store,
            model=self._model,
            tools=tools,
            settings=LoopSettings(max_tokens=triggers.max_tokens),
        )
        self.agent_hygiene = HygieneNet(self.store, clock)
        self.compactors = CompactorCache(compactor)
        super().boot()


@pytest.fixture
async def road(tmp_path: Path) -> AsyncIterator[Road]:
    store = await open_store(tmp_path / "state.db", clock=SystemClock(), ids=RandomIds())
    road = Road(store, asyncio.get_running_loop())
    yield road
    await road.lanes.drain(5)
    await road.dispatch.close(5)
    await road.delivery.stop(5)
    await store.close()


async def test_a_long_chat_splits_and_every_message_is_answered(road: Road) -> None:
    filler = "The quick brown fox jumps over the lazy dog near the river bank. "
    for n in range(24):
        await road.intake.receive(inbound(f"message {n}: {filler * 20}", message_id=str(n)))
        await road.platform.wait_for(len(road.platform.chat) + 1, seconds=30)
        async with asyncio.timeout(30):
            assert await road.dispatch.idle(30)
            assert await road.delivery.idle(30)
    conversation = await road.store.conversation_for_key(KEY)
    assert conversation is not None
    chain = await road.store.lineage(conversation.tip_session_id)
    assert len(chain) >= 3
    assert [s.end_reason for s in chain[:-1]] == ["compression"] * (len(chain) - 1)
    answered = [s.address.reply_to_message_id for s in road.platform.chat]
    assert [str(n) for n in range(24)] == list(dict.fromkeys(answered))
    originals = [
        row.message["content"]
        for session in chain
        for row in await road.store.all_rows(session.id)
        if row.message["role"] == "user" and row.origin_id is None and row.kind is None
    ]
    assert [str(text).split(":")[0] for text in originals] == [f"message {n}" for n in range(24)]

    await road.intake.receive(inbound("/lineage", message_id="c1"))
    await road.intake.receive(inbound("/status", message_id="c2"))
    await road.intake.receive(inbound("/compress the fox", message_id="c3"))
    async with asyncio.timeout(30):
        assert await road.dispatch.idle(30)
        assert await road.delivery.idle(30)
    shown = "\n".join(road.platform.texts()[-4:])
    assert f"{len(chain)} sessions" in shown
    assert "Context: " in shown
    assert "ompressed: " in shown


async def test_a_stop_detaches_a_compression_and_nobody_waits_for_it(road: Road) -> None:
    filler = "The quick brown fox jumps over the lazy dog near the river bank. "
    road.side.open.clear()
    sent = 0
    async with asyncio.timeout(60):
        while not road.side.begun.is_set():
            await road.intake.receive(
                inbound(f"message {sent}: {filler * 20}", message_id=f"{sent}")
            )
            sent += 1
            while not road.side.begun.is_set() and not await road.dispatch.idle(0.05):
                pass
        await road.intake.receive(inbound("/stop", message_id="stop"))
        assert await road.dispatch.idle(20)
        before = await road.store.conversation_for_key(KEY)
        assert before is not None
        # the next message is answered while the summary is still being written, and pays nothing
        await road.intake.receive(inbound("and now?", message_id="next"))
        assert await road.dispatch.idle(20)
        assert await road.delivery.idle(20)
        answered = [s.address.reply_to_message_id for s in road.platform.chat]
        assert answered[-1] == "next"
        assert road.side.asked == 1
        road.side.open.set()
        await road.intake.receive(inbound("go on", message_id="last"))
        assert await road.dispatch.idle(20)
        while (await road.store.tip(before.tip_session_id)).id == before.tip_session_id:
            await road.intake.receive(inbound("more", message_id=f"more {sent}"))
            sent += 1
            assert await road.dispatch.idle(20)
    assert road.side.asked == 1


async def test_killed_in_the_middle_it_goes_on_with_the_same_turn(road: Road) -> None:
    for n in range(5):
        await road.intake.receive(inbound(f"message {n}", message_id=str(n)))
    await road.platform.wait_for(1)
    road.kill()
    await asyncio.sleep(0)
    shown = len(road.platform.chat)
    road.platform.dedupes_sends = True
    road.boot()
    await road.recovery.run()
    await road.platform.wait_for(5)
    async with asyncio.timeout(30):
        assert await road.dispatch.idle(30)
        assert await road.delivery.idle(30)
    answered = [s.address.reply_to_message_id for s in road.platform.chat]
    assert answered == [str(n) for n in range(5)]
    assert 1 <= shown <= 5
