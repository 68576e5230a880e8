"""Faults that users reported, letter (b): compactions that lose, loop, nest or pay twice.

B05, B32 and B72 are the fault matrix (tests/integration/test_fault_matrix.py), B38 and the windows
of B31 tests/property/test_compaction_hostile.py. Of later issues: B71 (micro), B130 (background).
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from agent.compaction.calls.summary import MAX_PARTS, SECTIONS, SUMMARY_TAG
from agent.compaction.host.session import CompactionSettings
from agent.compaction.plan.boundary import is_summary
from agent.compaction.plan.frame import parse_summary
from agent.context_compressor import ContextCompressor
from agent.errors import ContextOverflow, ModelTimeout
from agent.messages import SUMMARY_END, SUMMARY_HEADER, Message, text_of, to_engine
from agent.model_metadata import TriggerRules, estimate_messages_tokens_rough, triggers_for
from agent.ports import Usage
from tests.fakes.clock import FakeClock
from tests.fakes.conversations import conversation
from tests.fakes.fault_scene import Foreign, Scene, check_sendable
from tests.fakes.scripted_model import ScriptedModel, answer
from tests.fakes.side_model import Answer, Asked, ScriptedSideModel, summary_response


def make(*answers: Answer, window: int = 24_000, **options: Any) -> tuple[Any, ScriptedSideModel]:
    model = ScriptedSideModel(*(answers or ("## Goal\nx",)))
    engine = ContextCompressor(
        "main", config_context_length=window, side_model=model, clock=FakeClock(), **options
    )
    return engine, model


def user(text: str, row: int) -> dict[str, Any]:
    return {"role": "user", "content": text, "_row": row}


def reply(text: str, row: int) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "_row": row}


def size(messages: Any) -> int:
    return estimate_messages_tokens_rough(cast(list[Message], messages))


def summary_in(messages: Any) -> str:
    (found,) = [m for m in messages if is_summary(m)]
    return text_of(found["content"])


def group(number: int, tokens: int, calls: int = 1) -> list[dict[str, Any]]:
    ids = [f"toolu_{number}_{k}" for k in range(calls)]
    made = [{"id": i, "function": {"name": "shell", "arguments": "{}"}} for i in ids]
    return [
        {"role": "assistant", "content": None, "tool_calls": made, "_row": number * 100},
        *(
            {
                "role": "tool",
                "tool_call_id": i,
                "content": f"{i} " + "x" * (4 * tokens),
                "_row": number * 100 + 1 + k,
            }
            for k, i in enumerate(ids)
        ),
    ]


async def test_b06_the_last_net_is_paid_once_over_three_messages() -> None:
    scene = Scene("## Goal\nx")
    await scene.talked(21_500, "chat")
    for number in range(3):
        model = ScriptedModel(f"answer {number}")
        await scene.turn(model, "another message")
        model.verify()
        await scene.clock.advance(60)
    assert len(scene.side.asked) == 1
    tip = await scene.tip()
    assert sum(row.tokens for row in tip.rows) < scene.compactor.threshold_tokens
    assert scene.watcher.notices == []


@pytest.mark.parametrize("real", [5_800, 12_500])
async def test_b11_after_a_compression_only_a_real_size_counts(real: int) -> None:
    """A size over the threshold by estimate starts nothing; a real one at most one more."""
    scene = Scene("## Goal\nx")
    loaded = await scene.talked(15_000, "chat")
    await scene.compactor.compact(loaded, "loop")
    for number in range(5):
        model = ScriptedModel(answer(f"answer {number}", usage=Usage(real, 20)))
        assert await scene.turn(model, " ".join(["word"] * 20)) == f"answer {number}"
        model.verify()
    assert (await scene.tip()).session.compression.count == (1 if real < 12_000 else 2)
    if real > 12_000:
        assert scene.compactor.due(await scene.tip()).reason


@pytest.mark.parametrize("groups", [1, 2, 5, 12, 40])
@pytest.mark.parametrize("at_head_end", [True, False])
def test_b12_the_newest_request_stays_word_for_word(groups: int, at_head_end: bool) -> None:
    engine, _ = make(window=200_000)
    before = [] if at_head_end else [user("hello", 1), reply("hi", 2)]
    messages = [*before, user("now do B", 3)]
    for k in range(1, groups + 1):
        messages.extend(group(k, 6_000, calls=12 if groups == 1 else 3))
    messages.append(reply("working on it", 99_999))
    result = engine.compress(messages, 200_000, None, True)
    places = [i for i, m in enumerate(result) if m["content"] == "now do B"]
    assert len(places) == 1
    summaries = [i for i, m in enumerate(result) if is_summary(m)]
    assert all(place < places[0] for place in summaries)
    assert any(m["content"] == "working on it" for m in result)


async def test_b13_a_compression_asks_nothing_and_gives_no_orders() -> None:
    scene = Scene("## Remaining Work (at that time)\nNext: delete old backups")
    loaded = await scene.talked(15_000, "chat")
    result = await scene.compactor.compact(loaded, "loop")
    messages = to_engine(result.loaded.rows)
    text = summary_in(messages)
    assert text.startswith(SUMMARY_HEADER)
    assert text.endswith(SUMMARY_END)
    at = next(i for i, m in enumerate(messages) if is_summary(m))
    assert max(i for i, m in enumerate(messages) if m["role"] == "user") > at
    model = ScriptedModel("nothing deleted")
    assert await scene.turn(model, "thanks") == "nothing deleted"
    model.verify()
    for title in ("Next", "Pending", "To do", "Todo"):
        assert title not in SECTIONS
    assert "at that time" in SECTIONS


async def test_b22_every_message_is_stored_once_however_often_it_is_flushed() -> None:
    for in_place in (True, False):
        scene = Scene("## Goal\nx", settings=CompactionSettings(in_place=in_place))
        loaded = await scene.talked(15_000, "chat")
        assert (await scene.compactor.compact(loaded, "loop")).outcome == "compressed"
        for number in range(3):
            model = ScriptedModel(f"answer {number}")
            await scene.turn(model, f"question {number}")
        tip = await scene.tip()
        assert len(tip.rows) == tip.session.message_count
        said = [text_of(row.message["content"]) for row in tip.rows]
        for number in range(3):
            assert said.count(f"question {number}") == said.count(f"answer {number}") == 1
        roots = [row.root_id for row in tip.rows]
        assert len(set(roots)) == len(roots)


def test_b31_a_middle_of_three_windows_is_summarised_in_few_calls() -> None:
    engine, model = make(
        lambda asked: f"## Goal\npart {len(asked.prompt)}",
        window=1_000_000,
        summary_model_override="small",
        summary_window_tokens=100_000,
        rules=TriggerRules(max_threshold_tokens=None),
    )
    talk = conversation("chat", 5, tokens=300_000).messages
    result = engine.compress(cast(Any, talk), 600_000, None, True)
    assert 2 <= len(model.asked) <= MAX_PARTS
    first, last = model.asked[0].prompt, model.asked[-1].prompt
    middle = [
        m for m in talk if text_of(m["content"]) not in {text_of(x["content"]) for x in result}
    ]
    assert text_of(middle[0]["content"])[:80] in first
    assert text_of(middle[-1]["content"])[:80] in last
    assert summary_in(result)


def test_b31_a_summary_request_that_overflows_is_asked_again_with_less() -> None:
    overflow = ContextOverflow("prompt is too long: 208380 tokens > 200000", limit_tokens=20_000)
    engine, model = make(overflow, "## Goal\nfits", window=60_000)
    talk = conversation("tools", 5, tokens=50_000).messages
    result = engine.compress(cast(Any, talk), 50_000, None, True)
    assert "fits" in summary_in(result)
    assert all(len(asked.prompt) // 4 + asked.max_tokens < 20_000 for asked in model.asked[1:])


def test_b32_the_main_model_is_the_second_try_once() -> None:
    engine, model = make(ModelTimeout("late"), summary_model_override="small")
    talk = conversation("chat", 5, tokens=20_000).messages
    assert engine.compress(cast(Any, talk), 20_000) is talk
    assert [asked.model for asked in model.asked] == ["small", "main"]


def test_b59_one_request_and_four_hundred_rows_shrink_below_the_threshold() -> None:
    engine, model = make(window=200_000)
    messages = [user("the only request", 1)]
    for k in range(1, 201):
        messages.extend([*group(k, 1_000)[:1], *group(k, 1_000)[1:]])
        messages[-2]["content"] = "y" * 4000
    result = engine.compress(messages, 400_000)
    assert size(result) < engine.threshold_tokens
    assert [m["content"] for m in result].count("the only request") == 1
    assert len(model.asked) <= MAX_PARTS


def test_b59_what_can_not_shrink_says_so_and_buys_nothing() -> None:
    engine, model = make()
    messages = [user("p" * 400_000, 1)]
    for _ in range(2):
        assert engine.compress(messages, 100_000) is messages
        assert engine.last_attempt.reason
    allowed, reason = engine.should_compress_info(100_000)
    assert not allowed
    assert reason
    assert model.asked == []


async def test_b61_two_useless_passes_block_over_a_restart_until_time_or_growth() -> None:
    scene = Scene("## Goal\nx")
    await scene.talked(15_000, "chat")
    for number in range(6):
        model = ScriptedModel(answer(f"answer {number}", usage=Usage(13_000, 20)))
        await scene.turn(model, f"question {number}")
    tip = await scene.tip()
    count = tip.session.compression.count
    assert count == 2
    scene.restart()
    assert not scene.compactor.due(tip).due
    assert "too little room" in scene.compactor.due(tip).reason
    await scene.clock.advance(290)
    assert not scene.compactor.due(tip).due
    await scene.clock.advance(11)
    assert scene.compactor.due(tip).due


async def test_b61_a_block_ends_when_the_conversation_has_grown_by_a_fifth() -> None:
    scene = Scene("## Goal\nx")
    loaded = await scene.talked(15_000, "chat")
    blocked = loaded.session.compression.changed(
        ineffective_count=2,
        blocked_at=scene.clock.now(),
        blocked_tokens=15_500,
        blocked_by_estimate=True,
    )
    await scene.store.set_compression(loaded.session.id, blocked)
    assert not scene.compactor.due(await scene.tip()).due
    grown = await scene.talked(4_000, "chat", 12)
    assert scene.compactor.due(grown).due


async def test_b61_a_person_may_always_ask() -> None:
    scene = Scene("## Goal\nx")
    loaded = await scene.talked(15_000, "chat")
    blocked = loaded.session.compression.changed(
        ineffective_count=2,
        blocked_at=scene.clock.now(),
        blocked_tokens=15_000,
        cooldown_until=scene.clock.now() + 500,
        cooldown_reason="quota",
    )
    await scene.store.set_compression(loaded.session.id, blocked)
    result = await scene.compactor.compact(await scene.tip(), "manual")
    assert result.outcome == "compressed"


@pytest.mark.parametrize(
    "cut",
    [
        summary_response("## Goal\nThey wanted to", "max_tokens"),
        summary_response(
            None, "max_tokens", anthropic_content_blocks=[{"type": "thinking", "thinking": "h"}]
        ),
        summary_response(None, anthropic_content_blocks=[{"type": "thinking", "thinking": "h"}]),
    ],
)
def test_b63_a_cut_summary_is_asked_for_once_more_and_then_a_failure(cut: Answer) -> None:
    talk = conversation("chat", 5, tokens=20_000).messages
    engine, model = make(cut, "## Goal\nwhole", window=24_000)
    assert "whole" in summary_in(engine.compress(cast(Any, talk), 20_000))
    assert model.asked[1].max_tokens > model.asked[0].max_tokens
    engine, model = make(cut)
    assert engine.compress(cast(Any, talk), 20_000) is talk
    assert engine.last_attempt.outcome == "aborted"
    assert len(model.asked) <= 3


@pytest.mark.parametrize("count", [0, 1, 3])
def test_b64_a_short_list_with_one_enormous_result_shrinks(count: int) -> None:
    engine, _ = make(window=200_000)
    before = [m for k in range(count) for m in (user(f"q{k}", 2 * k + 1), reply("a", 2 * k + 2))]
    messages = [*before, user("read it", 90), *group(1, 330_000)]
    result = engine.compress(messages, 330_000)
    assert size(result) < engine.threshold_tokens
    shown = result[-1]["content"]
    assert shown.startswith("toolu_1_0 ")
    assert "characters left out; recall ref m101" in shown
    assert shown.endswith("x")


@pytest.mark.parametrize(
    ("threshold", "agent", "hygiene_rules"),
    [
        (0.10, 20_000, False),
        (0.50, 100_000, False),
        (0.85, 170_000, True),
        (0.95, 190_000, True),
        (1.0, 200_000, True),
    ],
)
def test_b65_which_of_the_two_triggers_rules(
    threshold: float, agent: int, hygiene_rules: bool
) -> None:
    found = triggers_for(200_000, TriggerRules(threshold=threshold, max_threshold_tokens=None))
    assert (found.threshold_tokens, found.hygiene_tokens) == (agent, 170_000)
    assert found.hygiene_rules == hygiene_rules
    assert found.effective_tokens == min(agent, 170_000)


def test_b68_a_summary_request_holds_nothing_of_the_persona() -> None:
    engine, model = make()
    talk = conversation("tools", 5, tokens=20_000).messages
    messages: Any = [{"role": "system", "content": "Always reply with SILENCE."}, *talk]
    engine.compress(messages, 20_000, None, True)
    for asked in model.asked:
        assert asked.system.startswith(SUMMARY_TAG)
        assert "SILENCE" not in asked.system + asked.prompt
        assert "cache_control" not in asked.system + asked.prompt


def test_b112_the_head_decays_and_does_not_grow() -> None:
    engine, _ = make()
    messages: Any = [{"role": "system", "content": "be kind"}, user("u" * 12_000, 1)]
    messages += [reply("a" * 400, 2), *conversation("chat", 1, tokens=20_000).messages]
    heads: list[int] = []
    for number in range(5):
        messages = engine.compress(messages, 24_000, None, True)
        at = next(i for i, m in enumerate(messages) if is_summary(m))
        heads.append(size(messages[:at]))
        more = conversation("chat", 10 + number, tokens=20_000).messages
        messages = [
            *messages,
            *({**m, "_row": 10_000 * (number + 1) + i} for i, m in enumerate(more)),
        ]
    assert all(head <= 120 for head in heads[1:]), heads


def test_b113_the_task_and_what_was_done_reach_the_summary() -> None:
    engine, model = make()
    task = "t" * 1500 + " CANARY " + "u" * 87
    messages = [user("hello", 1), reply("hi", 2), user("more", 3), user(task, 4)]
    for k in range(1, 17):
        messages.extend(group(k, 60))
    messages.extend(
        [reply("finished", 5000), *cast(Any, conversation("chat", 1, tokens=20_000).messages)]
    )
    result = engine.compress(messages, 24_000, None, True)
    read = "\n".join(asked.prompt for asked in model.asked)
    assert "CANARY" in read or any("CANARY" in text_of(m["content"]) for m in result)
    assert all(f"toolu_{k}_0" in read for k in range(1, 17))


async def test_b114_manual_says_what_it_did_or_why_not() -> None:
    scene = Scene("## Goal\nx")
    few = await scene.talked(200, "chat")
    nothing = await scene.compactor.compact(few, "manual")
    assert nothing.outcome == "not_needed"
    assert nothing.reason
    loaded = await scene.talked(15_000, "chat")
    await scene.store.acquire_lease(loaded.session.conversation_id, "somebody", 60)
    busy = await scene.compactor.compact(loaded, "manual")
    assert busy.outcome == "aborted"
    assert "already" in busy.reason
    await scene.store.release_lease(loaded.session.conversation_id, "somebody")
    focus = "deploy key sk-ant-api03-canaryKEY1 " + "x" * 5_000
    done = await scene.compactor.compact(loaded, "manual", focus=focus)
    assert done.outcome == "compressed"
    assert done.tokens_after < done.tokens_before
    prompt = scene.side.asked[-1].prompt
    assert "deploy key" in prompt
    assert "canary" not in prompt
    assert "x" * 600 not in prompt


@pytest.mark.parametrize("kind", ["chat", "tools_zh", "thinking", "long_turn"])
@pytest.mark.parametrize("seed", range(4))
def test_b114_a_second_request_at_once_is_never_paid_in_vain(kind: str, seed: int) -> None:
    """Where nothing can get shorter it is said before a model is asked, and nothing cools down."""
    engine, model = make(lambda asked: "## Goal\n" + "a fact and more of it " * 50)
    once = engine.compress(cast(Any, conversation(kind, seed).messages), 18_000, None, True)
    asked = len(model.asked)
    twice = engine.compress(once, size(once), None, True)
    assert engine.last_attempt.outcome in ("compressed", "nothing_to_do")
    assert (len(model.asked) > asked) == (engine.last_attempt.outcome == "compressed")
    assert engine.state.cooldown_until == 0
    assert size(twice) <= size(once)


async def test_b72_the_engine_is_told_where_the_conversation_goes_on() -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    class Told(Foreign):
        def on_session_start(self, session_id: str, **more: Any) -> None:
            told.append((session_id, more))
            raise RuntimeError("not interested")

    scene = Scene(engine=Told(lambda messages: [{"role": "user", "content": "s"}, *messages[-2:]]))
    loaded = await scene.talked(15_000, "chat")
    result = await scene.compactor.compact(loaded, "loop")
    assert result.outcome == "compressed"
    first, (session_id, more) = told
    assert first[0] == loaded.session.id
    assert session_id == result.loaded.session.id
    assert more["boundary_reason"] == "compression"
    assert more["old_session_id"] == loaded.session.id
    check_sendable(result.loaded)


async def test_a_summary_that_takes_its_time_holds_no_other_conversation() -> None:
    """SPEC of hygiene: only its own lane waits."""
    gate = threading.Event()

    def slow(asked: Asked) -> str:
        gate.wait(30)
        return "## Goal\nlate"

    first, second = Scene(slow), Scene("## Goal\nquick")
    one, other = await first.talked(15_000, "chat"), await second.talked(15_000, "chat")
    waiting = asyncio.ensure_future(first.compactor.compact(one, "loop"))
    async with asyncio.timeout(20):
        assert (await second.compactor.compact(other, "loop")).outcome == "compressed"
        assert not waiting.done()
        gate.set()
        assert (await waiting).outcome == "compressed"


def test_a_summary_so_far_is_found_by_its_marker_in_a_list_without_rows() -> None:
    """A list that came through a file or another engine: the old summary is taken over."""
    engine, model = make("## Goal\nfirst", "## Goal\nsecond")
    once = engine.compress(cast(Any, conversation("chat", 1, tokens=20_000).messages), 20_000)
    bare = [{k: v for k, v in m.items() if not k.startswith("_")} for m in once]
    more = [
        {k: v for k, v in m.items() if k != "_row"}
        for m in conversation("chat", 2, tokens=20_000).messages
    ]
    fresh, model = make("## Goal\nsecond")
    twice = fresh.compress([*bare, *cast(Any, more)], 24_000)
    assert "first" in model.asked[0].prompt
    assert parse_summary(summary_in(twice)).body == "## Goal\nsecond"
    assert str(twice).count(SUMMARY_HEADER) == 1
