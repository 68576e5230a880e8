"""Owns a conversation with micro-compaction over the store in memory, for tests of its passes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

import pytest

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.marker import is_marker, parse_marker
from agent.compaction.micro.passes import MicroParts
from agent.compaction.micro.progress import MicroSettings
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import (
    Draft,
    Message,
    Row,
    orphan_results,
    text_of,
    unanswered_calls,
    wire_message,
)
from agent.ports import ModelRequest
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, TurnTicket
from agent.store_ports import Store
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import Answer, Asked, ScriptedSideModel

PREFIX = SessionPrefix("test", "m", "be kind")
WINDOW = 6000
"""Threshold 3,000, tail 600: it holds the last turn and no other."""
ON = MicroSettings(enabled=True)
THREADS = DaemonThreads(4, name="test-micro")


def cumulative(asked: Asked) -> str:
    """The digest of a model that loses nothing: what it had, and a line for what is new."""
    so_far = re.search(r"<summary_so_far>\n(.*?)\n</summary_so_far>", asked.prompt, re.DOTALL)
    said = re.search(r"<conversation>\n(.*?)\n</conversation>", asked.prompt, re.DOTALL)
    assert said is not None
    new = re.findall(r"answer \d+", said[1])
    return "\n".join(([so_far[1]] if so_far else []) + [f"- gave {a}" for a in new or ["nothing"]])


class MicroBench:
    """One conversation; `restart` forgets all that was not stored."""

    def __init__(
        self,
        clock: FakeClock,
        *answers: Answer,
        micro: MicroSettings = ON,
        settings: CompactionSettings | None = None,
        engine: ContextEngine | None = None,
        store: Store | None = None,
        protect_first_n: int = 0,
        protect_last_n: int = 2,
        window: int = WINDOW,
        key: str = "key",
    ) -> None:
        self.clock = clock
        self.ids = SequentialIds()
        self.store: Any = store if store is not None else MemoryStore(clock, self.ids)
        self.model = ScriptedSideModel(*(answers or (cumulative,)))
        self.micro = micro
        self.settings = settings
        self.foreign = engine
        self.first_n, self.last_n, self.window = protect_first_n, protect_last_n, window
        self.key = key
        self.turns = 0
        self.compactor = self.restart()

    def restart(self) -> SessionCompactor:
        """As after a restart of the process."""
        engine = self.foreign or ContextCompressor(
            "m",
            protect_first_n=self.first_n,
            protect_last_n=self.last_n,
            config_context_length=self.window,
            side_model=self.model,
            clock=self.clock,
        )
        self.compactor = SessionCompactor(
            engine,
            self.store,
            self.clock,
            self.ids,
            self.settings,
            threads=THREADS,
            micro=MicroParts(self.micro, self.model, THREADS),
        )
        return self.compactor

    async def begin(self, said: Any) -> TurnTicket:
        message = cast(Message, {"role": "user", "content": said})
        return await self.store.begin_turn(
            TurnOpening(self.key, "test:1", (), Draft(message), PREFIX)
        )

    async def talk(
        self, said: Any = None, steps: Sequence[Draft] = (), final: Draft | None = None
    ) -> LoadedSession:
        """A turn without what comes after it; gives the list as it was before the answer."""
        k = self.turns = self.turns + 1
        ticket = await self.begin(said or f"question {k} " + "q" * 400)
        tip = (await self.store.tip(ticket.session_id)).id
        if steps:
            await self.store.append(ticket, tip, steps)
        seen = await self.store.load(tip, ticket=ticket)
        await self.store.finish_turn(
            ticket, tip, "done", final=final or answer(f"answer {k} " + "a" * 1200)
        )
        return cast(LoadedSession, seen)

    async def turn(
        self, said: Any = None, steps: Sequence[Draft] = (), final: Draft | None = None
    ) -> LoadedSession:
        """A whole turn, and what is due behind it; gives the session as it is then."""
        seen = await self.talk(said, steps, final)
        last = (await self.store.load(seen.session.id)).rows[-1]
        await self.compactor.after_turn(seen, Draft(last.message, kind=last.kind))
        return await self.load()

    async def load(self) -> LoadedSession:
        conversation = await self.store.conversation_for_key(self.key)
        return cast(LoadedSession, await self.store.load(conversation.tip_session_id))

    async def said(self) -> list[str]:
        """What people have said, of all that was ever stored, in order."""
        conversation = await self.store.conversation_for_key(self.key)
        texts: dict[int, str] = {}
        for session in await self.store.lineage(conversation.tip_session_id):
            for row in await self.store.all_rows(session.id):
                if row.kind is None and row.message["role"] == "user" and row.origin_id is None:
                    texts[row.id] = text_of(row.message["content"])
        return [texts[i] for i in sorted(texts)]


def answer(text: str) -> Draft:
    return Draft(cast(Message, {"role": "assistant", "content": text}))


def tool_step(call_id: str, result: str = "r" * 300) -> list[Draft]:
    """A call and its result."""
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    given = {"role": "tool", "tool_call_id": call_id, "name": "f", "content": result}
    return [Draft(cast(Message, asks)), Draft(cast(Message, given))]


def markers(loaded: LoadedSession) -> list[Row]:
    return [row for row in loaded.rows if is_marker(row)]


def digest(loaded: LoadedSession) -> str:
    """The body of the one marker; "": there is none."""
    found = markers(loaded)
    assert len(found) <= 1
    return parse_marker(found[0].message).body if found else ""


def users(loaded: LoadedSession) -> list[str]:
    return [
        text_of(row.message["content"])
        for row in loaded.rows
        if row.kind is None and row.message["role"] == "user"
    ]


def check_list(loaded: LoadedSession) -> None:
    """What must hold of every list, and of the request that it becomes."""
    messages = [wire_message(row) for row in loaded.rows]
    assert not orphan_results(messages)
    assert not unanswered_calls(messages)
    assert len(markers(loaded)) <= 1
    assert sum(row.kind == "summary" for row in loaded.rows) <= 1
    assert [row.seq for row in loaded.rows] == sorted({row.seq for row in loaded.rows})
    if loaded.session.message_count:
        assert loaded.session.message_count == len(loaded.rows)
    following = cast(Message, {"role": "user", "content": "and now?"})
    body = build_body(ModelRequest("be kind", [*messages, following], 100), "m")
    assert validate(body) == []


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The telemetry of micro-compaction so far."""
    prefix = "micro compaction telemetry: "
    texts = (record.getMessage() for record in caplog.records)
    return [json.loads(text[len(prefix) :]) for text in texts if text.startswith(prefix)]
