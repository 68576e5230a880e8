"""Turns, batch, background and micro-compaction, prunes, commands, kills and restarts at random.

Whatever comes in whatever order over one SQLite store: its invariants hold after every step, every
message is stored once and in its order, no list has two children, every request that could be sent
is valid, and no summary is paid for again that was paid for, but for what a kill cut off.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent.compaction.host import detaching
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.passes import MicroParts
from agent.compaction.micro.progress import MicroSettings
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.errors import ModelTimeout, SessionEnded, StaleTurn, StoreError
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import Draft, Message, pairs_are_whole, wire_message
from agent.model_metadata import estimate_prefix_tokens
from agent.ports import ModelRequest, Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, TurnTicket
from agent.store_ports import Store
from storage import faultpoint
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import Asked, ScriptedSideModel
from tests.fakes.store_invariants import check_invariants

KEY, OWNER = "key", "test:1"
PREFIX = SessionPrefix("test", "m", "be kind")
WINDOWS = (8_000, 40_000)
"""In the larger one there is room for pruning before a compression is due."""
STEPS = 60
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Commits wait for no disk there."""
THREADS = DaemonThreads(8, name="test-interleaved")


class _Killed(BaseException):
    """The process is gone between two statements."""


class Summaries:
    """The side model: each call waits until the test lets it go, and may fail."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.free = threading.Event()
        self.free.set()
        self.fails = False
        self.asked: list[str] = []
        self.failed = 0
        self.model = ScriptedSideModel(self._answer)

    def _answer(self, asked: Asked) -> str:
        self.asked.append(asked.prompt)
        number = len(self.asked)
        assert self.free.wait(30)
        if self.fails:
            self.failed += 1
            raise ModelTimeout("late")
        return f"## Goal\nsummary {number}"


class World:
    """One conversation on a store that is killed and opened again."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.window = self.rng.choice(WINDOWS)
        self.scale = self.window // WINDOWS[0]
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.summaries = Summaries(self.rng)
        self.settings = CompactionSettings(
            in_place=self.rng.random() < 0.3,
            prune_from_tokens=self.rng.choice([0, 5_000]),
        )
        self.micro = MicroSettings(enabled=self.rng.random() < 0.4)
        self.kills = 0
        self.number = 0
        self.said: list[str] = []
        """What stands in the conversation that the key leads to; what was taken back is not."""
        self.pending: list[asyncio.Future[Any]] = []

    # --- life

    async def open(self) -> None:
        self.store: Store = await open_store(self.path, clock=self.clock, ids=self.ids)
        await self.store.recover_turns(crash_limit=10**6)
        engine = ContextCompressor(
            "m",
            config_context_length=self.window,
            protect_last_n=6,
            side_model=self.summaries.model,
            clock=self.clock,
        )
        self.compactor = SessionCompactor(
            engine,
            self.store,
            self.clock,
            self.ids,
            self.settings,
            threads=THREADS,
            micro=MicroParts(self.micro, self.summaries.model, THREADS),
        )

    async def close(self, *, killed: bool) -> None:
        """Everything of this process ends; killed: without a word to anybody."""
        for task in [*self.pending, *detaching._kept]:
            task.cancel()
        self.summaries.free.set()
        await asyncio.gather(*self.pending, *detaching._kept, return_exceptions=True)
        self.pending.clear()
        self.kills += killed
        await self.store.close()
        faultpoint.install(None)

    async def check(self) -> None:
        """Nothing is doubled, nothing is missing, and it could be sent."""
        check_invariants(self.path, integrity=False)
        conversation = await self.store.conversation_for_key(KEY)
        if conversation is None:
            return
        texts: dict[int, str] = {}
        for session in await self.store.lineage(conversation.tip_session_id):
            for row in await self.store.all_rows(session.id):
                if row.message["role"] == "user" and row.kind is None and row.origin_id is None:
                    texts[row.id] = str(row.message["content"]).split()[0]
        standing = [texts[each] for each in sorted(texts)]
        # What was taken back stays in the store, in its place.
        assert [text for text in standing if text in self.said] == self.said
        assert max(Counter(standing).values(), default=1) == 1
        loaded = await self.tip()
        if loaded.rows and not any(row.id < 0 for row in loaded.rows):
            assert sum(row.kind == "summary" for row in loaded.rows) <= 1
            assert sum(row.kind == "micro" for row in loaded.rows) <= 1
            messages: list[Message] = [wire_message(row) for row in loaded.rows]
            assert pairs_are_whole(messages)
            if messages[-1]["role"] == "assistant":
                messages.append({"role": "user", "content": "next"})
            body = build_body(ModelRequest("be kind", messages, 100), "m")
            assert [str(v) for v in validate(body)] == []

    async def tip(self, ticket: TurnTicket | None = None) -> LoadedSession:
        conversation = await self.store.conversation_for_key(KEY)
        assert conversation is not None
        tip = await self.store.tip(conversation.tip_session_id)
        return await self.store.load(tip.id, ticket=ticket)

    async def at_hand(self, work: Awaitable[Any]) -> Any:
        """Until it is done; a summary that it waits for comes at some moment."""
        task = asyncio.ensure_future(work)
        for _ in range(self.rng.randint(0, 30)):
            await asyncio.sleep(0)
        if not task.done():
            await asyncio.wait({task}, timeout=0.005)
        if not task.done():
            self.summaries.free.set()
        return await task

    def beside(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Goes on while other things happen."""
        self.pending.append(asyncio.ensure_future(_quietly(work)))

    # --- what happens

    async def turn(self) -> None:
        self.number += 1
        text = f"m{self.number} " + "q" * (self.scale * self.rng.choice([40, 800, 2_400]))
        opening = TurnOpening(KEY, OWNER, (), _user(text), PREFIX)
        ticket = await self.store.begin_turn(opening)
        self.said.append(f"m{self.number}")
        loaded = await self.compactor.swap_if_cold(await self.tip(ticket))
        loaded = await self._compact(loaded, "preflight")
        for step in range(self.rng.choice([0, 0, 1, 3, 5])):
            loaded = await self._tools(ticket, step)
            loaded = await self._compact(loaded, "loop")
        await self._end(ticket)

    async def _tools(self, ticket: TurnTicket, step: int) -> LoadedSession:
        call_id = f"c{self.number}_{step}_{self.rng.getrandbits(30)}"
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        asks: Message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],  # type: ignore[list-item]
            "anthropic_content_blocks": [
                {"type": "thinking", "thinking": "hm", "signature": call_id},
                {"type": "tool_use", "id": call_id, "name": "f", "input": {}},
            ],
        }
        result: Message = {"role": "tool", "tool_call_id": call_id, "content": "r" * 12_000}
        if self.rng.random() < 0.5:
            result["content"] = "r" * 900 * self.scale
        tip = (await self.tip(ticket)).session.id
        await self.store.append(ticket, tip, [Draft(asks)])
        await self.store.append(ticket, tip, [Draft(result)])
        return await self.tip(ticket)

    async def _compact(self, loaded: LoadedSession, trigger: Any) -> LoadedSession:
        decision = self.compactor.due(loaded)
        if decision.due:
            return (await self.at_hand(self.compactor.compact(loaded, trigger))).loaded  # type: ignore[no-any-return]
        if decision.prune and trigger == "loop":
            return (await self.compactor.compact(loaded, "prune")).loaded
        return loaded

    async def _end(self, ticket: TurnTicket) -> None:
        seen = await self.tip(ticket)
        real = estimate_prefix_tokens(PREFIX) + sum(row.tokens for row in seen.rows)
        usage = Usage(int(real * self.rng.choice([1.0, 1.2])))
        seen = await self.compactor.note_usage(seen, usage)
        final = Draft({"role": "assistant", "content": f"a{self.number} " + "a" * 400})
        try:
            await self.store.finish_turn(
                ticket, seen.session.id, "done", final=final, anchor_usage=usage
            )
        except SessionEnded:
            tip = (await self.tip(ticket)).session.id
            await self.store.finish_turn(ticket, tip, "done", final=final)
        if self.micro.enabled:
            compactor = self.compactor
            self.beside(lambda: compactor.after_turn(seen, final))
        if self.rng.random() < 0.8:
            self.beside(self.prepare)

    async def prepare(self) -> None:
        await self.compactor.prepare(await self.tip())

    async def answer_summaries(self) -> None:
        self.summaries.fails = self.rng.random() < 0.2
        self.summaries.free.set()
        await asyncio.gather(*self.pending)
        self.pending.clear()
        self.summaries.fails = False

    async def hold_summaries(self) -> None:
        self.summaries.free.clear()

    async def undo(self) -> None:
        undone = await self.store.undo((await self.tip()).session.conversation_id)
        gone = [str(row.message["content"] or "") for row in undone.removed]
        self.said = [text for text in self.said if not any(g.startswith(f"{text} ") for g in gone)]

    async def new(self) -> None:
        await self.store.start_conversation(KEY, OWNER, PREFIX)
        self.said = []

    async def compress(self) -> None:
        focus = self.rng.choice([None, "boats"])
        await self.at_hand(self.compactor.compact(await self.tip(), "manual", focus=focus))

    async def hygiene(self) -> None:
        await self.at_hand(self.compactor.compact(await self.tip(), "hygiene"))

    async def stopped(self) -> None:
        """A compression that a stop leaves to itself."""
        task = asyncio.ensure_future(self.compactor.compact(await self.tip(), "loop"))
        for _ in range(self.rng.randint(0, 40)):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def wait(self) -> None:
        await self.clock.advance(self.rng.choice([1, 70, 400, 4_000]))

    async def clock_jumps(self) -> None:
        self.clock.set_wall(self.clock.now() + self.rng.choice([-100_000, -300, 300, 100_000]))

    async def restart(self) -> None:
        await self.close(killed=False)
        await self.open()

    async def kill_at_once(self) -> None:
        await self.close(killed=True)
        await self.open()

    async def kill_between_statements(self) -> None:
        """The next steps end at some statement of a write: that write has not happened."""
        left = self.rng.randint(0, 25)

        def hook(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed

        faultpoint.install(hook)
        before = list(self.said)
        step = self.rng.choice([self.turn, self.compress, self.prepare, self.answer_summaries])
        try:
            await step()
        except (_Killed, StoreError):
            pass
        finally:
            faultpoint.install(None)
        await self.close(killed=True)
        await self.open()
        await self._settle_what_was_said(before)

    async def _settle_what_was_said(self, before: list[str]) -> None:
        """Was the last message committed or not? The store knows, and so does its sender."""
        loaded = await self.tip()
        stored = {
            str(row.message["content"]).split()[0]
            for session in await self.store.lineage(loaded.session.id)
            for row in await self.store.all_rows(session.id)
            if row.message["role"] == "user" and row.kind is None
        }
        self.said = [text for text in self.said if text in before or text in stored]


async def _quietly(work: Callable[[], Awaitable[Any]]) -> None:
    with suppress(StoreError, StaleTurn):
        await work()


def _user(text: str) -> Draft:
    return Draft({"role": "user", "content": text})


WEIGHTS = {
    "turn": 14,
    "hold_summaries": 3,
    "answer_summaries": 4,
    "undo": 1,
    "new": 0.3,
    "compress": 1,
    "hygiene": 0.5,
    "stopped": 1,
    "wait": 2,
    "clock_jumps": 0.5,
    "restart": 1,
    "kill_at_once": 1,
    "kill_between_statements": 2,
}


@pytest.mark.parametrize("seed", range(8))
async def test_in_whatever_order(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="posthouse-interleaved-", dir=IN_MEMORY) as folder:
        world = World(Path(folder) / "state.db", seed)
        await world.open()
        done: list[str] = []
        try:
            await world.turn()
            for _ in range(STEPS):
                (name,) = world.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
                done.append(name)
                try:
                    await getattr(world, name)()
                except StaleTurn:
                    # A killed turn is in the way of an undo; its next start resumes it.
                    for turn in await world.store.recover_turns(crash_limit=10**6):
                        await world.store.resume_turn(turn.ticket)
                        tip = (await world.tip(turn.ticket)).session.id
                        await world.store.finish_turn(turn.ticket, tip, "failed")
                await world.check()
            await world.answer_summaries()
            await world.check()
        except BaseException:
            print(f"seed {seed}: {done}")
            raise
        finally:
            await world.close(killed=False)
        repeats = sum(n - 1 for n in Counter(world.summaries.asked).values())
        assert repeats <= world.kills + world.summaries.failed
