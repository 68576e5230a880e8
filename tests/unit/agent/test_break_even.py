"""When a compression pays: what it costs, what it saves, how long that takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.break_even import break_even
from agent.composition import PARTS, Composition, Filling
from agent.model_metadata import Measurement, TriggerRules, triggers_for
from agent.prices import Price

PRICE = Price(2.0, 10.0, 0.2, 2.5, 4.0)
CHEAP = Price(0.1, 0.5, 0.01, 0.125, 0.2)
TRIGGERS = triggers_for(200_000, TriggerRules(), max_tokens=8_192)


def filling(messages: int, fixed: int = 2_000) -> Filling:
    parts: dict[Any, int] = dict.fromkeys(PARTS, 0)
    parts.update(system=fixed, user=messages)
    whole = fixed + messages
    return Filling(Composition(parts, 9), Measurement(whole, "estimate", whole), None, TRIGGERS)


def test_the_worked_example() -> None:
    """90,000 tokens of talk: 70,000 are read once, 40,000 stay and are cached anew."""
    found = break_even(filling(90_000), PRICE, PRICE, "5m")
    assert found is not None
    kept = 10_000 + 5_000 + 2_000  # summary, quoted messages, identifiers
    assert found.tokens_after == 2_000 + kept + 20_000
    read_once = 70_000 * 2.0 + 10_000 * 10.0
    cached_anew = found.tokens_after * (2.5 - 0.2)
    assert found.cost_usd == pytest.approx((read_once + cached_anew) / 1_000_000)
    assert found.saved_usd == pytest.approx((92_000 - found.tokens_after) * 0.2 / 1_000_000)
    assert found.requests == 32


def test_without_a_cache_and_with_a_cheap_summary_it_pays_at_once() -> None:
    found = break_even(filling(90_000), PRICE, CHEAP, None)
    assert found is not None
    assert found.requests == 1


def test_a_longer_life_in_the_cache_makes_it_dearer() -> None:
    short = break_even(filling(90_000), PRICE, CHEAP, "5m")
    long = break_even(filling(90_000), PRICE, CHEAP, "1h")
    assert short is not None
    assert long is not None
    assert short.cost_usd < long.cost_usd
    assert short.saved_usd == long.saved_usd


@pytest.mark.parametrize("messages", [0, 500, 20_000, 35_000])
def test_a_short_conversation_has_nothing_to_sell(messages: int) -> None:
    assert break_even(filling(messages), PRICE, PRICE, "5m") is None


def test_what_costs_nothing_is_no_purchase() -> None:
    assert break_even(filling(90_000), Price(0, 0, 0, 0, 0), PRICE, "5m") is None


@given(st.integers(0, 3_000_000), st.integers(0, 50_000), st.sampled_from([None, "5m", "1h"]))
def test_whatever_is_offered_is_smaller_and_pays_some_day(
    messages: int, fixed: int, ttl: Any
) -> None:
    given_ = filling(messages, fixed)
    found = break_even(given_, PRICE, CHEAP, ttl)
    if found is not None:
        assert fixed < found.tokens_after < given_.composition.tokens
        assert found.saved_usd > 0
        assert found.requests >= 1
        paid = found.requests * found.saved_usd
        assert paid >= found.cost_usd > paid - 2 * found.saved_usd
