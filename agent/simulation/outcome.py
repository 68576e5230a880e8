"""Owns what came of a replay: tokens by their price, sizes, compressions, pauses. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent.prices import Price
from agent.prompt_caching import CacheTtl

FELT_SECONDS = 1.0
"""A shorter wait is none: an answer takes longer to begin."""

CompressionKind = Literal["waited", "prepared", "cold", "pruned"]
"""Somebody waited for its summary; it was ready; it was ready and the cache had run out anyway;
there was no summary."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A list became shorter."""

    request: int
    """How many answers had been given before."""
    kind: CompressionKind
    tokens_before: int
    """Prompt size, as after."""
    tokens_after: int


@dataclass(slots=True)
class Bill:
    """Tokens, as a provider counts them."""

    plain: int = 0
    """Prompts and parts of prompts that no cache has seen."""
    read: int = 0
    written: int = 0
    output: int = 0
    side_input: int = 0
    """Of calls that make summaries and digests."""
    side_output: int = 0

    @property
    def input_tokens(self) -> int:
        """All that models have read."""
        return self.plain + self.read + self.written + self.side_input

    @property
    def output_tokens(self) -> int:
        """All that models have written."""
        return self.output + self.side_output

    @property
    def cache_share(self) -> float:
        """Of the conversation's own prompts, what was read from the cache; 0 to 1."""
        prompts = self.plain + self.read + self.written
        return self.read / prompts if prompts else 0.0

    def usd(self, price: Price, side_price: Price, ttl: CacheTtl | None) -> float:
        """What it costs."""
        return price.usd(
            input_tokens=self.plain,
            output_tokens=self.output,
            cache_read_tokens=self.read,
            cache_write_tokens=self.written,
            cache_ttl=ttl or "5m",
        ) + side_price.usd(input_tokens=self.side_input, output_tokens=self.side_output)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a conversation came to under one setting."""

    name: str
    window_tokens: int
    threshold_tokens: int
    cache_ttl: CacheTtl | None
    bill: Bill
    sizes: Sequence[int]
    """Of each prompt, in order."""
    seconds: Sequence[float]
    """When each was sent, since the beginning."""
    compressions: tuple[Compression, ...] = ()
    wasted: int = 0
    """Summaries that were made ahead and never taken."""
    micro_passes: int = 0
    prunings: int = 0
    """Without a compression."""
    pauses_seconds: tuple[float, ...] = field(default=())
    """How long somebody waited for a compression, each time."""
    overflows: int = 0
    """Requests that no compression could make fit."""
    usd: float | None = None
    """None: nobody knows the price."""

    @property
    def peak_tokens(self) -> int:
        """The largest prompt."""
        return max(self.sizes, default=0)

    @property
    def mean_tokens(self) -> float:
        """Of the prompts."""
        return sum(self.sizes) / len(self.sizes) if self.sizes else 0.0

    @property
    def felt_pauses(self) -> int:
        """How often somebody waited."""
        return sum(pause >= FELT_SECONDS for pause in self.pauses_seconds)

    @property
    def waited_seconds(self) -> float:
        """All of it together."""
        return math.fsum(pause for pause in self.pauses_seconds if pause >= FELT_SECONDS)
