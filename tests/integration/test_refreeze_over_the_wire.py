"""Refreeze behind the real SDK, before the strict server that binds thinking to its prefix."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.llm.anthropic import AnthropicModel
from agent.loop import LoopSettings, TurnLoop
from agent.messages import ToolSchema
from agent.sessions import SessionPrefix
from agent.tools.clock import CurrentTimeTool
from agent.tools.registry import ToolRegistry
from tests.fakes.anthropic_server import (
    Answer,
    AnthropicServer,
    MessageRequest,
    text,
    thinking,
    tool_use,
)
from tests.fakes.platform import inbound
from tests.unit.gateway.rig import Rig

KEY = '["fake","900","111",null,"111"]'
MODEL = "claude-sonnet-5-5"
PAGE = ToolSchema("page", "Reads a page.", {"type": "object", "properties": {}})


class WireRig(Rig):
    """The rig with the real loop and the real SDK."""

    def __init__(self, server: AnthropicServer) -> None:
        clock = SystemClock()
        self.tools = ToolRegistry([CurrentTimeTool(clock)])
        self.model = AnthropicModel(
            MODEL, api_key=server.api_key, base_url=server.base_url, clock=clock
        )
        super().__init__(clock)
        self.prefix = SessionPrefix("fake", MODEL, "be kind", (*self.tools.schemas, PAGE))

    def boot(self) -> None:
        self.agent_loop = TurnLoop(
            store=self.store,
            model=self.model,
            tools=self.tools,
            settings=LoopSettings(max_tokens=1000),
        )
        super().boot()

    async def say(self, words: str) -> str:
        count = len(self.platform.chat)
        await self.intake.receive(inbound(words, message_id=f"m{count}"))
        await self.platform.wait_for(count + 1)
        async with asyncio.timeout(10):
            assert await self.dispatch.idle(10)
        return self.platform.texts()[count]


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(binding="on") as running:
        yield running


@pytest.fixture
async def rig(server: AnthropicServer) -> AsyncIterator[WireRig]:
    made = WireRig(server)
    yield made
    await made.lanes.drain(5)
    await made.delivery.stop(5)
    await made.model.aclose()


def respond(request: MessageRequest) -> Answer:
    """Thinks before everything; looks at the page if it is told to."""
    asked = request.last_user_text
    last = request.last_blocks
    if "page" in asked and not any(b["type"] == "tool_result" for b in last):
        return Answer([thinking("which page"), tool_use("page")])
    results = [json.dumps(b["content"]) for b in last if b["type"] == "tool_result"]
    return Answer([thinking("so"), text(f"{asked}: {results}")])


def tools_of(record: Any) -> set[str]:
    return {tool["name"] for tool in record.body["tools"]}


async def test_a_tool_that_vanished_and_a_new_prompt(rig: WireRig, server: AnthropicServer) -> None:
    server.responder = respond
    await rig.say("hello")
    # Its server is gone in the middle of a turn: the schema stays, the call is answered.
    assert "no longer available" in await rig.say("the page, please")
    assert all(tools_of(r) == {"current_time", "page"} for r in server.main_requests)
    # From the next turn on it is not there any more.
    rig.prefix = replace(rig.prefix, tools=rig.tools.schemas)
    before = len(server.main_requests)
    assert (await rig.say("and now?")).startswith("and now?")
    assert await rig.say("still?") == "still?: []"
    rig.prefix = replace(rig.prefix, system_prompt="be brief")
    assert await rig.say("how?") == "how?: []"
    later = server.main_requests[before:]
    assert [tools_of(r) for r in later] == [{"current_time"}] * 3
    assert [r.body["system"][0]["text"] for r in later] == ["be kind", "be kind", "be brief"]
    # Thinking of before is bound to a prefix that is gone; that of now is sent again.
    kinds = [json.dumps(r.body["messages"]).count('"type": "thinking"') for r in later]
    assert kinds == [0, 1, 0]
    assert "tool_result" in json.dumps(later[-1].body["messages"])
    assert server.rejected == []
    conversation = await rig.store.conversation_for_key(KEY)
    assert conversation is not None
    chain = await rig.store.lineage(conversation.tip_session_id)
    assert [s.end_reason for s in chain] == ["switch", "switch", None]
