"""Owns how the filling of a window is told to people, in the chat and in the terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.break_even import break_even
from agent.compaction.plan.report import CompressionReport
from agent.composition import PARTS, Filling, LargeMessage, PartName
from agent.counting import counted
from agent.lineages import UsageTotals
from agent.model_metadata import Triggers
from agent.ports import CompactionDecision
from agent.prices import PriceTable, money
from agent.prompt_caching import CacheTtl
from agent.spending import Bill
from gateway.commands.compression_text import last_compression_lines
from gateway.commands.wording import ago, percent, shown

LABELS: Mapping[PartName, str] = {
    "system": "my instructions",
    "tools": "tools I can use",
    "summary": "summary of earlier talk",
    "user": "your messages",
    "assistant": "my answers",
    "tool_calls": "what I asked tools",
    "tool_results": "what tools answered",
    "pictures": "pictures",
    "thinking": "my thinking",
}
CHAT_CELLS = 20
MISSES: Mapping[str, str] = {
    "first": "nothing was there yet (a new conversation, or a restart)",
    "model": "another model answered",
    "system": "my instructions had changed",
    "tools": "my tools had changed",
    "revision": "a compression, or something taken back",
    "messages": "earlier messages had changed",
    "expired": "too long after the message before",
    "short": "too short to be kept there",
    "native edit": "the provider had cleared old tool results",
    "provider": "the provider does not say why",
}
"""Causes as the ledger counts them → words; one that is not here is shown as it is."""


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Everything that is told about a conversation's window."""

    filling: Filling
    due: CompactionDecision
    last: CompressionReport | None
    usage: UsageTotals | None
    """Of the answers; None: nobody keeps a ledger."""
    model: str
    cache_ttl: CacheTtl | None
    """How long the provider is asked to keep what it has read; None: not at all."""
    prices: PriceTable
    now: float
    """Unix seconds."""
    hold_tokens: int = 0
    """No compression by itself below this size: one has just been undone."""
    summary_model: str | None = None
    """Who writes summaries; None: ``model``."""
    prepared_at: float | None = None
    """When the next compression was made ahead of time, in Unix seconds; None: it was not."""
    bill: Bill | None = None
    """Of every request, summaries and fallbacks too; None: nobody keeps a ledger."""
    cache: str = "off"
    """What the provider is asked to keep, in words, as in ``/status``."""
    budget: str | None = None
    """How whoever asks stands with it."""


def chat_text(report: ContextReport) -> str:
    """The answer to ``/context``."""
    filling = report.filling
    window = filling.triggers.window_tokens
    size = filling.measurement.tokens
    head = [
        f"Context: about {size:,} of {window:,} tokens ({percent(size, window)})",
        bar(size, filling.triggers, cells=CHAT_CELLS),
        "A token is about four letters. The bar is all that the model can read at once; "
        f"{MARK} is where I start to summarise.",
    ]
    parts = [f"• {LABELS[name]}: {tokens:,} ({share})" for name, tokens, share in shares(filling)]
    blocks = [
        head,
        ["What fills it (estimated; share of the window):", *parts, *_largest_lines(filling)],
        [size_source(filling, report.now), _room(filling)],
        last_compression_lines(report.last, report.prices, report.now),
        cache_lines(report),
        [next_step(report), *_prepared(report), *_worth(report)],
        [report.budget] if report.budget else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


# --- how full -----------------------------------------------------------------------------------

MARK = "│"


def bar(tokens: int, triggers: Triggers, *, cells: int, full: str = "▰", empty: str = "▱") -> str:
    """The window as a bar, with a mark where compression starts."""
    window = triggers.window_tokens
    filled = min(cells, max(1 if tokens > 0 else 0, round(cells * tokens / window)))
    mark = min(cells, max(0, round(cells * triggers.effective_tokens / window)))
    drawn = full * filled + empty * (cells - filled)
    return f"{drawn[:mark]}{MARK if full == '▰' else '|'}{drawn[mark:]}"


def shares(filling: Filling) -> Iterator[tuple[PartName, int, str]]:
    """Each part that is not empty: name, tokens, share of the window."""
    for name in PARTS:
        tokens = filling.composition.parts[name]
        if tokens:
            yield name, tokens, percent(tokens, filling.triggers.window_tokens)


def size_source(filling: Filling, now: float) -> str:
    """How far the size can be trusted, in words."""
    measured = filling.measured
    match filling.measurement.source:
        case "usage" if measured is not None:
            since = "" if not measured.rows_since else ", with an estimate of what came since"
            return f"The size is what the model's provider counted {ago(now - measured.at)}{since}."
        case "unknown":
            return (
                "The size is estimated: this was just compressed, and the next answer brings "
                "the real one."
            )
        case _:
            return "The size is estimated; no answer has brought the real one yet."


def _room(filling: Filling) -> str:
    if not filling.room_tokens:
        return "There is no room left for an answer."
    return (
        f"{filling.room_tokens:,} tokens are free; my next answer may take "
        f"{filling.answer_tokens:,} of them."
    )


def _largest_lines(filling: Filling) -> list[str]:
    """The messages that take a tenth of everything or more: worth knowing."""
    whole = filling.composition.tokens
    big = [m for m in filling.composition.largest if m.tokens * 10 >= whole]
    if not big or filling.composition.messages < 4:
        return []
    return ["Largest: " + "; ".join(large_message(m) for m in big)]


def large_message(message: LargeMessage) -> str:
    """One large message: what it is, its size, its number."""
    tool = f" ({shown(message.tool_name)})" if message.tool_name else ""
    return f"{_ONE[message.part]}{tool} m{message.row_id}, {message.tokens:,} tokens"


_ONE: Mapping[PartName, str] = {
    "system": "an instruction",
    "tools": "a tool",
    "summary": "the summary",
    "user": "your message",
    "assistant": "my answer",
    "tool_calls": "my request to a tool",
    "tool_results": "a tool's answer",
    "pictures": "a picture in",
    "thinking": "my thinking in",
}


# --- the cache ----------------------------------------------------------------------------------


def cache_lines(report: ContextReport) -> list[str]:
    """What the provider's cache did, and what the conversation cost; nothing before a request."""
    usage = report.usage
    if usage is None or not usage.requests:
        return []
    asked = counted(usage.requests, "request")
    used = usage.cache_read_tokens or usage.cache_write_tokens
    if not used and report.cache_ttl is None:
        lines = [f"Prompt cache: {report.cache}"]
    elif not used:
        lines = [f"Prompt cache: not used in {asked} so far ({usage.prompt_tokens:,} tokens read)."]
    else:
        lines = [
            f"Prompt cache: {percent(usage.cache_read_tokens, usage.prompt_tokens)} of "
            f"{usage.prompt_tokens:,} tokens read in {asked} came from it, which costs far less."
        ]
    if usage.misses:
        total = sum(usage.misses.values())
        causes = sorted(usage.misses.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{n:,} × {MISSES.get(cause, cause)}" for cause, n in causes)
        lines.append(f"Not found there {counted(total, 'time')}: {named}.")
    if cost := bill_line(report.bill):
        lines.append(cost)
    return lines


def bill_line(bill: Bill | None) -> str:
    """What a conversation cost, each request at the price of whoever answered; "": not known."""
    if bill is None or not bill.priced or bill.usd <= 0:
        return ""
    without = sum(bill.unpriced.values())
    missing = f", without {counted(without, 'request')} whose price is not known" if without else ""
    return f"All requests together, summaries included: {money(bill.usd)}{missing}."


# --- what comes next ----------------------------------------------------------------------------


def _worth(report: ContextReport) -> list[str]:
    """Does it pay to compress now? Nothing where the prices are not known."""
    price = report.prices.find(report.model)
    summary_price = report.prices.find(report.summary_model or report.model)
    if price is None or summary_price is None:
        return []
    deal = break_even(report.filling, price, summary_price, report.cache_ttl)
    if deal is None:
        return []
    answers = "1 answer" if deal.requests == 1 else f"about {deal.requests:,} answers"
    return [
        f"Compressing now would cost {money(deal.cost_usd)} and leave about "
        f"{deal.tokens_after:,} tokens; it pays for itself after {answers}."
    ]


def _prepared(report: ContextReport) -> list[str]:
    """Whether the next summary is there already."""
    if report.prepared_at is None:
        return []
    return [
        f"Prepared: yes, {ago(report.now - report.prepared_at)}. The summary is there already, so "
        "nobody waits for it."
    ]


def next_step(report: ContextReport) -> str:
    """What happens when, and what can be done now."""
    filling = report.filling
    trigger = filling.triggers.effective_tokens
    if report.due.reason:
        return f"Not compressed by itself now: {report.due.reason}. /compress does it anyway."
    at = max(trigger, report.hold_tokens)
    held = ", because a compression was just undone" if report.hold_tokens > trigger else ""
    left = max(0, at - filling.measurement.tokens)
    if not left:
        return "Next: older messages are summarised before my next answer; nothing is lost."
    now = " /compress does it now." if filling.before_tail_tokens else ""
    return (
        f"Next: at {at:,} tokens ({left:,} more) older messages are summarised{held}; nothing is "
        f"lost.{now}"
    )
