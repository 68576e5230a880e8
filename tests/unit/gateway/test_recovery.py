"""After a restart: owed answers, interrupted turns, then what came meanwhile, in order, once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from agent.mail import OutboxDraft, OutboxItem, PartDraft
from agent.messages import Draft, Keep, ToolSchema
from agent.ports import ToolContext, ToolResult
from agent.sessions import TurnTicket
from agent.tools.registry import ToolRegistry
from gateway import texts
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.intake import IntakeLimits, too_large
from gateway.lanes.lanes import SETTLE_SECONDS
from gateway.lanes.recovery import RESUME_WITHIN_SECONDS
from tests.contract.store_suite import split_of
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said


class SendingTool:
    """Says that files go out."""

    schema = ToolSchema("draw", "Draws.", {"type": "object", "properties": {}})

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("drawn", files=self._names)


KEY = '["fake","900","111",null,"111"]'


OPEN_TO_ALL = PlatformPolicy(AccessRules(allow_from=frozenset({"111", "112", "113"})))


async def send(rig: Rig, *texts_: str, first: int = 1) -> None:
    for n, text in enumerate(texts_, first):
        await rig.intake.receive(inbound(text, message_id=str(n)))
    await rig.settle()


async def restart(rig: Rig, *, orderly: bool) -> None:
    if orderly:
        await rig.stop()
    else:
        rig.kill()
        await rig.settle()
    rig.loop.scripts.clear()
    rig.boot()
    await rig.recovery.run()
    await rig.settle()


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_cut_off_turn_is_resumed_before_what_waits(clock: FakeClock, orderly: bool) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2", "m3")
    await restart(rig, orderly=orderly)
    assert rig.platform.texts() == ["re: m1", "re: m2", "re: m3"]
    assert rig.platform.chat[0].address.reply_to_message_id == "1"
    assert [r for r in await rig.rows(KEY) if r[0] == "user"] == [
        ("user", "m1"), ("user", "m2"), ("user", "m3"),
    ]  # fmt: skip
    assert max(rig.loop.most_at_once.values()) == 1
    assert await rig.store.open_inbox() == []


@pytest.mark.parametrize("failures", [1, 1_000])
async def test_a_store_that_takes_no_mark_on_the_way_down_loses_no_turn(
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
) -> None:
    """It ended in a crash of each lane, and what the person should know was lost."""
    rig = Rig(clock, policy=OPEN_TO_ALL)
    real, left = rig.store.interrupt_turn, failures

    async def interrupt_turn(ticket: TurnTicket) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnavailable("disk full")
        await real(ticket)

    async def owe(*_: object) -> OutboxItem:
        raise StoreUnavailable("disk full")

    async def held(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        observer.on_notice("a file was left out")
        await asyncio.Event().wait()
        return said("never")

    people = ["111", "112", "113"]
    for person in people:
        rig.loop.scripts[f"from {person}"] = held
        await rig.intake.receive(inbound(f"from {person}", sender_id=person, chat_id=person))
    await rig.settle()
    with monkeypatch.context() as outage, caplog.at_level(logging.INFO):
        outage.setattr(rig.store, "interrupt_turn", interrupt_turn)
        outage.setattr(rig.store, "owe", owe)
        began = clock.monotonic()
        drain = asyncio.ensure_future(rig.lanes.drain(0))
        while not drain.done():
            await rig.settle()
            await clock.advance(0.1)
        assert clock.monotonic() - began < SETTLE_SECONDS
        assert drain.result().interrupted == 3
        await rig.settle()
    said_now = [rig.platform.texts(person) for person in people]
    assert said_now == [["a file was left out"]] * 3
    told = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.getMessage() for r in told] == [
        "the store takes nothing at the end; unmarked turns are found at the next start"
    ]
    await restart(rig, orderly=False)
    assert [rig.platform.texts(person)[1:] for person in people] == [
        [f"re: from {person}"] for person in people
    ]


async def test_a_call_without_a_result_is_not_run_again(clock: FakeClock) -> None:
    rig = Rig(clock)

    async def half(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        call = {"id": "c1", "function": {"name": "shell", "arguments": "{}"}}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        await rig.store.append(ticket, loaded.session.id, [Draft(message)])  # type: ignore[arg-type]
        await asyncio.Event().wait()
        return said("never")

    rig.loop.scripts["m1"] = half
    await send(rig, "m1")
    await restart(rig, orderly=False)
    assert rig.platform.texts() == ["re: m1"]
    roles = [m["role"] for m in rig.loop.seen[-1]]
    assert roles == ["user", "assistant", "tool"]


class Planned(FakePlatform):
    """Remembers what it was given to plan."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[OutboxDraft] = []

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        self.planned.append(draft)
        return super().render(draft)


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_file_made_before_the_restart_goes_out_with_the_answer_once(
    clock: FakeClock, orderly: bool
) -> None:
    """Also where a compression in the same turn has condensed the call that made it."""
    platform = Planned()
    rig = Rig(clock, platform=platform)
    names = [f"{n}" * 32 + ".png" for n in range(2)]

    async def half(loop: Any, ticket: Any, loaded: Any, observer: Any) -> Draft:
        tools = ToolRegistry([SendingTool(names)])
        function = {"name": "draw", "arguments": "{}"}
        call: Any = {"id": "c1", "type": "function", "function": function}
        context = ToolContext("c", "o", True, ticket.turn_id)
        result = await tools.run(call, context, on_file=observer.on_file)
        asked = Draft({"role": "assistant", "content": "", "tool_calls": [call]})
        await rig.store.append(ticket, loaded.session.id, [asked, result])
        whole = await rig.store.load(loaded.session.id, ticket=ticket)
        summary = Draft({"role": "user", "content": "drawn"}, kind="summary")
        change = await rig.store.split(split_of(whole, summary, Keep(ticket.user_row_id)))
        assert change.applied
        await asyncio.Event().wait()
        return said("never")

    rig.loop.scripts["m1"] = half
    await send(rig, "m1")
    await restart(rig, orderly=orderly)
    assert rig.platform.texts() == ["re: m1"]
    (draft,) = platform.planned
    assert draft.files == tuple(names)
    assert draft.files_owner == "fake:111"
    await send(rig, "m2", first=2)
    assert platform.planned[-1].files == ()


@pytest.mark.parametrize("seconds", [RESUME_WITHIN_SECONDS + 1, -RESUME_WITHIN_SECONDS - 60])
async def test_a_turn_of_another_hour_is_told_not_resumed(clock: FakeClock, seconds: float) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    clock.set_wall(clock.now() + seconds)
    await restart(rig, orderly=True)
    assert rig.platform.texts() == [texts.TOO_OLD_TO_RESUME, "re: m2"]


async def test_whoever_lost_access_gets_nothing(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2", "/status")
    shown = len(rig.platform.texts())
    rig.policies["fake"] = PlatformPolicy(AccessRules(allow_from=frozenset({"333"})))
    await restart(rig, orderly=True)
    assert len(rig.platform.texts()) == shown
    assert await rig.store.open_inbox() == []
    rig.policies["fake"] = PlatformPolicy(AccessRules(allow_from=frozenset({"111"})))
    await send(rig, "m4", first=4)
    assert rig.platform.texts()[shown:] == ["re: m4"]


async def test_a_platform_that_is_off_keeps_its_messages(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    policy = rig.policies.pop("fake")
    await restart(rig, orderly=True)
    assert rig.platform.texts() == []
    rig.policies["fake"] = policy
    await restart(rig, orderly=True)
    assert rig.platform.texts() == ["re: m1", "re: m2"]


async def test_a_stop_that_came_before_the_crash_holds(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    # stored, and then killed before anything came of it
    record = replace(
        (await rig.store.inbox_items([1]))[0].record, kind="command", text="/stop", message_id="9"
    )
    await rig.store.accept(record)
    await restart(rig, orderly=False)
    assert sorted(rig.platform.texts()) == sorted([texts.STOPPED, "re: m2"])


async def store(rig: Rig, *texts_: str, first: int, sender: str = "111") -> None:
    """Rows that were committed, and then the process was killed."""
    pattern = (await rig.store.inbox_items([1]))[0].record
    for n, text in enumerate(texts_, first):
        kind = "command" if text.startswith("/") else "message"
        payload = {**pattern.payload, "sender_id": sender}
        await rig.store.accept(
            replace(pattern, kind=kind, text=text, message_id=str(n), payload=payload)
        )


async def test_a_stop_of_before_does_not_hit_the_next_turn(clock: FakeClock) -> None:
    rig = Rig(clock)
    await send(rig, "m1")
    await store(rig, "/stop", first=2)  # its answer was not stored before the crash
    rig.hold("m3", asyncio.Event())
    await send(rig, "m3", first=3)
    await restart(rig, orderly=False)
    assert sorted(rig.platform.texts()) == sorted(["re: m1", texts.STOPPED, "re: m3"])


async def test_each_stop_hits_its_own_turn(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1")
    await store(rig, "/stop", "m3", "/stop", first=2)
    await restart(rig, orderly=False)
    assert rig.platform.texts() == [texts.STOPPED, texts.STOPPED]
    assert [text for _, text in await rig.rows(KEY)] == ["m1", "m3"]


async def test_a_stop_that_was_said_again_does_not_hit_the_next_message(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    await store(rig, "/stop", "/stop", first=3)
    await restart(rig, orderly=False)
    assert sorted(rig.platform.texts()) == sorted([texts.STOPPED, texts.STOPPED, "re: m2"])


async def test_the_stop_of_somebody_who_lost_access_stops_nobody(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1")
    await store(rig, "/stop", first=2, sender="222")
    await restart(rig, orderly=False)
    assert rig.platform.texts() == ["re: m1"]


async def test_a_turn_that_kills_the_daemon_is_set_aside(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.hold("m1", asyncio.Event())
    await send(rig, "m1", "m2")
    for _ in range(3):
        rig.kill()
        await rig.settle()
        rig.boot()
        rig.loop.scripts.clear()
        rig.hold("m1", asyncio.Event())
        await rig.recovery.run()
        await rig.settle()
    assert len(rig.platform.texts()) == 2
    assert rig.platform.texts()[-1] == "re: m2"


async def test_owed_answers_go_first_and_once(clock: FakeClock) -> None:
    rig = Rig(clock)
    rig.platform.gate = asyncio.Event()
    await send(rig, "m1")
    rig.hold("m2", asyncio.Event())
    await send(rig, "m2", first=2)
    rig.kill()
    await rig.settle()
    rig.platform.gate = None
    rig.platform.dedupes_sends = True
    await restart(rig, orderly=False)
    assert rig.platform.texts() == ["re: m1", "re: m2"]


async def test_messages_during_the_drain_are_kept(clock: FakeClock) -> None:
    rig = Rig(clock)
    gate = asyncio.Event()
    rig.hold("m1", gate)
    await send(rig, "m1")
    draining = asyncio.ensure_future(rig.lanes.drain(5))
    await rig.settle()
    await send(rig, "m2", first=2)
    gate.set()
    await rig.settle()
    report = await draining
    assert report.finished
    assert report.waiting == 1
    assert rig.platform.texts() == [texts.KEPT_FOR_RESTART, "re: m1"]
    await restart(rig, orderly=True)
    assert rig.platform.texts()[1:] == ["re: m1", "re: m2"]


@pytest.mark.parametrize("text", ["x" * 5000, "/compress " + "x" * 5000, "", " \u200b"])
async def test_a_refusal_that_a_crash_cut_off_is_said_at_the_next_start(
    clock: FakeClock, text: str
) -> None:
    """What is kept of a message that was too long is not asked in its place."""
    rig = Rig(clock, limits=IntakeLimits(max_message_chars=4000))
    answer = rig.store.answer_inbox

    async def down(*_: object) -> None:
        raise StoreUnavailable("killed between the row and its answer")

    rig.store.answer_inbox = down
    with pytest.raises(StoreUnavailable):
        await rig.intake.receive(inbound(text))
    assert len(await rig.store.open_inbox()) == 1
    rig.store.answer_inbox = answer
    await restart(rig, orderly=False)
    refusal = too_large(text, IntakeLimits(max_message_chars=4000)) or texts.NOTHING_TO_READ
    assert rig.platform.texts() == [refusal]
    assert rig.loop.seen == []
    assert await rig.store.open_inbox() == []


async def test_a_message_of_the_drain_behind_nothing_is_kept_aloud(clock: FakeClock) -> None:
    rig = Rig(clock)
    draining = asyncio.ensure_future(rig.lanes.drain(5))
    await rig.settle()
    await send(rig, "m1")
    await draining
    assert rig.platform.texts() == [texts.KEPT_FOR_RESTART]
    await restart(rig, orderly=True)
    assert rig.platform.texts()[1:] == ["re: m1"]


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_killed_at_any_step_every_message_is_answered_once(
    clock: FakeClock, steps: int
) -> None:
    rig = Rig(clock)
    rig.platform.dedupes_sends = True
    messages = [inbound(f"m{n}", message_id=str(n)) for n in range(4)]
    work = [asyncio.ensure_future(rig.intake.receive(m)) for m in messages]
    for _ in range(steps):
        await asyncio.sleep(0)
    for task in work:
        task.cancel()
    rig.kill()
    await rig.settle()
    rig.boot()
    await rig.recovery.run()
    for message in messages:
        await rig.intake.receive(message)  # the platform brings back what was not acknowledged
    for _ in range(5):
        await rig.settle()
        await clock.advance(1)
    assert sorted(rig.platform.texts()) == [f"re: m{n}" for n in range(4)]
    assert await rig.store.open_inbox() == []
    assert await rig.store.owed() == []
