"""Compaction by the provider itself, over the wire: loops, restarts, refusals, ways back."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.compaction.native.keepsake import is_keepsake
from agent.history import has_thinking
from agent.lineages import UncompressRequest
from agent.llm.validator import ThinkingLedger, validate
from agent.messages import Message, text_of
from agent.native_block import compaction_block
from agent.ports import ContextEdits
from agent.sessions import SearchScope
from tests.fakes.anthropic_server import Answer, AnthropicServer, Fault, Match, text, tool_use
from tests.fakes.anthropic_server.faults import COMPACTION_ERRORS
from tests.fakes.clock import FakeClock, SequentialIds
from tests.integration.native_rig import KEY, MODEL, NativeAgent

COMPACT = Match(compaction=True)
PASSWORD = "the password is FACT-kiwi"


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(window=8000, summary_tokens=150) as server:
        yield server


def steps(count: int, answer: str, *, chars: int = 1500) -> list[Answer | str]:
    """A loop of so many calls, each behind a thought of its own, and its last word."""
    calls = (Answer([text(f"step {n}"), tool_use("page", {"chars": chars})]) for n in range(count))
    return [*calls, answer]


async def chat(agent: NativeAgent, turns: int, *, words: int = 300, topic: str = "") -> None:
    """So many exchanges of plain talk, in which nothing can be pruned."""
    for n in range(turns):
        agent.server.script(f"answer {n} " + "word " * words)
        await agent.say(f"question {n} about FACT-{topic}{n} " + "talk " * words)


def sent_messages(server: AnthropicServer) -> list[dict[str, Any]]:
    """The bodies of all requests of the conversation itself."""
    return [r.body for r in server.main_requests if r.body and "compaction" not in r.body]


# -- the loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "in_place"), [(MODEL, False), (MODEL, True), ("claude-opus-5-5", False)]
)
async def test_a_long_loop_is_compacted_in_its_middle(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds, model: str, in_place: bool
) -> None:
    agent = NativeAgent(server, clock, ids, model=model, in_place=in_place)
    server.script(*steps(30, "all pages are read"))
    result = await agent.say(f"read thirty pages, {PASSWORD}")
    assert result.text == "all pages are read"
    assert (result.compactions, len(server.compaction_requests)) == (3, 3)
    assert server.rejected == []
    assert server.summary_requests == []
    # The provider has dropped nothing: what is kept behind a block is still bound to it.
    assert all(r.transformations == [] for r in server.requests)
    ledger = ThinkingLedger()
    for record in server.requests:
        assert record.body is not None
        compacts = "compaction" in record.body
        assert validate(record.body, continues_pause=compacts, ledger=ledger) == []
        ledger.record(record.body, record.answer)
        if compacts:  # a request that was sent, so all of it is read from the cache
            read = record.usage["iterations"][0]["cache_read_input_tokens"]
            assert read == record.input_tokens
    blocks = [r.answer[0] for r in server.compaction_requests]
    for body in sent_messages(server):
        first = body["messages"][0]["content"][0]
        if first["type"] == "compaction":
            sent = {k: v for k, v in first.items() if k != "cache_control"}
            assert sent in blocks
    tip = await agent.tip()
    assert has_thinking(tip.rows[1])
    assert [text_of(r.message["content"]) for r in tip.rows if r.kind is None].count(
        f"read thirty pages, {PASSWORD}"
    ) == 1
    assert tip.session.manifest is not None
    assert tip.session.manifest["mode"] == "native"
    notes = [row for row in tip.rows if is_keepsake(row)]
    assert "/srv/page-0001.txt" in text_of(notes[-1].message["content"])
    await agent.aclose()


async def test_a_restart_in_between_changes_nothing(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    for n in range(4):
        server.script(*steps(9, f"read {n}"))
        await agent.say(f"read nine pages, round {n}, {PASSWORD}")
        await agent.aclose()
        agent.restart()
    assert len(server.compaction_requests) >= 3
    assert server.rejected == []
    assert all(r.transformations == [] for r in server.requests)
    await agent.aclose()


async def test_what_users_said_is_kept_word_for_word_and_originals_are_found(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    await chat(agent, 12)
    assert len(server.compaction_requests) >= 2
    assert server.rejected == []
    tip = await agent.tip()
    manifest = tip.session.manifest
    assert manifest is not None
    named = [*manifest["user_messages"]["quoted"], *manifest["user_messages"]["listed"]]
    assert len(named) == manifest["covered"]["user_messages"] > 0
    hits = await agent.store.search("FACT-0", SearchScope(tip.session.conversation_id))
    assert hits
    block = compaction_block(tip.rows[0].message)
    assert block is not None
    assert block["content"].splitlines()[0] in text_of(tip.rows[0].message["content"])
    await agent.aclose()


# -- what can go wrong ---------------------------------------------------------------------------


REFUSALS: list[Fault] = [
    *(Fault(code) for code in COMPACTION_ERRORS),
    Fault("400", message="compaction: Extra inputs are not permitted"),
    Fault(
        "400", message="Unexpected value(s) `compact-2026-09-04` for the `anthropic-beta` header"
    ),
    Fault("400", message="something else"),
    Fault("404"),
    Fault("429", retry_after=0),
    Fault("html502"),
    Fault("too_long"),
    Fault("refusal"),
    Fault("empty"),
]


@pytest.mark.parametrize("fault", REFUSALS, ids=repr)
async def test_our_own_summary_takes_the_place_of_one_that_fails(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds, fault: Fault
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.when(COMPACT, fault, times=None)
    await chat(agent, 6)
    manifest = (await agent.tip()).session.manifest
    assert manifest is not None
    assert manifest["mode"] == "summary"
    assert not any("could not be compressed" in notice for notice in agent.observer.notices)
    await agent.aclose()


@pytest.mark.parametrize("kind", ["null", "none"])
async def test_an_answer_that_is_no_summary_is_none(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds, kind: str
) -> None:
    server.settings.compaction = kind
    agent = NativeAgent(server, clock, ids)
    if kind == "none":
        server.script_summary("not a block")
    await chat(agent, 12)
    assert server.rejected == []
    # An endpoint that only answers is not asked again; one that failed this time is.
    asked = len(server.compaction_requests)
    assert asked == 1 if kind == "none" else asked > 1
    assert agent.model.missing_native == (("compaction",) if kind == "none" else ())
    await agent.aclose()


async def test_a_passing_failure_is_tried_again(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.when(COMPACT, Fault("compaction_unavailable"), times=2)
    server.script(*steps(10, "done"))
    await agent.say("read ten pages")
    assert len(server.compaction_requests) == 3
    assert compaction_block((await agent.tip()).rows[0].message) is not None
    await agent.aclose()


async def test_a_cut_that_is_not_taken_moves_to_an_earlier_place_once(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.when(COMPACT, Fault("compaction_incomplete_turn"), times=1)
    await chat(agent, 6)
    first, second = server.compaction_requests[:2]
    assert len(second.messages) < len(first.messages)
    assert compaction_block((await agent.tip()).rows[0].message) is not None
    assert server.rejected == []
    await agent.aclose()


LOST = [
    "compaction_signature_invalid",
    "compaction_content_mismatch",
    "compaction_block_misplaced",
]


@pytest.mark.parametrize("code", LOST)
async def test_a_block_that_is_not_taken_back_is_replaced_by_its_text_and_then_by_the_originals(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds, code: str
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say(f"read ten pages, {PASSWORD}")
    server.when(Match(compaction=False), Fault(code), times=1)
    server.script("still here")
    assert (await agent.say("are you there?")).text == "still here"
    body = sent_messages(server)[-1]
    first = body["messages"][0]
    assert (first["role"], first["content"][0]["type"]) == ("user", "text")
    assert "FACT-kiwi" in first["content"][0]["text"]
    await chat(agent, 6)
    manifest = (await agent.tip()).session.manifest
    assert manifest is not None
    assert manifest["from_originals"] > 0
    assert any("page-0001" in r.messages[0]["content"][0]["text"] for r in server.summary_requests)
    assert len(server.compaction_requests) == 1
    assert server.rejected == []
    await agent.aclose()


async def test_an_endpoint_that_does_not_take_blocks_is_asked_once(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say("read ten pages")
    unknown = Fault(
        "400", message="messages.0.content.0: Input tag 'compaction' found using 'type'"
    )
    server.when(Match(compaction=False), unknown, times=1)
    before = len(server.requests)
    server.script("one", "two")
    await agent.say("first")
    await agent.say("second")
    assert len(server.requests) - before == 3
    assert agent.model.missing_native == ("compaction",)
    await agent.aclose()


# -- other readers -------------------------------------------------------------------------------


async def test_another_model_reads_the_text(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say(f"read ten pages, {PASSWORD}")
    await agent.aclose()
    agent.restart(model="claude-haiku-4-5")
    server.script("hello from another")
    assert (await agent.say("who are you?")).text == "hello from another"
    assert "FACT-kiwi" in sent_messages(server)[-1]["messages"][0]["content"][0]["text"]
    assert [r for r in server.rejected if r.rule != "binding"] == []
    await agent.aclose()
    # Back with the first one, its block counts again.
    agent.restart()
    server.script("me again")
    await agent.say("and now?")
    first = sent_messages(server)[-1]["messages"][0]["content"][0]
    assert first["type"] == "compaction"
    await agent.aclose()


async def test_a_stand_in_reads_the_text_and_the_block_stays(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids, fallback=["claude-haiku-4-5"])
    server.script(*steps(10, "done"))
    await agent.say("read ten pages")
    server.when(Match(model=MODEL), Fault("529"), times=4)
    server.script("from the stand-in", "from the first")
    assert (await agent.say("busy?")).text == "from the stand-in"
    assert (await agent.say("and now?")).text == "from the first"
    assert sent_messages(server)[-1]["messages"][0]["content"][0]["type"] == "compaction"
    assert server.rejected == []
    await agent.aclose()


async def test_a_block_without_text_is_made_anew_for_another_model(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    server.settings.compaction = "opaque"
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say(f"read ten pages, {PASSWORD}")
    tip = await agent.tip()
    assert "only be read by the model that wrote it" in text_of(tip.rows[0].message["content"])
    server.script("I can read it")
    assert (await agent.say("can you?")).text == "I can read it"
    await agent.aclose()
    agent.restart(model="claude-opus-5-5")
    server.script("made anew")
    assert (await agent.say("and you?")).text == "made anew"
    assert len(server.summary_requests) == 1
    assert (await agent.tip()).session.manifest["from_originals"] > 0  # type: ignore[index]
    assert server.rejected == []
    await agent.aclose()


async def test_native_is_switched_off_and_on_between_restarts(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    modes: list[str] = []
    for n, native in enumerate(["compact", "off", "off", "compact", "compact", "off"]):
        await agent.aclose()
        agent.restart(native=native)
        await chat(agent, 6, topic=f"round{n}-")
        manifest = (await agent.tip()).session.manifest
        assert manifest is not None
        modes.append(manifest["mode"])
    assert modes == ["native", "summary", "summary", "native", "native", "summary"]
    # Ours is never made from the provider's: all that it stands for is read again.
    last = server.summary_requests[-1].messages[0]["content"][0]["text"]
    assert "FACT-round3-" in last
    assert "FACT-round4-" in last
    assert [r for r in server.rejected if r.rule != "binding"] == []
    tip = await agent.tip()
    assert all(compaction_block(row.message) is None for row in tip.rows)
    assert not any(is_keepsake(row) for row in tip.rows)
    await agent.aclose()


# -- lineages ------------------------------------------------------------------------------------


async def test_a_fork_takes_the_block_along(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say(f"read ten pages, {PASSWORD}")
    tip = await agent.tip()
    await agent.store.branch(tip.session.id, "other", "t:1")
    server.script("in the fork", "in the first one")
    await agent.say("hello fork", key="other")
    assert sent_messages(server)[-1]["messages"][0]["content"][0]["type"] == "compaction"
    fork = await agent.tip("other")
    whole = await agent.compactor._runner._native.originals(fork)  # type: ignore[union-attr]
    said = [text_of(row.message["content"]) for row in whole.rows]
    assert said[0] == "step 0"
    assert f"read ten pages, {PASSWORD}" in said
    assert said[-2:] == ["hello fork", "in the fork"]
    assert server.rejected == []
    await agent.aclose()


async def test_an_undone_compaction_goes_on_with_the_originals(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    server.script(*steps(10, "done"))
    await agent.say("read ten pages")
    tip = await agent.tip()
    undone = await agent.store.uncompress(
        UncompressRequest(
            tip.session.conversation_id,
            tip.session.id,
            tip.session.revision,
            tip.last_row_id,
            tip.session.compression.changed(hold_tokens=6000),
        )
    )
    assert undone.applied
    server.script("all is there")
    assert (await agent.say("is all there?")).text == "all is there"
    rows = (await agent.tip()).rows
    assert compaction_block(rows[0].message) is None
    assert server.rejected == []
    await agent.aclose()


# -- ahead of time -------------------------------------------------------------------------------


async def test_a_block_is_prepared_in_the_background_and_swapped_in(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids)
    while (
        (await agent.compactor.prepare(await agent.tip())).outcome != "prepared"
        if (await agent.store.conversation_for_key(KEY))
        else True
    ):
        await chat(agent, 1, words=60)
    assert len(server.compaction_requests) == 1
    await chat(agent, 3, words=120)
    assert len(server.compaction_requests) == 1
    tip = await agent.tip()
    assert compaction_block(tip.rows[0].message) is not None
    assert tip.session.manifest is not None
    assert tip.session.manifest["prepared"]
    assert server.rejected == []
    assert server.summary_requests == []
    await agent.aclose()


# -- edits ---------------------------------------------------------------------------------------

EDITS = ContextEdits(
    trigger_tokens=2500, clear_at_least_tokens=400, keep_tool_uses=3, exclude_tools=("recall",)
)


async def test_the_provider_clears_and_the_history_stays_whole(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds
) -> None:
    agent = NativeAgent(server, clock, ids, native="edits", edits=EDITS)
    server.script(*steps(12, "done"))
    result = await agent.say("read twelve pages")
    assert (result.text, result.compactions) == ("done", 0)
    tip = await agent.tip()
    assert len(tip.rows) == 26
    assert tip.session.anchor is not None
    assert tip.session.anchor.prompt_tokens < 2600  # what the provider has counted
    asked = sent_messages(server)[-1]["context_management"]["edits"]
    assert [edit["type"] for edit in asked] == [
        "clear_thinking_20251015",
        "clear_tool_uses_20250919",
    ]
    assert asked[1]["exclude_tools"] == ["recall"]
    misses = (await agent.store.usage_totals(tip.session.conversation_id)).misses
    assert misses.get("native edit", 0) >= 1
    assert set(misses) <= {"native edit", "first", "short"}
    assert server.rejected == []
    assert all(r.transformations == [] for r in server.requests)
    await agent.aclose()


@pytest.mark.parametrize(
    "message",
    [
        "context_management: Extra inputs are not permitted",
        "Unexpected value(s) `context-management-2025-06-27` for the `anthropic-beta` header.",
        "context_management.edits.0.type: unknown edit",
    ],
)
async def test_an_endpoint_without_edits_is_asked_once(
    server: AnthropicServer, clock: FakeClock, ids: SequentialIds, message: str
) -> None:
    agent = NativeAgent(server, clock, ids, native="edits", edits=EDITS)
    refused = Match(where=lambda request: "context_management" in request.body)
    server.when(refused, Fault("400", message=message), times=None)
    server.script("one", "two")
    assert (await agent.say("first")).text == "one"
    before = len(server.requests)
    assert (await agent.say("second")).text == "two"
    assert len(server.requests) == before + 1
    assert agent.model.missing_native == ("context edits",)
    await agent.aclose()


def test_the_block_is_not_touched_by_what_is_sent() -> None:
    message: Message = {
        "role": "assistant",
        "content": "x",
        "name": "compaction:0:m",
        "anthropic_content_blocks": [{"type": "compaction", "content": "x"}],
    }
    before = copy.deepcopy(message)
    assert compaction_block(message) == before["anthropic_content_blocks"][0]
    assert message == before
