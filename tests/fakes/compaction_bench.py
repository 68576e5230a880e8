"""Owns a store with one conversation, an engine and a compactor, for tests of the host's side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.messages import Draft, Message
from agent.ports import Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening, TurnTicket
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.side_model import Answer, ScriptedSideModel

PREFIX = SessionPrefix("test", "m", "be kind")
WINDOW = 20_000
THREADS = DaemonThreads(4, name="test-engine")


class Bench:
    """A store with one conversation, an engine and a compactor."""

    def __init__(
        self,
        clock: FakeClock,
        *answers: Answer,
        engine: ContextEngine | None = None,
        settings: CompactionSettings | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock
        self.ids = SequentialIds()
        self.store = MemoryStore(clock, self.ids)
        self.model = ScriptedSideModel(*answers)
        self.builtin = ContextCompressor(
            "m", config_context_length=WINDOW, side_model=self.model, clock=clock
        )
        self.engine = engine or self.builtin
        self.settings = settings
        self.notices: list[str] = []
        self.compactor = self.fresh(**options)
        self.ticket: TurnTicket | None = None

    def fresh(self, **options: Any) -> SessionCompactor:
        """A compactor without memory of its own, as after a restart."""
        return SessionCompactor(
            self.engine,
            self.store,
            self.clock,
            self.ids,
            self.settings,
            threads=THREADS,
            **options,
        )

    async def say(self, text: str, reply: str, usage: Usage | None = None) -> LoadedSession:
        opening = TurnOpening(
            "key", "test:1", (), Draft(cast(Message, {"role": "user", "content": text})), PREFIX
        )
        ticket = await self.store.begin_turn(opening)
        final = Draft(cast(Message, {"role": "assistant", "content": reply}))
        await self.store.finish_turn(
            ticket, ticket.session_id, "done", final=final, anchor_usage=usage
        )
        return await self.store.load(ticket.session_id)

    async def work_on(self, calls: int, chars: int = 4000) -> TurnTicket:
        """A turn that is running: begun if there is none, and so many tool rounds longer."""
        if self.ticket is None:
            opening = TurnOpening(
                "key", "test:1", (), Draft({"role": "user", "content": "go on"}), PREFIX
            )
            self.ticket = await self.store.begin_turn(opening)
        tip = await self.store.tip(self.ticket.session_id)
        for k in range(calls):
            call = {"id": f"c{self.ids.new('c')}", "function": {"name": "f", "arguments": "{}"}}
            asks = {"role": "assistant", "content": f"step {k}", "tool_calls": [call]}
            answers = {"role": "tool", "tool_call_id": call["id"], "content": f"{k} " + "r" * chars}
            drafts = [Draft(cast(Message, asks)), Draft(cast(Message, answers))]
            await self.store.append(self.ticket, tip.id, drafts)
        return replace(self.ticket, session_id=tip.id)

    async def append(self, ticket: TurnTicket, message: dict[str, Any]) -> int:
        """One more message of the running turn; its row."""
        draft = Draft(cast(Message, message))
        return (await self.store.append(ticket, ticket.session_id, [draft])).rows[0].id

    async def end_work(self) -> None:
        """The running turn is over."""
        assert self.ticket is not None
        tip = await self.store.tip(self.ticket.session_id)
        final = Draft({"role": "assistant", "content": "done"})
        await self.store.finish_turn(self.ticket, tip.id, "done", final=final)
        self.ticket = None

    async def talk(self, count: int, chars: int = 2000) -> LoadedSession:
        for k in range(count):
            loaded = await self.say(f"question {k} " + "q" * chars, f"answer {k} " + "a" * chars)
        return loaded


Work = Callable[[list[dict[str, Any]]], Any]


class Foreign(ContextEngine):
    """An engine that does what a test says, with the arguments of the oldest ones."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.usages: list[dict[str, Any]] = []
        self.update_model("m", WINDOW)
        self.threshold_tokens = WINDOW // 2

    @property
    def name(self) -> str:
        return "foreign"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.usages.append(usage)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.threshold_tokens

    def compress(  # type: ignore[override]
        self, messages: list[dict[str, Any]], current_tokens: int | None = None
    ) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self.work(messages))

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.told.append((session_id, kwargs))
        raise RuntimeError("not interested")
