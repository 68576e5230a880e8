"""Several calls in one answer of the model: those that change the same go one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.jobs.nouns import MAX_JOBS, Action, Schedule, place_in
from agent.loop import TurnLoop
from agent.memory.desk import NoteDesk
from agent.memory.notes import MAX_NOTES
from agent.messages import Draft, text_of
from agent.ports import ToolContext
from agent.sessions import SessionPrefix, TurnOpening
from agent.tools.memory import ForgetTool, RememberTool
from agent.tools.registry import ToolRegistry
from agent.tools.schedule import ScheduleTool
from gateway.intake.records import record_of
from gateway.jobs.desk import JobDesk
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import inbound
from tests.fakes.scripted_model import ScriptedModel, answer, call
from tests.unit.agent.test_loop import FakeCompactor, Watcher

DAILY = {"action": "create", "when": "every day at 9:00", "what": "tea"}


class Rig:
    """A turn that somebody asked for, with the tools that change lasting things."""

    def __init__(self, store: SqlStore, clock: FakeClock) -> None:
        self.store = store
        self.jobs = JobDesk(self.store, clock, zone=lambda: "UTC")
        self.notes = NoteDesk(self.store)
        self.tools = ToolRegistry(
            [ScheduleTool(self.jobs), RememberTool(self.notes), ForgetTool(self.notes)]
        )
        message = inbound("please")
        self.record = record_of(message, kind="message", group_sessions_per_user=True, now=1.0)

    async def say(self, *calls: dict[str, Any]) -> list[str]:
        """The results of these calls, in one answer."""
        receipt = await self.store.accept(self.record)
        record = self.record
        opening = TurnOpening(
            session_key=record.session_key,
            owner=record.owner,
            inbox_ids=(receipt.inbox_id,),
            message=Draft({"role": "user", "content": "please"}),
            prefix=SessionPrefix("test", "m", "You help.", self.tools.schemas),
        )
        ticket = await self.store.begin_turn(opening)
        loop = TurnLoop(store=self.store, model=ScriptedModel(answer("", *calls), "done"),
                        tools=self.tools)  # fmt: skip
        context = ToolContext(
            ticket.conversation_id, record.owner, True, ticket.turn_id, place=record.owner
        )
        result = await loop(
            ticket,
            await self.store.load(ticket.session_id),
            compactor=FakeCompactor(self.store),
            context=context,
            observer=Watcher(),
        )
        rows = (await self.store.load(result.session_id)).rows
        return [text_of(r.message["content"]) for r in rows if r.message["role"] == "tool"]


@pytest.fixture
async def rig(tmp_path: Path, clock: FakeClock, ids: SequentialIds) -> AsyncIterator[Rig]:
    store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    yield Rig(store, clock)
    await store.close()


async def test_the_same_job_twice_in_one_answer_is_set_once(rig: Rig) -> None:
    first, second = await rig.say(call("schedule", DAILY), call("schedule", DAILY))
    assert "Job 1 is set" in first
    assert "That is set already, as job 1" in second
    assert len(await rig.jobs.everywhere()) == 1


async def test_what_is_cancelled_first_makes_room_for_what_is_set_behind_it(rig: Rig) -> None:
    place = place_in(rig.record)
    for n in range(MAX_JOBS):
        await rig.jobs.add(place, Schedule("every", "3600", "UTC"), Action("text", str(n)))
    cancel = {"action": "cancel", "job": 7}
    cancelled, made, over = await rig.say(
        call("schedule", cancel), call("schedule", DAILY), call("schedule", {**DAILY, "what": "x"})
    )
    assert "Job 7 is cancelled" in cancelled
    assert f"Job {MAX_JOBS + 1} is set" in made
    assert "cancel one first" in over


async def test_a_note_that_goes_makes_room_for_the_one_behind_it(rig: Rig) -> None:
    owner = rig.record.owner
    for n in range(MAX_NOTES):
        await rig.notes.remember(owner, owner, f"Fact number {n}.")
    gone, kept = await rig.say(
        call("forget", {"note": "n3"}), call("remember", {"text": "Tea, not coffee."})
    )
    assert "n3 is gone" in gone
    assert "Kept as note" in kept
