"""Compressions ahead of time behind a whole gateway: nobody waits, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from agent.compaction.host import detaching
from agent.compaction.host.ahead import Preparation
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.errors import ModelTimeout, StoreUnavailable
from agent.loop import LoopSettings, TurnLoop
from agent.ports import Usage
from agent.sessions import Session
from agent.tools.registry import ToolRegistry
from gateway.hygiene import HygieneNet
from gateway.turns import ahead as desk_module
from gateway.turns.ahead import AT_ONCE, FIRST_SWEEP_SECONDS, SWEEP_SECONDS, AheadDesk
from gateway.turns.compactors import CompactorCache
from storage.memory import MemoryStore
from tests.contract.store_suite import begin
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.compaction_bench import THREADS, WINDOW
from tests.fakes.platform import inbound
from tests.fakes.scripted_model import ScriptedModel, answer
from tests.fakes.side_model import Asked, ScriptedSideModel
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
TURNS = 9
LEVEL = 8_600
"""Measured tokens: above 85 % of the threshold of 10,000."""


class Road(Rig):
    """The rig with the real loop and compactor, a strict model, and summaries that a gate holds."""

    def __init__(self, clock: FakeClock, **settings: Any) -> None:
        self.opened = threading.Event()
        self.asked = asyncio.Event()
        self.failure: Exception | None = None
        loop = asyncio.get_running_loop()

        def summary(asked: Asked) -> str:
            loop.call_soon_threadsafe(self.asked.set)
            assert self.opened.wait(20)
            if self.failure is not None:
                raise self.failure
            return "## Goal\nto cross the river"

        self.side = ScriptedSideModel(summary)
        self.model = ScriptedModel()
        self.may_spend = True
        self.settings = CompactionSettings(**settings)
        self.desk: AheadDesk | None = None
        super().__init__(clock)
        self.platform.limit = 100_000

    def _compactor(self, _: str) -> SessionCompactor:
        engine = ContextCompressor(
            "m", config_context_length=WINDOW, side_model=self.side, clock=self.clock
        )
        return SessionCompactor(
            engine, self.store, self.clock, SequentialIds(), self.settings, threads=THREADS
        )

    async def _allowed(self, owner: str) -> bool:
        return self.may_spend

    def boot(self) -> None:
        """Also after a restart: nothing is left of the process before but the store."""
        self.compactors = CompactorCache(self._compactor)
        self.desk = AheadDesk(
            self.store,
            self.compactors,
            self.clock,
            threshold_tokens=lambda: WINDOW // 2,
            may_spend=self._allowed,
        )
        self.agent_hygiene = HygieneNet(self.store, self.clock)
        self.agent_loop = TurnLoop(
            store=self.store,
            model=self.model,
            tools=ToolRegistry([], result_cap_tokens=lambda: 1000),
            settings=LoopSettings(max_tokens=500),
        )
        super().boot()
        self.turns._aftermath = replace(self.turns._aftermath, on_over=self.desk.turn_over)

    async def say(self, text: str, tokens: int | None = None) -> None:
        """A message and its answer, whose prompt had this size."""
        usage = None if tokens is None else Usage(tokens, 1)
        self.model.script.append(answer(f"re: {text}", usage=usage))
        await self.order(text)

    async def order(self, text: str) -> None:
        count = len(self.platform.chat)
        await self.intake.receive(inbound(text, message_id=f"m{count}"))
        await self.platform.wait_for(count + 1)
        await self.settle()

    async def fill(self) -> None:
        """A long talk whose last prompt is at the level: a summary is asked for."""
        for n in range(TURNS - 1):
            await self.say(f"m{n} " + "q" * 4_000, 1_000 * n)
        await self.say(f"m{TURNS - 1} " + "q" * 400, LEVEL)
        async with asyncio.timeout(20):
            await self.asked.wait()

    async def ready(self) -> None:
        """Let the summary come, and everything that follows from it."""
        self.opened.set()
        async with asyncio.timeout(20):
            while detaching._kept or self.desk.running:  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0)
        await self.settle()

    async def chain(self, key: str = KEY) -> list[Session]:
        conversation = await self.store.conversation_for_key(key)
        assert conversation is not None
        return list(await self.store.lineage(conversation.tip_session_id))

    def replies(self) -> list[str]:
        """What was answered, without the word that the window fills up."""
        return [text for text in self.platform.texts() if not text.startswith("Context ")]

    async def kept(self) -> bool:
        tip = (await self.chain())[-1]
        return await self.store.prepared(tip.id) is not None

    async def whole(self) -> list[str]:
        """Everything that a person said in the lineage, each once, in order."""
        said: dict[int, str] = {}
        for session in await self.chain():
            for row in await self.store.all_rows(session.id):
                if row.message["role"] == "user" and row.kind is None and row.origin_id is None:
                    said[row.id] = str(row.message["content"]).split()[0]
        return list(said.values())


@pytest.fixture
async def road(clock: FakeClock) -> Any:
    made = Road(clock)
    yield made
    made.opened.set()
    assert made.model.problems == []


async def test_the_turn_that_crosses_the_threshold_waits_for_nothing(road: Road) -> None:
    await road.fill()
    await road.ready()
    assert await road.kept()
    road.opened.clear()  # whoever asked for a summary now would hang
    await road.say("over " + "n" * 7_000, 4_000)
    assert road.replies()[-1].startswith("re: over")
    chain = await road.chain()
    assert [s.end_reason for s in chain] == ["compression", None]
    assert len(road.side.asked) == 1
    assert await road.whole() == [*(f"m{n}" for n in range(TURNS)), "over"]
    assert not any("⚠" in text for text in road.platform.texts())


async def test_a_message_is_answered_while_it_is_prepared(road: Road) -> None:
    await road.fill()
    await road.say("meanwhile " + "n" * 7_000, 10_500)
    assert road.replies()[-1].startswith("re: meanwhile")
    assert len(await road.chain()) == 1
    await road.ready()
    await road.say("next", 4_000)
    assert len(await road.chain()) == 2
    assert len(road.side.asked) == 1


async def test_an_early_swap_after_a_long_pause(road: Road, clock: FakeClock) -> None:
    await road.fill()
    await road.ready()
    await clock.advance(400)
    await road.say("back", 4_000)
    assert len(await road.chain()) == 2
    assert len(road.side.asked) == 1


@pytest.mark.parametrize("when", ["while it is prepared", "when it is prepared"])
@pytest.mark.parametrize(
    ("command", "sessions", "paid"),
    [("/new", 1, 1), ("/undo", 1, 1), ("/compress", 2, 1), ("/stop", 1, 1), ("/branch", 1, 1)],
)
async def test_commands(road: Road, when: str, command: str, sessions: int, paid: int) -> None:
    await road.fill()
    old = (await road.chain())[-1].conversation_id
    if when.startswith("when"):
        await road.ready()
    if command == "/compress" and not road.opened.is_set():
        asking = asyncio.ensure_future(road.order(command))
        await road.settle()
        assert not asking.done()  # it waits for the one call, and pays for no second
        await road.ready()
        await asking
    else:
        await road.order(command)
        await road.ready()
    conversation = await road.store.conversation(old)
    assert conversation is not None
    chain = list(await road.store.lineage(conversation.tip_session_id))
    assert len(chain) == sessions
    assert len(road.side.asked) == paid
    await road.say("after it", 4_000)
    assert road.replies()[-1] == "re: after it"
    if command == "/undo":
        assert not await road.kept()


async def test_a_failure_is_silent_and_tried_again_by_the_sweep(
    road: Road, clock: FakeClock
) -> None:

    road.failure = ModelTimeout("late")
    sweep = asyncio.ensure_future(road.desk.sweep())  # type: ignore[union-attr]
    await road.fill()
    said = len(road.platform.chat)
    await road.ready()
    assert len(road.platform.chat) == said
    assert road.desk is not None
    assert road.desk.counts["failed"] == 1
    road.failure = None
    await clock.advance(FIRST_SWEEP_SECONDS + SWEEP_SECONDS + 1)
    await road.ready()
    assert await road.kept()
    assert len(road.side.asked) == 2
    sweep.cancel()


async def test_after_a_restart_those_of_the_run_before_are_found(
    road: Road, clock: FakeClock
) -> None:
    road.may_spend = False
    for n in range(TURNS - 1):
        await road.say(f"m{n} " + "q" * 4_000, 1_000 * n)
    await road.say("last", LEVEL)
    await road.ready()
    assert road.side.asked == []
    road.may_spend = True
    road.kill()
    road.boot()
    await road.recovery.run()
    sweep = asyncio.ensure_future(road.desk.sweep())  # type: ignore[union-attr]
    await road.settle()
    assert road.side.asked == []  # people who waited come first
    await clock.advance(FIRST_SWEEP_SECONDS + 1)
    await road.ready()
    assert await road.kept()
    sweep.cancel()


async def test_killed_while_it_is_prepared(road: Road, clock: FakeClock) -> None:
    """The call may be lost; the next process asks once more at most, and only when it has to."""
    await road.fill()
    road.kill()
    for task in set(road.desk._tasks._tasks) | set(detaching._kept):  # type: ignore[union-attr]
        task.cancel()
    await road.settle()
    road.opened.set()
    road.boot()
    await road.recovery.run()
    sweep = asyncio.ensure_future(road.desk.sweep())  # type: ignore[union-attr]
    await clock.advance(FIRST_SWEEP_SECONDS + 1)
    await road.ready()
    assert len(road.side.asked) == 1
    await road.say("over " + "n" * 7_000, 4_000)
    assert len(await road.chain()) == 2
    assert len(road.side.asked) == 2
    assert await road.whole() == [*(f"m{n}" for n in range(TURNS)), "over"]
    sweep.cancel()


async def test_killed_between_preparing_and_taking(road: Road) -> None:
    await road.fill()
    await road.ready()
    road.kill()
    road.boot()
    await road.recovery.run()
    await road.say("over " + "n" * 7_000, 4_000)
    assert len(await road.chain()) == 2
    assert len(road.side.asked) == 1


async def test_an_orderly_end_does_not_wait_for_it(road: Road, clock: FakeClock) -> None:
    await road.fill()
    assert road.desk is not None
    closing = asyncio.ensure_future(road.desk.close(1.0))
    for _ in range(5):
        await clock.advance(0.5)
    assert closing.done()
    assert road.desk.running == 0
    road.desk.turn_over((await road.chain())[-1].conversation_id)
    await road.settle()
    assert road.desk.running == 0


# --- the desk alone -----------------------------------------------------------------------------


class Counting(SessionCompactor):
    """Prepares as long as the test wants."""

    at_once = 0
    most = 0
    outcome = "prepared"
    gate: asyncio.Event
    seen: list[str]

    def is_crowded(self, session: Session) -> bool:
        return True

    async def prepare(self, loaded: Any) -> Preparation:
        cls = type(self)
        cls.seen.append(loaded.session.conversation_id)
        cls.at_once += 1
        cls.most = max(cls.most, cls.at_once)
        try:
            await cls.gate.wait()
        finally:
            cls.at_once -= 1
        if cls.outcome == "crash":
            raise RuntimeError("a bug")
        if cls.outcome == "unstored":
            raise StoreUnavailable("gone")
        return Preparation(cls.outcome)  # type: ignore[arg-type]


async def many(clock: FakeClock, count: int) -> tuple[AheadDesk, list[str]]:
    """A desk over so many conversations."""

    Counting.gate, Counting.seen = asyncio.Event(), []
    Counting.at_once = Counting.most = 0
    Counting.outcome = "prepared"
    store = MemoryStore(clock, SequentialIds())
    engine = ContextCompressor("m", config_context_length=WINDOW, clock=clock)
    compactors = CompactorCache(lambda _: Counting(engine, store, clock, SequentialIds()))
    desk = AheadDesk(store, compactors, clock, threshold_tokens=lambda: 10_000)
    ids = []
    for n in range(count):
        ticket = await begin(store, session_key=f"k{n}")
        await store.finish_turn(ticket, ticket.session_id, "done")
        ids.append(ticket.conversation_id)
    return desk, ids


async def spin() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_so_many_at_once_in_the_order_of_their_turns(clock: FakeClock) -> None:
    desk, ids = await many(clock, 7)
    for each in [*ids, *ids]:
        desk.turn_over(each)
    await spin()
    assert Counting.most == AT_ONCE
    Counting.gate.set()
    await spin()
    # each once, and those that were at work once more for their newer turn
    assert Counting.seen == [*ids, *ids[:AT_ONCE]]
    assert Counting.most == AT_ONCE
    assert desk.counts["prepared"] == 7 + AT_ONCE


async def test_a_crash_stops_nothing(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    desk, ids = await many(clock, 5)
    Counting.gate.set()
    Counting.outcome = "crash"
    for each in ids:
        desk.turn_over(each)
    await spin()
    assert desk.counts["crashed"] == 5
    assert "compression ahead of time crashed" in caplog.text
    desk.turn_over("nobody")
    await spin()
    assert desk.running == 0


async def test_a_store_that_is_away_is_tried_again(clock: FakeClock) -> None:
    desk, ids = await many(clock, 1)
    Counting.gate.set()
    Counting.outcome = "unstored"
    sweep = asyncio.ensure_future(desk.sweep())
    desk.turn_over(ids[0])
    await spin()
    assert desk.counts["failed"] == 1
    Counting.outcome = "prepared"
    await clock.advance(FIRST_SWEEP_SECONDS + SWEEP_SECONDS)
    await spin()
    assert desk.counts["prepared"] == 1
    sweep.cancel()


async def test_what_waits_is_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "MAX_WAITING", 3)
    desk, ids = await many(clock, 8)
    for each in ids:
        desk.turn_over(each)
    await spin()
    Counting.gate.set()
    await spin()
    assert Counting.seen == [*ids[:AT_ONCE], *ids[-3:]]


async def test_a_desk_that_is_closed_does_nothing(clock: FakeClock) -> None:
    desk, ids = await many(clock, 3)
    desk.turn_over(ids[0])
    await spin()
    closing = asyncio.ensure_future(desk.close(1.0))
    await clock.advance(2)
    await closing
    desk.turn_over(ids[1])
    await desk.sweep()
    await spin()
    assert Counting.seen == ids[:1]
