"""Owns how usage is told to people: requests, tokens, money as far as it is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo

from agent.counting import counted
from agent.ledger import LedgerLine
from agent.prices import PriceTable, money
from agent.spending import Bill, bill_of
from gateway.accounts import Statement
from gateway.budget_text import zone_name
from gateway.commands.wording import percent, shown

MOST_PEOPLE = 10
MOST_MODELS = 5


@dataclass(frozen=True, slots=True)
class People:
    """Everybody's bills, the largest first."""

    bills: tuple[tuple[str, Bill], ...]
    """Owner ("": nobody's) and bill."""
    whole: Bill


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Everything that ``/usage`` tells."""

    today: Statement
    week: Statement
    here: Statement | None
    """None: there is no conversation here yet."""
    budget: str | None
    everybody: People | None
    """Over the same seven days; None: not for whoever asks."""
    zone: tzinfo
    prices_as_of: str


def people(lines: Iterable[LedgerLine], prices: PriceTable) -> People:
    """Everybody's lines as bills, by money, then by tokens."""
    lines = list(lines)
    by_owner: dict[str, list[LedgerLine]] = {}
    for line in lines:
        by_owner.setdefault(line.owner, []).append(line)
    bills = [(owner, bill_of(theirs, prices)) for owner, theirs in by_owner.items()]
    bills.sort(key=lambda one: (-one[1].usd, -one[1].prompt_tokens, one[0]))
    return People(tuple(bills), bill_of(lines, prices))


def usage_text(report: UsageReport) -> str:
    """The answer to ``/usage``."""
    blocks = [
        [
            f"Today (since midnight, {zone_name(report.zone)}): {bill_text(report.today.bill)}",
            f"Last 7 days: {bill_text(report.week.bill)}",
        ],
        _compressions(report.week),
        _unpriced(report.week.bill.unpriced),
        [report.budget] if report.budget else [],
        _everybody(report.everybody),
    ]
    if report.here is not None:
        blocks[0].append(f"This conversation, everybody in it: {bill_text(report.here.bill)}")
    if report.week.bill.usd > 0:
        blocks.append([f"Money is worked out from list prices of {report.prices_as_of}."])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def bill_text(bill: Bill) -> str:
    """One bill on one line."""
    if not bill.requests:
        return "nothing yet."
    share = ""
    if bill.cache_read_tokens:
        share = f" ({percent(bill.cache_read_tokens, bill.prompt_tokens)} from the cache)"
    cost = f", {_cost(bill)}" if bill.priced and bill.usd > 0 else ""
    return (
        f"{counted(bill.requests, 'request')}, {bill.prompt_tokens:,} tokens in{share}, "
        f"{bill.output_tokens:,} out{cost}."
    )


def _cost(bill: Bill) -> str:
    without = sum(bill.unpriced.values())
    return money(bill.usd) + (f" without {without:,} of unknown price" if without else "")


def _compressions(week: Statement) -> list[str]:
    calls = week.compression_bill
    if not week.compressions and not calls.requests:
        return []
    summaries = f"{counted(calls.requests, 'request')} for summaries"
    paid = f" ({money(calls.usd)})" if calls.usd > 0 else ""
    broke = ""
    if week.cache_break_usd > 0:
        broke = f" Reading anew what they had changed cost {money(week.cache_break_usd)} more."
    return [f"Compressions in 7 days: {week.compressions:,}, with {summaries}{paid}.{broke}"]


def _unpriced(models: Mapping[str, int]) -> list[str]:
    if not models:
        return []
    most = sorted(models.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(
        f"{shown(model) or 'no name'} ({counted(n, 'request')})" for model, n in most[:MOST_MODELS]
    )
    more = f" and {len(most) - MOST_MODELS:,} more" if len(most) > MOST_MODELS else ""
    return [f"Price not known, so tokens only: {named}{more}."]


def _everybody(everybody: People | None) -> list[str]:
    if everybody is None or not everybody.bills:
        return []
    lines = [f"Everybody, last 7 days: {bill_text(everybody.whole)}"]
    lines += [
        f"• {shown(owner) or 'nobody in particular'}: {bill_text(bill)}"
        for owner, bill in everybody.bills[:MOST_PEOPLE]
    ]
    rest = [bill for _, bill in everybody.bills[MOST_PEOPLE:]]
    if rest:
        tokens = sum(bill.prompt_tokens for bill in rest)
        lines.append(f"• {len(rest):,} more with {tokens:,} tokens in together")
    return lines
