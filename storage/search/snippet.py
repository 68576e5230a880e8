"""Owns the piece of a message that is shown for a hit (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from storage.segment import folded

SNIPPET_CHARS = 200


def snippet(text: str, needles: Collection[str]) -> str:
    """About `SNIPPET_CHARS` of the text where most needles stand, never inside a visible character.

    ``needles`` are as found in a folded text.
    """
    lowered = folded(text)
    if len(lowered) != len(text):  # a few characters change their length: then case is all we know
        lowered = text if len(text.lower()) != len(text) else text.lower()
    start = max(0, _densest(lowered, needles) - SNIPPET_CHARS // 4)
    end = min(len(text), start + SNIPPET_CHARS)
    start, end = _visible_border(text, start), _visible_border(text, end)
    cut = " ".join(text[start:end].split())
    return ("…" if start > 0 else "") + cut + ("…" if end < len(text) else "")


def _densest(lowered: str, needles: Collection[str]) -> int:
    """Where a stretch begins that holds most needles; of several the first."""
    places: list[tuple[int, str]] = []
    for needle in needles:
        at = lowered.find(needle)
        while needle and at >= 0 and len(places) < 400:
            places.append((at, needle))
            at = lowered.find(needle, at + len(needle))
    places.sort()
    best, best_count = 0, 0
    for number, (at, _) in enumerate(places):
        inside = {n for p, n in places[number : number + 40] if p < at + SNIPPET_CHARS * 3 // 4}
        if len(inside) > best_count:
            best, best_count = at, len(inside)
    return best


def _visible_border(text: str, place: int) -> int:
    """Move a cut behind the character it would tear: accents, emoji sequences, flags' halves."""
    for _ in range(16):
        if not 0 < place < len(text):
            break
        here, before = text[place], text[place - 1]
        joined = (
            unicodedata.combining(here)
            or here in "\u200d\ufe0e\ufe0f\u20e3"
            or before == "\u200d"
            or "\U0001f3fb" <= here <= "\U0001f3ff"
            or ("\U0001f1e6" <= here <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
        )
        if not joined:
            break
        place += 1
    return place
