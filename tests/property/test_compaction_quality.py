"""What the built-in engine keeps of a conversation, measured over some hundred of every kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from agent.compaction.host.session import SessionCompactor
from agent.compaction.plan.boundary import is_summary
from agent.compaction.plan.frame import parse_summary
from agent.compaction.plan.verbatim import identifiers_in
from agent.context_compressor import ContextCompressor
from agent.daemon_threads import DaemonThreads
from agent.llm.validator import validate
from agent.llm.wire import build_body
from agent.messages import (
    SUMMARY_END,
    SUMMARY_HEADER,
    Draft,
    Message,
    newest_real_user,
    orphan_results,
    public,
    text_of,
    tool_groups,
    unanswered_calls,
    visible,
)
from agent.model_metadata import (
    estimate_messages_tokens_rough,
    messages_tokens,
)
from agent.ports import ModelRequest, ToolContext
from agent.sessions import LoadedSession
from agent.tools.recall import RecallTool
from storage.memory import MemoryStore
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.conversations import KINDS, Conversation, conversation
from tests.fakes.side_model import Answer, ScriptedSideModel
from tests.fakes.stored import (
    OWNER,
    all_text,
    context_text,
    open_turn,
    originals,
    recalled,
    stored,
)

SEEDS = range(4)
THREADS = DaemonThreads(2, name="quality-engine")
FIXED = "## Goal\nA conversation took place."


def window_of(kind: str) -> int:
    return 60_000 if kind == "huge" else 24_000


def engine(
    window: int, *answers: Answer, **options: Any
) -> tuple[ContextCompressor, ScriptedSideModel]:
    model = ScriptedSideModel(*(answers or (FIXED,)))
    built = ContextCompressor(
        "m", config_context_length=window, side_model=model, clock=FakeClock(), **options
    )
    return built, model


def written(kind: str) -> Iterator[Conversation]:
    for seed in SEEDS:
        yield conversation(kind, seed, tokens=window_of(kind) * 3 // 4, open_end=seed % 2 == 0)


def compressed(
    compressor: ContextCompressor, messages: Sequence[Message], *, force: bool = True
) -> list[Message]:
    given = cast(list[dict[str, Any]], list(messages))
    size = estimate_messages_tokens_rough(messages)
    return cast(list[Message], compressor.compress(given, size, force=force))


def summaries(messages: Sequence[Message]) -> list[int]:
    return [i for i, message in enumerate(messages) if is_summary(message)]


def check_one_summary(messages: Sequence[Message]) -> None:
    """Exactly one, whole, and none inside it."""
    assert len(summaries(messages)) == 1
    everything = context_text(messages)
    assert everything.count(SUMMARY_HEADER) == 1
    assert everything.count(SUMMARY_END) == 1


def check_sendable(messages: Sequence[Message]) -> None:
    body = build_body(ModelRequest(system="s", messages=messages, max_tokens=100), "m")
    assert validate(body) == []


# --- boundaries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [0.1, 0.2])
def test_the_tail_keeps_its_budget(kind: str, ratio: float) -> None:
    for talk in written(kind):
        compressor, _ = engine(window_of(kind), summary_target_ratio=ratio)
        result = compressed(compressor, talk.messages)
        behind = result[summaries(result)[0] + 1 :]
        largest = max(
            sum(messages_tokens(behind[group.start : group.stop])) for group in tool_groups(behind)
        )
        budget = compressor.triggers.tail_tokens
        spent = sum(messages_tokens(behind))
        allowed = 1.5 * budget if largest <= 1.5 * budget else largest + 0.5 * budget
        assert spent <= allowed, (kind, spent / budget, largest / budget)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_can_be_sent_and_the_newest_request_stands_behind_the_summary(
    kind: str,
) -> None:
    for talk in written(kind):
        compressor, _ = engine(window_of(kind))
        result = compressed(compressor, talk.messages)
        check_one_summary(result)
        check_sendable(result)
        assert not orphan_results(result)
        assert not unanswered_calls(result)
        newest = newest_real_user(talk.messages)
        assert newest is not None
        said = visible(talk.messages[newest])
        places = [i for i, message in enumerate(result) if visible(message) == said]
        assert places
        assert places[-1] > summaries(result)[0]
        assert estimate_messages_tokens_rough(result) < compressor.threshold_tokens


@pytest.mark.parametrize("seed", range(8))
def test_one_long_turn_keeps_its_only_request(seed: int) -> None:
    talk = conversation("long_turn", seed, tokens=60_000)
    asked = [message for message in talk.messages if message["role"] == "user"]
    assert len(asked) == 1
    compressor, _ = engine(24_000)
    messages: list[Message] = talk.messages
    for _ in range(3):
        messages = compressed(compressor, messages)
        check_one_summary(messages)
        assert [m["content"] for m in messages if m["role"] == "user"].count(
            asked[0]["content"]
        ) == 1
        assert estimate_messages_tokens_rough(messages) < compressor.threshold_tokens
        more = conversation("long_turn", 100 + seed, tokens=9_000).messages[1:]
        messages = [*messages, *renamed(more, f"more{len(messages)}")]


def renamed(messages: Sequence[Message], mark: str) -> list[Message]:
    """The messages with calls and rows of their own."""
    base = 10_000 * (1 + len(mark)) + sum(map(ord, mark)) * 1000
    result: list[Any] = []
    for i, message in enumerate(messages):
        copied: dict[str, Any] = {**message, "_row": base + i}
        if "tool_calls" in copied:
            copied["tool_calls"] = [
                {**call, "id": f"{mark}{call['id']}"} for call in copied["tool_calls"]
            ]
        if "tool_call_id" in copied:
            copied["tool_call_id"] = f"{mark}{copied['tool_call_id']}"
        result.append(copied)
    return result


# --- again, at once and after a restart ---------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_compression_at_once_leaves_one_summary(kind: str) -> None:
    for talk in written(kind):
        compressor, model = engine(window_of(kind), lambda a: f"## Goal\nround {len(a.prompt)}")
        once = compressed(compressor, talk.messages)
        twice = compressed(compressor, once)
        check_one_summary(twice)
        assert estimate_messages_tokens_rough(twice) <= estimate_messages_tokens_rough(once)
        asked = {
            m["content"]
            for m in once
            if m["role"] == "user" and "_row" in m and isinstance(m["content"], str)
        }
        for text in asked:
            assert text in context_text(twice) or "Not quoted here" in context_text(twice)
        assert model.asked


class Host:
    """A stored conversation and its compactor."""

    def __init__(self, window: int, *answers: Answer) -> None:
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.store = MemoryStore(self.clock, self.ids)
        self.window = window
        self.answers = answers or (FIXED,)
        self.restart()

    def restart(self) -> None:
        """A new engine and compactor, as a new process has them: only the store is the same."""
        self.engine, self.model = engine(self.window, *self.answers)
        self.compactor = SessionCompactor(
            self.engine, self.store, self.clock, self.ids, threads=THREADS
        )

    async def compress(self, session_id: str) -> LoadedSession:
        loaded = await self.store.load(session_id)
        result = await self.compactor.compact(loaded, "manual")
        assert result.outcome == "compressed", result.reason
        return await self.store.load(result.loaded.session.id)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_restart_in_between_leaves_one_summary(kind: str) -> None:
    for seed in range(2):
        host = Host(window_of(kind), lambda a: f"## Goal\nround {len(a.prompt)}")
        talk = conversation(kind, seed, tokens=window_of(kind) * 3 // 4)
        loaded = await stored(host.store, talk.messages)
        loaded = await host.compress(loaded.session.id)
        check_one_summary([row.message for row in loaded.rows])
        host.restart()
        ticket = await open_turn(host.store, "and now?")
        more = renamed(conversation("tools", 50 + seed, tokens=12_000).messages, "again")
        await host.store.append(ticket, ticket.session_id, [Draft(public(m)) for m in more])
        await host.store.finish_turn(ticket, ticket.session_id, "done")
        loaded = await host.compress(ticket.session_id)
        check_one_summary([row.message for row in loaded.rows])
        assert [row.kind for row in loaded.rows].count("summary") == 1
        assert "round" in host.model.asked[0].prompt
        check_sendable([row.message for row in loaded.rows])


@pytest.mark.parametrize("kind", ["chat", "tools_zh", "mixed", "thinking"])
async def test_after_twenty_rounds_every_fact_is_in_context_or_found(kind: str) -> None:
    host = Host(24_000)
    talk = conversation(kind, 0, tokens=18_000)
    loaded = await stored(host.store, talk.messages)
    first = await originals(host.store, loaded.session.id)
    sizes: list[int] = []
    for k in range(20):
        loaded = await host.compress(loaded.session.id)
        messages = [row.message for row in loaded.rows]
        check_one_summary(messages)
        sizes.append(estimate_messages_tokens_rough(messages))
        if k % 5 == 4:
            host.restart()
        more = renamed(conversation(kind, k + 1, tokens=5_000).messages, f"r{k}x")
        loaded = await stored(host.store, more)
    assert max(sizes) < host.engine.threshold_tokens
    assert sum(sizes[-8:]) < 1.3 * sum(sizes[2:10])  # no growth
    now = await originals(host.store, loaded.session.id)
    assert now[: len(first)] == first
    context = context_text(row.message for row in loaded.rows)
    conversation_id = loaded.session.conversation_id
    for fact in talk.facts[::12]:
        assert fact.text in context or await recalled(host.store, fact.text, conversation_id), fact


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
def test_every_identifier_is_known_as_one_in_any_language(kind: str) -> None:
    """Also where no blank stands around it; whatever the budget then lets into the index."""
    talk = conversation(kind, 0)
    by_row = {message["_row"]: message for message in talk.messages}
    for fact in talk.facts:
        in_a_sentence = "Error" in fact.text and fact.place in ("user", "arguments")
        if fact.exact and not in_a_sentence:  # an error is known by its line
            said = identifiers_in(all_text(by_row[fact.row]))
            assert any(fact.text in item for item in said), (fact, said)


# --- what the summariser reads ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_facts_reach_the_summariser(kind: str) -> None:
    seen: dict[str, list[bool]] = defaultdict(list)
    for talk in written(kind):
        compressor, model = engine(window_of(kind))
        result = compressed(compressor, talk.messages)
        prompts = "\n".join(asked.prompt for asked in model.asked)
        kept = context_text(m for m in result if not is_summary(m))
        for fact in talk.facts:
            if fact.text not in kept:
                seen[fact.place].append(fact.text in prompts)
    for place, found in seen.items():
        wanted = 1.0 if place == "user" else 0.9
        assert sum(found) >= wanted * len(found), (kind, place, sum(found), len(found))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_summary_that_says_nothing_costs_no_fact(kind: str) -> None:
    """Every user message is word for word in context or named, every fact there or found."""
    for seed in range(2):
        host = Host(window_of(kind))
        talk = conversation(kind, seed, tokens=window_of(kind) * 3 // 4)
        before = await stored(host.store, talk.messages)
        after = await host.compress(before.session.id)
        context = context_text(row.message for row in after.rows)
        summary = parse_summary(
            next(text_of(r.message["content"]) for r in after.rows if r.kind == "summary")
        )
        manifest = after.session.manifest
        assert manifest is not None
        named = {*summary.not_quoted, *manifest["user_messages"]["listed"]}
        for row in before.rows:
            if row.message["role"] == "user":
                assert text_of(row.message["content"]) in context or row.id in named
        tool = RecallTool(host.store)
        at = ToolContext(after.session.conversation_id, OWNER, direct_chat=False, turn_id="t")
        for row_id in summary.not_quoted[:5]:
            opened = await tool.run({"ref": f"recall ref m{row_id}"}, at)
            original = next(r for r in before.rows if r.id == row_id)
            assert text_of(original.message["content"])[:200] in opened.text
        for fact in talk.facts[seed::6]:
            assert fact.text in context or await recalled(
                host.store, fact.text, after.session.conversation_id
            ), fact
