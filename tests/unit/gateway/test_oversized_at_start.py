"""A start that finds a cut-off turn whose conversation is too large: nobody else notices (B99)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.errors import ModelConnectionError
from agent.ports import Usage
from gateway.hygiene import HygieneNet
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.turns.compactors import CompactorCache
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.compaction_bench import THREADS, WINDOW, Foreign
from tests.fakes.platform import inbound
from tests.fakes.side_model import ScriptedSideModel
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
COUNT = 19
TWO_PEOPLE = PlatformPolicy(AccessRules(allow_from=frozenset({"111", "222"})))


def other(text: str, message_id: str) -> Any:
    return inbound(text, message_id=message_id, chat_id="222", sender_id="222")


class Oversized(Rig):
    """One conversation at the end of its window, with a turn that was cut off; and another one."""

    def __init__(self, clock: FakeClock, engine: ContextEngine) -> None:
        self.compactors = CompactorCache(
            lambda _: SessionCompactor(engine, self.store, clock, SequentialIds(), threads=THREADS)
        )
        super().__init__(clock, policy=TWO_PEOPLE)
        self.platform.limit = 100_000

    async def fill(self) -> None:
        for n in range(COUNT):
            self.loop.usage = Usage(input_tokens=1_000 * n)
            await self.say(inbound(f"m{n} " + "q" * 2_000, message_id=f"m{n}"))
        self.loop.usage = Usage(input_tokens=100)
        await self.say(other("hello", "o1"))
        self.hold("and now?", asyncio.Event())
        await self.intake.receive(inbound("and now?", message_id="last"))
        await self.intake.receive(other("still there?", "o2"))
        self.hold("still there?", asyncio.Event())
        await self.settle()

    async def say(self, message: Any) -> None:
        count = len(self.platform.chat)
        await self.intake.receive(message)
        await self.platform.wait_for(count + 1)

    async def start_again(self) -> None:
        self.kill()
        await self.settle()
        self.loop.scripts.clear()
        self.agent_hygiene = HygieneNet(self.store, self.clock)
        self.boot()
        await self.recovery.run()

    async def answered(self, text: str) -> None:
        async with asyncio.timeout(20):
            while f"re: {text}" not in self.platform.texts():  # noqa: ASYNC110 - threads
                await asyncio.sleep(0.001)

    async def sessions(self) -> int:
        conversation = await self.store.conversation_for_key(KEY)
        assert conversation is not None
        return len(await self.store.lineage(conversation.tip_session_id))


def ours(clock: FakeClock, answer: Callable[[object], str]) -> ContextEngine:
    return ContextCompressor(
        "m", config_context_length=WINDOW, side_model=ScriptedSideModel(answer), clock=clock
    )


@pytest.mark.parametrize("error", [ModelConnectionError("gone"), KeyError("a bug")], ids=repr)
@pytest.mark.parametrize("own", [True, False], ids=["our engine", "a foreign engine"])
async def test_a_compression_that_fails_at_a_start_fails_alone(
    clock: FakeClock, error: Exception, own: bool
) -> None:
    asked: list[object] = []

    def fails(what: object) -> Any:
        asked.append(what)
        raise error

    rig = Oversized(clock, ours(clock, fails) if own else Foreign(fails))
    await rig.fill()
    assert asked == []
    await rig.start_again()
    await rig.answered("still there?")
    await rig.answered("and now?")
    assert asked != []
    assert await rig.sessions() == 1
    assert await rig.store.open_inbox() == []
    await rig.say(other("and later?", "o3"))
    assert rig.platform.texts()[-1] == "re: and later?"


async def test_a_compression_that_takes_long_at_a_start_is_waited_for_by_its_chat_only(
    clock: FakeClock,
) -> None:
    asked, opened = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def answer(_: object) -> str:
        loop.call_soon_threadsafe(asked.set)
        assert opened.wait(20)
        return "## Goal\nto cross the river"

    rig = Oversized(clock, ours(clock, answer))
    await rig.fill()
    try:
        await rig.start_again()  # does not wait either: platforms begin to receive behind it
        async with asyncio.timeout(20):
            await asked.wait()
        await rig.answered("still there?")
        await rig.say(other("and a new one?", "o3"))
        assert "re: and a new one?" in rig.platform.texts()
        assert "re: and now?" not in rig.platform.texts()
    finally:
        opened.set()
    await rig.answered("and now?")
    assert await rig.sessions() == 2, "compressed before it was asked"
    assert [text for role, text in await rig.rows(KEY) if role == "user"][-1] == "and now?"
