"""Owns the list behind a summary of the provider's own: block, what stays, the keepsake. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agent.compaction.native.cutting import OWN_KINDS, NativePlan
from agent.compaction.native.keepsake import choose, keepsake, read_keepsake
from agent.compaction.plan.adoption import Adopted
from agent.compaction.plan.assemble import problem_with
from agent.compaction.plan.boundary import is_summary
from agent.compaction.plan.frame import SummaryText, clean_body, render_summary
from agent.compaction.plan.manifest import Loss, build_manifest, missing_from
from agent.messages import (
    Draft,
    Entry,
    Keep,
    Message,
    Row,
    newest_real_user,
    to_engine,
    wire_message,
    without_thinking,
)
from agent.model_metadata import estimate_message_tokens
from agent.native_block import compaction_message
from agent.ports import NativeSummary

UNREADABLE = (
    "(The provider's summary of the earlier conversation can only be read by the model that wrote "
    "it. What was said can be looked up with the recall tool.)"
)


@dataclass(frozen=True, slots=True)
class NativeResult:
    """The new list with its manifest, or why it must not be taken."""

    adopted: Adopted | None
    manifest: dict[str, Any]
    problem: str = ""


def assemble_native(
    plan: NativePlan, cut: int, summary: NativeSummary, cost: Mapping[str, Any]
) -> NativeResult:
    """The list that the provider's block opens.

    Where something behind the cut holds thinking, all of it follows the block unchanged, and the
    keepsake comes behind the newest answer and its results; else it follows the block at once. A
    lifted message of a person comes right behind the keepsake either way.
    """
    lifted = plan.lifted(cut)
    covered = plan.covered(cut)
    earlier = [row for row in plan.rows[:cut] if row.kind in OWN_KINDS]
    kept, complete = choose(covered, earlier, plan.triggers.threshold_tokens)
    thinks = plan.thinks(cut)
    note = keepsake(kept, lifted=lifted is not None and thinks)
    text = render_summary(SummaryText(clean_body(summary.text) or UNREADABLE))
    block = compaction_message(summary.block, text, summary.maker)

    between: list[Entry] = [Draft(note, kind="note")] if note is not None else []
    if lifted is not None:
        between.append(Keep(lifted.id))
    place = _behind_newest_answer(plan.rows) if thinks else cut
    entries: list[Entry] = [
        Draft(block, kind="summary"),
        *(Keep(row.id, with_thinking=True) for row in plan.rows[cut:place]),
        *between,
        *(Keep(row.id) for row in plan.rows[place:]),
    ]
    known = {row.id: row for row in plan.rows}
    tokens_before = sum(row.tokens for row in plan.rows)
    tokens = sum(_tokens(entry, known) for entry in entries)
    loss = Loss(
        mode="native",
        tokens_before=tokens_before,
        tokens_after=tokens,
        rows_before=len(plan.rows),
        rows_after=len(entries),
        parts=1,
        identifiers_complete=complete,
        cost=cost,
        at=plan.now,
    )
    messages = to_engine(covered)
    manifest = build_manifest(loss, messages, kept)
    manifest["block"] = {"maker": summary.maker, "readable": bool(summary.text)}
    manifest["kept_thinking"] = thinks
    problem = (
        missing_from(read_keepsake(note), kept, manifest, messages)
        or _problem(plan, entries, known)
        or ("" if tokens < tokens_before else "nothing could be made smaller")
    )
    return NativeResult(None if problem else Adopted(tuple(entries), tokens), manifest, problem)


def _behind_newest_answer(rows: tuple[Row, ...] | Any) -> int:
    """The place behind the newest answer and the results of its calls."""
    at = next(i for i in range(len(rows) - 1, -1, -1) if rows[i].message["role"] == "assistant")
    at += 1
    while at < len(rows) and rows[at].message["role"] == "tool":
        at += 1
    return at


def _problem(plan: NativePlan, entries: list[Entry], known: Mapping[int, Row]) -> str:
    """Why the list must not take the place of the other; "" if it may."""
    before = to_engine(plan.rows)
    shown = {row.id: message for row, message in zip(plan.rows, before, strict=True)}
    after = [
        shown[entry.row_id]
        if isinstance(entry, Keep)
        else cast(Message, {**entry.message, "_kind": entry.kind})
        for entry in entries
    ]
    if not is_summary(after[0]):
        return "the summary does not come first"
    return problem_with(before, after, newest_real_user(before))


def _tokens(entry: Entry, known: Mapping[int, Row]) -> int:
    if isinstance(entry, Draft):
        return estimate_message_tokens(entry.message)
    row = known[entry.row_id]
    if entry.with_thinking or without_thinking(row.message) is row.message:
        return row.tokens
    return estimate_message_tokens(without_thinking(wire_message(row)))
