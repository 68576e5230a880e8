"""Owns how `posthouse sessions show` presents a session: head, what fills it, messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent.compaction.plan.report import CompressionReport
from agent.composition import PARTS, Filling, PartName
from agent.counting import counted
from agent.lineages import UsageTotals
from agent.messages import Row, text_of
from agent.prices import PriceTable, money
from agent.sessions import Session
from agent.spending import Bill
from gateway.cli.output import plain, table, when
from gateway.commands.compression_text import cost_text, cost_usd, kept_lines, sizes
from gateway.commands.context_text import bar
from gateway.commands.wording import percent

LABELS: Mapping[PartName, str] = {
    "system": "system prompt",
    "tools": "tools",
    "summary": "summary, notes",
    "user": "user",
    "assistant": "assistant",
    "tool_calls": "tool calls",
    "tool_results": "tool results",
    "pictures": "pictures",
    "thinking": "thinking",
}
MOST_CELLS = 60
_TABLE_CELLS = 38
"""What the columns before the bars take."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """Everything that is shown of a session."""

    session: Session
    rows: Sequence[Row]
    filling: Filling
    last: CompressionReport | None
    manifest: Mapping[str, Any] | None
    usage: UsageTotals
    """Of the whole conversation."""
    prices: PriceTable
    bill: Bill
    """Of the whole conversation, summaries included."""


# --- for scripts --------------------------------------------------------------------------------


def as_json(view: SessionView) -> dict[str, Any]:
    """The session's columns, what fills its window, and its messages with their columns."""
    session = view.session
    return {
        "id": session.id,
        "conversation_id": session.conversation_id,
        "parent_session_id": session.parent_session_id,
        "link": session.link,
        "revision": session.revision,
        "source": session.prefix.source,
        "model": session.prefix.model,
        "title": session.title,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "message_count": session.message_count,
        "context": _context(view),
        "messages": [_row(row) for row in view.rows],
    }


def _context(view: SessionView) -> dict[str, Any]:
    filling, triggers = view.filling, view.filling.triggers
    usage = view.usage
    return {
        "tokens": filling.measurement.tokens,
        "source": filling.measurement.source,
        "estimated_tokens": filling.composition.tokens,
        "parts": dict(filling.composition.parts),
        "largest": [
            {"message_id": m.row_id, "role": m.role, "tool_name": m.tool_name or None,
             "part": m.part, "tokens": m.tokens}
            for m in filling.composition.largest
        ],
        "measured": None if filling.measured is None else asdict(filling.measured),
        "window_tokens": triggers.window_tokens,
        "threshold_tokens": triggers.threshold_tokens,
        "hygiene_tokens": triggers.hygiene_tokens,
        "effective_threshold_tokens": triggers.effective_tokens,
        "room_tokens": filling.room_tokens,
        "answer_tokens": filling.answer_tokens,
        "compressions": view.session.compression.count,
        "last_compression": _last_json(view),
        "manifest": None if view.manifest is None else dict(view.manifest),
        "usage": {**asdict(usage), "hit_share": usage.hit_share, "cost_usd": _cost_usd(view)},
    }  # fmt: skip


def _last_json(view: SessionView) -> dict[str, Any] | None:
    if view.last is None:
        return None
    cost = view.last.cost
    usd = None if cost is None else cost_usd(cost, view.prices)
    return {**asdict(view.last), "cost_usd": usd}


def _cost_usd(view: SessionView) -> float | None:
    """Of the whole conversation, as far as prices are known; None: of none of it."""
    return view.bill.usd if view.bill.priced and view.bill.usd > 0 else None


def _row(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "session_id": row.session_id,
        "seq": row.seq,
        "role": row.message["role"],
        "content": row.message["content"],
        "wire_content": row.wire_content,
        "tool_calls": row.message.get("tool_calls"),
        "tool_call_id": row.message.get("tool_call_id"),
        "tool_name": row.message.get("name"),
        "kind": row.kind,
        "origin_id": row.origin_id,
        "tokens": row.tokens,
        "created_at": row.created_at,
    }


# --- for people ---------------------------------------------------------------------------------


def as_text(view: SessionView, *, width: int | None, blocks: bool = True) -> Iterator[str]:
    """Line by line.

    Args:
        view: What is shown.
        width: Columns of the terminal; None: no terminal, so no bars.
        blocks: Can it show more than ASCII?
    """
    yield from _head(view)
    yield ""
    yield from _window(view, width, blocks)
    if view.last is not None:
        yield ""
        yield from _last(view)
    if view.usage.requests:
        yield ""
        yield _cache(view)
    yield ""
    for row in view.rows:
        yield message_line(row)


def _head(view: SessionView) -> Iterator[str]:
    session = view.session
    state = "live" if session.ended_at is None else f"ended by {session.end_reason or 'a crash'}"
    yield f"{session.id}: {state}, {session.prefix.source}, {plain(session.prefix.model)}"
    if session.title:
        yield f"title: {plain(session.title, 80)}"
    ended = "" if session.ended_at is None else f", ended {when(session.ended_at)}"
    yield f"started {when(session.started_at)}{ended}, revision {session.revision}"
    if session.parent_session_id is not None:
        yield f"{session.link} of {session.parent_session_id}"


def _window(view: SessionView, width: int | None, blocks: bool) -> Iterator[str]:
    filling, triggers = view.filling, view.filling.triggers
    size, window = filling.measurement.tokens, triggers.window_tokens
    yield f"window: {size:,} of {window:,} tokens ({percent(size, window)})"
    if width is not None:
        cells = max(10, min(MOST_CELLS, width - 2))
        full, empty = ("▰", "▱") if blocks else ("#", ".")
        yield bar(size, triggers, cells=cells, full=full, empty=empty)
    yield from _sizes(filling)
    yield (
        f"compression from {triggers.effective_tokens:,} tokens "
        f"({percent(triggers.effective_tokens, window)} of the window): threshold "
        f"{triggers.threshold_tokens:,}, hygiene {triggers.hygiene_tokens:,}"
    )
    yield (
        f"room: {filling.room_tokens:,} tokens, the next answer at most "
        f"{filling.answer_tokens:,} of them"
    )
    yield ""
    yield _table(filling, width, blocks)
    if largest := filling.composition.largest:
        named = ", ".join(
            f"[{m.row_id}] {plain(m.tool_name, 40) or LABELS[m.part]} {m.tokens:,}" for m in largest
        )
        yield f"largest messages: {named}"


def _sizes(filling: Filling) -> Iterator[str]:
    estimate = f"estimate of everything: {filling.composition.tokens:,}"
    measured = filling.measured
    if measured is not None:
        yield (
            f"measured {when(measured.at)}: {measured.prompt_tokens:,} read, "
            f"{measured.output_tokens:,} written; since then "
            f"{counted(measured.rows_since, 'message')} with about "
            f"{filling.measurement.added_tokens:,}"
        )
        yield estimate
    elif filling.measurement.source == "unknown":
        yield f"size unknown until the next answer: just compressed; {estimate}"
    else:
        yield f"never measured; {estimate}"


def _table(filling: Filling, width: int | None, blocks: bool) -> str:
    parts = filling.composition.parts
    window = filling.triggers.window_tokens
    most = max(parts.values())
    cells = 0 if width is None else min(MOST_CELLS, width - _TABLE_CELLS)
    rows = []
    for name in PARTS:
        tokens = parts[name]
        if not tokens:
            continue
        drawn = ("▰" if blocks else "#") * round(cells * tokens / most) if cells > 0 else ""
        rows.append((LABELS[name], f"{tokens:>10,}", f"{percent(tokens, window):>11}", drawn))
    return table(("PART", "    TOKENS", "  OF WINDOW", ""), rows)


def _last(view: SessionView) -> Iterator[str]:
    last = view.last
    if last is None:
        return
    at = "" if last.at is None else f" {when(last.at)}"
    yield f"last compression{at}, by {last.mode or 'an unknown way'}: {sizes(last)}"
    yield from kept_lines(last, whose="the user's")
    if cost := cost_text(last.cost, view.prices):
        yield plain(cost)


def _cache(view: SessionView) -> str:
    usage, usd = view.usage, _cost_usd(view)
    share = percent(usage.cache_read_tokens, usage.prompt_tokens)
    causes = sorted(usage.misses.items(), key=lambda item: (-item[1], item[0]))
    misses = ", ".join(f"{n:,} {cause}" for cause, n in causes) or "none"
    paid = "" if usd is None else f"; {money(usd)} (prices of {view.prices.as_of})"
    return (
        f"the whole conversation: {counted(usage.requests, 'request')}, "
        f"{usage.prompt_tokens:,} tokens read ({share} from the cache), {usage.output_tokens:,} "
        f"written; cache misses: {misses}{paid}"
    )


def message_line(row: Row) -> str:
    """One message on one line."""
    label = row.kind or row.message["role"]
    calls = ", ".join(c["function"]["name"] for c in row.message.get("tool_calls") or ())
    text = plain(text_of(row.message["content"]))
    said = " ".join(part for part in (text, calls and f"→ {plain(calls)}") if part)
    return f"[{row.id}] {when(row.created_at)} {label}: {said}"
