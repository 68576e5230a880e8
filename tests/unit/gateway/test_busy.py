"""While a conversation is at work: queue, interrupt, steer; receipts; stops; one turn at a time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent.errors import SessionEnded, StaleTurn, StoreUnavailable
from agent.loop import LoopSettings, TurnLoop
from agent.messages import Draft, Message, ToolSchema, text_of
from agent.ports import ToolContext, ToolResult
from agent.tools.registry import ToolRegistry
from gateway import texts
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.lanes.jobs import Job
from gateway.lanes.lanes import Lanes
from gateway.lanes.receipts import AFTER_SECONDS, QUIET_SECONDS
from gateway.lanes.slots import Slots
from gateway.platforms.contract import Attachment, SendFlood
from gateway.tasks import StopReason, StopSignal
from gateway.turns.enclosed import Enclosed
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.fakes.scripted_model import ScriptedModel, answer, call
from tests.unit.gateway.rig import Rig, said
from tests.unit.gateway.test_races import Dawdling

KEY = '["fake","900","111",null,"111"]'
SHARED = PlatformPolicy(
    AccessRules(allow_from=frozenset({"111", "222"}), admins=frozenset({"111"})),
    require_mention=False,
    group_sessions_per_user=False,
)


class Interrupting(Rig):
    busy_mode = "interrupt"


class GatedTool:
    """Takes until it may end; may not mind being cancelled."""

    schema = ToolSchema("wait", "waits", {"type": "object", "properties": {}})

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.deaf = False
        self.runs = 0

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.runs += 1
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise
        return ToolResult("waited")


class Steered(Rig):
    """The real loop with a strict model and a tool that waits."""

    busy_mode = "steer"

    def __init__(self, clock: FakeClock, *script: Any, **kwargs: Any) -> None:
        self.model = ScriptedModel(*script)
        self.tool = GatedTool()
        self.max_iterations = 90
        super().__init__(clock, **kwargs)
        self.platform.limit = 100_000

    def boot(self) -> None:
        self.agent_loop = TurnLoop(
            store=self.store,
            model=self.model,
            tools=ToolRegistry([self.tool]),
            settings=lambda: LoopSettings(max_iterations=self.max_iterations),
        )
        super().boot()

    def last_request(self) -> list[Message]:
        return list(self.model.requests[-1].messages)


async def send(rig: Rig, *texts_: str, first: int = 1, **changes: Any) -> None:
    for n, text in enumerate(texts_, first):
        await rig.intake.receive(inbound(text, message_id=str(n), **changes))
    await rig.settle()


async def users(rig: Rig) -> list[str]:
    return [text for role, text in await rig.rows(KEY) if role == "user"]


async def states(rig: Rig, *ids: int) -> list[str]:
    return [item.state for item in await rig.store.inbox_items(ids)]


# --- interrupt ----------------------------------------------------------------------------------


async def test_a_newer_message_ends_what_runs_without_a_word(clock: FakeClock) -> None:
    rig = Interrupting(clock)
    for text in ("m1", "m2"):
        rig.hold(text, asyncio.Event())
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    await send(rig, "m3", first=3)
    assert rig.platform.texts() == ["re: m3"]
    assert await users(rig) == ["m1", "m2", "m3"]
    assert [m["content"] for m in rig.loop.seen[-1]] == ["m1", "m2", "m3"]
    assert await states(rig, 1, 2, 3) == ["answered"] * 3
    assert set(rig.loop.most_at_once.values()) == {1}


async def test_what_it_had_done_stays_and_is_repaired(clock: FakeClock) -> None:
    rig = Interrupting(clock)

    async def half(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        asked = {"id": "c1", "function": {"name": "shell", "arguments": "{}"}}
        message = {"role": "assistant", "content": "", "tool_calls": [asked]}
        await rig.store.append(ticket, loaded.session.id, [Draft(message)])  # type: ignore[arg-type]
        await asyncio.Event().wait()
        return said("never")

    rig.loop.scripts["m1"] = half
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    assert [m["role"] for m in rig.loop.seen[-1]] == ["user", "assistant", "tool", "user"]
    assert rig.platform.texts() == ["re: m2"]


async def test_nothing_that_waits_is_dropped(clock: FakeClock) -> None:
    """A compression holds the lane: messages wait in order, and none of them ends the others."""
    rig = Interrupting(clock)
    rig.compactor.gate = asyncio.Event()
    await send(rig, "m0", "/compress")
    await send(rig, "m1", "m2", "m3", first=3)
    assert rig.platform.texts() == ["re: m0"]
    rig.compactor.gate.set()
    await rig.settle()
    assert [t for t in rig.platform.texts() if t.startswith("re")] == [
        "re: m0", "re: m1", "re: m2", "re: m3",
    ]  # fmt: skip


async def test_a_compression_within_a_turn_is_never_interrupted(clock: FakeClock) -> None:
    rig = Interrupting(clock)
    compressing, gate = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def hygiene(loaded: Any, compactor: Any, notify: Any) -> Any:
        compressing.set()
        if not gate.is_set():
            await gate.wait()
            ended.append("whole")
        return loaded

    rig.agent_hygiene = hygiene
    rig.boot()
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    assert compressing.is_set()
    assert ended == []
    gate.set()
    await rig.settle()
    assert ended == ["whole"]
    assert rig.platform.texts() == ["re: m2"]


async def test_in_a_shared_conversation_only_ones_own_turn(clock: FakeClock) -> None:
    rig = Interrupting(clock, policy=SHARED)
    gate = asyncio.Event()
    rig.hold("m1", gate)
    group: dict[str, Any] = {"chat_id": "-1", "chat_kind": "group"}
    await send(rig, "m1", sender_id="111", **group)
    await send(rig, "m2", first=2, sender_id="222", **group)
    assert rig.platform.texts() == []
    gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: m1", "re: m2"]


async def test_a_replayed_message_interrupts_nothing(clock: FakeClock) -> None:
    rig = Interrupting(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1")
    pattern = (await rig.store.inbox_items([1]))[0].record
    await rig.store.accept(replace(pattern, message_id="2", text="m2"))
    rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert rig.platform.texts() == ["re: m1", "re: m2"]


async def test_an_interrupt_while_the_store_is_away_drops_nothing(clock: FakeClock) -> None:
    rig = Interrupting(clock)
    real, rig.store.begin_turn = rig.store.begin_turn, _away
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    rig.store.begin_turn = real
    await clock.advance(60)
    await rig.settle()
    assert await users(rig) == ["m1", "m2"]
    assert rig.platform.texts() == ["re: m2"]


async def _away(*_: object) -> Any:
    raise StoreUnavailable("away")


# --- steer --------------------------------------------------------------------------------------


async def test_words_go_into_the_turn_behind_its_tools(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "both done")
    await send(rig, "do it")
    await send(rig, "in blue", "and round", first=2)
    assert rig.platform.texts() == []
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["both done"]
    roles = [(m["role"], text_of(m["content"])) for m in rig.last_request()]
    assert [role for role, _ in roles] == ["user", "assistant", "tool", "user", "user"]
    assert [text for _, text in roles[3:]] == ["in blue", "and round"]
    first, second = rig.model.bodies
    assert second["messages"][: len(first["messages"])] == first["messages"]  # it only grew
    assert await states(rig, 1, 2, 3) == ["answered"] * 3
    assert len(rig.lanes) == 0
    rig.model.verify()


async def test_a_turn_that_ends_first_is_followed_by_the_message(clock: FakeClock) -> None:
    rig = Steered(clock, "first", "second")
    rig.model.gate = asyncio.Event()
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    rig.model.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["first", "second"]
    rig.model.verify()


async def test_what_may_not_go_in_waits_for_its_own_turn(clock: FakeClock) -> None:
    """Somebody else's words, files, commands, and all that is behind them."""
    rig = Steered(clock, answer("", call("wait")), "one", "two", "three", policy=SHARED)
    group: dict[str, Any] = {"chat_id": "-1", "chat_kind": "group"}
    await send(rig, "m1", sender_id="111", **group)
    await send(rig, "m2", first=2, sender_id="222", **group)
    await send(rig, "m3", first=3, sender_id="111", **group)
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["one", "two", "three"]
    rig.model.verify()


async def test_files_are_fetched_for_a_turn_of_their_own(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "one", "two")
    await send(rig, "m1")
    await send(rig, "see", first=2, attachments=(Attachment("file", "ref"),))
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["one", "two"]


async def test_a_piece_that_comes_while_its_message_goes_in_is_not_lost(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "one")
    await send(rig, "m1")
    full = "x" * 40
    await send(rig, full, first=2, text_limit=40)
    await clock.advance(2)
    steer = rig.store.steer

    async def slow(*args: Any) -> Any:
        await rig.intake.receive(inbound("end", message_id="3", text_limit=40))
        return await steer(*args)

    rig.store.steer = slow
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == [texts.WILL_BE_TAKEN_IN, "one"]
    assert await users(rig) == ["m1", full, "end"]


async def test_pieces_that_may_go_on_are_waited_for(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "one", "two")
    await send(rig, "m1")
    await send(rig, "x" * 40, first=2, text_limit=40)
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["one"]
    await send(rig, "end", first=3, text_limit=40)
    assert await users(rig) == ["m1", "x" * 40 + "end"]


async def test_a_spent_budget_is_said_as_a_turn(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "one")
    await send(rig, "m1")
    rig.accounts.may_prepare = _no
    await send(rig, "m2", first=2)
    rig.accounts.refusal = _spent
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["one", "all spent"]


async def _no(owner: str) -> bool:
    return False


async def _spent(owner: str) -> str:
    return "all spent"


async def test_the_last_step_takes_nothing_in(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "out of steps", "two")
    rig.max_iterations = 1
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    rig.tool.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["out of steps", "two"]


@pytest.mark.parametrize("steps", range(0, 60, 2))
async def test_killed_at_any_step_a_steered_message_is_in_one_turn(
    clock: FakeClock, steps: int
) -> None:
    rig = Steered(clock, answer("", call("wait")))
    rig.model.script.extend([_all_said] * 4)  # type: ignore[list-item]
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    rig.tool.gate.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    rig.kill()
    await rig.settle()
    rig.boot()
    await rig.recovery.run()
    await rig.settle()
    assert (await users(rig)).count("m2") == 1
    assert await rig.store.open_inbox() == []
    assert await rig.store.recover_turns() == []
    said_ = [s.text for s in rig.platform.chat]
    assert said_[-1].endswith("m2")
    assert len(said_) == len(set(said_))
    assert rig.model.problems == []


def _all_said(request: Any) -> Any:
    return answer(
        "to " + " ".join(text_of(m["content"]) for m in request.messages if m["role"] == "user")
    )


@pytest.mark.parametrize("happened", [True, False])
async def test_a_steer_of_unknown_outcome_is_neither_lost_nor_doubled(
    clock: FakeClock, happened: bool
) -> None:
    rig = Steered(clock, answer("", call("wait")), "two")
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    steer = rig.store.steer

    async def unknown(*args: Any) -> Any:
        if happened:
            await steer(*args)
        raise StoreUnavailable("who knows")

    rig.store.steer = unknown
    rig.tool.gate.set()
    await rig.settle()
    assert (await users(rig)).count("m2") == 1
    assert await states(rig, 1, 2) == ["answered"] * 2
    assert rig.platform.texts() == [texts.STORE_TROUBLE_IN_TURN, *([] if happened else ["two"])]


@pytest.mark.parametrize("error", [StaleTurn("over"), SessionEnded("s_1")])
async def test_a_turn_that_is_over_takes_nothing_in(clock: FakeClock, error: Exception) -> None:
    rig = Steered(clock, answer("", call("wait")), *["later"] * 3)
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    calls = 0
    steer = rig.store.steer

    async def fails(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        return await steer(*args)

    rig.store.steer = fails
    rig.tool.gate.set()
    await rig.settle()
    assert (await users(rig)).count("m2") == 1
    assert rig.platform.texts().count("later") >= 1
    assert await rig.store.open_inbox() == []


async def test_a_stop_after_the_words_went_in_ends_both(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), answer("", call("wait")), "after")
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    rig.tool.gate.set()
    await asyncio.sleep(0)
    for _ in range(500):
        if await states(rig, 2) == ["claimed"]:
            break
        await asyncio.sleep(0)
    rig.tool.gate.clear()
    await rig.settle()
    await send(rig, "/stop", first=3)
    rig.tool.gate.set()
    await send(rig, "m4", first=4)
    assert rig.platform.texts() == [texts.STOPPED, "after"]
    assert await users(rig) == ["m1", "m2", "m4"]
    assert await states(rig, 1, 2) == ["answered"] * 2
    rig.model.verify()


# --- receipts -----------------------------------------------------------------------------------


async def test_a_receipt_only_when_it_really_waits(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("m1", gate)
    await send(rig, "m1", "m2")
    await clock.advance(AFTER_SECONDS - 0.1)
    gate.set()
    await rig.settle()
    await clock.advance(60)
    assert rig.platform.texts() == ["re: m1", "re: m2"]
    assert len(rig.dispatch._receipts) == 0


async def test_receipts_tell_how_many_are_before_and_not_too_often(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("m1", gate)
    await send(rig, "m1", "m2")
    await clock.advance(AFTER_SECONDS)
    assert rig.platform.texts() == [texts.queued(0)]
    await send(rig, "m3", "m4", first=3)
    await clock.advance(QUIET_SECONDS - 0.1)
    assert len(rig.platform.texts()) == 1
    await clock.advance(0.2)
    assert rig.platform.texts() == [texts.queued(0), texts.queued(2)]
    assert rig.platform.chat[-1].address.reply_to_message_id == "4"
    await clock.advance(600)
    assert len(rig.platform.texts()) == 2  # everybody has been told
    gate.set()
    await rig.settle()
    assert rig.platform.texts()[2:] == ["re: m1", "re: m2", "re: m3", "re: m4"]


async def test_a_receipt_leaves_nothing_and_keeps_a_flood_silence(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    rig.platform.fail(SendFlood(1000))
    await send(rig, "m1", "m2")
    await clock.advance(AFTER_SECONDS)
    await send(rig, "m3", first=3)
    await clock.advance(QUIET_SECONDS * 2)
    assert rig.platform.texts() == []
    assert len(rig.platform.calls) == 1
    assert await rig.store.owed() == []


async def test_steering_says_that_it_goes_in(clock: FakeClock) -> None:
    rig = Steered(clock, answer("", call("wait")), "one")
    await send(rig, "m1")
    await send(rig, "m2", first=2)
    await clock.advance(AFTER_SECONDS)
    assert rig.platform.texts() == [texts.WILL_BE_TAKEN_IN]


async def test_nobody_is_told_twice_after_a_restart(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    rig.kill()
    await rig.settle()
    rig.boot()
    await rig.recovery.run()
    await clock.advance(60)
    assert rig.platform.texts() == []


async def test_status_tells_what_runs_and_what_waits(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.platform.limit = 10_000
    gate = asyncio.Event()
    rig.hold("m1", gate)
    await send(rig, "m1")
    await clock.advance(30)
    await send(rig, "m2", "m3", first=2)
    await clock.advance(12)
    rig.platform.chat.clear()
    await send(rig, "/status", first=9)
    shown = rig.platform.texts()[0]
    assert "working for 42 s, 2 messages waiting, the oldest for 12 s" in shown
    assert texts.BUSY_MODES["queue"] in shown


# --- stops --------------------------------------------------------------------------------------


@pytest.fixture
async def tools() -> AsyncIterator[list[GatedTool]]:
    """Tools that would not end with the test."""
    deaf: list[GatedTool] = []
    yield deaf
    for tool in deaf:
        tool.gate.set()
        tool.deaf = False


async def test_a_stop_inside_a_deaf_tool_and_the_message_after_it(
    clock: FakeClock, tools: list[GatedTool]
) -> None:
    rig = Steered(clock, answer("", call("wait")), "hello back")
    rig.tool.deaf = True
    tools.append(rig.tool)
    await send(rig, "m1")
    began = clock.monotonic()
    await send(rig, "/stop", first=2)
    await clock.advance(0.8)
    await rig.settle()
    assert rig.platform.texts() == [texts.STOPPED]
    assert rig.platform.chat[0].at - began < 1
    rig.tool.gate.set()  # it ends after all, and nobody listens
    await rig.settle()
    await send(rig, "hello", first=3)
    assert rig.platform.texts() == [texts.STOPPED, "hello back"]
    roles = [m["role"] for m in rig.last_request()]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "waited" not in json.dumps(rig.last_request())
    assert "/stop" not in json.dumps(rig.last_request())
    await send(rig, "/stop", first=4)
    assert rig.platform.texts()[-1] == texts.NOTHING_RUNNING
    rig.model.verify()


async def test_a_stop_drops_nothing_that_waits(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2", "m3", "/stop", "/stop")
    await rig.settle()
    shown = rig.platform.texts()
    assert [t for t in shown if t.startswith("re")] == ["re: m2", "re: m3"]
    assert sum(t.startswith(texts.STOPPED) for t in shown) == 2
    assert texts.stopped(2) in shown


async def test_a_stop_while_the_answer_is_being_sent_stops_nothing(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.platform.gate = asyncio.Event()
    await send(rig, "m1")
    await send(rig, "/stop", first=2)
    rig.platform.gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: m1", texts.NOTHING_RUNNING]


async def test_a_stop_inside_a_download(clock: FakeClock) -> None:
    rig = Rig(clock)
    loading = asyncio.Event()

    class Slow:
        async def take(self, items: Any) -> Any:
            loading.set()
            await asyncio.Event().wait()

        def left_out(self, items: Any) -> Any:
            return Enclosed(({"type": "text", "text": "[left out]"},))

    rig.turns._beginning._enclosures = Slow()  # type: ignore[assignment]
    await send(rig, "see", attachments=(Attachment("file", "ref"),))
    assert loading.is_set()
    await send(rig, "/stop", first=2)
    await send(rig, "m3", first=3)
    assert rig.platform.texts() == [texts.STOPPED, "re: m3"]
    assert await users(rig) == ["see\n[left out]", "m3"]


# --- one at a time ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["resume", "stop"])
async def test_a_stale_run_neither_writes_nor_says(
    clock: FakeClock, tools: list[GatedTool], which: str
) -> None:
    """Its lease was taken: what it still gets from a tool and from the model is for nobody."""
    rig = Steered(clock, answer("", call("wait")), "from the old run", "from the new")
    rig.tool.deaf = True
    tools.append(rig.tool)
    await send(rig, "m1")
    (turn,) = await rig.store.recover_turns()
    if which == "resume":
        await rig.store.resume_turn(turn.ticket)
        await rig.store.finish_turn(turn.ticket, turn.ticket.session_id, "stopped")
    else:
        await send(rig, "/stop", first=2)
        await clock.advance(1)
    before = await rig.rows(KEY)
    rig.tool.gate.set()
    await rig.settle()
    assert await rig.rows(KEY) == before
    assert "from the old run" not in rig.platform.texts()


async def test_a_deaf_run_that_was_left_behind_stores_nothing_beside_the_next_turn(
    clock: FakeClock, tools: list[GatedTool], caplog: pytest.LogCaptureFixture
) -> None:
    """A stop does not wait for it, so it may still run; its turn is over all the same."""
    rig = Steered(
        clock, answer("", call("wait")), answer("", call("wait")), "for m2", policy=SHARED
    )
    first, second = GatedTool(), rig.tool
    first.deaf = True
    tools += [first, second]
    each = iter((first.run, second.run))
    rig.tool.run = lambda *given: next(each)(*given)  # type: ignore[method-assign]
    group: dict[str, Any] = {"chat_id": "-1", "chat_kind": "group"}
    await send(rig, "m1", sender_id="111", **group)
    await send(rig, "m2", first=2, sender_id="222", **group)
    await send(rig, "/stop", first=3, sender_id="111", **group)
    await clock.advance(1)
    await rig.settle()
    assert (first.runs, second.runs) == (1, 1)  # both at work; one turn is over
    first.gate.set()
    await rig.settle()
    assert [r.levelname for r in caplog.records if r.levelno >= logging.ERROR] == []
    second.gate.set()
    await rig.settle()
    assert rig.platform.texts()[-1] == "for m2"
    results = [m["content"] for m in rig.last_request() if m["role"] == "tool"]
    assert len(results) == 2
    assert results[1] == "waited"
    assert results[0] != "waited"
    rig.model.verify()


async def test_a_chat_that_moves_while_it_is_at_work_has_one_turn_at_a_time(
    clock: FakeClock,
) -> None:
    rig = Rig(clock, policy=SHARED)
    gate = asyncio.Event()
    rig.hold("m1", gate)
    group: dict[str, Any] = {"chat_kind": "group"}
    await send(rig, "m1", chat_id="-1", **group)
    await send(rig, "m2", first=2, chat_id="-1", **group)
    await rig.intake.moved("fake", "900", "-1", "-1001")
    await send(rig, "m3", first=3, chat_id="-1001", **group)
    assert rig.platform.texts() == []
    gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: m1", "re: m2", "re: m3"]
    assert {s.address.chat_id for s in rig.platform.chat[1:]} == {"-1001"}
    assert max(rig.loop.most_at_once.values()) == 1
    assert len(rig.loop.most_at_once) == 1
    assert len(rig.lanes) == 0


async def test_what_comes_late_to_a_chat_that_moved_before_the_start_waits_its_turn(
    clock: FakeClock,
) -> None:
    rig = Rig(clock, policy=SHARED)
    group: dict[str, Any] = {"chat_kind": "group"}
    await send(rig, "m1", chat_id="-1", **group)
    await rig.intake.moved("fake", "900", "-1", "-1001")
    rig.kill()
    rig.boot()
    await rig.recovery.run()
    gate = asyncio.Event()
    rig.hold("m2", gate)
    await send(rig, "m2", first=2, chat_id="-1001", **group)
    await send(rig, "m3", first=3, chat_id="-1", **group)
    await rig.settle()
    assert len(rig.lanes) == 1
    assert max(rig.loop.most_at_once.values()) == 1
    gate.set()
    await rig.settle()
    assert rig.platform.texts() == ["re: m1", "re: m2", "re: m3"]
    assert rig.platform.chat[-1].address.chat_id == "-1001"


async def test_two_lanes_that_become_one_wait_for_both(clock: FakeClock) -> None:
    lanes = Lanes(clock)
    events: list[str] = []
    gates = {name: asyncio.Event() for name in "abcd"}

    def job(name: str) -> Job:
        async def run(stop: StopSignal) -> None:
            events.append(f"{name} begins")
            waits = {asyncio.ensure_future(w) for w in (gates[name].wait(), stop.wait())}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            events.append(f"{name} ends")

        return Job(run, name)

    lanes.put("old", job("a"))
    lanes.put("old", job("b"))
    lanes.put("new", job("c"))
    await clock.advance(0)
    lanes.merge("old", "new")
    lanes.put("new", job("d"))
    gates["c"].set()
    await clock.advance(0)
    assert events == ["a begins", "c begins", "c ends"]
    over = lanes.stop("new")
    assert over is not None
    gates["b"].set()
    gates["d"].set()
    await clock.advance(0)
    await asyncio.wait({over})
    for _ in range(20):
        await asyncio.sleep(0)
    assert events[3] == "a ends"
    assert len(lanes) == 0


class Gated:
    """Jobs of lanes that end when a test says so; it counts how many run at once."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.begun: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def job(self, name: str) -> Job:
        self._gates[name] = asyncio.Event()

        async def run(stop: StopSignal) -> None:
            self.begun.append(name)
            self.running.add(name)
            waits = {asyncio.ensure_future(w) for w in (self._gates[name].wait(), stop.wait())}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            self.running.discard(name)

        return Job(run, name)

    def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()


async def test_a_lane_stays_as_long_as_anything_of_it_runs(clock: FakeClock) -> None:
    """Of two lanes that became one, the shorter job is over first, and then something comes."""
    lanes, jobs = Lanes(clock), Gated()
    lanes.put("old", jobs.job("a"))
    lanes.put("new", jobs.job("b"))
    await clock.advance(0)
    lanes.merge("old", "new")
    jobs.end("b")
    await clock.advance(0)
    assert lanes.busy("new")
    lanes.put("new", jobs.job("c"))
    await clock.advance(0)
    assert jobs.running == {"a"}
    jobs.end("a")
    await clock.advance(0)
    assert jobs.running == {"c"}
    jobs.end("c")
    await clock.advance(0)
    assert len(lanes) == 0


async def test_a_stop_finds_what_runs_beside(clock: FakeClock) -> None:
    lanes, jobs = Lanes(clock), Gated()
    lanes.put("old", jobs.job("a"))
    lanes.put("new", jobs.job("b"))
    await clock.advance(0)
    lanes.merge("old", "new")
    jobs.end("b")
    await clock.advance(0)
    over = lanes.stop("new")
    assert over is not None
    await asyncio.wait({over})
    assert jobs.running == set()
    await clock.advance(0)
    assert len(lanes) == 0


@pytest.mark.parametrize("ending", ["abc", "bca", "cab", "acb", "bac", "cba"])
async def test_lanes_that_become_one_after_another_wait_for_all(
    clock: FakeClock, ending: str
) -> None:
    lanes, jobs = Lanes(clock), Gated()
    for key in "abc":
        lanes.put(key, jobs.job(key))
    await clock.advance(0)
    lanes.merge("a", "b")
    lanes.merge("b", "c")
    lanes.put("c", jobs.job("d"))
    for n, name in enumerate(ending):
        await clock.advance(0)
        assert jobs.running == set(ending[n:])
        jobs.end(name)
    await clock.advance(0)
    assert jobs.running == {"d"}
    jobs.end("d")
    await clock.advance(0)
    assert len(lanes) == 0


async def test_so_many_at_once_and_fair_between_chats(clock: FakeClock) -> None:
    lanes = Lanes(clock, at_once=3)
    running = most = 0
    order: list[str] = []

    def job(name: str) -> Job:
        async def run(stop: StopSignal) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            order.append(name)
            await clock.sleep(1)
            running -= 1

        return Job(run, name)

    for n in range(40):
        lanes.put("busy", job(f"busy{n}"))
    for chat in range(9):
        lanes.put(f"chat{chat}", job(f"chat{chat}"))
    await clock.advance(0)
    await clock.advance(5)
    assert most == 3
    assert {f"chat{n}" for n in range(9)} <= set(order)  # not behind the forty of one chat
    lanes.stop("busy")
    await clock.advance(60)
    assert len(order) == 49
    assert len(lanes) == 0


async def test_a_stop_does_not_wait_for_a_free_place(clock: FakeClock) -> None:
    lanes = Lanes(clock, at_once=1)
    events: list[str] = []

    async def long(stop: StopSignal) -> None:
        await stop.wait()

    async def quick(stop: StopSignal) -> None:
        events.append(str(stop.reason))

    lanes.put("a", Job(long, "a"))
    await clock.advance(0)
    lanes.put("b", Job(quick, "b"))
    await clock.advance(10)
    assert events == []
    assert lanes.stop("b") is not None
    await clock.advance(0)
    assert events == [StopReason.USER]
    lanes.stop("a")
    await clock.advance(0)
    assert len(lanes) == 0


def test_slots_go_to_whoever_came_first() -> None:
    slots = Slots(1)
    woken: list[int] = []
    assert slots.take(1, lambda: None)
    for who in (2, 3, 4):
        assert not slots.take(who, partial(woken.append, who))
    slots.give_back(3)  # it does not want it any more
    slots.give_back(1)
    slots.give_back(2)
    assert woken == [2, 4]
    assert slots.take(4, lambda: None)
    slots.give_back(4)
    assert slots.take(5, lambda: None)
    slots.give_back(6)  # it never had one


# --- boot ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
async def test_recovery_and_platforms_never_start_two_runs(clock: FakeClock, seed: int) -> None:
    """The platform brings everything again while the start is still at it."""
    rig = Rig(clock, store=Dawdling(MemoryStore(clock, SequentialIds()), seed))
    rig.hold("m0", asyncio.Event())
    await send(rig, "m0", "m1", "m2")
    await rig.settle()
    rig.kill()
    await rig.settle()
    rig.loop.scripts.clear()
    rig.boot()
    await asyncio.gather(
        rig.recovery.run(),
        *(rig.intake.receive(inbound(f"m{n}", message_id=str(n + 1))) for n in range(5)),
    )
    for _ in range(4):
        await rig.settle()
    shown = rig.platform.texts()
    assert sorted(shown) == sorted({f"re: m{n}" for n in range(5)})
    assert set(rig.loop.most_at_once.values()) == {1}
    assert await rig.store.open_inbox() == []
