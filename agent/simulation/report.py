"""Owns how outcomes are shown: a table as wide as there is room for, and figures for scripts. Pure.

One row for each setting; what matters least is left out first where the terminal is narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.simulation.outcome import Outcome
from agent.simulation.trace import Trace

_GAP = "  "


@dataclass(frozen=True, slots=True)
class _Column:
    """Of the table."""

    title: str
    cell: Callable[[Outcome], str]
    rank: int
    """The highest goes first where there is too little room."""
    right: bool = True


def _share(tokens: float, outcome: Outcome) -> str:
    return f"{100 * tokens / outcome.window_tokens:.1f} %"


def _short(tokens: float) -> str:
    """About so many tokens."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if tokens >= size:
            scaled = tokens / size
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    return f"{tokens:.0f}"


def _money(outcome: Outcome) -> str:
    return "?" if outcome.usd is None else f"${outcome.usd:,.2f}"


def clock(seconds: float) -> str:
    """How long: two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _waits(outcome: Outcome) -> str:
    if not outcome.felt_pauses:
        return "none"
    return f"{outcome.felt_pauses} ({clock(outcome.waited_seconds)})"


def _compressions(outcome: Outcome) -> str:
    return str(len(outcome.compressions))


_COLUMNS = (
    _Column("SETTING", lambda o: o.name, 0, right=False),
    _Column("STARTS AT", lambda o: _short(o.threshold_tokens), 7),
    _Column("COST", _money, 0),
    _Column("WAITS", _waits, 0),
    _Column("CACHED", lambda o: f"{100 * o.bill.cache_share:.1f} %", 1),
    _Column("PEAK", lambda o: _share(o.peak_tokens, o), 2),
    _Column("MEAN", lambda o: _share(o.mean_tokens, o), 6),
    _Column("COMPRESSIONS", _compressions, 3),
    _Column("MICRO", lambda o: str(o.micro_passes), 5),
    _Column("TOKENS IN", lambda o: _short(o.bill.input_tokens), 8),
    _Column("OUT", lambda o: _short(o.bill.output_tokens), 9),
    _Column("TOO LONG", lambda o: str(o.overflows), 4),
)


def as_table(outcomes: Sequence[Outcome], *, width: int | None = None) -> list[str]:
    """The lines of the table.

    Args:
        outcomes: One for each setting.
        width: Of the terminal; None: as wide as it gets.
    """
    columns = [column for column in _COLUMNS if _matters(column, outcomes)]
    while True:
        lines = _lines(columns, outcomes)
        droppable = [column for column in columns if column.rank]
        if width is None or not droppable or max(map(len, lines)) <= width:
            return lines
        columns.remove(max(droppable, key=lambda column: column.rank))


def _matters(column: _Column, outcomes: Sequence[Outcome]) -> bool:
    """A column of nothing but zeros says nothing."""
    return column.title not in ("MICRO", "TOO LONG") or any(
        column.cell(outcome) != "0" for outcome in outcomes
    )


def _lines(columns: Sequence[_Column], outcomes: Sequence[Outcome]) -> list[str]:
    rows = [[column.title for column in columns]]
    rows += [[column.cell(outcome) for column in columns] for outcome in outcomes]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines: list[str] = []
    for row in rows:
        cells = (
            cell.rjust(size) if column.right else cell.ljust(size)
            for column, cell, size in zip(columns, row, widths, strict=True)
        )
        lines.append(_GAP.join(cells).rstrip())
    return lines


def headline(trace: Trace, window_tokens: int, name: str) -> list[str]:
    """What is replayed."""
    requests = sum(1 for event in trace.events if event.kind == "user")
    lines = [f"{name}: {trace.about}"] if trace.about else []
    lines.append(
        f"{len(trace.events):,} events ({requests:,} of people) over {clock(trace.seconds)}, "
        f"{_short(sum(event.tokens for event in trace.events))} tokens; "
        f"{trace.model}, window {_short(window_tokens)}"
    )
    return lines


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything about a setting, in whole numbers of tokens and shares of 1."""
    kinds = Counter(compression.kind for compression in outcome.compressions)
    return {
        "setting": outcome.name,
        "threshold_tokens": outcome.threshold_tokens,
        "cache_ttl": outcome.cache_ttl,
        "usd": None if outcome.usd is None else round(outcome.usd, 6),
        "cache_share": round(outcome.bill.cache_share, 6),
        "peak_tokens": outcome.peak_tokens,
        "peak_share": round(outcome.peak_tokens / outcome.window_tokens, 6),
        "mean_tokens": round(outcome.mean_tokens),
        "mean_share": round(outcome.mean_tokens / outcome.window_tokens, 6),
        "requests": len(outcome.sizes),
        "compressions": len(outcome.compressions),
        "compressions_waited": kinds["waited"],
        "compressions_prepared": kinds["prepared"],
        "compressions_cold": kinds["cold"],
        "compressions_pruned": kinds["pruned"],
        "summaries_wasted": outcome.wasted,
        "micro_passes": outcome.micro_passes,
        "prunings": outcome.prunings,
        "waits": outcome.felt_pauses,
        "waited_seconds": round(outcome.waited_seconds, 1),
        "longest_wait_seconds": round(max(outcome.pauses_seconds, default=0.0), 1),
        "too_long": outcome.overflows,
        "tokens": {
            "input": outcome.bill.plain,
            "cache_read": outcome.bill.read,
            "cache_write": outcome.bill.written,
            "output": outcome.bill.output,
            "side_input": outcome.bill.side_input,
            "side_output": outcome.bill.side_output,
        },
    }
