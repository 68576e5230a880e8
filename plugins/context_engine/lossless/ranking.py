"""Owns which of many hits are the best: those where the query's words stand close together. Pure.

The index knows how rare words are and how long messages are, but not where in a message its words
stand: in a long one, each of them may belong to something else.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from plugins.context_engine.lossless.words import indexed

_WORD = re.compile(r"[^\W_]+")
WINDOW_FACTOR = 2
"""The query's words may be spread over so many times as many words."""
MOST_QUERY_WORDS = 48


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared."""
    return [word.casefold() for word in _WORD.findall(indexed(text))]


def ranked(query: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts, the best one first; equals in the order in which they came."""
    asked = words_of(query)[:MOST_QUERY_WORDS]
    wanted = set(asked)
    pairs = set(pairwise(asked))
    read = [words_of(text) for text in texts]
    weight = _weights(wanted, read)
    scores = [_score(words, wanted, pairs, weight, WINDOW_FACTOR * len(asked)) for words in read]
    return sorted(range(len(texts)), key=lambda i: -scores[i])


def _weights(wanted: set[str], read: Iterable[list[str]]) -> dict[str, float]:
    """What a word is worth: little where nearly all of the texts have it."""
    found: Counter[str] = Counter()
    count = 0
    for words in read:
        count += 1
        found.update(wanted.intersection(words))
    return {word: math.log(1 + count / (1 + found[word])) for word in wanted}


def _score(
    words: list[str],
    wanted: set[str],
    pairs: set[tuple[str, str]],
    weight: dict[str, float],
    width: int,
) -> float:
    """What the best stretch of a text is worth: its words, and those in the query's order again."""
    hits = [(at, word) for at, word in enumerate(words) if word in wanted]
    best = now = 0.0
    inside: Counter[object] = Counter()
    values: list[tuple[int, list[tuple[object, float]]]] = []
    first = 0
    for at, word in hits:
        worth: list[tuple[object, float]] = [(word, weight[word])]
        if at and (words[at - 1], word) in pairs:
            worth.append(((words[at - 1], word), weight[word] + weight[words[at - 1]]))
        values.append((at, worth))
        for name, value in worth:
            now += value if not inside[name] else 0.0
            inside[name] += 1
        while values[first][0] <= at - width:
            for name, value in values[first][1]:
                inside[name] -= 1
                now -= value if not inside[name] else 0.0
            first += 1
        best = max(best, now)
    return best
