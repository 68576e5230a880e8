"""A compression that /stop left to itself: whatever is said or done meanwhile wins over it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agent.compaction.host import detaching
from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.sessions import Session
from gateway import texts
from gateway.turns.compactors import CompactorCache
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.compaction_bench import THREADS, WINDOW
from tests.fakes.platform import inbound
from tests.fakes.side_model import ScriptedSideModel
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
COUNT = 12


class Gated(Rig):
    """The rig with a real compactor whose summary takes until the gate opens."""

    def __init__(self, clock: FakeClock) -> None:
        self.opened = threading.Event()
        self.asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answer(_: object) -> str:
            loop.call_soon_threadsafe(self.asked.set)
            assert self.opened.wait(20)
            return "## Goal\nto cross the river"

        self.side = ScriptedSideModel(answer)
        engine = ContextCompressor(
            "m", config_context_length=WINDOW, side_model=self.side, clock=clock
        )
        self.compactors = CompactorCache(
            lambda _: SessionCompactor(engine, self.store, clock, SequentialIds(), threads=THREADS)
        )
        super().__init__(clock)
        self.platform.limit = 100_000

    async def say(self, text: str) -> None:
        count = len(self.platform.chat)
        await self.intake.receive(inbound(text, message_id=f"m{count}"))
        await self.platform.wait_for(count + 1)
        await self.settle()

    async def finish(self) -> None:
        """Let the summary come, and everything that follows from it."""
        self.opened.set()
        async with asyncio.timeout(20):
            while detaching.at_work():  # noqa: ASYNC110 - nobody else knows of it any more
                await asyncio.sleep(0)
        await self.settle()

    async def chain(self, conversation_id: str) -> list[Session]:
        conversation = await self.store.conversation(conversation_id)
        assert conversation is not None
        return list(await self.store.lineage(conversation.tip_session_id))


@pytest.fixture
async def rig(clock: FakeClock) -> Any:
    """A long talk, and a compression of it that nobody waits for any more."""
    made = Gated(clock)
    for n in range(COUNT):
        await made.say(f"m{n} " + "q" * 2000)
    await made.intake.receive(inbound("/compress", message_id="c"))
    async with asyncio.timeout(20):
        await made.asked.wait()
    await made.say("/stop")
    assert any(text.startswith(texts.STOPPED) for text in made.platform.texts()[-2:])
    yield made
    made.opened.set()


async def led(rig: Gated) -> str:
    conversation = await rig.store.conversation_for_key(KEY)
    assert conversation is not None
    return str(conversation.id)


async def test_undo_wins(rig: Gated) -> None:
    conversation = await led(rig)
    await rig.say("/undo")
    await rig.finish()
    assert len(await rig.chain(conversation)) == 1
    said = [text for role, text in await rig.rows(KEY) if role == "user"]
    assert [text[:3].strip() for text in said] == [f"m{n}" for n in range(COUNT - 1)]


async def test_new_is_not_touched(rig: Gated) -> None:
    old = await led(rig)
    await rig.say("/new")
    await rig.finish()
    (session,) = await rig.chain(old)
    assert session.end_reason == "reset"
    assert await led(rig) != old
    assert await rig.rows(KEY) == []
    await rig.say("fresh")
    assert [text for _, text in await rig.rows(KEY)] == ["fresh", "re: fresh"]


async def test_a_branch_keeps_everything_and_so_does_the_old_one(rig: Gated) -> None:
    old = await led(rig)
    await rig.say("/branch")
    await rig.finish()
    assert [s.end_reason for s in await rig.chain(old)] == [None]
    assert [s.link for s in await rig.chain(await led(rig))] == ["branch"]
    assert len([1 for role, _ in await rig.rows(KEY) if role == "user"]) == COUNT


@pytest.mark.parametrize(("text", "paid"), [("more", 1), ("/retry", 2)])
async def test_a_message_goes_on_in_front_of_it(rig: Gated, text: str, paid: int) -> None:
    """The summary is kept for the next chance, unless what it speaks of was taken back."""
    conversation = await led(rig)
    await rig.say(text)
    await rig.finish()
    assert len(await rig.chain(conversation)) == 1
    await rig.say("/compress")
    assert len(await rig.chain(conversation)) == 2
    assert len(rig.side.asked) == paid
    await rig.say("and then")
    said = [text for _, text in await rig.rows(KEY)]
    assert said[-2:] == ["and then", "re: and then"]
    assert sum(text.startswith("re: m11") for text in said) == 1
