"""Owns what tokens cost: the table of prices (`prices.json`, with its date) and sums in USD."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from agent.prompt_caching import CacheTtl

_MILLION = 1_000_000
_DOTTED_VERSION = re.compile(r"(?<=\d)\.(?=\d)")
_OTHER_VERSION = re.compile(r"\d|-\d{1,2}(?!\d)")
"""Behind a name of the table: this is another version of the model, whose price nobody knows."""


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model, in USD per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float

    def usd(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cache_write_1h_tokens: int = 0,
        cache_ttl: CacheTtl = "5m",
    ) -> float:
        """What these tokens cost.

        Args:
            input_tokens: Without the cached part.
            output_tokens: Of the answer.
            cache_read_tokens: What came from the cache.
            cache_write_tokens: What went into it.
            cache_write_1h_tokens: That part of it that is kept for an hour, whatever the rest is.
            cache_ttl: How long the rest is kept.
        """
        write = self.cache_write_1h if cache_ttl == "1h" else self.cache_write_5m
        return (
            input_tokens * self.input
            + output_tokens * self.output
            + cache_read_tokens * self.cache_read
            + (cache_write_tokens - cache_write_1h_tokens) * write
            + cache_write_1h_tokens * self.cache_write_1h
        ) / _MILLION


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Part of a model's name → its price, with the day it was taken down."""

    as_of: str
    """YYYY-MM-DD."""
    note: str
    prices: Mapping[str, Price]

    def find(self, model: str) -> Price | None:
        """The price of a model; None: it is not known, so only tokens can be told.

        The longest part of the table that the name holds wins, as with windows, but a name that
        goes on with another version number is another model: nobody's price is better than a
        wrong one.
        """
        name = _DOTTED_VERSION.sub("-", model.lower())
        found = [
            part
            for part in self.prices
            if any(
                not _OTHER_VERSION.match(name, match.end())
                for match in re.finditer(re.escape(part), name)
            )
        ]
        return self.prices[max(found, key=len)] if found else None

    def dearest(self, models: Iterable[str]) -> Price | None:
        """The dearest price of these models, by output; None if one of them is not known."""
        found = [self.find(model) for model in models]
        known = [price for price in found if price is not None]
        if not known or len(known) < len(found):
            return None
        return max(known, key=lambda price: (price.output, price.input))


@lru_cache(maxsize=1)
def price_table() -> PriceTable:
    """The table that ships with this version."""
    data: dict[str, Any] = json.loads(files("agent").joinpath("prices.json").read_text("utf-8"))
    return PriceTable(
        as_of=data["as_of"],
        note=data["note"],
        prices={model: Price(**price) for model, price in data["models"].items()},
    )


def money(usd: float) -> str:
    """An amount as people read it: two digits that count, never more exact than it is."""
    if usd <= 0:
        return "nothing"
    if usd < 0.0001:
        return "less than $0.0001"
    if usd >= 0.995:
        return f"about ${usd:,.2f}"
    digits = next(n for n in range(2, 7) if round(usd, n) >= 10 ** (1 - n) or n == 6)
    return f"about ${usd:.{digits}f}"
