"""Owns where micro-compaction looks: its window, its cursor, the next exchange. Pure.

Nothing here walks through what lies before the cursor: what it takes depends on the tail, and on
what was said since the last pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.compaction.plan.boundary import TAIL_FLOORS, TAIL_SLACK, CutRules
from agent.messages import Row

MIN_MESSAGES = 4
"""A shorter list has nothing to absorb."""


@dataclass(frozen=True, slots=True)
class Window:
    """What micro-compaction may look at: ``rows[head_end:tail_start]``, perhaps nothing."""

    head_end: int
    tail_start: int
    """Where a turn begins."""


def find_window(rows: Sequence[Row], rules: CutRules, coming_tokens: int | None = None) -> Window:
    """The rows between the head and the tail, both of whole tool groups, the tail of whole turns.

    Args:
        rows: The list; every call answered.
        rules: As for the batch compression; ``protect_first_n`` is 0 once there was one.
        coming_tokens: Estimate of one more message that is about to stand behind them; None: none.
    """
    tail_start = _turn_start(rows, _tail_start(rows, rules, coming_tokens))
    return Window(_head_end(rows, rules), tail_start)


def find_cursor(rows: Sequence[Row], skipped_row: int = 0) -> int:
    """Where the next exchange is looked for: behind the last marker or summary of the list.

    ``skipped_row``: the original that ends the exchange that was given up last; 0: none was.
    """
    for at in range(len(rows) - 1, -1, -1):
        if stays(rows[at]) or (skipped_row and rows[at].root_id == skipped_row):
            return at + 1
    return 0


def find_exchange(rows: Sequence[Row], cursor: int, window: Window) -> range | None:
    """The first exchange from the cursor on: all that the assistant did up to the next person's.

    None if there is none that is over. What a person said is never in it; what the host told the
    model in between is.
    """
    start = max(cursor, window.head_end)
    while start < window.tail_start and not _is_answer(rows[start]):
        start += 1
    end = start
    while end < window.tail_start and _is_part(rows[end]):
        end += 1
    if end == start or end >= len(rows):
        return None
    return range(start, end)


def stays(row: Row) -> bool:
    """Does it stand for something that is not in the list any more? Then it is never absorbed."""
    if row.kind in ("summary", "micro"):
        return True
    blocks = row.message.get("anthropic_content_blocks") or ()
    return any(block.get("type") == "compaction" for block in blocks)


def is_said(row: Row) -> bool:
    """Did a person say it?"""
    return row.kind is None and row.message["role"] == "user"


def _is_answer(row: Row) -> bool:
    return row.message["role"] == "assistant" and not stays(row)


def _is_part(row: Row) -> bool:
    if row.message["role"] == "user":
        return row.kind == "notice"
    return not stays(row)


# --- head and tail ------------------------------------------------------------------------------


def _head_end(rows: Sequence[Row], rules: CutRules) -> int:
    """Whole tool groups from the front, until there are enough or the budget is used up."""
    end = spent = 0
    while end < min(rules.protect_first_n, len(rows)) and not stays(rows[end]):
        after = end + 1
        while after < len(rows) and rows[after].message["role"] == "tool":
            after += 1
        spent += sum(row.tokens for row in rows[end:after])
        if spent > rules.head_tokens:
            break
        end = after
    return end


def _tail_start(rows: Sequence[Row], rules: CutRules, coming_tokens: int | None) -> int:
    """Where the tail of a batch compression would begin, by the same budget and count floors."""
    slack = int(rules.tail_tokens * TAIL_SLACK)
    coming = coming_tokens is not None
    count, spent = len(rows) + coming, coming_tokens or 0
    starts = [(len(rows), spent)] if coming else []
    for start, cost in _groups_from_the_end(rows):
        spent += cost
        if spent > slack and starts:
            break
        starts.append((start, spent))
    else:
        starts.append((0, spent))  # all of it: whatever count is asked for, there is no more
    within = [start for start, spent in starts if spent <= rules.tail_tokens]
    by_budget = within[-1] if within else starts[0][0]
    whole = starts[-1][0] == 0
    for floor in (rules.protect_last_n, *TAIL_FLOORS):
        found = next((s for s in starts if count - s[0] >= floor), None)
        if found is None and whole:
            found = starts[-1]
        if found is not None and found[1] <= slack:
            return min(by_budget, found[0])
    return by_budget


def _groups_from_the_end(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The tool groups, the last one first: where each begins, and its estimate."""
    cost = 0
    for at in range(len(rows) - 1, -1, -1):
        cost += rows[at].tokens
        if rows[at].message["role"] != "tool":
            yield at, cost
            cost = 0


def _turn_start(rows: Sequence[Row], at: int) -> int:
    """The beginning of the turn that a row belongs to."""
    while at > 0 and not (at < len(rows) and is_said(rows[at])):
        at -= 1
    return at
