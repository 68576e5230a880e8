"""Lanes under everything at once: people, pieces, commands, stops, busy modes, crashes, drains.

Whatever happens, in whatever order: one run per conversation, every message in exactly one turn,
each person's words in the order in which they were said, nothing promised that is not stored.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.loop import TurnResult
from agent.messages import Draft, text_of
from agent.ports import Steering, Usage
from agent.sessions import LoadedSession, TurnTicket
from gateway import texts
from gateway.intake.access import AccessRules, PlatformPolicy
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.platform import FakePlatform, inbound
from tests.unit.gateway.rig import Rig, said
from tests.unit.gateway.test_races import Dawdling

LIMIT = 40
TOKEN = re.compile(r"w(\d+)w")
GROUP = "-100"
SHARED = PlatformPolicy(
    AccessRules(allow_from=frozenset({"111", "222"}), admins=frozenset({"111"})),
    require_mention=False,
    group_sessions_per_user=False,
)
RECEIPTS = (texts.KEPT_FOR_RESTART, texts.WILL_BE_TAKEN_IN, texts.queued(0)[:30])


class PuppetLoop:
    """An agent whose steps the machine makes: tools, answers; deaf ones ignore a stop."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.waiting: dict[str, asyncio.Future[str]] = {}
        """By conversation: the turn that waits for its next step."""
        self.running: Counter[str] = Counter()
        """By conversation: runs of turns that are not over."""
        self.most = 0
        self.newest: dict[str, str] = {}
        """By conversation: the turn that began last."""
        self.left_behind: set[str] = set()
        """Turns that were told to end and went on: theirs may be over while they still run."""
        self.written_behind: list[str] = []
        """What such a run could still store when the next turn had begun."""
        self.by_itself = False
        self.dead = False
        self.calls = 0

    async def __call__(
        self,
        ticket: TurnTicket,
        loaded: LoadedSession,
        *,
        steering: Steering | None = None,
        **_: Any,
    ) -> TurnResult:
        conversation = ticket.conversation_id
        self.running[conversation] += 1
        self.newest[conversation] = ticket.turn_id
        self.most = max(self.most, self.running[conversation])
        rows = list(loaded.rows)
        try:
            while (step := await self._next(conversation)) != "answer":
                rows += await self._tool(ticket, loaded.session.id, deaf=step == "deaf")
                if steering is not None:
                    rows += await steering.take_in(ticket, loaded.session.id)
        finally:
            self.running[conversation] -= ticket.turn_id not in self.left_behind
        mine = [r for r in rows if r.id >= ticket.user_row_id and r.message["role"] == "user"]
        tokens = TOKEN.findall(" ".join(text_of(r.message["content"]) for r in mine))
        final = said(f"re: {' '.join(tokens)}")
        return TurnResult(loaded.session.id, final, text_of(final.message["content"]), Usage(1))

    async def _next(self, conversation: str) -> str:
        if self.by_itself:
            await asyncio.sleep(0)
            return "answer"
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting[conversation] = future
        try:
            return await future
        finally:
            if self.waiting.get(conversation) is future:
                del self.waiting[conversation]

    async def _tool(self, ticket: TurnTicket, session_id: str, *, deaf: bool) -> tuple[Any, ...]:
        self.calls += 1
        call = {"id": f"c{self.calls}", "function": {"name": "shell", "arguments": "{}"}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        store = self.rig.store
        first = await store.append(ticket, session_id, [Draft(asked)])  # type: ignore[arg-type]
        for _ in range(200 if deaf else 3):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if not deaf or self.dead:
                    raise
                self._is_left_behind(ticket)
        overtaken = self.newest[ticket.conversation_id] != ticket.turn_id
        result = {"role": "tool", "tool_call_id": f"c{self.calls}", "content": "ok"}
        second = await store.append(ticket, session_id, [Draft(result)])  # type: ignore[arg-type]
        if overtaken:
            self.written_behind.append(ticket.turn_id)
        return (*first.rows, *second.rows)

    def _is_left_behind(self, ticket: TurnTicket) -> None:
        """It ignores that it was told to end: a stop waits for it only so long (0.7 s)."""
        if ticket.turn_id not in self.left_behind:
            self.left_behind.add(ticket.turn_id)
            self.running[ticket.conversation_id] -= 1


class Machine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.numbers = 0
        self.expected: dict[str, list[int]] = defaultdict(list)
        """By (chat, sender): the tokens that were said there, in order."""
        self.stopped: set[int] = set()
        """Tokens whose answer somebody may have stopped."""
        self.crashes = 0

    @initialize(mode=st.sampled_from(["queue", "interrupt", "steer"]), seed=st.integers(0, 10**6))
    def begin(self, mode: str, seed: int) -> None:
        self.mode = mode
        self.run(self._begin(mode, seed))

    async def _begin(self, mode: str, seed: int) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock, SequentialIds())
        platform = FakePlatform(now=self.clock.monotonic, dedupes_sends=True, limit=100_000)
        rig_class = type("_Rig", (Rig,), {"busy_mode": mode})
        self.rig = rig_class(
            self.clock, policy=SHARED, store=Dawdling(self.memory, seed), platform=platform
        )
        self.random = random.Random(seed)
        self._new_agent()

    def _new_agent(self) -> None:
        self.agent = PuppetLoop(self.rig)
        self.rig.agent_loop = self.agent
        self.rig.boot()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    # --- what people do

    @rule(
        place=st.sampled_from([("111", "111"), ("222", "222"), (GROUP, "111"), (GROUP, "222")]),
        kind=st.sampled_from(["short", "short", "paste", "album"]),
        pieces=st.integers(1, 3),
        hurry=st.integers(0, 60),
    )
    def say(self, place: tuple[str, str], kind: str, pieces: int, hurry: int) -> None:
        self.run(self._say(place, kind, pieces, hurry))

    async def _say(self, place: tuple[str, str], kind: str, pieces: int, hurry: int) -> None:
        chat, sender = place
        for n in range(1 if kind == "short" else pieces):
            self.numbers += 1
            text = f"w{self.numbers}w "
            if kind == "paste" and n < pieces - 1:
                text = text.ljust(LIMIT, "x")
            await self._hand_in(chat, sender, text, album=f"a{chat}" if kind == "album" else None)
            self.expected[f"{chat} {sender}"].append(self.numbers)
            await self.steps(hurry)

    async def _hand_in(self, chat: str, sender: str, text: str, album: str | None = None) -> None:
        await self.rig.intake.receive(
            inbound(
                text,
                message_id=str(self.numbers),
                chat_id=chat,
                sender_id=sender,
                chat_kind="group" if chat == GROUP else "direct",
                text_limit=LIMIT,
                album_id=album,
                sent_at=self.clock.now(),
            )
        )

    @rule(
        place=st.sampled_from([("111", "111"), (GROUP, "111"), (GROUP, "222")]),
        command=st.sampled_from(["/stop", "/stop", "/new", "/title t", "/status", "/nonsense"]),
        hurry=st.integers(0, 60),
    )
    def command(self, place: tuple[str, str], command: str, hurry: int) -> None:
        self.run(self._command(place, command, hurry))

    async def _command(self, place: tuple[str, str], command: str, hurry: int) -> None:
        chat, sender = place
        self.numbers += 1
        if command == "/stop":
            for where, numbers in self.expected.items():
                if where.startswith(f"{chat} "):
                    self.stopped.update(numbers)
        await self._hand_in(chat, sender, command)
        await self.steps(hurry)

    # --- what agents do

    @precondition(lambda self: self.agent.waiting)
    @rule(which=st.integers(0, 5), step=st.sampled_from(["tool", "deaf", "answer", "answer"]))
    def step(self, which: int, step: str) -> None:
        self.run(self._step(which, step))

    async def _step(self, which: int, step: str) -> None:
        waiting = sorted(self.agent.waiting)
        future = self.agent.waiting[waiting[which % len(waiting)]]
        if not future.done():
            future.set_result(step)
        await self.steps(self.random.randrange(80))

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    # --- what happens to the process

    @precondition(lambda self: self.crashes < 2)
    @rule(steps=st.integers(0, 80))
    def crash(self, steps: int) -> None:
        self.crashes += 1
        self.run(self._crash(steps))

    async def _crash(self, steps: int) -> None:
        await self.steps(steps)
        await self._die()
        self._new_agent()
        await self.rig.recovery.run()

    async def _die(self) -> None:
        self.agent.dead = True
        mine = asyncio.current_task()
        for _ in range(20):
            for task in asyncio.all_tasks() - {mine}:
                task.cancel()
            await asyncio.sleep(0)

    @rule()
    def restart(self) -> None:
        self.run(self._restart())

    async def _restart(self) -> None:
        ending = asyncio.ensure_future(self.rig.stop())
        await self.steps(50)
        while not ending.done():
            await self.clock.advance(1.0)
        await ending
        await self._die()
        self._new_agent()
        await self.rig.recovery.run()

    # --- what holds

    @invariant()
    def one_run_at_a_time(self) -> None:
        if hasattr(self, "agent"):
            assert self.agent.most <= 1
            assert self.agent.written_behind == []

    @invariant()
    def nothing_is_promised_that_is_not_stored(self) -> None:
        if not hasattr(self, "rig"):
            return
        known = {item.record.message_id for item in self.run_value(self.memory.inbox_items(ALL))}
        for sent in self.rig.platform.chat:
            if sent.text.startswith(RECEIPTS):
                assert sent.address.reply_to_message_id in known

    def run_value(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig"):
                self.run(self._come_to_rest())
                self.run(self._check())
        finally:
            self.run(self._die())
            self.loop.close()

    async def _come_to_rest(self) -> None:
        self.agent.by_itself = True
        for _ in range(60):
            for future in list(self.agent.waiting.values()):
                if not future.done():
                    future.set_result("answer")
            await self.steps(100)
            await self.clock.advance(2.0)
            if not len(self.rig.lanes) and not await self.memory.open_inbox():
                break
        await self.steps(300)

    async def _check(self) -> None:
        items = await self.memory.inbox_items(ALL)
        assert {item.state for item in items} <= {"answered"}
        assert await self.memory.recover_turns() == []
        assert len(self.rig.lanes) == 0
        assert not any(self.rig.dispatch.holds(item.id) for item in items)
        rows = []
        for info in await self.memory.list_sessions(limit=10_000):
            rows += await self.memory.all_rows(info.id)
        said_rows = sorted(
            (r for r in rows if r.message["role"] == "user" and r.origin_id is None),
            key=lambda r: r.id,
        )
        order = [
            int(token)
            for row in said_rows
            for token in TOKEN.findall(text_of(row.message["content"]))
        ]
        for numbers in self.expected.values():
            assert [n for n in order if n in numbers] == numbers  # each once, in order
        shown = "\n".join(self.rig.platform.texts())
        answered = Counter(
            int(token)
            for text in self.rig.platform.texts()
            if text.startswith("re: ")
            for token in text.removeprefix("re: ").split()
        )
        for numbers in self.expected.values():
            for n in numbers:
                assert answered[n] <= 1
                if self.mode != "interrupt" and n not in self.stopped:
                    assert answered[n] == 1, (n, shown)


ALL = range(1, 2000)


def test_lanes() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
