"""Owns what a compression would cost now, and after how many requests it has paid for itself. Pure.

An estimate by the plan's own rules: everything in front of the tail is read once by the summary
model, and the shorter prompt has to be written to the provider's cache anew. From then on every
request reads less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.compaction.plan.phases import IDENTIFIER_TOKENS, VERBATIM_RATIO
from agent.composition import Filling
from agent.prices import Price
from agent.prompt_caching import CacheTtl


@dataclass(frozen=True, slots=True)
class BreakEven:
    """A compression as a purchase."""

    tokens_after: int
    """The prompt behind it."""
    cost_usd: float
    saved_usd: float
    """By each request from then on."""

    @property
    def requests(self) -> int:
        """After so many it has paid for itself."""
        return math.ceil(self.cost_usd / self.saved_usd)


def break_even(
    filling: Filling, price: Price, summary_price: Price, cache_ttl: CacheTtl | None
) -> BreakEven | None:
    """What compressing now would cost and save; None: there is next to nothing to compress.

    Args:
        filling: The session as it is.
        price: Of the model that answers.
        summary_price: Of the model that summarises.
        cache_ttl: None: the provider caches nothing, so every request pays for all it reads.
    """
    parts, triggers = filling.composition.parts, filling.triggers
    fixed = parts["system"] + parts["tools"]
    messages = filling.composition.tokens - fixed
    covered = messages - triggers.tail_tokens
    summary = triggers.summary_budget(max(0, covered))
    verbatim = int(VERBATIM_RATIO * triggers.threshold_tokens)
    kept = summary + verbatim + min(IDENTIFIER_TOKENS, verbatim)
    if covered <= 2 * kept:
        return None
    after = fixed + kept + triggers.tail_tokens
    saved = filling.composition.tokens - after
    cost = summary_price.usd(input_tokens=covered, output_tokens=summary)
    if cache_ttl is None:
        saved_usd = price.usd(input_tokens=saved)
    else:
        anew = price.usd(cache_write_tokens=after, cache_ttl=cache_ttl)
        cost += anew - price.usd(cache_read_tokens=after)
        saved_usd = price.usd(cache_read_tokens=saved)
    return BreakEven(after, cost, saved_usd) if saved_usd > 0 else None
