"""Owns what goes to an engine of others and what comes back: copies there, plain JSON here."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.compaction.plan.adoption import Adopted, Checked, check
from agent.context_engine import ContextEngine
from agent.errors import EngineError
from agent.keywords import accepted
from agent.messages import Draft, Entry, Row, to_engine

MANY_TIMES, AT_LEAST = 4, 1000
"""A result with more messages than this, and than so many times those given, is not looked at."""
MAX_TOOL_CHARS = 2_000_000


def copied(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A list of messages of which nothing is ours any more: an engine may change all of it."""
    return [dict(message) for message in copy.deepcopy(to_engine(rows))]


def looked_at(result: object, rows: Sequence[Row]) -> Checked:
    """A list that an engine gave back, as a plan in which nothing is the engine's any more."""
    not_too_many(result, len(rows))
    if isinstance(result, list):
        result = list.copy(result)  # what is in it: a list of its own kind may go on for ever
    checked = check(result, to_engine(rows), rows)
    if not isinstance(checked.adopted, Adopted):
        return checked
    entries = tuple(_plain_entry(entry) for entry in checked.adopted.entries)
    return replace(checked, adopted=replace(checked.adopted, entries=entries))


def not_too_many(result: object, given: int) -> None:
    """Refuse a list that would take long only to look at.

    Raises:
        EngineError: It is one.
    """
    many = list.__len__(result) if isinstance(result, list) else 0
    if many > max(AT_LEAST, MANY_TIMES * given):
        raise EngineError(f"the context engine gave back {many:,} messages for {given:,}")


def _plain_entry(entry: Entry) -> Entry:
    if not isinstance(entry, Draft):
        return entry
    return replace(entry, message=plain(entry.message), wire_content=plain(entry.wire_content))


def plain(value: Any) -> Any:
    """The same as plain JSON: what can not be stored and sent is found out here.

    Raises:
        EngineError: It can not be.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise EngineError("the context engine gave back what can not be stored") from exc


def as_text(result: object) -> str:
    """What a tool gave back: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result[:MAX_TOOL_CHARS]
    return json.dumps(result, ensure_ascii=False, default=str)[:MAX_TOOL_CHARS]


def pruned_by(engine: ContextEngine, rows: Sequence[Row], tokens: int) -> Checked | None:
    """What an engine makes of old tool results; None: it changed nothing."""
    copies = copied(rows)
    call = engine.prune_tool_results_only
    answer = call(copies, **accepted(call, {"current_tokens": tokens}))
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise EngineError("the context engine gave back something that is no pruned list")
    result, count = answer
    return None if result is copies or not count else looked_at(result, rows)
