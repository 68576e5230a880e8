"""The simulator is held against the real compactor: same sizes, same places, about the same lists.

The real one gets texts of just these sizes and a side model whose summaries have the assumed
length; nothing takes time. Tolerances: the first two compressions within one answer and 10 % of
the size; in all the same number, give or take one in ten; all prompts together within 3 %.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.messages import Draft, Message
from agent.model_metadata import MESSAGE_TOKENS, TOOL_CALL_TOKENS, estimate_prefix_tokens
from agent.ports import Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, TurnTicket
from agent.simulation.outcome import Outcome
from agent.simulation.replay import replay
from agent.simulation.script import Script, Step, make_script
from agent.simulation.settings import Assumptions, Choice, setting_of
from agent.simulation.trace import Event, Trace
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import Asked, ScriptedSideModel

WINDOW = 24_000
AT_ONCE = Assumptions(
    call_seconds=0.0,
    read_tokens_per_second=1e15,
    write_tokens_per_second=1e15,
    summary_fill=0.5,
    identifier_share=0.0,
)
PREFIX = SessionPrefix("test", "claude-test", "be kind " * 100)
THREADS = DaemonThreads(2, name="test-simulated")


_LETTERS = "".join(random.Random(5).choices("abcdefgh ", k=9001))


def filler(tokens: int, seed: int) -> str:
    """Letters and blanks that take so many tokens, hold no identifier, and are like no other."""
    start = seed * 37 % 4000
    words = _LETTERS[start : start + max(1, tokens) * 4]
    return f"k{words[1:-1]}k"


def summary(asked: Asked) -> str:
    found = re.search(r"Write at most about (\d+) tokens", asked.prompt)
    assert found is not None
    return filler(int(int(found[1]) * AT_ONCE.summary_fill), 1)


@dataclass
class Seen:
    """A compression of the real one."""

    request: int
    tokens_after: int
    prepared: bool


class Real:
    """The steps of a script through the store and the real compactor."""

    def __init__(self, *, background: bool) -> None:
        self.clock, self.ids = FakeClock(), SequentialIds()
        self.store = MemoryStore(self.clock, self.ids)
        side = ScriptedSideModel(summary)
        engine = ContextCompressor(
            PREFIX.model, config_context_length=WINDOW, side_model=side, clock=self.clock
        )
        self.compactor = SessionCompactor(
            engine,
            self.store,
            self.clock,
            self.ids,
            CompactionSettings(background=background),
            threads=THREADS,
        )
        self.prefix_tokens = estimate_prefix_tokens(PREFIX)
        self.ticket: TurnTicket | None = None
        self.tip = ""
        self.calls: list[str] = []
        self.begins = False
        self.seen: list[Seen] = []
        self.sizes: list[int] = []

    async def run(self, script: Script) -> None:
        for step in script.steps:
            await self.clock.advance(step.gap_seconds)
            await self._step(step)

    async def _load(self) -> LoadedSession:
        tip = await self.store.tip(self.tip)
        self.tip = tip.id
        return await self.store.load(tip.id)

    async def _step(self, step: Step) -> None:
        number = step.row.id
        match step.kind:
            case "said":
                text = filler(step.row.tokens - MESSAGE_TOKENS, number)
                opening = TurnOpening("key", "test:1", (), Draft(message("user", text)), PREFIX)
                self.ticket = await self.store.begin_turn(opening)
                self.tip, self.begins = self.ticket.session_id, True
            case "result":
                text = filler(step.row.tokens - MESSAGE_TOKENS - TOOL_CALL_TOKENS, number)
                result = {"role": "tool", "tool_call_id": self.calls.pop(0), "content": text}
                await self._append(cast(Message, result))
            case "answer":
                await self._answer(step)

    async def _append(self, said: Message, usage: Usage | None = None) -> None:
        assert self.ticket is not None
        await self._load()
        await self.store.append(self.ticket, self.tip, [Draft(said)], anchor_usage=usage)

    async def _answer(self, step: Step) -> None:
        assert self.ticket is not None
        loaded = await self._make_room(await self._load())
        self.tip = loaded.session.id
        size = self.prefix_tokens + sum(row.tokens for row in loaded.rows)
        self.sizes.append(size)
        usage = Usage(input_tokens=size, output_tokens=step.row.tokens, model=PREFIX.model)
        calls = len(step.row.message.get("tool_calls") or ())
        said = answer(step, calls)
        self.calls = [call["id"] for call in said.get("tool_calls") or ()]
        self.begins = False
        if step.ends_turn:
            await self.store.finish_turn(
                self.ticket, self.tip, "done", final=Draft(said), anchor_usage=usage
            )
        else:
            await self._append(said, usage)
        await self.compactor.note_usage(await self._load(), usage)
        if step.ends_turn:
            await self.compactor.prepare(await self._load())

    async def _make_room(self, loaded: LoadedSession) -> LoadedSession:
        if self.begins:
            shorter = await self.compactor.swap_if_cold(loaded)
            loaded = self._noted(loaded, shorter, prepared=True)
        if self.compactor.due(loaded).due:
            kept = await self.store.prepared(loaded.session.id)
            result = await self.compactor.compact(loaded, "preflight" if self.begins else "loop")
            loaded = self._noted(loaded, result.loaded, prepared=kept is not None)
        return loaded

    def _noted(
        self, before: LoadedSession, after: LoadedSession, *, prepared: bool
    ) -> LoadedSession:
        if after.session.id != before.session.id:
            tokens = self.prefix_tokens + sum(row.tokens for row in after.rows)
            self.seen.append(Seen(len(self.sizes), tokens, prepared))
        return after


def message(role: str, text: str) -> Message:
    return cast(Message, {"role": role, "content": text})


def answer(step: Step, calls: int) -> Message:
    """Text and calls that take just the tokens of the row."""
    rest = step.row.tokens - MESSAGE_TOKENS
    if not calls:
        return message("assistant", filler(rest, step.row.id))
    content = "kkkk" if step.row.message["content"] else None
    rest -= 1 if content else 0
    each = max(2, rest // calls - TOOL_CALL_TOKENS)
    made: list[dict[str, Any]] = []
    for k in range(calls):
        tokens = each if k else max(2, rest - (calls - 1) * (each + TOOL_CALL_TOKENS) - 8)
        arguments = '{"q": "' + filler(tokens, step.row.id + k)[: max(1, 4 * tokens - 13)] + '"}'
        function = {"name": "look", "arguments": arguments}
        made.append({"id": f"c{step.row.id}_{k}", "type": "function", "function": function})
    return cast(Message, {"role": "assistant", "content": content, "tool_calls": made})


def talk(kind: str, seed: int, turns: int = 75) -> Trace:
    """A conversation of a kind, small enough for a small window."""
    chance = random.Random(seed)
    events: list[Event] = []
    for _ in range(turns if kind == "chat" else turns // 2):
        pause = 9000.0 if chance.random() < 0.15 else 20.0
        events.append(Event(pause, "user", chance.randint(20, 260)))
        for _ in range(chance.choice((0, 1, 4, 9)) if kind == "tools" else 0):
            calls = chance.choice((1, 1, 2))
            events += [Event(1.0, "call", chance.randint(30, 90)) for _ in range(calls)]
            events += [Event(1.0, "result", chance.randint(40, 900)) for _ in range(calls)]
        events.append(Event(2.0, "text", chance.randint(60, 500)))
    return Trace(PREFIX.model, tuple(events), prefix_tokens=estimate_prefix_tokens(PREFIX))


def simulated(trace: Trace, script: Script, *, background: bool) -> Outcome:
    choice = Choice(background=background)
    setting = setting_of("defaults", choice, replace(trace, max_tokens=0), WINDOW)
    return replay(script, setting, prefix_tokens=trace.prefix_tokens, assumed=AT_ONCE)


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("kind", ["chat", "tools"])
async def test_it_compresses_where_the_real_one_does(
    kind: str, background: bool, seed: int
) -> None:
    trace = talk(kind, seed)
    script = make_script(trace, stand_in_tokens=40)
    real = Real(background=background)
    await real.run(script)
    outcome = simulated(trace, script, background=background)

    found = outcome.compressions
    assert len(real.seen) >= 3
    # The first ones are the same to the row; later the small differences have added up.
    for mine, theirs in zip(found[:2], real.seen, strict=False):
        assert abs(mine.request - theirs.request) <= 1
        assert mine.tokens_after == pytest.approx(theirs.tokens_after, rel=0.1)
    assert abs(len(found) - len(real.seen)) <= max(1, len(real.seen) / 10)
    ready = sum(mine.kind in ("prepared", "cold") for mine in found)
    assert abs(ready - sum(theirs.prepared for theirs in real.seen)) <= max(1, len(found) / 6)
    assert len(outcome.sizes) == len(real.sizes)
    assert sum(outcome.sizes) == pytest.approx(sum(real.sizes), rel=0.03)
