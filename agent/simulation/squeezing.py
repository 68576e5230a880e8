"""Owns a compression by sizes alone: where it cuts, what it reads, what it leaves. Pure.

The cut is the product's own (`agent.compaction.plan.boundary`). What a summary's words would decide
is estimated: its length, what of the people's words and identifiers goes along.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.compaction.calls.summariser import INPUT_SHARE, MAX_OUTPUT_SHARE, MIN_OUTPUT_TOKENS
from agent.compaction.calls.summary import BODY_CHARS, MAX_PARTS, ONE_CALL_CHARS, system_text
from agent.compaction.plan.assemble import NOTE
from agent.compaction.plan.boundary import Boundaries, CutRules, find_boundaries, side
from agent.compaction.plan.frame import SummaryText, render_summary
from agent.compaction.plan.phases import (
    FIT_RATIO,
    IDENTIFIER_TOKENS,
    PRUNE_ENOUGH_RATIO,
    VERBATIM_RATIO,
)
from agent.compaction.plan.prune import MIN_RESULT_CHARS
from agent.messages import Row, is_real_user
from agent.model_metadata import (
    CHARS_PER_TOKEN,
    MESSAGE_TOKENS,
    TOOL_CALL_TOKENS,
    estimate_tokens_rough,
)
from agent.pressure import TIERS
from agent.simulation.script import made_row, own_message, resized
from agent.simulation.settings import Assumptions, Setting

_FRAME_TOKENS = MESSAGE_TOKENS + estimate_tokens_rough(render_summary(SummaryText("-")))
_NOTE_TOKENS = MESSAGE_TOKENS + estimate_tokens_rough(NOTE)
_ASKED_TOKENS = estimate_tokens_rough(system_text()) + 200
"""What a summary call says beside the conversation."""
_LARGE_RESULT_TOKENS = MIN_RESULT_CHARS // CHARS_PER_TOKEN + MESSAGE_TOKENS + TOOL_CALL_TOKENS
_QUOTE_TOKENS = 8
"""The fence of a quoted message."""
_SUMMARY_SAID = own_message("summary", "user")
_SUMMARY_ANSWER = own_message("summary", "assistant")
_NOTE = own_message("note", "user")


@dataclass(frozen=True, slots=True)
class SummarySize:
    """A summary in its parts, in tokens."""

    body: int = 0
    quotes: int = 0
    identifiers: int = 0

    @property
    def tokens(self) -> int:
        """Of the whole message."""
        return _FRAME_TOKENS + self.body + self.quotes + self.identifiers


@dataclass(frozen=True, slots=True)
class Squeezed:
    """A list after a compression, and what it took."""

    rows: list[Row]
    mode: Literal["prune", "summary"]
    changed_from: int
    """The first row that is another one than before."""
    tokens_before: int
    tokens_after: int
    """Of the rows, as before."""
    summary: SummarySize = SummarySize()
    calls: int = 0
    input_tokens: int = 0
    """Of all calls together, as the output."""
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A list that is to be compressed, and what counts beside it."""

    rows: Sequence[Row]
    setting: Setting
    assumed: Assumptions
    pruned_tokens: Sequence[int]
    """By row id: how large a row is once it is pruned."""
    fixed_tokens: int
    next_row_id: int
    decayed: bool
    """There was a compression before: the head is not protected any more."""
    previous: SummarySize = SummarySize()
    """Of the summary that is in the list."""
    ahead: bool = False
    """It is not due yet."""

    def pruned(self, row: Row) -> int:
        """How large a row is once it is pruned."""
        known = row.id < len(self.pruned_tokens) and row.kind is None
        return min(row.tokens, self.pruned_tokens[row.id]) if known else row.tokens


def cut_rules(setting: Setting, *, decayed: bool) -> CutRules:
    """What the boundaries depend on."""
    threshold, ratio = setting.triggers.threshold_tokens, setting.manner.head_ratio
    return CutRules(
        protect_first_n=0 if decayed else setting.protect_first_n,
        protect_last_n=setting.protect_last_n,
        tail_tokens=setting.triggers.tail_tokens,
        head_tokens=threshold if ratio is None else int(threshold * ratio),
    )


def squeeze(scene: Scene) -> Squeezed | None:
    """The compression of a list; None: nothing can be made smaller."""
    rows = scene.rows
    tokens = [row.tokens for row in rows]
    rules = cut_rules(scene.setting, decayed=scene.decayed)
    cut = find_boundaries([row.message for row in rows], tokens, rules)
    before = sum(tokens)
    if cut is None:
        return None if scene.ahead else _shrunk(scene, before)
    if scene.setting.manner.prunes_alone and (found := _pruned_only(scene, cut, before)):
        return found
    found = _summarised(scene, cut, before)
    return found if found.tokens_after < before else None


def _pruned_only(scene: Scene, cut: Boundaries, before: int) -> Squeezed | None:
    enough = PRUNE_ENOUGH_RATIO - (1 - TIERS[0] if scene.ahead else 0.0)
    new, first = _with_pruned(scene, range(cut.system_end, cut.tail_start))
    after = sum(row.tokens for row in new)
    if first is None or after + scene.fixed_tokens > enough * _threshold(scene):
        return None
    return Squeezed(new, "prune", first, before, after)


def _shrunk(scene: Scene, before: int) -> Squeezed | None:
    """Nothing can be summarised: bulky results become shorter."""
    rows = list(scene.rows)
    new = _with_shorter_tail(scene, rows, 0)
    after = sum(row.tokens for row in new)
    if after >= before:
        return None
    first = next(i for i, row in enumerate(new) if row is not rows[i])
    return Squeezed(new, "prune", first, before, after)


def _with_pruned(scene: Scene, places: Iterable[int]) -> tuple[list[Row], int | None]:
    new, first = list(scene.rows), None
    for i in places:
        shorter = scene.pruned(new[i])
        if shorter < new[i].tokens:
            new[i] = resized(new[i], shorter)
            first = i if first is None else first
    return new, first


def pruned_results(scene: Scene) -> list[Row]:
    """The list with its large results shortened, but for the newest messages."""
    rows = list(scene.rows)
    for i in range(len(rows) - scene.setting.protect_last_n):
        row = rows[i]
        if row.message["role"] == "tool" and row.tokens >= _LARGE_RESULT_TOKENS:
            rows[i] = resized(row, scene.pruned(row))
    return rows


def _threshold(scene: Scene) -> int:
    return scene.setting.triggers.threshold_tokens


# --- with a summary -----------------------------------------------------------------------------


def _summarised(scene: Scene, cut: Boundaries, before: int) -> Squeezed:
    setting = scene.setting
    middle = [scene.rows[i] for i in cut.middle]
    covered = [row for row in middle if row.kind not in ("summary", "note")]
    budget = setting.triggers.summary_budget(sum(row.tokens for row in middle))
    body = max(1, int(budget * scene.assumed.summary_fill))
    calls, read = _reading(scene, covered, budget)
    summary = replace(_carried(scene, covered), body=body)
    pruned, first_pruned = _with_pruned(scene, (*cut.head, *cut.lifted))
    new = pruned[: cut.head_end]
    after = [pruned[i] for i in cut.after_summary]
    behind_user = bool(after) and side(after[0].message) == "user"
    number = scene.next_row_id
    if behind_user and not new:
        new.append(made_row(number, _NOTE, _NOTE_TOKENS, kind="note"))
    message = _SUMMARY_ANSWER if behind_user else _SUMMARY_SAID
    new.append(made_row(number + 1, message, summary.tokens, kind="summary"))
    tail_start = len(new) + len(cut.lifted)
    new += after
    if setting.manner.shrinks_tail:
        new = _with_shorter_tail(scene, new, tail_start)
    unchanged = cut.head_end if first_pruned is None else min(first_pruned, cut.head_end)
    return Squeezed(
        new,
        "summary",
        unchanged,
        before,
        sum(row.tokens for row in new),
        summary=summary,
        calls=calls,
        input_tokens=read + calls * _ASKED_TOKENS + scene.previous.body + (calls - 1) * body,
        output_tokens=calls * body,
    )


def _reading(scene: Scene, covered: Sequence[Row], budget_tokens: int) -> tuple[int, int]:
    """In how many calls the summary is made, and how much of the conversation they read."""
    manner = scene.setting.manner
    sizes = [scene.pruned(row) if manner.reads_pruned else row.tokens for row in covered]
    if (most := manner.reads_tokens_of_each) is not None:
        return 1, sum(min(size, most) for size in sizes)
    window = scene.setting.triggers.window_tokens
    room = min(max(MIN_OUTPUT_TOKENS, 2 * budget_tokens), window // MAX_OUTPUT_SHARE)
    limit = max(64, int((window - room) * INPUT_SHARE) - _ASKED_TOKENS - scene.previous.body)
    read = 0
    for chars in (*ONE_CALL_CHARS, *BODY_CHARS):
        most = chars // CHARS_PER_TOKEN
        read = sum(min(size, most) for size in sizes)
        if read <= limit:
            return 1, read
        if chars in BODY_CHARS and read <= MAX_PARTS * limit:
            return math.ceil(read / limit), read
    return MAX_PARTS, min(read, MAX_PARTS * limit)


def _carried(scene: Scene, covered: Sequence[Row]) -> SummarySize:
    """What goes along beside the summary: words of people, exact identifiers."""
    if not scene.setting.manner.carries_words:
        return SummarySize()
    share = int(_threshold(scene) * VERBATIM_RATIO)
    said = sum(row.tokens + _QUOTE_TOKENS for row in covered if is_real_user(row.message, row.kind))
    named = int(scene.assumed.identifier_share * sum(row.tokens for row in covered))
    return SummarySize(
        quotes=min(share, scene.previous.quotes + said),
        identifiers=min(IDENTIFIER_TOKENS, share, scene.previous.identifiers + named),
    )


# --- the tail -----------------------------------------------------------------------------------


def _with_shorter_tail(scene: Scene, rows: list[Row], tail_start: int) -> list[Row]:
    """The list with results of the tail shortened until it fits well, as far as that goes.

    The oldest ones first, then the newest three, then those of the newest step to an even share.
    """
    allowed = FIT_RATIO * _threshold(scene)
    excess = scene.fixed_tokens + sum(row.tokens for row in rows) - allowed
    if excess <= 0 or tail_start >= len(rows):
        return rows
    start = len(rows) - 1
    while start > 0 and rows[start].message["role"] == "tool":
        start -= 1
    newest = range(start, len(rows)) if len(rows) - start > 1 else range(0)
    shorter = list(rows)
    for i in range(tail_start, len(rows)):
        if excess <= 0:
            return shorter
        if i not in newest:
            size = scene.pruned(rows[i])
            excess -= rows[i].tokens - size
            if size < rows[i].tokens:
                shorter[i] = resized(rows[i], size)
    results = [i for i in newest if i > start]
    if excess > 0 and results:
        total = sum(rows[i].tokens for i in results)
        share = _even_share([rows[i].tokens for i in results], int(max(0, total - excess)))
        for i in results:
            if rows[i].tokens > share:
                shorter[i] = resized(rows[i], min(rows[i].tokens, max(44, share)))
    return shorter


def _even_share(sizes: Sequence[int], total: int) -> int:
    """The largest size to which each may be cut so that all together are at most ``total``."""
    left, remaining = total, sorted(sizes)
    for n, size in enumerate(remaining):
        share = left // (len(remaining) - n)
        if size > share:
            return share
        left -= size
    return remaining[-1]
