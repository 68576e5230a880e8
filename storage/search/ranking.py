"""Owns the order of hits (pure): how closely a message says what was asked.

A candidate counts by the index's own measure (bm25), by how much of the question one place in it
holds, by whether that place looks like an answer to this kind of question, and a little by how new
it is. What stands right behind a good candidate is a candidate too: people name a thing in one
message and say the rest in the next.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from storage.search.question import Question, Term
from storage.segment import folded

_TEXT_CHARS = 4_000
_WINDOW_CHARS = 1_200
_BEGINNING_CHARS = 300
_SENTENCE_END = re.compile(r"[.!?]+(?=\s)\s*|[。！？\n]+")
_ASKING = re.compile(r"[?？]\s*$|[か吗呢嗎][。.?？]?\s*$")

_FITS = 2.5
_ASKS = 0.6
_BASE = 0.25
_SHARE_POWER = 1.7
"""Above one: what holds the whole question in one place beats what holds half of it twice."""
_RECENCY = 0.3
_RECENCY_OF_SAME = 0.25
_NEIGHBOUR = {-1: 0.7, 1: 0.9, 2: 0.56}
_BOTH = 0.3
_LENT_BY_ANSWER = 0.8
_LENT_TO_TOOL = 0.6
_WITH_NEIGHBOURS = 30


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that may be it."""

    message_id: int
    session_id: str
    role: str
    created_at: float
    text: str
    match: float = 0.0
    """By the index, higher is better; 0 for one that only stands beside another."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with what was found in it."""

    candidate: Candidate
    score: float
    held: frozenset[str]
    """The needles in its best place."""
    fits: float
    """The factor for looking like an answer."""
    newer_id: int | None = None
    """The newest that holds the same, if this is not it."""


Near = Mapping[int, Sequence[tuple[int, Candidate]]]
"""By the id of a message: those at -1, +1, +2 from it in its line, with that distance."""


def best_first(
    question: Question,
    candidates: Sequence[Candidate],
    rarity: Mapping[str, float],
    near: Callable[[Sequence[Candidate]], Near],
    limit: int,
) -> list[Ranked]:
    """The best of the candidates and of what stands beside the good ones, ordered.

    ``rarity`` is what each of the question's needles counts; ``near`` finds neighbours.
    """
    ranked = sorted(rank(question, candidates, rarity), key=lambda r: -r.score)
    if question.kinds:
        floor = ranked[limit].score / (1 + _RECENCY) if limit < len(ranked) else 0.0
        sources = [r for r in ranked[:_WITH_NEIGHBOURS] if _lends(r) * _FITS >= floor]
        beside = near([r.candidate for r in sources])
        ranked = _with_neighbours(question, ranked, beside, floor)
    return in_order(_with_age(ranked))[:limit]


def rank(
    question: Question, candidates: Sequence[Candidate], rarity: Mapping[str, float]
) -> list[Ranked]:
    """Weigh each candidate by itself."""
    weights = {t.needle: t.weight * rarity.get(t.needle, 1.0) for t in question.needles}
    whole = sum(weights.values()) or 1.0
    best = max((c.match for c in candidates), default=0.0) or 1.0
    ranked = []
    for candidate in candidates:
        place = _best_place(candidate.text, question, weights)
        match = _BASE + candidate.match / best
        share = (place.share / whole) ** _SHARE_POWER
        score = match * (0.03 + share) * place.fits
        if place.asks and place.fits == 1.0:
            score *= _ASKS
        ranked.append(Ranked(candidate, score, place.held, place.fits))
    return ranked


def _with_neighbours(
    question: Question, ranked: Sequence[Ranked], near: Near, floor: float
) -> list[Ranked]:
    """Let the messages beside good ones take part in their score, if they can be an answer.

    What would stay below ``floor`` even then is not looked at.
    """
    known = {r.candidate.message_id: r for r in ranked}
    lifted = dict(known)
    for message_id, beside in near.items():
        source = known[message_id]
        for offset, candidate in beside:
            own = known.get(candidate.message_id)
            bare = _lends(source) * _NEIGHBOUR[offset]
            if candidate.role == "tool":  # long ones hold a bit of everything
                bare *= _LENT_TO_TOOL
            if bare * _FITS < floor:
                continue
            if own is None:
                fits = _beginning_fits(candidate.text, question)
                own = Ranked(candidate, 0.0, known[message_id].held, fits)
                known[candidate.message_id] = own
            lent = bare * own.fits
            if own.fits <= 1.0 or lent <= own.score:
                continue
            score = lent + _BOTH * own.score
            if score > lifted.get(candidate.message_id, own).score:
                lifted[candidate.message_id] = replace(own, score=score)
    return list(lifted.values())


def _lends(source: Ranked) -> float:
    """What of a score goes to what stands beside it, before its own fit and distance."""
    bare = source.score / source.fits
    return bare * _LENT_BY_ANSWER if source.fits > 1.0 else bare  # it looks like the answer itself


def in_order(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Best first; of equals the newest."""
    return sorted(ranked, key=lambda r: (-r.score, -r.candidate.message_id))


def _with_age(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Newer ones count a little more, and clearly more among those that say the same."""
    by_age = sorted(ranked, key=lambda r: r.candidate.message_id)
    last = max(1, len(by_age) - 1)
    same: dict[frozenset[str], list[Ranked]] = {}
    for one in by_age:
        same.setdefault(one.held, []).append(one)
    place_in_same = {
        one.candidate.message_id: place / max(1, len(group) - 1)
        for group in same.values()
        for place, one in enumerate(group)
    }
    # What only stands beside one that holds it does not hold it.
    newest = {
        held: max((one.candidate.message_id for one in group if one.candidate.match), default=0)
        for held, group in same.items()
        if held
    }
    return [
        replace(
            one,
            score=one.score
            * (1 + _RECENCY * place / last)
            * (1 + _RECENCY_OF_SAME * place_in_same[one.candidate.message_id]),
            newer_id=_newer(one, newest.get(one.held, 0)),
        )
        for place, one in enumerate(by_age)
    ]


def _newer(one: Ranked, newest_id: int) -> int | None:
    return newest_id if newest_id > one.candidate.message_id else None


@dataclass(frozen=True, slots=True)
class _Place:
    share: float
    held: frozenset[str]
    fits: float
    asks: bool


_NOWHERE = _Place(0.0, frozenset(), 1.0, False)


def _best_place(text: str, question: Question, weights: Mapping[str, float]) -> _Place:
    """One sentence, or two that follow one another, that hold most of the question."""
    low, plain = excerpt(text, question.needles)
    hits = [(at, t.needle) for t in question.needles for at in t.places(low)]
    if not hits:
        return _NOWHERE
    ends = [mark.end() for mark in _SENTENCE_END.finditer(low)]
    held: dict[int, set[str]] = {}
    for at, needle in hits:
        held.setdefault(bisect_right(ends, at), set()).add(needle)
    share, best, number = 0.0, set[str](), 0
    for n, here in held.items():
        alone = sum([weights[needle] for needle in here])
        before = held.get(n - 1)
        both = here | before if before else here
        pair = 0.9 * sum([weights[needle] for needle in both]) if before else 0.0
        if max(alone, pair) > share:
            share, best, number = max(alone, pair), here if alone >= pair else both, n
    start = ends[number - 1] if number else 0
    end = ends[number] if number < len(ends) else len(low)
    after = ends[number + 1] if number + 1 < len(ends) else len(low)
    fits = _FITS if _fits(low[start:after], plain[start:after], question) else 1.0
    return _Place(share, frozenset(best), fits, _ASKING.search(low, start, end) is not None)


def _beginning_fits(text: str, question: Question) -> float:
    plain = text[:_BEGINNING_CHARS]
    return _FITS if _fits(folded(plain), plain, question) else 1.0


def _fits(low: str, plain: str, question: Question) -> bool:
    """Can this stretch be an answer? The question's own numbers are none."""
    for number in question.numbers:
        low = low.replace(number, " ")
    return any(kind.fits.search(plain if kind.cased else low) for kind in question.kinds)


def excerpt(text: str, terms: Sequence[Term]) -> tuple[str, str]:
    """The text folded and as it is; of a long one its beginning and where terms stand.

    Both are equally long, so that a place in one is the same place in the other.
    """
    low = folded(text)
    plain = text if len(text) == len(low) else low
    if len(low) <= _TEXT_CHARS:
        return low, plain
    places = sorted({at for term in terms if (at := low.find(term.needle)) >= 0})
    cuts, end, room = [], 0, _TEXT_CHARS
    for at in [0, *places]:
        start = max(end, at - _WINDOW_CHARS // 3)
        if room <= 0 or start >= at + _WINDOW_CHARS:
            continue
        end = at + _WINDOW_CHARS
        cuts.append(slice(start, end))
        room -= end - start
    return "\n".join(low[cut] for cut in cuts), "\n".join(plain[cut] for cut in cuts)


def rarity_among(question: Question, texts: Sequence[str]) -> dict[str, float]:
    """What each needle counts where there is no index to ask: by how few of the texts hold it."""
    lowered = [folded(text) for text in texts]
    return {
        t.needle: rarity_of(sum(t.is_in(text) for text in lowered), len(lowered))
        for t in question.needles
    }


def rarity_of(holding: int, all_texts: int) -> float:
    """What a needle counts that so many of all texts hold."""
    return math.log(1 + all_texts / (1 + holding))
