"""What tokens cost: the shipped table, who is found in it, sums, amounts as people read them."""

from __future__ import annotations

import re

import pytest

from agent.prices import Price, PriceTable, money, price_table


def test_the_shipped_table_is_whole_and_dated() -> None:
    table = price_table()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table.as_of)
    assert table.note
    assert table.prices
    for model, price in table.prices.items():
        assert model == model.lower()
        assert 0 < price.input < price.output
        # what the provider says of its cache, the same for every model
        assert price.cache_read == pytest.approx(0.1 * price.input)
        assert price.cache_write_5m == pytest.approx(1.25 * price.input)
        assert price.cache_write_1h == pytest.approx(2 * price.input)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("anthropic/claude-opus-5.5", "claude-opus-5-5"),
        ("Claude-Sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-20250805", "claude-opus-5"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("claude-sonnet-5-5-latest", "claude-sonnet-5-5"),
        ("claude-opus-5-9", None),  # a later version has its own price, which nobody knows
        ("claude-opus-50", None),
        ("claude-opus-5-5-1", None),
        ("claude-fable-5", None),
        ("offline", None),
        ("", None),
    ],
)
def test_who_is_found(name: str, found: str | None) -> None:
    table = price_table()
    assert table.find(name) == (table.prices[found] if found else None)


def test_a_sum_counts_every_kind_of_token_at_its_price() -> None:
    price = Price(2.0, 10.0, 0.2, 2.5, 4.0)
    assert price.usd() == 0
    assert price.usd(input_tokens=1_000_000) == 2.0
    assert price.usd(output_tokens=500_000) == 5.0
    assert price.usd(cache_read_tokens=10_000_000) == pytest.approx(2.0)
    assert price.usd(cache_write_tokens=1_000_000) == 2.5
    assert price.usd(cache_write_tokens=1_000_000, cache_ttl="1h") == 4.0


def test_of_several_models_the_dearest_counts_and_an_unknown_one_makes_it_unknown() -> None:
    cheap, dear = Price(1, 2, 0, 0, 0), Price(1, 9, 0, 0, 0)
    table = PriceTable("2026-01-01", "", {"cheap": cheap, "dear": dear})
    assert table.dearest(["cheap", "dear"]) is dear
    assert table.dearest(["cheap"]) is cheap
    assert table.dearest(["cheap", "else"]) is None
    assert table.dearest([]) is None


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "nothing"),
        (0.00001, "less than $0.0001"),
        (0.00012, "about $0.00012"),
        (0.0049, "about $0.0049"),
        (0.00999, "about $0.010"),
        (0.0123, "about $0.012"),
        (0.0995, "about $0.10"),
        (0.5, "about $0.50"),
        (1.239, "about $1.24"),
        (1234.5, "about $1,234.50"),
    ],
)
def test_money(usd: float, text: str) -> None:
    assert money(usd) == text
