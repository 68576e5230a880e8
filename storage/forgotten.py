"""Owns which messages go when somebody is forgotten (pure): theirs, and what was made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.messages import MessageKind

DERIVED: frozenset[MessageKind] = frozenset({"summary", "micro", "note"})
"""Kinds of rows that a compression has made of others."""


@dataclass(frozen=True, slots=True)
class Known:
    """A stored row, as far as the choice needs it."""

    id: int
    conversation_id: str
    kind: MessageKind | None
    origin_id: int | None
    made: bool = False
    """Put into its list by a compression, whatever it calls itself; or found by a search."""
    rides: bool = False
    """Carries what was remembered at a place where this person had something remembered."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn: who began it, and with which row."""

    conversation_id: str
    row_id: int
    owner: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What goes of conversations in which others talk too."""

    said: frozenset[int]
    """Theirs, the answers to them, and all copies."""
    originals: frozenset[int]
    """Of those, what is no copy."""
    derived: frozenset[int]
    """Made by compressions after the first that goes or changes."""
    rides: frozenset[int]
    """Others' messages that lose what they carried."""
    first: Mapping[str, int]
    """By conversation: the first row of it that goes or changes."""
    shared: tuple[str, ...]
    """Conversations of which a part is theirs."""

    @property
    def row_ids(self) -> frozenset[int]:
        """All that become tombstones."""
        return self.said | self.derived


def choose(
    owner: str, turns: Iterable[Begun], rows: Sequence[Known], own: Collection[int] = ()
) -> Choice:
    """All from a message of this person up to the next turn is theirs; a later summary may be.

    ``own``: the rows of their own conversations, of which others' forks may hold copies.
    Nobody can tell whose words a summary holds, so each that was made since goes.
    """
    spans = _spans(owner, turns)
    said = {
        row.id
        for row in rows
        if row.origin_id is None
        and row.kind is None
        and not row.made
        and any(start <= row.id < end for start, end in spans.get(row.conversation_id, ()))
    }
    originals = frozenset(said)
    said |= _copies(rows, said.union(own))
    rides = {row.id for row in rows if row.rides} - said
    first: dict[str, int] = {}
    for row in rows:
        if row.id in said or row.id in rides:
            first[row.conversation_id] = min(row.id, first.get(row.conversation_id, row.id))
    derived = {
        row.id
        for row in rows
        if row.id > first.get(row.conversation_id, row.id)
        and (row.kind in DERIVED or (row.made and row.kind is None))
        and row.origin_id is None
    }
    derived |= _copies(rows, derived)
    return Choice(
        frozenset(said),
        originals,
        frozenset(derived - said),
        frozenset(rides - derived),
        first,
        tuple(sorted({row.conversation_id for row in rows if row.id in said})),
    )


def _spans(owner: str, turns: Iterable[Begun]) -> dict[str, list[tuple[int, float]]]:
    """By conversation: from where to where its rows belong to turns of this person."""
    begun: defaultdict[str, list[Begun]] = defaultdict(list)
    for turn in turns:
        begun[turn.conversation_id].append(turn)
    spans: dict[str, list[tuple[int, float]]] = {}
    for conversation_id, found in begun.items():
        ordered = sorted(found, key=lambda turn: turn.row_id)
        ends: list[float] = [after.row_id for _, after in pairwise(ordered)]
        spans[conversation_id] = [
            (turn.row_id, end)
            for turn, end in zip(ordered, [*ends, float("inf")], strict=True)
            if turn.owner == owner
        ]
    return spans


def _copies(rows: Sequence[Known], originals: set[int]) -> set[int]:
    return {row.id for row in rows if row.origin_id in originals}
