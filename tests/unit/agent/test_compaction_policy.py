"""When compaction may run, and when the user reads about pressure: plain values in and out."""

from __future__ import annotations

import pytest

from agent import pressure
from agent.compaction.calls.summary import SummaryRejected
from agent.compaction.plan.failures import FailureKind, classify, describe
from agent.compaction.plan.policy import (
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


def test_the_text_does_not_speak_of_a_threshold_to_come_when_it_is_passed() -> None:
    text = pressure.pressure_text(61_000, 50_000, 100_000, automatic=True)
    assert "122 %" in text
    assert "Before the next answer" in text


# --- what ends a block


def blocked(size: Measurement = FULL) -> CompressionState:
    return after_nothing(after_nothing(CompressionState(), NOW, size), NOW, size)


def test_a_block_ends_by_time_or_by_a_fifth_of_growth() -> None:
    state = blocked()
    assert not verdict(state, NOW + 1, FULL).allowed
    assert not verdict(state, NOW + 1, Measurement(143_999, "usage")).allowed
    assert verdict(state, NOW + 1, Measurement(144_000, "usage")).allowed
    assert verdict(state, NOW + PROBE_SECONDS, FULL).allowed
    assert not verdict(state, NOW + 1).allowed


def test_an_estimate_is_not_growth_of_a_measured_size() -> None:
    assert not verdict(blocked(), NOW + 1, Measurement(200_000, "estimate")).allowed
    assert not verdict(blocked(), NOW + 1, Measurement(200_000, "unknown")).allowed
    guessed = blocked(Measurement(60_000, "estimate"))
    assert not verdict(guessed, NOW + 1, Measurement(120_000, "usage")).allowed
    assert verdict(guessed, NOW + 1, Measurement(72_000, "estimate")).allowed
    # the first real size takes the estimate's place
    measured = after_usage(guessed, 110_000, 100_000, NOW + 1)
    assert not verdict(measured, NOW + 1, Measurement(120_000, "usage")).allowed
    assert verdict(measured, NOW + 1, Measurement(132_000, "usage")).allowed


def test_a_block_that_grew_and_was_useless_again_counts_from_its_new_size() -> None:
    state = after_compression(blocked(), NOW + 10, mode="summary")
    state = after_usage(state, 150_000, 100_000, NOW + 11)
    assert not verdict(state, NOW + 12, Measurement(170_000, "usage")).allowed
    assert verdict(state, NOW + 12, Measurement(180_000, "usage")).allowed


OVER = Measurement(101_000, "usage")


def rush(state: CompressionState, gained: int | None, row: int, now: float) -> CompressionState:
    done = after_compression(state, now, mode="summary")
    done = after_progress(
        done,
        now,
        gained_tokens=gained,
        threshold_tokens=100_000,
        after=Measurement(90_000, "estimate"),
        seen_row_id=row,
    )
    return after_usage(done, 95_000, 100_000, now)


def test_three_compressions_with_nothing_new_between_them_block() -> None:
    state = rush(CompressionState(), None, 1, NOW)
    for k in range(3):
        assert verdict(state, NOW, OVER).allowed
        state = rush(state, 9_999, k + 2, NOW + k)
    assert verdict(state, NOW + 3, OVER).reason == "too often"
    assert "too often" in in_words(state, "too often", NOW)
    # it was 95,000 when it was blocked
    assert verdict(state, NOW + 3, Measurement(114_000, "usage")).allowed
    state = rush(state, 19_000, 9, NOW + 4)
    assert verdict(state, NOW + 5, OVER).allowed
    assert state.blocked_tokens == 0


def test_how_fast_they_come_does_not_matter() -> None:
    state = CompressionState()
    for k in range(200):
        state = rush(state, 10_000, k + 1, NOW)
        assert verdict(state, NOW, OVER).allowed


def test_a_probe_that_is_rushed_too_blocks_for_another_five_minutes() -> None:
    state, now, runs = CompressionState(), NOW, 0
    for _ in range(50):  # one try a minute
        if verdict(state, now, OVER).allowed:
            runs += 1
            state = rush(state, 100 if runs > 1 else None, runs, now)
        now += 60
    assert runs < 15


def test_somebody_who_asked_is_not_judged() -> None:
    state = CompressionState()
    for k in range(10):
        state = rush(state, None, k + 1, NOW)
    assert state.rushed_streak == 0
    assert state.seen_row_id == 10


def test_a_hold_ends_by_size_or_with_the_next_compression() -> None:
    held = CompressionState(hold_tokens=160_000)
    found = verdict(held, NOW, FULL)
    assert (found.allowed, found.reason) == (
        False,
        "compression is held until 160,000 tokens, after /uncompress",
    )
    assert not verdict(held, NOW).allowed
    assert verdict(held, NOW, FULL, ignore_block=True).allowed
    assert verdict(held, NOW, Measurement(160_000, "usage")).allowed
    assert not verdict(held, NOW, Measurement(170_000, "unknown", 3_000)).allowed
    assert after_compression(held, NOW, mode="prune").hold_tokens == 0


def test_what_was_paid_in_vain_cools_down_longer_each_time() -> None:
    state, left = CompressionState(), []
    for _ in range(4):
        state = after_waste(state, "no gain", NOW, FULL)
        left.append(cooldown_left(state, NOW))
        assert not verdict(state, NOW, FULL, ignore_block=True).allowed
    assert left == [60, 300, 900, 900]
