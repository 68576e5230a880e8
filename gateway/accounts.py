"""Owns what people have spent: their figures by day, and the budget's gate before a model is asked.

The ledger in the store is the only memory: nothing is counted here, so nothing is lost or doubled
by a restart. A turn that has begun runs to its end, whatever it costs, and turns of one person in
several conversations begin independently: a budget is overdrawn by what runs at that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from agent.errors import StoreError
from agent.ledger import Ledger, LedgerLine, LedgerReader, LedgerScope
from agent.ports import Clock, Usage
from agent.prices import PriceTable
from agent.spending import FUTURE_SECONDS, Bill, Day, Standing, bill_of, cache_break_usd, day_at
from gateway import budget_text

log = logging.getLogger(__name__)

WEEK_DAYS = 7


@dataclass(frozen=True, slots=True)
class Statement:
    """What was spent in some time."""

    bill: Bill
    compressions: int
    compression_bill: Bill
    """Of the requests for summaries alone, whoever waited for them."""
    cache_break_usd: float


class Accounts:
    """Reads the ledger for people, and says for whom a model is asked."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock,
        zone: tzinfo,
        prices: PriceTable,
        usd_per_user_day: float | None = None,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """``usd_per_user_day``: None: no budget. ``on_refusal``: told of each."""
        self._ledger = ledger
        self._clock = clock
        self.zone = zone
        self.prices = prices
        self._limit_usd = usd_per_user_day
        self._on_refusal = on_refusal

    def reconfigure(self, *, zone: tzinfo, usd_per_user_day: float | None) -> None:
        """Other days, another budget: for turns that begin from now on."""
        self.zone, self._limit_usd = zone, usd_per_user_day

    # figures

    def today(self) -> Day:
        """The day that runs now."""
        return day_at(self._clock.now(), self.zone)

    def week_start(self) -> float:
        """Where the last seven days begin, today included."""
        return day_at(self._clock.now(), self.zone, days_before=WEEK_DAYS - 1).start

    async def statement(self, scope: LedgerScope) -> Statement:
        """What was spent there."""
        return await statement(self._ledger, scope, self.prices)

    async def lines(self, scope: LedgerScope) -> Sequence[LedgerLine]:
        """The same, line by line."""
        return await self._ledger.ledger_lines(scope)

    # the budget

    async def standing(self, owner: str, pending: Usage | None = None) -> Standing | None:
        """How somebody stands today; None: there is no budget.

        Args:
            owner: Who.
            pending: An answer that is on its way into the ledger.
        """
        if self._limit_usd is None:
            return None
        now = self._clock.now()
        day = day_at(now, self.zone)
        # What is dated ahead was spent before the clock was set back: it is not given anew.
        until = max(day.end, now + FUTURE_SECONDS)
        lines = list(await self._ledger.ledger_lines(LedgerScope(day.start, until, owner)))
        if pending is not None:
            lines.append(_line(owner, pending))
        return Standing(bill_of(lines, self.prices).usd, self._limit_usd, day)

    async def refusal(self, owner: str) -> str | None:
        """Why no model is asked for this person now, in words; None: they may have one asked.

        A ledger that can not be read keeps nobody out: the turn itself needs the store.
        """
        standing = await self._readable_standing(owner)
        if standing is None or standing.verdict != "over":
            return None
        self._on_refusal()
        log.info("budget used up", extra={"owner": owner, "limit_usd": standing.limit_usd})
        return budget_text.refusal(standing, self._clock.now(), self.zone)

    async def warning(self, owner: str, pending: Usage | None = None) -> str | None:
        """What this person should hear about the budget now, once a day; None: nothing.

        The mark is stored before the words are: a crash in between costs the warning, no more.
        """
        standing = await self._readable_standing(owner, pending)
        if standing is None or standing.verdict == "free":
            return None
        try:
            if not await self._ledger.first_time(owner, standing.mark):
                return None
        except StoreError:
            return None  # said at the next turn instead
        return budget_text.warning(standing, self._clock.now(), self.zone)

    async def budget_line(self, owner: str) -> str | None:
        """How somebody stands, in words; None: there is no budget."""
        standing = await self.standing(owner)
        if standing is None:
            return None
        return budget_text.budget_line(standing, self._clock.now(), self.zone)

    async def may_prepare(self, owner: str) -> bool:
        """May work begin in the background that this person has to pay for?"""
        standing = await self._readable_standing(owner)
        return standing is None or standing.verdict != "over"

    async def _readable_standing(self, owner: str, pending: Usage | None = None) -> Standing | None:
        try:
            return await self.standing(owner, pending)
        except StoreError:
            log.warning("the budget could not be looked up", exc_info=True)
            return None


async def statement(ledger: LedgerReader, scope: LedgerScope, prices: PriceTable) -> Statement:
    """What was spent there."""
    lines = await ledger.ledger_lines(scope)
    return Statement(
        bill=bill_of(lines, prices),
        compressions=await ledger.compressions(scope),
        compression_bill=bill_of((x for x in lines if x.purpose not in ("turn", "other")), prices),
        cache_break_usd=cache_break_usd(lines, prices),
    )


def _line(owner: str, usage: Usage) -> LedgerLine:
    return LedgerLine(
        owner,
        "turn",
        usage.model,
        usage.cache_miss,
        1,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
    )
