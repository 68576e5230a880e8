"""Owns a conversation on its whole road for the fault matrix: store, turns, compactor, a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.loop import LoopSettings, TurnLoop
from agent.messages import Message, Row, ToolSchema, wire_message
from agent.ports import ModelRequest, ToolContext, ToolResult
from agent.sessions import LoadedSession
from agent.store_ports import Store
from agent.tools.registry import ToolRegistry
from gateway.hygiene import HygieneNet
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.conversations import conversation
from tests.fakes.scripted_model import ScriptedModel
from tests.fakes.side_model import Answer, ScriptedSideModel
from tests.fakes.stored import KEY, OWNER, open_turn, stored

WINDOW = 24_000
THREADS = DaemonThreads(4, name="fault-engine")


Work = Callable[[list[dict[str, Any]]], Any]


class Foreign(ContextEngine):
    """Somebody else's engine; does what a test says."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.calls = 0
        self.update_model("m", WINDOW)
        self.threshold_tokens = WINDOW // 2

    @property
    def name(self) -> str:
        return "foreign"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = int(usage["prompt_tokens"])

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.threshold_tokens

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        **more: Any,
    ) -> list[dict[str, Any]]:
        self.calls += 1
        return cast(list[dict[str, Any]], self.work(messages))


class ReadTool:
    """Gives back as much text as a test wants."""

    schema = ToolSchema("read", "Read.")

    def __init__(self, chars: int) -> None:
        self._chars = chars

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("line of a file\n" * (self._chars // 15))


class Watcher:
    """What a person sees of a turn."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def on_text(self, delta: str) -> None:
        pass

    def on_tool(self, name: str) -> None:
        pass

    def on_file(self, name: str) -> None: ...

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Scene:
    """One stored conversation whose summary model answers as a test says."""

    def __init__(
        self,
        *answers: Answer,
        store: Store | None = None,
        clock: FakeClock | None = None,
        engine: ContextEngine | None = None,
        settings: CompactionSettings | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.ids = SequentialIds()
        self.store: Store = store or MemoryStore(self.clock, self.ids)
        self.side = ScriptedSideModel(*answers)
        self.builtin = ContextCompressor(
            "m", config_context_length=WINDOW, side_model=self.side, clock=self.clock
        )
        self.engine = engine or self.builtin
        self.settings = settings
        self.tools = ToolRegistry([ReadTool(9_000)])
        self.watcher = Watcher()
        self.restart()

    def restart(self) -> None:
        """A compactor without memory of its own, as a new process has it."""
        foreign = self.engine is not self.builtin
        self.compactor = SessionCompactor(
            self.engine,
            self.store,
            self.clock,
            self.ids,
            self.settings,
            threads=THREADS,
            fallback=self.builtin if foreign else None,
        )

    async def talked(self, tokens: int, kind: str = "tools", seed: int = 11) -> LoadedSession:
        """The conversation so far."""
        return await stored(self.store, conversation(kind, seed, tokens=tokens).messages)

    async def tip(self) -> LoadedSession:
        found = await self.store.conversation_for_key(KEY)
        assert found is not None
        return await self.store.load(found.tip_session_id)

    async def turn(self, model: ScriptedModel, text: str = "and now?") -> str:
        """A whole turn as the gateway runs it, the net before the agent included; its answer."""
        ticket = await open_turn(self.store, text)
        loaded = await self.store.load(ticket.session_id, ticket=ticket)
        loaded = await HygieneNet(self.store, self.clock)(
            loaded, self.compactor, self.watcher.on_notice
        )
        loop = TurnLoop(
            store=self.store,
            model=model,
            tools=self.tools,
            settings=LoopSettings(max_tokens=1000),
        )
        result = await loop(
            ticket,
            loaded,
            compactor=self.compactor,
            context=ToolContext(ticket.conversation_id, OWNER, True, ticket.turn_id),
            observer=self.watcher,
        )
        await self.store.finish_turn(
            ticket, result.session_id, "done", final=result.final, anchor_usage=result.usage
        )
        return result.text

    async def rows_of(self, session_id: str) -> list[Row]:
        return await self.store.all_rows(session_id)


def check_kept(before: Sequence[Row], after: Sequence[Row]) -> None:
    """Every row is still there as it was."""
    there = {row.id: row for row in after}
    for row in before:
        assert there[row.id].message == row.message
        assert there[row.id].wire_content == row.wire_content
        assert (there[row.id].kind, there[row.id].origin_id) == (row.kind, row.origin_id)


def check_sendable(loaded: LoadedSession) -> None:
    """The next request with these rows and one more message of the user is valid."""
    said: Message = {"role": "user", "content": "go on"}
    messages = [*(wire_message(row) for row in loaded.rows), said]
    body = build_body(ModelRequest(loaded.session.prefix.system_prompt, messages, 100), "m")
    assert validate(body) == []
