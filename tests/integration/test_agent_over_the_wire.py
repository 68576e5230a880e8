"""The whole agent behind the real SDK: loop, compaction and store against the strict server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.auxiliary_client import LoopSideModel
from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.errors import ModelError
from agent.llm.anthropic import AnthropicModel
from agent.llm.retry import RetryingModel, RetryPolicy
from agent.loop import LoopSettings, TurnLoop, TurnResult
from agent.messages import Draft, ToolSchema, text_of
from agent.ports import ModelRequest, ModelResponse, ToolContext, ToolResult
from agent.prompt import system_prompt
from agent.sessions import SessionPrefix, TurnOpening
from agent.tools.clock import CurrentTimeTool
from agent.tools.registry import ToolRegistry
from storage.memory import MemoryStore
from tests.fakes.anthropic_server import (
    Answer,
    AnthropicServer,
    Fault,
    MessageRequest,
    text,
    thinking,
    tool_use,
)
from tests.fakes.clock import FakeClock, SequentialIds

MODEL = "claude-sonnet-5-5"
WINDOW = 8000


class PageTool:
    """Gives back pages of the size that is asked for."""

    schema = ToolSchema(
        "page", "A page.", {"type": "object", "properties": {"chars": {"type": "integer"}}}
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("page " * (int(arguments.get("chars", 500)) // 5))


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.shown = ""

    def on_text(self, delta: str) -> None:
        self.shown = self.shown + delta if delta else ""

    def on_tool(self, name: str) -> None:
        """Of no interest here."""

    def on_file(self, name: str) -> None: ...

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Agent:
    """One conversation over the wire."""

    def __init__(
        self,
        server: AnthropicServer,
        clock: FakeClock,
        ids: SequentialIds,
        name: str = MODEL,
        max_tokens: int = 1000,
        model_class: type[AnthropicModel] = AnthropicModel,
        **options: Any,
    ) -> None:
        """``options``: of the model."""
        self.server = server
        self.name = name
        self.clock = clock
        self.store = MemoryStore(clock, ids)
        self.tools = ToolRegistry([PageTool(), CurrentTimeTool(clock)], result_cap_tokens=1000)
        self.raw: Any = model_class(
            name, api_key=server.api_key, base_url=server.base_url, clock=clock, **options
        )
        # No waiting for the fake clock: that is the retry policy's own test.
        policy = RetryPolicy(first_delay_seconds=0.0)
        self.model = RetryingModel([self.raw], clock=clock, random=lambda: 0.0, policy=policy)
        engine = ContextCompressor(
            name,
            config_context_length=WINDOW,
            max_tokens=max_tokens,
            side_model=LoopSideModel(self.model, asyncio.get_running_loop()),
            clock=clock,
        )
        self.compactor = SessionCompactor(engine, self.store, clock, ids)
        self.loop = TurnLoop(
            store=self.store,
            model=self.model,
            tools=self.tools,
            settings=LoopSettings(max_tokens=max_tokens),
        )
        self.observer = Silent()

    async def say(self, content: str) -> TurnResult:
        ticket = await self.store.begin_turn(
            TurnOpening(
                "k",
                "t:1",
                (),
                Draft({"role": "user", "content": content}),
                SessionPrefix("t", self.name, system_prompt(None), self.tools.schemas),
            )
        )
        try:
            result = await self.loop(
                ticket,
                await self.store.load(ticket.session_id),
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

    async def lineage_length(self) -> int:
        conversation = await self.store.conversation_for_key("k")
        assert conversation is not None
        return len(await self.store.lineage(conversation.tip_session_id))


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(window=WINDOW) as running:
        yield running


@pytest.fixture
async def agent(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> AsyncIterator[Agent]:
    made = Agent(server, clock, ids)
    async with contextlib.aclosing(made.model):
        yield made


def busy(seed: int) -> Callable[[MessageRequest], Answer]:
    """A model that thinks, calls tools at random and answers with what it was asked."""
    dice = random.Random(seed)

    def respond(request: MessageRequest) -> Answer:
        blocks = [thinking(f"thought {dice.random()}")] if dice.random() < 0.5 else []
        if dice.random() < 0.55:
            calls = [
                tool_use("page", {"chars": dice.choice([50, 500, 4000])})
                for _ in range(dice.choice([1, 1, 2, 4]))
            ]
            return Answer([*blocks, *([text("Looking.")] if dice.random() < 0.5 else []), *calls])
        return Answer([*blocks, text(f"answer to: {request.last_user_text[-40:]}")])

    return respond


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_conversation_never_sends_a_wrong_request(
    server: AnthropicServer, agent: Agent, seed: int
) -> None:
    server.responder = busy(seed)
    dice = random.Random(seed)
    for n in range(25):
        result = await agent.say(f"message {n} {'词' * dice.choice([1, 40, 300])} end {n}")
        assert result.text.strip()
    assert server.rejected == []
    assert server.warnings == []
    assert await agent.lineage_length() >= 3
    assert len(server.summary_requests) >= 2
    for record in server.summary_requests:
        assert record.body is not None
        assert "tools" not in record.body
        assert "cache_control" not in repr(record.body)


async def test_the_cache_carries_from_turn_to_turn(server: AnthropicServer, agent: Agent) -> None:
    for n in range(3):
        server.script(Answer([tool_use("page", {"chars": 800})]), f"done {n}")
        await agent.say(f"message {n} " + "words " * (800 if n == 0 else 100))
    usages = [r.usage for r in server.main_requests]
    for before, after in itertools.pairwise(usages):
        whole = sum(
            before[k]
            for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        assert after["cache_read_input_tokens"] == whole


async def test_a_history_that_no_longer_fits_is_compressed_and_the_turn_goes_on(
    server: AnthropicServer, agent: Agent
) -> None:
    for n in range(10):
        server.script(f"answer {n} " + "words " * 100)
        await agent.say(f"message {n} " + "words " * 100)
    server.script(Fault("too_long"), "made it")
    assert (await agent.say("still there?")).text == "made it"
    assert await agent.lineage_length() == 2
    assert server.rejected == []


@pytest.mark.parametrize(
    "fault",
    ["stream_error", "stream_error_tool", "drop_tool", "eof_tool", "eof", "529", "html502",
     "max_tokens_tool", "window_exceeded", "empty", "refusal", "pause_turn", "stop_unknown",
     "stop_null", "output_too_long", "only_thinking", "max_tokens_thinking", "garbage"],
)  # fmt: skip
async def test_after_any_fault_the_conversation_goes_on(
    server: AnthropicServer, agent: Agent, fault: str
) -> None:
    server.script("hello")
    await agent.say("hi")
    server.script(Fault(fault), "healed")
    result = await agent.say("and now?")
    assert result.text.strip()
    server.clear_script()
    server.script("good")
    assert (await agent.say("one more")).text == "good"
    assert server.rejected == []
    assert server.warnings == []


async def test_a_wrong_request_of_the_past_does_not_end_the_conversation(
    server: AnthropicServer, agent: Agent
) -> None:
    server.script(Fault("401"))
    with pytest.raises(ModelError):
        await agent.say("refused")
    await agent.clock.advance(120)
    server.script("fine")
    assert (await agent.say("again")).text == "fine"
    sent = server.main_requests[-1].messages
    assert [m["role"] for m in sent] == ["user"]
    assert [text_of(m["content"]) for m in sent] == ["refused\nagain"]


# --- thinking that is bound to its prefix


def deep(rounds: int) -> Callable[[MessageRequest], Answer]:
    """A model that thinks before each of so many calls of one turn, and before its answer."""
    calls = itertools.count(1)

    def respond(request: MessageRequest) -> Answer:
        asked = request.last_user_text
        if request.is_summary:
            return Answer("## Goal\nPages are read.")
        n = next(calls)
        if n % (rounds + 1):
            thought = thinking(f"I need page {n} now. " * 5)
            return Answer([thought, tool_use("page", {"chars": 1500 + 100 * (n % 7)})])
        return Answer([thinking("That is all."), text(f"read, {asked}")])

    return respond


BOUND = [
    ("claude-sonnet-5-5", {}),
    ("claude-opus-5-5", {}),
    ("claude-haiku-5-5", {}),
    ("claude-fable-5-1", {}),
    # No family of the table: nothing is asked for, and the list has to be right by itself.
    ("claude-sonnet-5", {"thinking": {"type": "adaptive"}, "drop_unbound_thinking": False}),
    ("claude-haiku-4-5", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
]


@pytest.mark.parametrize(("name", "options"), BOUND)
async def test_long_tool_loops_with_bound_thinking_survive_compressions_in_their_middle(
    clock: FakeClock, ids: SequentialIds, name: str, options: dict[str, Any]
) -> None:
    async with AnthropicServer(window=WINDOW, binding="on") as server:
        agent = Agent(server, clock, ids, name, max_tokens=1500, **options)
        async with contextlib.aclosing(agent.model):
            server.responder = deep(rounds=14)
            results = [await agent.say(f"page {n}") for n in range(3)]
        assert [r.text for r in results] == [f"read, page {n}" for n in range(3)]
        assert [r.tool_calls for r in results] == [14] * 3
        assert sum(r.compactions for r in results) >= 4
        assert min(r.compactions for r in results) >= 1
        assert server.rejected == []
        assert server.warnings == []
        thoughts = [m for r in server.main_requests for m in r.messages if "signature" in repr(m)]
        assert thoughts  # it was kept where its prefix stood
        assert not any(r.transformations for r in server.main_requests)


async def test_thinking_of_another_prefix_is_dropped_where_the_provider_can(
    clock: FakeClock, ids: SequentialIds
) -> None:
    await _with_a_moved_prefix(clock, ids, refused=0)


async def test_thinking_of_another_prefix_is_taken_out_where_it_can_not(
    clock: FakeClock, ids: SequentialIds
) -> None:
    await _with_a_moved_prefix(clock, ids, refused=1, drop_unbound_thinking=False)


class Moved(AnthropicModel):
    """Sends another system prompt than the session's, once it is told to."""

    suffix = ""

    async def respond(
        self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None
    ) -> ModelResponse:
        moved = replace(request, system=request.system + self.suffix)
        return await super().respond(moved, on_text=on_text)


async def _with_a_moved_prefix(
    clock: FakeClock, ids: SequentialIds, *, refused: int, **options: Any
) -> None:
    """Something changed the prefix that should not have: the net below all rules."""
    async with AnthropicServer(binding="on") as server:
        agent = Agent(server, clock, ids, model_class=Moved, **options)
        async with contextlib.aclosing(agent.model):
            server.responder = deep(rounds=2)
            assert (await agent.say("read, one")).text == "read, read, one"
            agent.raw.suffix = " And it is Tuesday."
            assert (await agent.say("read, two")).text == "read, read, two"
            assert (await agent.say("read, three")).text == "read, read, three"
        assert len(server.rejected) == refused
        # Dropped each time by the provider, or taken out of the store once.
        dropped = [bool(r.transformations) for r in server.main_requests if r.number > 4]
        assert any(dropped) == (not refused)
