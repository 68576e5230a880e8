"""Owns going back (pure): what an undo takes, and what a list was before its compression."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from agent.messages import Draft, Row, tool_call_ids
from agent.sessions import EndReason

OPENING_CHARS = 200
"""What a list of conversations shows of each one's first message."""


def undo_start(rows: Sequence[Row], turns: int, steered: Collection[int] = ()) -> int | None:
    """Where the last ``turns`` begin that can be taken back; None: there is nothing.

    A turn begins with what a person said, but for ``steered``: originals that came into a turn. If
    its beginning is not in the list any more, the turn is what is left of it. What stands in front
    of a summary (or of a marker of micro-compaction) stays: the summary speaks of messages behind
    it that are not in the list.
    """
    start = inside = None
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        if turns <= 0 or row.kind in ("summary", "micro"):
            break
        if row.message["role"] != "user" or row.kind is not None:
            continue
        if row.root_id in steered:
            inside = place
            continue
        start, inside = place, None
        turns -= 1
    return start if inside is None or turns <= 0 else inside


def turns_in(removed: Sequence[Row], steered: Collection[int]) -> int:
    """How many turns an undo has taken back; what was left of one is one."""
    begun = [row for row in _said(removed) if row.root_id not in steered]
    return len(begun) + is_rest(removed, steered)


def is_rest(removed: Sequence[Row], steered: Collection[int]) -> bool:
    """Is the first turn of these only what was left of it, its beginning not in the list?"""
    first = next(_said(removed), None)
    return first is not None and first.root_id in steered


def said_by_person(rows: Iterable[Row]) -> list[Draft]:
    """What a person said in these rows, as it can be asked again."""
    return [Draft(row.message, row.wire_content) for row in _said(rows)]


def _said(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.message["role"] == "user" and row.kind is None)


def has_summary(rows: Iterable[Row]) -> bool:
    """Does a summary speak for messages that are not in the list any more?"""
    return any(row.kind == "summary" for row in rows)


class Backwards:
    """Walks a lineage from its tip to the root and says where the newest compression was.

    An ``uncompress`` undid one already: it cancels the newest compression in front of it.
    """

    def __init__(self) -> None:
        self._undone = 0

    def is_boundary(self, step: EndReason | None) -> bool:
        """Is this step, the next older one, the compression to undo?"""
        if step == "uncompress":
            self._undone += 1
        elif step == "compression":
            if not self._undone:
                return True
            self._undone -= 1
        return False


def woven(base: Sequence[Row], since: Iterable[Row], taken_back: Collection[int]) -> list[Row]:
    """The list that a compression replaced, and what came since; every tool group whole.

    ``taken_back``: originals that an undo took away since. A result goes to its call, wherever it
    was stored (a repair puts stand-ins in late); one without a call, or a second one, is left out.
    """
    result: list[Row] = []
    groups: dict[str, int] = {}
    ends: list[list[Row]] = []
    for row in [*base, *since]:
        if row.root_id in taken_back:
            continue
        if row.message["role"] != "tool":
            result.append(row)
            ends.append([])
            groups.update(dict.fromkeys(tool_call_ids(row.message), len(result) - 1))
            continue
        place = groups.pop(row.message.get("tool_call_id", ""), None)
        if place is not None:
            ends[place].append(row)
    return [row for head, end in zip(result, ends, strict=True) for row in (head, *end)]
