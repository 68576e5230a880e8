"""Whatever the list: what the built-in engine makes of it can be sent, and lost nothing it kept."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.compaction.plan.boundary import CutRules, find_boundaries, is_summary, side
from agent.compaction.plan.frame import Quote, SummaryText, parse_summary, render_summary
from agent.compaction.plan.prune import prune_messages
from agent.context_compressor import ContextCompressor
from agent.errors import ModelTimeout
from agent.messages import (
    SUMMARY_END,
    SUMMARY_HEADER,
    THINKING_TYPES,
    Message,
    is_real_user,
    newest_real_user,
    orphan_results,
    text_of,
    tool_groups,
    unanswered_calls,
    visible,
)
from agent.model_metadata import estimate_messages_tokens_rough, messages_tokens
from tests.fakes.clock import FakeClock
from tests.fakes.message_lists import conversations, texts
from tests.fakes.side_model import ScriptedSideModel

quiet = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def engine(
    window: int, side_model: ScriptedSideModel | None = None, **options: Any
) -> ContextCompressor:
    return ContextCompressor(
        "m",
        config_context_length=window,
        side_model=side_model or ScriptedSideModel(),
        clock=FakeClock(),
        **options,
    )


def check_sound(before: list[Message], after: list[Message]) -> None:
    """The list can be sent (W1-W4, W6), and everything in it is kept, marked, or a summary."""
    assert not orphan_results(after)
    assert not unanswered_calls(after)
    body = after[1:] if after[0]["role"] == "system" else after
    assert body[0]["role"] == "user"
    seen = [visible(m) for m in before]
    for left, right in pairwise(body):
        if side(left) == "assistant" or right["role"] != "tool":
            new = visible(left) not in seen or visible(right) not in seen
            if new and left["role"] != "tool":
                assert side(left) != side(right), (left, right)
    summaries = [i for i, m in enumerate(after) if is_summary(m)]
    assert len(summaries) <= 1
    for message in after:
        known = visible(message) in seen
        assert known or message.get("_kind") or "_row" in message or message["role"] != "user"
        assert not any(
            block.get("type") in THINKING_TYPES
            for block in message.get("anthropic_content_blocks") or ()
        )
        if is_summary(message):
            text = text_of(message["content"])
            assert text.startswith(SUMMARY_HEADER)
            assert text.endswith(SUMMARY_END)
            text.encode()
    newest = newest_real_user(before)
    if newest is not None:
        places = [i for i, m in enumerate(after) if visible(m) == visible(before[newest])]
        assert places
        assert not summaries or places[-1] > summaries[0]


@quiet
@given(conversations(), st.sampled_from((400, 2000, 8000, 40_000)), st.booleans())
def test_any_list_comes_back_sound_and_smaller_or_untouched(
    messages: list[Message], window: int, force: bool
) -> None:
    compressor = engine(window)
    given_list = cast(list[dict[str, Any]], messages)
    frozen = copy.deepcopy(messages)
    result = cast(list[Message], compressor.compress(given_list, force=force))
    assert messages == frozen
    if result is given_list:
        assert compressor.last_attempt.outcome in ("nothing_to_do", "aborted")
        assert compressor.last_attempt.reason
        return
    check_sound(messages, result)
    assert estimate_messages_tokens_rough(result) < estimate_messages_tokens_rough(messages)
    assert compressor.last_attempt.manifest["tokens_after"] == estimate_messages_tokens_rough(
        result
    )


@quiet
@given(conversations(), conversations(max_exchanges=4), st.sampled_from((2000, 8000)))
def test_a_second_compression_takes_the_first_one_over(
    first: list[Message], more: list[Message], window: int
) -> None:
    model = ScriptedSideModel(lambda asked: f"## Goal\nbody {len(asked.prompt)}")
    compressor = engine(window, model)
    once = compressor.compress(cast(list[dict[str, Any]], first), force=True)
    if not any(is_summary(cast(Message, m)) for m in once):
        return
    for i, message in enumerate(more):
        message["_row"] = 5000 + i
        for call in message.get("tool_calls") or ():
            call["id"] = f"second_{call['id']}"
        if message["role"] == "tool":
            message["tool_call_id"] = f"second_{message['tool_call_id']}"
    grown = [*once, *(m for m in more if m["role"] != "system")]
    made = next(m for m in once if is_summary(cast(Message, m)))
    asked, body = len(model.asked), parse_summary(text_of(made["content"])).body
    twice = cast(list[Message], compressor.compress(cast(list[dict[str, Any]], grown), force=True))
    check_sound(cast(list[Message], grown), twice)
    if len(model.asked) > asked:
        assert body in model.asked[asked].prompt


@quiet
@given(conversations(), st.sampled_from((2000, 8000)))
def test_a_failed_summary_changes_nothing(messages: list[Message], window: int) -> None:
    model = ScriptedSideModel(ModelTimeout("late"))
    compressor = engine(window, model)
    given_list = cast(list[dict[str, Any]], messages)
    result = compressor.compress(given_list, force=True)
    if model.asked:
        assert result is given_list
        assert compressor.last_attempt.outcome == "aborted"
        assert compressor.state.cooldown_until > 0


@quiet
@given(conversations(), st.sampled_from((400, 2000, 8000)))
def test_a_proven_overflow_is_survived_without_a_model(
    messages: list[Message], window: int
) -> None:
    compressor = engine(window, ScriptedSideModel(ModelTimeout("late")))
    compressor.overflow_proven = True
    given_list = cast(list[dict[str, Any]], messages)
    result = cast(list[Message], compressor.compress(given_list, current_tokens=window))
    if result is not given_list:
        check_sound(messages, result)


@quiet
@given(conversations(), st.integers(0, 3000), st.integers(0, 30), st.integers(0, 5))
def test_no_cut_runs_through_a_tool_group(
    messages: list[Message], tail_tokens: int, last: int, first: int
) -> None:
    rules = CutRules(first, last, tail_tokens, 1000)
    cut = find_boundaries(messages, messages_tokens(messages), rules)
    if cut is None:
        return
    parts = [[*range(cut.system_end)], list(cut.head), list(cut.lifted), cut.middle, list(cut.tail)]
    assert sorted(i for part in parts for i in part) == list(range(len(messages)))
    for group in tool_groups(messages):
        assert any(set(group) <= set(part) for part in parts)
    newest = newest_real_user(messages)
    assert newest is None or newest not in cut.middle


@quiet
@given(conversations(), st.data())
def test_pruning_keeps_every_message_and_valid_arguments(
    messages: list[Message], data: st.DataObject
) -> None:
    upto = data.draw(st.integers(0, len(messages)))
    changes = prune_messages(messages, range(upto))
    after = [changes.get(i, m) for i, m in enumerate(messages)]
    assert not unanswered_calls(after)
    assert prune_messages(after, range(upto)) == {}
    for old, new in zip(messages, after, strict=True):
        assert old["role"] == new["role"]
        assert old.get("_row") == new.get("_row")
        if old["role"] in ("user", "system"):
            assert old is new
        for was, now in zip(old.get("tool_calls") or (), new.get("tool_calls") or (), strict=True):
            before_args = json.loads(was["function"]["arguments"])
            after_args = json.loads(now["function"]["arguments"])
            assert before_args.keys() == after_args.keys()
            assert [type(v) for v in before_args.values()] == [type(v) for v in after_args.values()]


@quiet
@given(
    st.lists(st.tuples(texts, st.one_of(st.none(), st.integers(1, 10**6)))),
    st.lists(st.integers(1, 10**6), unique=True, max_size=30),
    texts,
)
def test_a_rendered_summary_reads_back(
    quotes: list[tuple[str, int | None]], listed: list[int], body: str
) -> None:
    summary = SummaryText(
        "## Goal\nx",
        ("/a/b.py (m12)", "E4012"),
        tuple(
            Quote(text.replace("\ud83d", "?").strip("\n") or "x", row)
            for text, row in quotes
            if "\r" not in text
        ),
        tuple(listed),
    )
    assert parse_summary(render_summary(summary)) == summary


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize("tail", range(0, 36_000, 1200))
def test_wherever_the_budget_falls_pairs_stay_whole(tail: int, calls: int) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a1"},
    ]
    for k in range(30):
        ids = [f"toolu_{k}_{c}" for c in range(calls)]
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": i, "function": {"name": "t", "arguments": "{}"}} for i in ids
                ],
            }
        )
        messages.extend({"role": "tool", "tool_call_id": i, "content": "x" * 4000} for i in ids)
    messages.append({"role": "user", "content": "u_last"})
    rules = CutRules(3, 0, tail, 10_000)
    cut = find_boundaries(messages, messages_tokens(messages), rules)
    assert cut is not None
    kept = [messages[i] for i in (*cut.head, *cut.after_summary)]
    assert not orphan_results(kept)
    assert not unanswered_calls(kept)
    in_middle = sum(len(messages[i].get("tool_calls") or ()) for i in cut.middle)
    assert in_middle + sum(len(m.get("tool_calls") or ()) for m in kept) == 30 * calls
    assert is_real_user(messages[-1])
    assert len(messages) - 1 in cut.tail
