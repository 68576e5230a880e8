"""Owns how texts become words to be searched for, whatever the script. Pure.

SQLite splits at blanks and punctuation. Chinese, Japanese and Korean put few of them, so a run of
their letters is indexed by its pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CJK = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUN = re.compile(f"[{_CJK}\U00020000-\U0003ffff]+")
_WORD = re.compile(r"[^\W_]+")
MOST_TERMS = 48
MOST_INDEXED_CHARS = 400_000


def clean(text: str) -> str:
    """The text as a database takes it: no half characters, no zero bytes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", " ")


def indexed(text: str) -> str:
    """A text as it is put into the index."""
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", clean(text[:MOST_INDEXED_CHARS]))


def _pairs(run: str) -> Iterator[str]:
    yield from (run[i : i + 2] for i in range(len(run) - 1))
    yield run[-1]  # a single letter is found at the end of a run, too


def question(query: str) -> str:
    """A query in the index's language: any of its words; "" if there are none."""
    query = clean(query)
    terms: dict[str, None] = {}
    for run in _RUN.findall(query):
        if len(run) == 1:
            terms[f'"{run}"*'] = None
        terms.update((f'"{run[i : i + 2]}"', None) for i in range(len(run) - 1))
    for word in _WORD.findall(_RUN.sub(" ", query)):
        terms[f'"{word}"'] = None
    return " OR ".join(list(terms)[:MOST_TERMS])


def excerpt(text: str, query: str, chars: int = 320) -> str:
    """A piece of a text around the densest hit of a query's words."""
    text = " ".join(text.split())
    if len(text) <= chars:
        return text
    lowered = text.casefold()
    if len(lowered) != len(text):
        lowered = text
    words = [w.casefold() for w in _WORD.findall(_RUN.sub(" ", query))]
    words += [run[i : i + 2] for run in _RUN.findall(query) for i in range(max(1, len(run) - 1))]
    places = sorted(at for word in words[:MOST_TERMS] if (at := lowered.find(word)) >= 0)
    if not places:
        return f"{text[:chars]} …"
    best = max(places, key=lambda at: sum(at <= other < at + chars // 2 for other in places))
    start = max(0, best - chars // 4)
    end = min(len(text), start + chars)
    return f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"
