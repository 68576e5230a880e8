"""When compaction may run, and when the user reads about pressure: plain values in and out."""

from __future__ import annotations

import pytest

from agent import pressure
from agent.compaction.failures import FailureKind, classify, describe
from agent.compaction.policy import (
    PROBE_SECONDS,
    after_compression,
    after_failure,
    after_nothing,
    after_progress,
    after_usage,
    after_waste,
    cooldown_left,
    in_words,
    verdict,
)
from agent.compaction.summary import SummaryRejected
from agent.errors import ModelAuthError, ModelOverloaded, ModelTimeout
from agent.model_metadata import Measurement
from agent.sessions import CompressionState

NOW = 1_800_000_000.0
FULL = Measurement(120_000, "usage")


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("missing_key", [600, 600]),
        ("auth", [60, 60]),
        ("quota", [60, 60]),
        ("connection", [30, 30]),
        ("unusable", [60, 60]),
        ("timeout", [60, 300, 900, 900]),
        ("overload", [60, 300, 900]),
        ("rate_limit", [60, 300, 900]),
    ],
)
def test_each_kind_has_its_cooldown(kind: FailureKind, seconds: list[float]) -> None:
    state = CompressionState()
    for expected in seconds:
        state = after_failure(state, kind, "why", NOW)
        assert cooldown_left(state, NOW) == expected
        assert verdict(state, NOW).reason == f"cooldown:{int(expected) + 1}"
        assert verdict(state, NOW + expected).allowed


def test_a_server_that_names_a_time_is_believed_within_bounds() -> None:
    state = after_failure(CompressionState(), "rate_limit", "why", NOW, retry_after_seconds=200)
    assert cooldown_left(state, NOW) == 200
    state = after_failure(CompressionState(), "rate_limit", "why", NOW, retry_after_seconds=1e9)
    assert cooldown_left(state, NOW) == 900


def test_a_cooldown_from_a_clock_that_was_set_back_is_over() -> None:
    state = after_failure(CompressionState(), "auth", "why", NOW + 1e6)
    assert verdict(state, NOW).allowed


def test_a_block_from_a_clock_that_was_set_back_is_over() -> None:
    state = after_nothing(after_nothing(CompressionState(), NOW + 1e6, FULL), NOW + 1e6, FULL)
    assert verdict(state, NOW).allowed
    assert not verdict(state, NOW + 1e6 + 10).allowed


def test_the_last_net_ignores_the_block_but_no_cooldown() -> None:
    blocked = after_nothing(after_nothing(CompressionState(), NOW, FULL), NOW, FULL)
    assert not verdict(blocked, NOW).allowed
    assert verdict(blocked, NOW, ignore_block=True).allowed
    cooling = after_failure(blocked, "quota", "why", NOW)
    assert not verdict(cooling, NOW, ignore_block=True).allowed


def test_a_probe_that_helps_nothing_blocks_again_for_the_whole_time() -> None:
    state = after_nothing(after_nothing(CompressionState(), NOW, FULL), NOW, FULL)
    later = NOW + 300
    assert verdict(state, later).allowed
    state = after_compression(state, later, mode="summary")
    state = after_usage(state, 120_000, 100_000, later + 5)
    assert not verdict(state, later + 200).allowed
    assert verdict(state, later + 305).allowed


def test_only_the_first_real_size_judges() -> None:
    state = after_compression(CompressionState(), NOW, mode="summary")
    judged = after_usage(state, 120_000, 100_000, NOW)
    assert judged.ineffective_count == 1
    assert after_usage(judged, 150_000, 100_000, NOW) is judged
    assert after_usage(judged, 0, 100_000, NOW) is judged
    assert after_usage(judged, 90_000, 100_000, NOW).ineffective_count == 0


def test_two_makeshift_summaries_in_a_row_block_and_a_healthy_one_frees() -> None:
    state = CompressionState()
    for _ in range(2):
        state = after_usage(
            after_compression(state, NOW, mode="deterministic"), 50_000, 100_000, NOW
        )
    assert verdict(state, NOW).reason == "ineffective"
    freed = after_compression(state, NOW, mode="summary")
    assert verdict(freed, NOW).allowed
    pruned = after_compression(state, NOW, mode="prune")
    assert not verdict(pruned, NOW).allowed


def test_reasons_are_words_without_details_of_the_provider() -> None:
    for error in (
        ModelAuthError("401 sk-ant-SECRET"),
        ModelAuthError("no api key is set"),
        ModelOverloaded("529"),
        ModelTimeout("late"),
        SummaryRejected("empty"),
        RuntimeError("/srv/secret/path"),
    ):
        text = describe(classify(error), error)
        assert "SECRET" not in text
        assert "/srv" not in text
        assert len(text) > 10
    assert classify(ModelAuthError("no api key is set")) == "missing_key"


# --- pressure


def test_each_tier_is_told_once_and_a_higher_one_at_once() -> None:
    state = CompressionState()
    told = []
    for tokens in (40_000, 42_500, 43_000, 47_500, 47_600, 60_000):
        state, tell = pressure.after_size(state, tokens, 50_000, NOW)
        told.append(tell)
    assert told == [False, True, False, True, False, False]


def test_a_size_that_swings_around_the_tier_is_told_every_five_minutes_at_most() -> None:
    state, tell = pressure.after_size(CompressionState(), 43_000, 50_000, NOW)
    assert tell
    state, _ = pressure.after_size(state, 40_000, 50_000, NOW + 10)
    state, tell = pressure.after_size(state, 43_000, 50_000, NOW + 20)
    assert not tell
    state, _ = pressure.after_size(state, 40_000, 50_000, NOW + 30)
    state, tell = pressure.after_size(state, 43_000, 50_000, NOW + 400)
    assert tell


def test_a_compression_that_made_room_arms_the_warning_again() -> None:
    state, _ = pressure.after_size(CompressionState(), 43_000, 50_000, NOW)
    assert pressure.after_compression(state, 44_000, 50_000) is state
    armed = pressure.after_compression(state, 10_000, 50_000)
    assert pressure.after_size(armed, 43_000, 50_000, NOW + 1)[1]


def test_the_text_carries_the_numbers() -> None:
    text = pressure.pressure_text(42_500, 50_000, 100_000, automatic=True)
    assert "42,500/50,000 tokens" in text
    assert "85 %" in text
    assert "50 % of the window" in text
    assert "/compress" in pressure.pressure_text(42_500, 50_000, 100_000, automatic=False)
