"""Owns where a list is cut for the provider's own summary, and what is known of it there. Pure.

The cut always lies right before an answer of the model: what stands before it then is, to the
letter, a request that was sent. So its prompt is in the cache, it ends on no open call, and what
the model thought behind the cut stays valid behind the summary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from agent.compaction.plan.boundary import TAIL_SLACK
from agent.compaction.plan.phases import FIT_RATIO, IDENTIFIER_TOKENS, VERBATIM_RATIO
from agent.compaction.plan.policy import MAX_BIAS
from agent.history import has_thinking
from agent.messages import Row
from agent.model_metadata import Measurement, Triggers

MIN_COVERED_RATIO = 0.10
"""Of the threshold: less is not worth a call and a broken cache."""
OWN_KINDS = ("summary", "note")


@dataclass(frozen=True, slots=True)
class NativePlan:
    """What a compaction by the provider starts from."""

    rows: Sequence[Row]
    cuts: tuple[int, ...]
    """Indexes of answers: the wanted one, then an earlier one behind a message of a person."""
    newest_user: int | None
    triggers: Triggers
    now: float
    """Unix seconds."""

    @property
    def is_over(self) -> bool:
        """Has the model said its last word? Then nobody waits for what it was thinking."""
        last = self.rows[-1].message
        return last["role"] == "assistant" and not last.get("tool_calls")

    def lifted(self, cut: int) -> Row | None:
        """The newest message of a person, where it lies in front of the cut: it stays as well."""
        if self.newest_user is None or self.newest_user >= cut:
            return None
        return self.rows[self.newest_user]

    def covered(self, cut: int) -> list[Row]:
        """What the summary replaces, but for earlier summaries and notes and what is lifted."""
        lifted = self.lifted(cut)
        return [row for row in self.rows[:cut] if row.kind not in OWN_KINDS and row is not lifted]

    def thinks(self, cut: int) -> bool:
        """Does anything behind the cut hold thinking that is worth to stay valid?"""
        if self.is_over and self.lifted(cut) is not None:
            return False  # the question has to come before its answer, and that breaks the prefix
        return any(has_thinking(row) for row in self.rows[cut:])


def plan_native(
    rows: Sequence[Row],
    triggers: Triggers,
    size: Measurement,
    *,
    protect_last_n: int,
    prefix_tokens: int,
    now: float,
) -> NativePlan | None:
    """Where to cut; None: the provider's summary would not help here.

    Args:
        rows: The list, every call answered.
        triggers: The numbers in force.
        size: Of the next prompt.
        protect_last_n: So many messages stay, as long as they are not too large.
        prefix_tokens: Estimate of system prompt and tools.
        now: Unix seconds.
    """
    newest = next(
        (i for i in range(len(rows) - 1, -1, -1) if _said_by_person(rows[i])),
        None,
    )
    before = list(accumulate((row.tokens for row in rows), initial=0))
    total = before[-1]
    candidates = [
        i
        for i in range(1, len(rows))
        if rows[i].message["role"] == "assistant"
        and rows[i].kind not in OWN_KINDS
        and rows[i - 1].message["role"] != "assistant"
    ]
    cut = _wanted(candidates, before, newest, triggers.tail_tokens, protect_last_n)
    if cut is None:
        return None
    real = size.tokens if size.source == "usage" else 0
    bias = min(MAX_BIAS, max(1.0, real / (total + prefix_tokens))) if total else 1.0
    beside = prefix_tokens + triggers.summary_ceiling_tokens + keepsake_ceiling(triggers)
    if (total - before[cut] + beside) * bias > FIT_RATIO * triggers.threshold_tokens:
        return None  # ours can shorten what stays as well
    plan = NativePlan(rows, (), newest, triggers, now)
    worth = MIN_COVERED_RATIO * triggers.threshold_tokens
    if sum(row.tokens for row in plan.covered(cut)) < worth:
        return None
    earlier = next(
        (
            i
            for i in reversed(candidates)
            if i < cut and _said_by_person(rows[i - 1]) and plan.covered(i)
        ),
        None,
    )
    cuts = (cut,) if earlier is None else (cut, earlier)
    return NativePlan(rows, cuts, newest, triggers, now)


def _said_by_person(row: Row) -> bool:
    """What the store knows decides, not how the words begin."""
    return row.kind is None and row.message["role"] == "user"


def keepsake_ceiling(triggers: Triggers) -> int:
    """What is kept word for word takes at most so much."""
    share = int(triggers.threshold_tokens * VERBATIM_RATIO)
    return share + min(IDENTIFIER_TOKENS, share)


def _wanted(
    candidates: Sequence[int],
    before: Sequence[int],
    newest_user: int | None,
    tail_tokens: int,
    protect_last_n: int,
) -> int | None:
    """The cut whose tail is as long as its budget allows, with the newest question if it fits."""
    if not candidates:
        return None
    n, total, slack = len(before) - 1, before[-1], int(tail_tokens * TAIL_SLACK)
    start = bisect_left(before, total - tail_tokens)
    by_count = max(0, n - protect_last_n)
    if total - before[by_count] <= slack:
        start = min(start, by_count)
    cut = next((i for i in candidates if i >= start), candidates[-1])
    if newest_user is not None and newest_user < cut:
        with_question = next((i for i in reversed(candidates) if i <= newest_user), None)
        if with_question is not None and total - before[with_question] <= slack:
            return with_question
    return cut
