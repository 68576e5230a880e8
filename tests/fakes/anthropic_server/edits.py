"""Owns context edits: what the API leaves out of a prompt before the model reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.fakes.anthropic_server.units import THINKING_TYPES, Chain, Json, Unit

CLEARED = "[cleared]"
DEFAULT_TRIGGER = 100_000
DEFAULT_KEEP = 3


@dataclass(frozen=True)
class Edited:
    """The prompt as it is read, and what was done to it."""

    units: list[Unit]
    tokens: list[int]
    applied: list[Json]

    def digests(self) -> list[bytes]:
        """The prefixes as the cache sees them."""
        chain, out = Chain(), []
        for unit in self.units:
            chain.add(unit)
            out.append(chain.digest())
        return out


def apply_edits(body: Json, units: Sequence[Unit], tokens: Sequence[int], scale: float) -> Edited:
    """The units behind the edits that a request asks for."""
    edited = Edited(list(units), list(tokens), [])
    for edit in (body.get("context_management") or {}).get("edits") or ():
        if edit["type"] == "clear_thinking_20251015":
            edited = _clear_thinking(edit, edited)
        elif edit["type"] == "clear_tool_uses_20250919":
            edited = _clear_tool_uses(edit, edited, scale)
    return edited


def _amount(edit: Json, key: str, default: int) -> int:
    value = edit.get(key)
    return int(value["value"]) if isinstance(value, dict) else default


def _clear_tool_uses(edit: Json, before: Edited, scale: float) -> Edited:
    if sum(before.tokens) <= _amount(edit, "trigger", DEFAULT_TRIGGER):
        return before
    uses = {
        u.block["id"]: u.block["name"] for u in before.units if u.block.get("type") == "tool_use"
    }
    results = [i for i, u in enumerate(before.units) if u.block.get("type") == "tool_result"]
    keep = _amount(edit, "keep", DEFAULT_KEEP)
    excluded = set(edit.get("exclude_tools") or ())
    units, tokens, cleared, count = list(before.units), list(before.tokens), 0, 0
    for i in results[: len(results) - keep] if keep else results:
        block = units[i].block
        if uses.get(block["tool_use_id"]) in excluded:
            continue
        unit = replace(units[i], block={**block, "content": CLEARED})
        size = round(unit.tokens() * scale)
        if size < tokens[i]:
            cleared += tokens[i] - size
            count += 1
            units[i], tokens[i] = unit, size
    if not count or cleared < _amount(edit, "clear_at_least", 0):
        return before
    done = {"type": edit["type"], "cleared_tool_uses": count, "cleared_input_tokens": cleared}
    return Edited(units, tokens, [*before.applied, done])


def _clear_thinking(edit: Json, before: Edited) -> Edited:
    if edit.get("keep") == "all":
        return before
    turns, turn = [], 0
    for unit in before.units:
        if unit.section == "messages" and unit.role == "user" and unit.block.get("type") == "text":
            turn += 1
        turns.append(turn)
    thinking = [i for i, u in enumerate(before.units) if u.block.get("type") in THINKING_TYPES]
    kept = sorted({turns[i] for i in thinking})[-_amount(edit, "keep", 1) :]
    gone = [i for i in thinking if turns[i] not in kept]
    if not gone:
        return before
    done = {
        "type": edit["type"],
        "cleared_thinking_turns": len({turns[i] for i in gone}),
        "cleared_input_tokens": sum(before.tokens[i] for i in gone),
    }
    left = [i for i in range(len(before.units)) if i not in set(gone)]
    return Edited(
        [before.units[i] for i in left],
        [before.tokens[i] for i in left],
        [*before.applied, done],
    )
