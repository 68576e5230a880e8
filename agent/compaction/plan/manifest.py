"""Owns the loss manifest: what a compression kept, quoted, listed and left to recall. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent.compaction.plan.frame import MAX_LISTED, SummaryText
from agent.messages import Message, clean_text, real_users

Mode = Literal["prune", "summary", "deterministic", "native"]


@dataclass(frozen=True, slots=True)
class Loss:
    """The figures of one compression, for the manifest and the log line."""

    mode: Mode
    tokens_before: int
    tokens_after: int
    rows_before: int
    rows_after: int
    pruned: int = 0
    """Messages that stay in a shorter form."""
    parts: int = 0
    """Calls that the summary took."""
    identifiers_complete: bool = True
    """False: older ones are left to recall."""
    cost: Mapping[str, Any] | None = None
    """What the summary calls took (`agent.compaction.calls.spending.Spending.as_dict`)."""
    at: float = 0.0
    """Unix seconds."""


def row_of(message: Message) -> int | None:
    """The original row behind a message, if known."""
    return message.get("_origin", message.get("_row"))


def rows_of(messages: Iterable[Message]) -> list[int | None]:
    """`row_of` for each message of a long list."""
    return [m["_origin"] if "_origin" in m else m.get("_row") for m in messages]


def build_manifest(
    loss: Loss, covered: Sequence[Message], summary: SummaryText | None
) -> dict[str, Any]:
    """The manifest as it is stored with the child.

    Every user message that went into the summary is in ``quoted`` or in ``listed`` (by its row, so
    that recall finds it), or counted in ``unnamed`` where it has no row.
    """
    rows = [row for row in rows_of(covered) if row is not None]
    asked = rows_of(real_users(covered))
    asked_rows = set(asked)
    quoted = [q.row_id for q in summary.quotes if q.row_id is not None] if summary else []
    listed = list(summary.not_quoted) if summary else []
    manifest: dict[str, Any] = {
        "mode": loss.mode,
        "at": loss.at,
        "covered": {
            "messages": len(covered),
            "user_messages": len(asked),
            "first_row": min(rows, default=None),
            "last_row": max(rows, default=None),
        },
        "user_messages": {
            "quoted": [row for row in quoted if row in asked_rows],
            "listed": [row for row in listed if row in asked_rows],
            "unnamed": asked.count(None),
        },
        "identifiers": {
            "kept": len(summary.identifiers) if summary else 0,
            "complete": loss.identifiers_complete,
        },
        "pruned": loss.pruned,
        "parts": loss.parts,
        "tokens_before": loss.tokens_before,
        "tokens_after": loss.tokens_after,
        "rows_before": loss.rows_before,
        "rows_after": loss.rows_after,
    }
    if loss.cost is not None:
        manifest["cost"] = dict(loss.cost)
    return manifest


def unaccounted(manifest: dict[str, Any], covered: Sequence[Message]) -> list[int]:
    """Rows of covered user messages that the manifest neither quotes nor lists: must be empty."""
    named = {*manifest["user_messages"]["quoted"], *manifest["user_messages"]["listed"]}
    asked = rows_of(real_users(covered))
    return [row for row in asked if row is not None and row not in named]


def missing_from(
    written: SummaryText, planned: SummaryText, manifest: dict[str, Any], covered: Sequence[Message]
) -> str:
    """What a finished list has lost of what it must keep; "" if nothing.

    Args:
        written: The summary as it reads back from the finished list.
        planned: The same as it was meant to be.
        manifest: As it would be stored.
        covered: What went into the summary.
    """
    if unaccounted(manifest, covered):
        return "a message of the user would be neither quoted nor listed"
    if [q.row_id for q in written.quotes] != [q.row_id for q in planned.quotes]:
        return "a quoted message of the user would not read back"
    if written.not_quoted != planned.not_quoted[:MAX_LISTED]:
        return "the list of further messages of the user would not read back"
    if [_bare(item) for item in written.identifiers] != [_bare(i) for i in planned.identifiers]:
        return "the exact identifiers would not read back"
    return ""


def _bare(text: str) -> str:
    return clean_text(text).strip()
