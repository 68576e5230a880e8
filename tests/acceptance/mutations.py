"""Payloads gone wrong: each field of a good one missing, null, of another kind, huge or unknown."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any, Final

_GONE: Final = object()
_ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 10**30, 1e308, "", "x" * 50_000, "\ud800", "a\x00b", [], {}, [[]],
    {"id": None}, {"id": "111"}, [{}], ["x"] * 500,
)  # fmt: skip
_DEEP: Final = 400


def mutations(good: dict[str, Any], *, seed: int, share: float) -> Iterator[dict[str, Any]]:
    """A share of all ways to spoil one field; and one nested deep, one with what nobody knows."""
    dice = random.Random(seed)
    for path in _paths(good):
        for odd in (_GONE, *_ODD):
            if dice.random() < share:
                yield _spoilt(good, path, odd)
    yield {**copy.deepcopy(good), "nobody knows": {"this": [1, None]}}
    yield {**copy.deepcopy(good), "unknown": _nested(_DEEP)}


def _nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in inner:
        yield (*above, key)
        if isinstance(below, dict | list):
            yield from _paths(below, (*above, key))


def _spoilt(good: dict[str, Any], path: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    whole = copy.deepcopy(good)
    place: Any = whole
    for key in path[:-1]:
        place = place[key]
    if odd is _GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = copy.deepcopy(odd)
    return whole
