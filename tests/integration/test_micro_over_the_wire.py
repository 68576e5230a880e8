"""Micro-compaction behind the real SDK, before the strict server that binds thinking."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from agent.auxiliary_client import LoopSideModel
from agent.compaction.host.session import CompactionSettings, SessionCompactor
from agent.compaction.micro.passes import MicroParts
from agent.compaction.micro.progress import MicroSettings
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.ledger import LedgerScope
from gateway.turns.compactors import CompactorCache
from gateway.turns.micro import MicroDesk
from tests.fakes.anthropic_server import (
    Answer,
    AnthropicServer,
    MessageRequest,
    text,
    thinking,
    tool_use,
)
from tests.integration.test_refreeze_over_the_wire import KEY, MODEL, WireRig

THREADS = DaemonThreads(2, name="wire-micro")


class MicroRig(WireRig):
    """The same with a real compactor, and micro-compaction behind its turns."""

    def __init__(self, server: AnthropicServer, in_place: bool) -> None:
        self._in_place = in_place
        super().__init__(server)
        self.desk = MicroDesk(self.compactors, self.clock)
        self.turns._aftermath = replace(self.turns._aftermath, on_answered=self.desk.answered)

    def boot(self) -> None:
        self.compactors = CompactorCache(self._compactor)
        super().boot()

    def _compactor(self, conversation_id: str) -> SessionCompactor:
        side = LoopSideModel(self.model, asyncio.get_running_loop(), ledger=self.store)
        engine = ContextCompressor(
            MODEL,
            protect_first_n=2,
            protect_last_n=2,
            config_context_length=12_000,
            side_model=side.on_account(conversation_id, "summary"),
            clock=self.clock,
        )
        return SessionCompactor(
            engine,
            self.store,
            self.clock,
            self.store._ids,
            CompactionSettings(in_place=self._in_place),
            threads=THREADS,
            micro=MicroParts(
                MicroSettings(enabled=True), side.on_account(conversation_id, "micro"), THREADS
            ),
        )

    async def talk(self, words: str) -> str:
        answer = await self.say(words)
        async with asyncio.timeout(10):
            while len(self.desk):
                await asyncio.wait(set(self.desk._tasks._tasks))
        return answer


def respond(request: MessageRequest) -> Answer:
    """Thinks before everything, and looks at the page."""
    last = request.last_blocks
    if not any(b["type"] == "tool_result" for b in last):
        return Answer([thinking("which page"), text("a moment"), tool_use("page")])
    return Answer([thinking("so"), text("told. " + "word " * 500)])


def condense(request: MessageRequest) -> Answer:
    """Whatever it had, and a line more."""
    prompt = request.last_user_text
    so_far = prompt.partition("<summary_so_far>\n")[2].partition("\n</summary")[0]
    return Answer([text(f"{so_far}\n- read a page, told about it")])


@pytest.mark.parametrize("in_place", [False, True])
async def test_every_request_is_valid_and_the_beginning_stays_the_same(in_place: bool) -> None:
    async with AnthropicServer(binding="on") as server:
        server.responder, server.summary_responder = respond, condense
        rig = MicroRig(server, in_place)
        try:
            await check(rig, server)
        finally:
            await rig.desk.close(1)
            await rig.lanes.drain(5)
            await rig.delivery.stop(5)
            await rig.model.aclose()


async def check(rig: MicroRig, server: AnthropicServer) -> None:
    for k in range(6):
        words = f"question {k}, the page please" + " please" * 150
        assert (await rig.talk(words)).startswith("told.")
        if k == 3:
            rig.compactors.clear()  # as after a restart
    conversation = await rig.store.conversation_for_key(KEY)
    session = await rig.store.session(conversation.tip_session_id)
    assert session.compression.micro_passes >= 3
    assert session.revision == session.compression.micro_passes
    sent = [json.dumps(r.body["messages"]) for r in server.main_requests]
    assert "condensed by the host" in sent[-1]
    assert sent[-1].count("- read a page") == session.compression.micro_passes - 1
    for k in range(6):
        assert f"question {k}, the page please" in sent[-1]
    # within a turn, and between passes, each request goes on where the last one ended
    assert server.rejected == []
    # a digest is asked for without tools, marks and thinking, and stands in the ledger
    asked = list(server.summary_requests)
    assert len(asked) == session.compression.micro_passes
    for record in asked:
        assert "tools" not in record.body
        assert "cache_control" not in json.dumps(record.body)
    lines = await rig.store.ledger_lines(LedgerScope(conversation_id=conversation.id))
    assert {line.purpose: line.requests for line in lines}["micro"] == len(asked)
    # then everything once more as a whole
    loaded = await rig.store.load(session.id)
    result: Any = await (await rig.compactors.get(conversation.id)).compact(loaded, "manual")
    assert result.outcome == "compressed"
    assert (await rig.talk("and now the page again")).startswith("told.")
    assert server.rejected == []
