"""Two hundred facts in a long conversation, compressed twenty times: none is out of reach.

The real engine and host over SQLite. The summariser answers with the same text every time, so
whatever is still known stands in the context word for word, or `recall` finds it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.messages import Draft, Message
from agent.ports import ToolContext, Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, session_key
from agent.tools.recall import RecallTool
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.question_words import LANGUAGES, Wording
from tests.fakes.side_model import ScriptedSideModel
from tests.fakes.stored import context_text

FACTS = 200
COMPRESSIONS = 20
WINDOW = 24_000
OWNER = "test:1"
KEY = session_key("test", "1", "1", None, "1")
PREFIX = SessionPrefix("test", "m", "You are an assistant.")


@dataclass(frozen=True, slots=True)
class Planted:
    """A fact as it was said, and a query of its own words without the value."""

    statement: str
    value: str
    query: str
    place: str
    """Who says it: the person, the assistant, a tool's result, the arguments of a call."""


def planted_facts(rng: random.Random) -> list[Planted]:
    """Paths, ports, errors, rules, names, times … of different things, in three languages."""
    facts: list[Planted] = []
    used: set[str] = set()
    while len(facts) < FACTS:
        words = LANGUAGES[("en", "zh", "ja")[len(facts) % 3]]
        thing = rng.choice(words.firsts) + words.joint + rng.choice(words.seconds)
        if thing in used:
            continue
        used.add(thing)
        wording: Wording = words.wordings[len(facts) // 3 % len(words.wordings)]
        value = wording.value(rng)
        facts.append(
            Planted(
                wording.says.format(e=thing, v=value),
                value,
                re.sub(r"\s+", " ", wording.says.format(e=thing, v=" ")).strip(),
                ("user", "assistant", "result", "arguments")[len(facts) // 3 % 4],
            )
        )
    rng.shuffle(facts)
    return facts


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqlStore]:
    opened = await open_store(tmp_path / "state.db", clock=clock, ids=SequentialIds())
    yield opened
    await opened.close()


class Life:
    """Talks, works with tools, and compresses when it is due."""

    def __init__(
        self,
        store: SqlStore,
        clock: FakeClock,
        rng: random.Random,
        engine: ContextEngine | None = None,
    ) -> None:
        """``engine``: somebody else's; None: the built-in one."""
        self.store = store
        self.rng = rng
        self.compressions = 0
        self._clock = clock
        self._calls = 0
        self.compactor = SessionCompactor(
            engine
            or ContextCompressor(
                "m",
                config_context_length=WINDOW,
                side_model=ScriptedSideModel("## Goal\nKeep going.\n## State\nAll is well."),
                clock=clock,
            ),
            store,
            clock,
            SequentialIds(),
            CompactionSettings(),
            threads=DaemonThreads(2, name="planted-facts"),
        )

    async def turn(self, facts: list[Planted]) -> LoadedSession:
        """One turn; each fact stands where it belongs, among other words."""
        at = {f.place: f.statement for f in facts}
        said = self._talk(at.get("user"), 3)
        ticket = await self.store.begin_turn(
            TurnOpening(KEY, OWNER, (), Draft({"role": "user", "content": said}), PREFIX)
        )
        for step in range(3):
            await self.store.append(
                ticket, ticket.session_id, self._tool_step(at if step == 1 else {})
            )
        final = Draft({"role": "assistant", "content": self._talk(at.get("assistant"), 6)})
        await self.store.finish_turn(
            ticket, ticket.session_id, "done", final=final, anchor_usage=Usage(WINDOW, 100)
        )
        await self._clock.advance(600)
        return await self.store.load((await self.store.tip(ticket.session_id)).id)

    async def compress(self, loaded: LoadedSession) -> LoadedSession:
        """By hand, so that no cool-down and no thrashing rule says no."""
        result = await self.compactor.compact(loaded, "manual")
        self.compressions += result.outcome == "compressed"
        return result.loaded

    def _tool_step(self, at: dict[str, str]) -> list[Draft]:
        self._calls += 1
        call_id = f"toolu_{self._calls}"
        arguments = {"path": f"/srv/notes/{self._calls}.md", "text": at.get("arguments", "x")}
        call = {
            "id": call_id,
            "type": "function",
            "function": {"name": "write_note", "arguments": json.dumps(arguments)},
        }
        lines = [self._line() for _ in range(25)]
        if "result" in at:
            lines.insert(self.rng.randrange(25), at["result"])
        asks = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {
            "role": "tool",
            "tool_call_id": call_id,
            "name": "write_note",
            "content": "\n".join(lines),
        }
        return [Draft(cast(Message, asks)), Draft(cast(Message, result))]

    def _line(self) -> str:
        words = self.rng.choice(list(LANGUAGES.values()))
        return f"{self.rng.randrange(10**6)} ok {self._talk(None, 1, words.space)}"

    def _talk(self, fact: str | None, count: int, space: str = " ") -> str:
        words = self.rng.choice(list(LANGUAGES.values()))
        sentences = [
            self.rng.choice(words.filler).format(
                e=self.rng.choice(words.firsts) + words.joint + self.rng.choice(words.seconds),
                n=self.rng.choice(words.nouns),
                m=self.rng.choice(words.nouns),
                v=self.rng.choice(words.verbs),
                a=self.rng.choice(words.adjectives),
                p=self.rng.choice(words.parts),
                x=self.rng.randrange(900),
            )
            for _ in range(count)
        ]
        if fact is not None:
            sentences.insert(self.rng.randrange(len(sentences) + 1), fact)
        return space.join(sentences)


async def test_no_planted_fact_is_out_of_reach(store: SqlStore, clock: FakeClock) -> None:
    rng = random.Random(20)
    facts = planted_facts(rng)
    life = Life(store, clock, rng)
    turns: list[list[Planted]] = [[]]
    for fact in facts:
        if any(fact.place == other.place for other in turns[-1]):
            turns.append([])
        turns[-1].append(fact)
    loaded = await life.turn([])
    for number, of_turn in enumerate(turns, start=1):
        loaded = await life.turn(of_turn)
        if number * COMPRESSIONS // len(turns) > (number - 1) * COMPRESSIONS // len(turns):
            loaded = await life.compress(loaded)
    assert life.compressions == COMPRESSIONS
    assert len(await store.lineage(loaded.session.id)) == COMPRESSIONS + 1

    in_view = context_text(row.message for row in loaded.rows)
    tool = RecallTool(store)
    lost: list[Planted] = []
    recalled = 0
    for fact in facts:
        if fact.statement in in_view:
            continue
        recalled += 1
        context = ToolContext(loaded.session.conversation_id, OWNER, recalled % 2 == 0, "t")
        shown = (await tool.run({"queries": [fact.query], "limit": 3}, context)).text
        references = re.findall(r"^(m\d+) · ", shown, flags=re.MULTILINE)
        opened = [(await tool.run({"ref": ref}, context)).text for ref in references]
        if not any(fact.value in text for text in opened):
            lost.append(fact)
    assert recalled > FACTS // 2  # else the context held it all, and nothing was looked for
    assert lost == []
