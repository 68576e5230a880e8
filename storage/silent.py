"""Owns which conversations retention takes (pure): whole families, and only silent ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heard:
    """A conversation, and when something was last said in it."""

    conversation_id: str
    at: float
    busy: bool
    """A turn of it is not over."""


def families(
    conversation_ids: Sequence[str], forks: Iterable[tuple[str, str]]
) -> list[tuple[str, ...]]:
    """What hangs together by forks, in the order given. ``forks``: pairs of conversations."""
    head = {one: one for one in conversation_ids}

    def find(one: str) -> str:
        while head[one] != one:
            head[one] = one = head[head[one]]
        return one

    for left, right in forks:
        if left in head and right in head:
            head[find(left)] = find(right)
    found: dict[str, list[str]] = {}
    for one in conversation_ids:
        found.setdefault(find(one), []).append(one)
    return [tuple(family) for family in found.values()]


def to_clear(
    heard: Sequence[Heard], forks: Iterable[tuple[str, str]], before: float, limit: int
) -> tuple[tuple[str, ...], bool]:
    """The conversations that go in one step, and whether there are more.

    A family is never torn apart, so a step may take more than ``limit``.
    """
    by_id = {one.conversation_id: one for one in heard}
    chosen: list[str] = []
    for family in families(list(by_id), forks):
        if any(by_id[one].busy or by_id[one].at >= before for one in family):
            continue
        if len(chosen) >= max(1, limit):
            return tuple(chosen), True
        chosen.extend(family)
    return tuple(chosen), False
