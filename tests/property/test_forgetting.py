"""Owns what holds for whoever is forgotten, whatever two people have done in one group before."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.brought import fenced, onto
from agent.errors import SessionEnded, StaleTurn
from agent.lineages import UncompressRequest
from agent.llm.validator import validate
from agent.llm.wire import map_messages
from agent.messages import Draft, Keep
from agent.sessions import RewriteRequest, SplitRequest, TurnOpening
from agent.store_ports import Store
from storage.memory import MemoryStore
from storage.sqlite import open_store
from tests.contract.forgetting_suite import GROUP, OTHER
from tests.contract.store_suite import OWNER, PREFIX
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

STEPS = (
    "mine", "mine", "yours", "yours", "mine with a tool", "yours with a tool", "note", "compress",
    "compress in place", "micro", "undo", "uncompress", "fork", "new", "resume", "mine cut off",
    "yours cut off",
)  # fmt: skip
WORD = {OWNER: "zebra", OTHER: "lion"}


class Group:
    """What happens in the group, one step after another; each may find nothing to do."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.said = 0
        self.conversations: list[str] = []

    async def step(self, name: str) -> None:
        owner = OWNER if name.startswith("mine") else OTHER
        try:
            match name:
                case "mine" | "yours":
                    await self.turn(owner)
                case "mine with a tool" | "yours with a tool":
                    await self.turn(owner, tool=True)
                case "mine cut off" | "yours cut off":
                    await self.turn(owner, cut_off=True)
                case "note":
                    await self.store.remember_note(GROUP, OWNER, f"zebra {self.said}")
                case _:
                    await self.to_the_list(name)
        except (SessionEnded, StaleTurn):
            pass  # a turn that was cut off is in the way

    async def turn(self, owner: str, *, tool: bool = False, cut_off: bool = False) -> None:
        self.said += 1
        word = f"{WORD[owner]}{self.said}"
        said = Draft({"role": "user", "content": word})
        notes = await self.store.notes(GROUP)
        if notes:
            said = onto(said, fenced("notes", notes[-1].text))
        ticket = await self.store.begin_turn(TurnOpening(GROUP, owner, (), said, PREFIX))
        if tool:
            call_id = f"call{self.said}"
            call = {"name": "clock", "arguments": f'{{"x":"{word}"}}'}
            await self.store.append(
                ticket,
                ticket.session_id,
                (
                    Draft(
                        {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [{"id": call_id, "type": "function", "function": call}],
                        }
                    ),
                    Draft({"role": "tool", "content": word, "tool_call_id": call_id, "name": "c"}),
                ),
            )
        if cut_off:
            await self.store.interrupt_turn(ticket)
            return
        blocks = [
            {"type": "thinking", "thinking": word, "signature": "s"},
            {"type": "text", "text": f"re {word}"},
        ]
        final = Draft(
            {"role": "assistant", "content": f"re {word}", "anthropic_content_blocks": blocks}
        )
        await self.store.finish_turn(ticket, ticket.session_id, "done", final=final)

    async def to_the_list(self, name: str) -> None:
        found = await self.store.conversation_for_key(GROUP)
        if found is None:
            return
        if found.id not in self.conversations:
            self.conversations.append(found.id)
        loaded = await self.store.load(found.tip_session_id)
        session, rows = loaded.session, loaded.rows
        if name == "new":
            await self.store.start_conversation(GROUP, OTHER, PREFIX)
            return
        if name == "resume":
            await self.store.resume(GROUP, self.conversations[0])
            return
        if not rows:
            return
        kept = [Keep(row.id) for row in rows[-1:] if row.message["role"] != "tool"]
        # A summary may hold what it has read, and no more.
        told = "zebra and more" if "zebra" in repr(rows) else "of lions"
        summary = Draft({"role": "user", "content": told}, kind="summary")
        state = session.compression.changed(count=session.compression.count + 1)
        place = (session.revision, rows[-1].id)
        match name:
            case "compress":
                entries = (summary, *kept)
                await self.store.split(
                    SplitRequest(found.id, session.id, *place, entries, state, manifest={"m": told})
                )
            case "compress in place":
                made = Draft({"role": "assistant", "content": told})
                await self.store.rewrite(
                    RewriteRequest(session.id, *place, (summary, made, *kept), state)
                )
            case "micro":
                marker = Draft({"role": "assistant", "content": told}, kind="micro")
                await self.store.rewrite(RewriteRequest(session.id, *place, (marker, *kept)))
            case "undo":
                await self.store.undo(found.id)
            case "uncompress":
                request = UncompressRequest(found.id, session.id, *place, session.compression)
                await self.store.uncompress(request)
            case _:
                fork = await self.store.branch(session.id, GROUP, OTHER)
                self.conversations.append(fork.conversation_id)


async def everything(store: Store) -> list[Any]:
    """Every row of every session, in order."""
    infos = await store.list_sessions(limit=1_000)
    found = [row for info in infos for row in await store.all_rows(info.id)]
    return sorted(found, key=lambda row: row.id)


async def check(store: Store) -> None:
    """What holds afterwards: nothing of one, everything that the other has said, valid lists."""
    before = await everything(store)
    others = {
        row.id: row.message["content"]
        for row in before
        if row.message["role"] == "user" and str(row.message["content"]).startswith("lion")
    }
    await store.begin_forgetting(OWNER)
    await store.erase(OWNER)
    await store.finish_forgetting(OWNER)
    after = await everything(store)
    assert not [row for row in after if "zebra" in repr(row)]
    known = {row.id: row.message["content"] for row in after}
    assert {row_id: known[row_id] for row_id in others} == others
    assert [(r.id, r.seq, r.message["role"]) for r in after[: len(before)]] == [
        (r.id, r.seq, r.message["role"]) for r in before
    ]
    for info in await store.list_sessions(limit=1_000):
        session = await store.session(info.id)
        assert "zebra" not in repr(session)
        rows = [row.message for row in (await store.load(info.id)).rows]
        sent = map_messages([*rows, {"role": "user", "content": "go on"}])
        assert not validate({"messages": sent})
        assert not [row for row in await store.uncompressed(info.id) if "zebra" in repr(row)]
    for turn in await store.recover_turns():
        assert turn.owner == OTHER
        loaded = await store.resume_turn(turn.ticket)
        final = Draft({"role": "assistant", "content": "after all"})
        with suppress(SessionEnded):  # somebody has said /new meanwhile
            await store.finish_turn(turn.ticket, loaded.session.id, "done", final=final)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=18))
def test_whatever_was_done_in_the_group(steps: list[str]) -> None:
    async def both() -> list[list[Any]]:
        shapes = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.db"
            stores: list[Store] = [
                MemoryStore(FakeClock(), SequentialIds()),
                await open_store(path, clock=FakeClock(), ids=SequentialIds()),
            ]
            for store in stores:
                group = Group(store)
                for step in steps:
                    await group.step(step)
                await check(store)
                rows = await everything(store)
                shapes.append([(r.seq, r.message["role"], r.message["content"]) for r in rows])
                await store.close()
            check_invariants(path)
            with closing(sqlite3.connect(path)) as db:
                dump = "\n".join(db.iterdump())
            assert "zebra" not in dump
        return shapes

    in_memory, in_sql = asyncio.run(both())
    assert in_memory == in_sql
