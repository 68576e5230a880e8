"""One conversation over the wire whose summaries the provider may write; it can be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agent.auxiliary_client import LoopSideModel
from agent.cache_watch import CacheWatch
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.native.running import NativeCompaction
from agent.context_compressor import ContextCompressor
from agent.errors import ModelError
from agent.llm.anthropic import AnthropicModel
from agent.llm.retry import RetryingModel, RetryPolicy
from agent.loop import LoopSettings, TurnLoop, TurnResult
from agent.messages import Draft, ToolSchema
from agent.ports import CompactionResult, ContextEdits, ToolContext, ToolResult
from agent.prompt import system_prompt
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening
from agent.tools.registry import ToolRegistry
from storage.memory import MemoryStore
from tests.fakes.anthropic_server import Answer, AnthropicServer, MessageRequest, text, tool_use
from tests.fakes.clock import FakeClock, SequentialIds

MODEL = "claude-sonnet-5-5"
WINDOW = 8000
KEY = "k"


class PageTool:
    """Gives back pages of the size that is asked for, each with a number of its own."""

    schema = ToolSchema(
        "page", "A page.", {"type": "object", "properties": {"chars": {"type": "integer"}}}
    )

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls += 1
        words = f"/srv/page-{self.calls:04d}.txt "
        return ToolResult(words * (int(arguments.get("chars", 500)) // len(words)))


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def on_text(self, delta: str) -> None:
        """Of no interest here."""

    def on_tool(self, name: str) -> None:
        """Of no interest here."""

    def on_file(self, name: str) -> None: ...

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class NativeAgent:
    """Store and conversation outlive `restart`; all else is made anew."""

    def __init__(
        self,
        server: AnthropicServer,
        clock: FakeClock,
        ids: SequentialIds,
        *,
        model: str = MODEL,
        fallback: Sequence[str] = (),
        native: str = "compact",
        in_place: bool = False,
        edits: ContextEdits | None = None,
    ) -> None:
        self.server, self.clock, self.ids = server, clock, ids
        self.store = MemoryStore(clock, ids)
        self.page = PageTool()
        self.tools = ToolRegistry([self.page], result_cap_tokens=1000)
        self.edits = edits
        self.in_place = in_place
        self.fallback = fallback
        self.prefix_model = model
        self.observer = Silent()
        self.restart(native=native)

    def restart(self, *, native: str = "compact", model: str | None = None) -> None:
        """Another process on the same store."""
        name = model or self.prefix_model
        self.models = [
            AnthropicModel(
                each,
                api_key=self.server.api_key,
                base_url=self.server.base_url,
                clock=self.clock,
            )
            for each in (name, *self.fallback)
        ]
        # No waiting for the fake clock: that is the retry policy's own test.
        policy = RetryPolicy(first_delay_seconds=0.0)
        self.model = RetryingModel(self.models, clock=self.clock, random=lambda: 0.0, policy=policy)
        engine = ContextCompressor(
            name,
            config_context_length=WINDOW,
            max_tokens=1000,
            side_model=LoopSideModel(self.model, asyncio.get_running_loop()),
            clock=self.clock,
        )
        self.compactor = SessionCompactor(
            engine,
            self.store,
            self.clock,
            self.ids,
            CompactionSettings(in_place=self.in_place),
            native=NativeCompaction(
                self.model if native == "compact" else None, self.store, self.clock
            ),
        )
        self.watch = CacheWatch(self.clock)
        self.loop = TurnLoop(
            store=self.store,
            model=self.model,
            tools=self.tools,
            settings=LoopSettings(max_tokens=1000, edits=self.edits),
            cache_watch=self.watch,
        )

    async def aclose(self) -> None:
        await self.model.aclose()

    @property
    def prefix(self) -> SessionPrefix:
        return SessionPrefix("t", self.prefix_model, system_prompt(None), self.tools.schemas)

    async def say(self, content: str, *, key: str = KEY) -> TurnResult:
        opening = TurnOpening(
            key, "t:1", (), Draft({"role": "user", "content": content}), self.prefix
        )
        ticket = await self.store.begin_turn(opening)
        try:
            result = await self.loop(
                ticket,
                await self.store.load(ticket.session_id, ticket=ticket),
                compactor=self.compactor,
                context=ToolContext(ticket.conversation_id, "t:1", True, ticket.turn_id),
                observer=self.observer,
            )
        except ModelError:
            await self.store.finish_turn(ticket, ticket.session_id, "failed")
            raise
        await self.store.finish_turn(
            ticket, result.session_id, "done", final=result.final, anchor_usage=result.usage
        )
        return result

    async def compress(self, focus: str | None = None) -> CompactionResult:
        return await self.compactor.compact(await self.tip(), "manual", focus=focus)

    async def tip(self, key: str = KEY) -> LoadedSession:
        conversation = await self.store.conversation_for_key(key)
        assert conversation is not None
        return await self.store.load(conversation.tip_session_id)


def calls_then(answer: str, *, calls: int, chars: int = 1200) -> Any:
    """A responder that calls the page tool so often for each message, thinking each time."""

    def respond(request: MessageRequest) -> Answer:
        done = 0
        for message in reversed(request.messages):
            blocks = message["content"]
            if message["role"] == "user" and not any(b["type"] == "tool_result" for b in blocks):
                break
            done += sum(1 for b in blocks if b["type"] == "tool_result")
        said = [text(f"step {done}"), tool_use("page", {"chars": chars})]
        return Answer(said if done < calls else answer)

    return respond
