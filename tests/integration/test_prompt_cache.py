"""Two hundred turns, restarts and all: within a revision each request begins as the one before."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.auxiliary_client import LoopSideModel
from agent.cache_watch import CacheWatch
from agent.compaction.host.session import SessionCompactor
from agent.context_compressor import ContextCompressor
from agent.image_tokens import ImageTokens
from agent.llm.anthropic import AnthropicModel
from agent.loop import LoopSettings, TurnLoop
from agent.messages import Draft
from agent.ports import ToolContext, Usage
from agent.sessions import LoadedSession, SessionPrefix, TurnOpening
from agent.tools.registry import ToolRegistry
from gateway.intake.wording import user_draft
from gateway.turns.refreeze import Refreezer
from storage.sqlite import open_store
from tests.fakes.anthropic_server import (
    Answer,
    AnthropicServer,
    MessageRequest,
    RequestRecord,
    text,
    thinking,
    tool_use,
)
from tests.fakes.clock import FakeClock, SequentialIds
from tests.integration.test_agent_over_the_wire import PageTool, Silent
from tests.unit.agent.test_loop import PIXEL

MODEL = "claude-sonnet-5-5"
TURNS = 200
RESTARTS_EVERY = 20
COMPRESSED_AT = (45, 90, 130, 165)
"""So often that the list stays short: the strict server reads all of it at every request."""
PROMPT_CHANGED_AT, IDLE_AT = 150, 175
PROMPT = "You help, at length and with care. " * 150
PHOTO = {"type": "image_url", "image_url": {"url": PIXEL}}


class Noted(SessionCompactor):
    """The compactor, and a note of each usage that it is told."""

    usages: list[Usage]

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage, *, notify: Callable[[str], None] | None = None
    ) -> LoadedSession:
        self.usages.append(usage)
        return await super().note_usage(loaded, usage, notify=notify)


class Process:
    """What a daemon holds between a start and a stop: everything but the file and the server."""

    def __init__(self, store: Any, server: AnthropicServer, clock: FakeClock, turn: int) -> None:
        ids = SequentialIds()
        self.store = store
        self.model = AnthropicModel(
            MODEL, api_key=server.api_key, base_url=server.base_url, clock=clock
        )
        tools = ToolRegistry([PageTool()], result_cap_tokens=300)
        self.prefix = SessionPrefix("t", MODEL, PROMPT, tools.schemas)
        if turn >= PROMPT_CHANGED_AT:
            self.change_prompt()
        self.compactor = Noted(
            ContextCompressor(
                MODEL,
                config_context_length=50_000,
                side_model=LoopSideModel(self.model, asyncio.get_running_loop()),
                clock=clock,
            ),
            store,
            clock,
            ids,
        )
        self.refreeze = Refreezer(store, lambda platform: self.prefix)
        # The operator changes the life of entries in the middle of it all.
        ttl: Any = "5m" if turn < 60 else "1h" if turn < 120 else "5m"
        self.loop = TurnLoop(
            store=store,
            model=self.model,
            tools=tools,
            settings=LoopSettings(max_tokens=1000, cache_ttl=ttl),
            cache_watch=CacheWatch(clock),
            image_tokens=ImageTokens(),
        )

    def change_prompt(self) -> None:
        """Another configuration, for conversations that live as for new ones."""
        self.prefix = replace(self.prefix, system_prompt=f"{PROMPT} Keep it short.")

    async def turn(self, said: Draft) -> None:
        ticket = await self.store.begin_turn(TurnOpening("k", "t:1", (), said, self.prefix))
        loaded = await self.store.load(ticket.session_id, ticket=ticket)
        loaded = await self.refreeze(loaded, ticket)
        result = await self.loop(
            ticket,
            loaded,
            compactor=self.compactor,
            context=ToolContext(ticket.conversation_id, "t:1", False, ticket.turn_id),
            observer=Silent(),
        )
        await self.store.finish_turn(
            ticket, result.session_id, "done", final=result.final, anchor_usage=result.usage
        )

    async def compress(self) -> None:
        conversation = await self.store.conversation_for_key("k")
        loaded = await self.store.load(conversation.tip_session_id)
        result = await self.compactor.compact(loaded, "manual")
        assert result.outcome == "compressed"


@contextlib.asynccontextmanager
async def process(
    file: Path, server: AnthropicServer, clock: FakeClock, ids: SequentialIds, turn: int
) -> AsyncIterator[Process]:
    store = await open_store(file, clock=clock, ids=ids)
    running = Process(store, server, clock, turn)
    try:
        yield running
    finally:
        await running.model.aclose()
        await store.close()


def message(n: int) -> Draft:
    """What is said in a turn: plain, signed, quoting, or with a photo."""
    said = f"Message {n}: {'词' * (n % 5)} " + "word " * (n % 30)
    if n % 25 == 4:
        parts = [{"type": "text", "text": said}, PHOTO]
        signed = [{"type": "text", "text": f"[message from Ann]\n{said}"}, PHOTO]
        return Draft({"role": "user", "content": parts}, wire_content=signed)
    return user_draft(
        said,
        sender_id=str(n % 3),
        sender_name="Ann 😀",
        signed=n % 2 == 0,
        quoted_text="what you said" if n % 7 == 3 else None,
    )


def answers() -> Callable[[MessageRequest], Answer]:
    """A model that now and then thinks, looks something up, or many things at once."""
    numbers = itertools.count()

    def respond(request: MessageRequest) -> Answer:
        n = next(numbers)
        before = [thinking(f"thought {n} {{'a': 1.50}}")] if n % 3 == 0 else []
        if not request.tool_results and n % 4 == 1:
            calls = 26 if n % 80 == 1 else 1 + n % 3
            pages = [tool_use("page", {"chars": 40 + i, "z": 1, "a": None}) for i in range(calls)]
            return Answer([*before, text(f"Looking {n}."), *pages])
        return Answer([*before, text(f"Answer {n}. " + "said " * (n % 20))])

    return respond


def pieces(record: RequestRecord) -> list[str]:
    """A request as a list of byte strings, marks left out."""
    body = unmarked(record.body)
    flat = [("tool", t) for t in body.get("tools", [])] + [("system", b) for b in body["system"]]
    flat += [(m["role"], block) for m in body["messages"] for block in m["content"]]
    return [f"{role}: {json.dumps(block, ensure_ascii=False)}" for role, block in flat]


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def breaks(requests: list[RequestRecord]) -> Iterator[int]:
    """Where a request does not begin with all of the one before."""
    sent = [pieces(record) for record in requests]
    for n, (before, after) in enumerate(itertools.pairwise(sent), 1):
        if after[: len(before)] != before:
            yield n


async def test_two_hundred_turns_are_prefixes_of_each_other(
    tmp_path: Path,
    clock: FakeClock,
    ids: SequentialIds,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    usages: list[Usage] = []
    first_of_turn: list[int] = []
    async with AnthropicServer(binding="on", clock=clock.monotonic) as server:
        server.responder = answers()
        for start in range(0, TURNS, RESTARTS_EVERY):
            async with process(tmp_path / "state.db", server, clock, ids, start) as running:
                running.compactor.usages = usages
                for n in range(start, start + RESTARTS_EVERY):
                    if n in COMPRESSED_AT:
                        await running.compress()
                    if n == PROMPT_CHANGED_AT:
                        running.change_prompt()
                    await clock.advance(400 if n == IDLE_AT else 20)
                    first_of_turn.append(len(server.main_requests))
                    await running.turn(message(n))
        requests = server.main_requests
        assert server.rejected == []
        assert server.warnings == []
        assert not any(record.transformations for record in requests)

    changed = sorted((*COMPRESSED_AT, PROMPT_CHANGED_AT))
    assert list(breaks(requests)) == [first_of_turn[n] for n in changed]
    missed = Counter(usage.cache_miss for usage in usages)
    assert {cause: n for cause, n in missed.items() if cause} == {
        "first": 1, "revision": len(COMPRESSED_AT), "system": 1, "expired": 1,
    }  # fmt: skip
    share = sum(u.cache_read_tokens for u in usages) / sum(u.prompt_tokens for u in usages)
    record_testsuite_property("cache_hit_share", round(share, 4))
    assert share > 0.9
