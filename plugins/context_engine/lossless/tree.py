"""Owns which messages become leaves and which nodes are condensed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from plugins.context_engine.lossless.nodes import FRAME_TOKENS, Node, Source
from plugins.context_engine.lossless.options import Sizes

WORTH_TOKENS = FRAME_TOKENS + 110
"""Less than this is not summarised: the summary would hardly be smaller."""


@dataclass(frozen=True, slots=True)
class Item:
    """One message of the list, or the node that it is."""

    message: Mapping[str, Any]
    tokens: int
    ref: str
    """The digest of its stored form; of a node its id."""
    node: Node | None = None

    @property
    def source(self) -> Source:
        """As the source of a node."""
        return Source("message" if self.node is None else "node", self.ref)

    @property
    def messages(self) -> int:
        """How many originals it stands for."""
        return 1 if self.node is None else self.node.messages


@dataclass(frozen=True, slots=True)
class Cut:
    """A list in its parts."""

    system: tuple[Item, ...]
    body: tuple[Item, ...]
    """Older than the tail."""
    pinned: int
    """Place in ``body`` of what a person said last; -1: it is in the tail."""
    tail: tuple[Item, ...]


def groups_of(items: Sequence[Item]) -> list[range]:
    """The list in pieces that are never torn: a call stands together with its results."""
    groups: list[range] = []
    start = 0
    for i, item in enumerate(items):
        if i > start and not (item.node is None and item.message.get("role") == "tool"):
            groups.append(range(start, i))
            start = i
    if items:
        groups.append(range(start, len(items)))
    return groups


def cut(items: Sequence[Item], sizes: Sizes, protect_last_n: int) -> Cut:
    """Where the tail begins: behind the last node, with enough messages and enough tokens."""
    system = 0
    while system < len(items) and items[system].message.get("role") == "system":
        system += 1
    rest = items[system:]
    start, tokens = len(rest), 0
    for group in reversed(groups_of(rest)):
        if rest[group.start].node is not None:
            break
        size = sum(rest[i].tokens for i in group)
        enough = len(rest) - start >= protect_last_n and tokens >= sizes.tail_tokens
        if start < len(rest) and (enough or tokens + size > sizes.most_tail_tokens):
            break
        start, tokens = group.start, tokens + size
    newest = next((i for i in reversed(range(len(rest))) if is_said(rest[i])), -1)
    return Cut(
        system=tuple(items[:system]),
        body=tuple(rest[:start]),
        pinned=newest if newest < start else -1,
        tail=tuple(rest[start:]),
    )


def is_said(item: Item) -> bool:
    """Did a person say it, as far as the list tells?"""
    message = item.message
    return item.node is None and message.get("role") == "user" and message.get("_kind") is None


@dataclass(frozen=True, slots=True)
class Leaf:
    """Messages that become one node."""

    items: tuple[Item, ...]


def leaves(parts: Cut, sizes: Sizes) -> list[Item | Leaf]:
    """The body with its messages grouped into leaves; what is too little for one stays."""
    planned: list[Item | Leaf] = []
    run: list[Item] = []
    for i, item in enumerate(parts.body):
        if item.node is not None or i == parts.pinned:
            planned += _chunks(run, sizes)
            run = []
            planned.append(item)
        else:
            run.append(item)
    return planned + _chunks(run, sizes)


def _chunks(run: Sequence[Item], sizes: Sizes) -> list[Item | Leaf]:
    chunks: list[list[Item]] = []
    spent = 0
    for group in groups_of(run):
        size = sum(run[i].tokens for i in group)
        if not chunks or spent + size > sizes.leaf_tokens:
            chunks.append([])
            spent = 0
        chunks[-1].extend(run[i] for i in group)
        spent += size
    if len(chunks) > 1 and _tokens(chunks[-1]) < sizes.leaf_tokens // 4:
        last = chunks.pop()
        chunks[-1].extend(last)
    result: list[Item | Leaf] = []
    for chunk in chunks:
        if _tokens(chunk) < WORTH_TOKENS:
            result.extend(chunk)
        else:
            result.append(Leaf(tuple(chunk)))
    return result


def _tokens(items: Sequence[Item]) -> int:
    return sum(item.tokens for item in items)


def to_condense(
    roots: Sequence[Item], sizes: Sizes, fanout: int, pinned: str, *, early: bool = False
) -> range | None:
    """The next nodes that become one of the next depth, with what little lies between them.

    Args:
        roots: The list between system and tail, leaves made.
        sizes: What is too much.
        fanout: How many side by side are enough.
        pinned: Ref of the message that stays where it is; "" if none does.
        early: Two are enough, whatever room they take.
    """
    runs = _side_by_side(roots, pinned)
    enough = [run for run in runs if len(run[1]) >= fanout]
    if enough:
        _, places = min(enough)
        return range(places[0], places[fanout - 1] + 1)
    in_view = _tokens([root for root in roots if root.node is not None])
    if in_view <= sizes.roots_tokens and not early:
        return None
    pairs = [run for run in runs if len(run[1]) >= 2]
    if pairs:
        _, places = min(pairs)
        return range(places[0], places[-1] + 1)
    nodes = [i for i, root in enumerate(roots) if root.node is not None]
    for first, second in pairwise(nodes):
        if _is_joinable(roots[first + 1 : second], pinned):
            return range(first, second + 1)
    return None


def _side_by_side(roots: Sequence[Item], pinned: str) -> list[tuple[int, list[int]]]:
    """(depth, places) of nodes with next to nothing between them, run by run, the oldest first.

    A node counts as deep as what comes right behind it, if that is deeper: it was left behind when
    its neighbours were condensed.
    """
    runs: list[tuple[int, list[int]]] = []
    for i in reversed(range(len(roots))):
        node = roots[i].node
        if node is None:
            continue
        depth = node.depth
        if runs and _is_joinable(roots[i + 1 : runs[-1][1][0]], pinned):
            depth = max(depth, runs[-1][0])
            if depth == runs[-1][0]:
                runs[-1][1].insert(0, i)
                continue
        runs.append((depth, [i]))
    return runs[::-1]


def _is_joinable(between: Sequence[Item], pinned: str) -> bool:
    """May what lies between two nodes go into one with them?"""
    small = _tokens(between) < 2 * WORTH_TOKENS
    return small and all(item.ref != pinned for item in between)


def taken_back(before: Sequence[str], after: Sequence[str], *, plain: Sequence[bool]) -> set[str]:
    """What stood at the end of a list and was taken back; a list that was only shortened lost none.

    Args:
        before: What each message said, as the list was seen last.
        after: The same of the list of now.
        plain: Of each message of ``after``: does it surely stand there as it was said? Where all
            do, and something new was said in the place, all the rest may be said once more.
    """
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    ended, begun = before[same:], after[same:]
    if set(ended).isdisjoint(begun) or (all(plain[same:]) and begun[0] not in ended):
        return set(ended) - set(after)
    return set()
