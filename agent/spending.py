"""Owns what the ledger's lines cost, by which day a budget counts, and what it allows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from agent.ledger import LedgerLine
from agent.prices import Price, PriceTable

WARNED_SHARE = 0.8
FUTURE_SECONDS = 86_400.0
"""An entry that is dated no further ahead than this counts as of today: the clock was set back.
One that lies further ahead says nothing, or a wrong clock could lock somebody out for years."""
FREE_MODELS = frozenset({"offline"})
"""The built-in one: nobody is paid."""


# --- money --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bill:
    """Lines added up: tokens, and money as far as prices are known."""

    requests: int = 0
    input_tokens: int = 0
    """Without the cached part."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    usd: float = 0.0
    """Of the requests whose model has a known price."""
    unpriced: Mapping[str, int] = field(default_factory=dict)
    """Model whose price nobody knows → requests that it answered."""

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def priced(self) -> bool:
        """Is ``usd`` the cost of anything at all?"""
        return self.requests > sum(self.unpriced.values())


def bill_of(lines: Iterable[LedgerLine], prices: PriceTable) -> Bill:
    """What these lines cost, each at the price of the model that answered."""
    known: dict[str, Price | None] = {}
    requests = took = gave = read = written = 0
    usd = 0.0
    unpriced: dict[str, int] = {}
    for line in lines:
        requests += line.requests
        took += line.input_tokens
        gave += line.output_tokens
        read += line.cache_read_tokens
        written += line.cache_write_tokens
        if line.model not in known:
            known[line.model] = prices.find(line.model)
        price = known[line.model]
        if price is not None:
            usd += price.usd(
                input_tokens=line.input_tokens,
                output_tokens=line.output_tokens,
                cache_read_tokens=line.cache_read_tokens,
                cache_write_tokens=line.cache_write_tokens,
                cache_write_1h_tokens=line.cache_write_1h_tokens,
            )
        elif line.model not in FREE_MODELS:
            unpriced[line.model] = unpriced.get(line.model, 0) + line.requests
    return Bill(requests, took, gave, read, written, usd, unpriced)


def cache_break_usd(lines: Iterable[LedgerLine], prices: PriceTable) -> float:
    """What it cost that changed lists (compressions above all) were not found in the cache.

    The first prompt behind such a change is written anew; had it been found, it would only have
    been read.
    """
    usd = 0.0
    for line in lines:
        price = prices.find(line.model) if line.cache_miss == "revision" else None
        if price is None:
            continue
        written = line.cache_write_tokens
        usd += price.usd(
            cache_write_tokens=written, cache_write_1h_tokens=line.cache_write_1h_tokens
        ) - price.usd(cache_read_tokens=written)
    return max(0.0, usd)


# --- days ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day somewhere: 23 to 25 hours, as a rule 24."""

    date: str
    """YYYY-MM-DD."""
    start: float
    """Unix seconds; included."""
    end: float
    """Not included: the next one's start."""


def day_at(now: float, zone: tzinfo, *, days_before: int = 0) -> Day:
    """The day of this moment, or one before it."""
    date = datetime.fromtimestamp(now, UTC).astimezone(zone).date() - timedelta(days=days_before)
    return Day(
        date.isoformat(),
        _midnight(date.year, date.month, date.day, zone),
        _midnight(*(date + timedelta(days=1)).timetuple()[:3], zone),
    )


def _midnight(year: int, month: int, day: int, zone: tzinfo) -> float:
    """The first moment of a day.

    Where summer time begins at midnight there is no midnight: the day begins at one o'clock, which
    is what the offset from before gives. Where midnight comes twice, the first one is meant.
    """
    return datetime(year, month, day, tzinfo=zone).timestamp()


# --- the budget ---------------------------------------------------------------------------------

Verdict = Literal["free", "warned", "over"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How somebody stands with today's budget."""

    spent_usd: float
    limit_usd: float
    day: Day

    @property
    def verdict(self) -> Verdict:
        """``warned`` from four fifths on, ``over`` once it is used up."""
        if self.spent_usd >= self.limit_usd:
            return "over"
        return "warned" if self.spent_usd >= WARNED_SHARE * self.limit_usd else "free"

    @property
    def mark(self) -> str:
        """What a warning is given once for: this day, with this limit."""
        return f"{self.day.date} {self.limit_usd!r}"
