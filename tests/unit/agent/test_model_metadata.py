"""Sizes: the estimate, windows, triggers, and what is measured when."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.messages import Message, Row, ToolSchema
from agent.model_metadata import (
    DEFAULT_WINDOW_TOKENS,
    IMAGE_TOKENS,
    TriggerRules,
    Window,
    estimate_message_tokens,
    estimate_messages_tokens_rough,
    estimate_prefix_tokens,
    estimate_tokens_rough,
    measure,
    resolve_window,
    start_warnings,
    triggers_for,
)
from agent.sessions import (
    CompressionState,
    LoadedSession,
    Session,
    SessionPrefix,
    UsageAnchor,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("汉" * 10_000, 10_000),
        ("한" * 100, 100),
        ("カ" * 100, 100),
        ("𠀀" * 100, 100),
        ("汉" * 50 + "a" * 200, 100),
        ("é" * 8, 2),
        ("👍" * 8, 2),
    ],
)
def test_estimate_counts_cjk_one_and_the_rest_a_quarter(text: str, tokens: int) -> None:
    assert estimate_tokens_rough(text) == tokens


_EDGES = "".join(
    chr(edge + step)
    for edge in (0x1100, 0x2E80, 0x9FFF, 0xA960, 0xA97F, 0xAC00, 0xD7AF, 0xF900, 0xFAFF, 0xFF00)
    for step in (-1, 0, 1)
)


@given(
    st.text(
        st.sampled_from(
            _EDGES + "\uffef\ufff0\ufffd\U0001ffff\U00020000\U0003ffff\U00040000👍é\ud800…a中"
        )
    )
)
def test_a_long_text_is_counted_like_its_pieces(text: str) -> None:
    """Another way of counting is taken for long texts; every border of a range is in here."""
    # four of each: a piece's rest of less than a token does not blur the sum
    pieces = sum(estimate_tokens_rough(char * 4) for char in text)
    long_text = text * 4 + "a" * 1000
    assert estimate_tokens_rough(long_text) == pieces + 250


@given(st.text(), st.text())
def test_estimate_grows_with_the_text(left: str, right: str) -> None:
    both = estimate_tokens_rough(left + right)
    assert both <= estimate_tokens_rough(left) + estimate_tokens_rough(right)
    assert both >= max(estimate_tokens_rough(left), estimate_tokens_rough(right))


def test_what_is_private_costs_nothing_and_what_is_hidden_does() -> None:
    plain = cast(Message, {"role": "assistant", "content": "x" * 400})
    assert estimate_message_tokens(cast(Message, {**plain, "_row": 7})) == estimate_message_tokens(
        plain
    )
    thinking: Any = {
        **plain,
        "anthropic_content_blocks": [{"type": "thinking", "thinking": "y" * 400}],
    }
    assert estimate_message_tokens(thinking) == estimate_message_tokens(plain) + 100
    picture: Any = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
    assert estimate_message_tokens(picture) >= IMAGE_TOKENS


def test_schemas_count_once_and_close_to_a_hand_sum() -> None:
    tools = tuple(
        ToolSchema(
            f"tool_{i}", "d" * 1000, {"type": "object", "properties": {"p": {"d": "x" * 960}}}
        )
        for i in range(50)
    )
    by_hand = 50 * (2000 + 50) // 4
    estimate = estimate_prefix_tokens(SessionPrefix("telegram", "m", "s" * 4000, tools)) - 1000
    assert abs(estimate - by_hand) < 0.15 * by_hand


def test_the_worked_example() -> None:
    triggers = triggers_for(200_000, TriggerRules(), max_tokens=8192)
    assert triggers.threshold_tokens == 100_000
    assert triggers.tail_tokens == 20_000
    assert triggers.summary_ceiling_tokens == 10_000
    assert triggers.hygiene_tokens == 170_000
    assert not triggers.hygiene_rules


@pytest.mark.parametrize(
    ("threshold", "expected", "hygiene_rules"),
    [
        (0.10, 20_000, False),
        (0.50, 100_000, False),
        (0.85, 170_000, True),
        (0.95, 190_000, True),
        (1.0, 191_808, True),
    ],
)
def test_two_triggers_that_meet_are_told(
    threshold: float, expected: int, hygiene_rules: bool
) -> None:
    triggers = triggers_for(200_000, TriggerRules(threshold=threshold), max_tokens=8192)
    assert triggers.threshold_tokens == expected
    assert triggers.hygiene_rules is hygiene_rules
    assert bool(start_warnings(triggers, 0)) is hygiene_rules
    assert triggers.effective_tokens <= 170_000


def test_small_and_huge_windows() -> None:
    small = triggers_for(8000, TriggerRules(), max_tokens=8192)
    assert (small.max_tokens, small.threshold_tokens, small.hygiene_tokens) == (2000, 4000, 6000)
    assert small.summary_budget(100_000) == 400
    assert start_warnings(small, 2500)
    huge = triggers_for(1_000_000, TriggerRules(), max_tokens=8192)
    assert huge.threshold_tokens == 200_000
    assert (
        triggers_for(1_000_000, TriggerRules(max_threshold_tokens=None)).threshold_tokens == 500_000
    )
    raised = triggers_for(200_000, TriggerRules(small_window_floor=0.75), max_tokens=8192)
    assert raised.threshold_tokens == 150_000


@given(st.integers(1, 2_000_000), st.floats(0.01, 1.0), st.integers(0, 100_000))
def test_no_trigger_lies_where_the_answer_would_not_fit(
    window: int, threshold: float, max_tokens: int
) -> None:
    found = triggers_for(window, TriggerRules(threshold=threshold), max_tokens=max_tokens)
    assert 1 <= found.threshold_tokens <= max(1, window - found.max_tokens)
    assert 1 <= found.hygiene_tokens <= max(1, window - found.max_tokens)


def test_model_thresholds_longest_part_wins_and_provider_keys_stay_there() -> None:
    rules = TriggerRules(
        model_thresholds={"claude": 0.4, "claude-sonnet": 0.6, "openrouter:claude-sonnet": 0.7}
    )
    assert rules.ratio_for("claude-sonnet-5-5", "anthropic", 200_000) == 0.6
    assert rules.ratio_for("claude-sonnet-5-5", "openrouter", 200_000) == 0.7
    assert rules.ratio_for("claude-opus-5", "openrouter", 200_000) == 0.4
    assert rules.ratio_for("other", "anthropic", 200_000) == 0.5


def test_the_window_comes_from_whoever_knows_best(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve_window("claude-opus-4", configured=8000, provider=5_000) == Window(
        8000, "config"
    )
    assert resolve_window("claude-opus-4", provider=500_000) == Window(500_000, "provider")
    assert resolve_window("claude-sonnet-5-5") == Window(1_000_000, "table")
    assert resolve_window("claude-haiku-3") == Window(200_000, "table")
    with caplog.at_level(logging.WARNING):
        assert resolve_window("mystery") == Window(DEFAULT_WINDOW_TOKENS, "default")
    assert "unknown" in caplog.text


@pytest.mark.parametrize(
    ("stated", "tokens"),
    [(100_000, 100_000), (300_000, 200_000), (200_000, 200_000), (5, 200_000), (None, 200_000)],
)
def test_an_error_only_ever_lowers_the_window(stated: int | None, tokens: int) -> None:
    assert Window(200_000, "table").lowered_to(stated).tokens == tokens


# --- measuring


def row(row_id: int, tokens: int, **fields: Any) -> Row:
    message = cast(Message, {"role": "user", "content": "x"})
    return Row(row_id, "s", row_id, message, 0.0, tokens=tokens, **fields)


def loaded(*rows: Row, anchor: UsageAnchor | None = None, **state: Any) -> LoadedSession:
    session = Session(
        id="s",
        conversation_id="c",
        parent_session_id=None,
        link=None,
        revision=0,
        prefix=SessionPrefix("test", "m", ""),
        title=None,
        started_at=0.0,
        ended_at=None,
        end_reason=None,
        message_count=len(rows),
        anchor=anchor,
        compression=CompressionState(**state),
    )
    return LoadedSession(session, rows)


def test_the_anchor_is_believed_and_only_what_came_after_is_estimated() -> None:
    session = loaded(row(1, 900), row(2, 900), row(3, 50), anchor=UsageAnchor(152_012, 500, 2))
    size = measure(session, prefix_tokens=10)
    assert (size.tokens, size.source) == (152_562, "usage")


def test_without_an_anchor_everything_is_estimated() -> None:
    size = measure(loaded(row(1, 900), row(2, 100)), prefix_tokens=10)
    assert (size.tokens, size.source) == (1010, "estimate")
    gone = loaded(row(5, 900), anchor=UsageAnchor(5, 5, 2))
    assert measure(gone, prefix_tokens=10).source == "estimate"


def test_after_a_compression_the_estimate_triggers_nothing() -> None:
    carried = (row(1, 60_000, kind="summary"), row(2, 60_000, origin_id=1))
    session = loaded(*carried, row(3, 20), awaiting_usage=True)
    size = measure(session, prefix_tokens=25_000)
    assert size.source == "unknown"
    assert not size.reaches(100_000)
    # … but what certainly was added since does
    pasted = replace(session, rows=(*carried, row(4, 300_000)))
    assert measure(pasted, prefix_tokens=0).reaches(100_000)


def test_estimate_of_a_list_is_the_sum() -> None:
    messages = [cast(Message, {"role": "user", "content": "x" * n}) for n in range(20)]
    assert estimate_messages_tokens_rough(messages) == sum(map(estimate_message_tokens, messages))
