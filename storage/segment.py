"""Owns text for the search (pure): what is indexed, in which pieces, and how a question is asked.

An index word is what ``unicode61`` makes of the text, except that a run of Chinese, Japanese or
Korean characters, which has no blanks, is cut into all its pairs and its last character: words of
two characters are then one index word, and one character is the beginning of some index word.
Changing this is a new `SEGMENTER` version: the index has to be rebuilt.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from agent.messages import Message, MessageKind, arguments_of, text_of

SEGMENTER = "1"
INDEXED_ROLES = ("user", "assistant", "tool")
_TOOL_CHARS = 8_000
_TEXT_CHARS = 100_000
_QUERY_CHARS = 2_000
_QUERY_TERMS = 40
_CANDIDATE_CHARS = 6_000
SNIPPET_CHARS = 200

_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(r"[^\s\x00-/:-@\[-`{-\xbf\u2000-\u206f\u3000-\u303f\uff00-\uff0f" + _CJK + "]+")
"""What neither blanks, control characters, punctuation nor CJK part."""
_SENTENCE_END = re.compile(r"[.!?。！？\n]+")

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about am an and are as at be been but by can could did do does for from had has have he
        her him his how i if in into is it its just me my no not of on or our she should so some
        than that the their them then there these they this those to up us was we were what when
        where which who whom why will with would you your
        """,
    )
)
_CJK_STOPS = re.compile(
    "什么|怎么|怎样|为什么|多少|哪里|哪个|哪些|是不是|有没有|我们|你们|他们|这个|那个|可以|一下"
    "|的|了|是|吗|呢|吧|在|和|与|我|你|他|她|它|这|那|就|都|也|很|把|被|给|请|哪"
    "|[\u3040-\u309f]+|何時|何日|何曜|何|誰"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for."""

    match: str
    """As FTS5 takes it, quoted."""
    needle: str
    """As it is found in a lower-case text: a word without its ending."""


def indexable_text(message: Message, kind: MessageKind | None, origin_id: int | None) -> str | None:
    """What of this message is searched, or None: only what somebody said, and only the original.

    What a call was given counts as said: a command or a file name often stands nowhere else.
    """
    if kind is not None or origin_id is not None or message["role"] not in INDEXED_ROLES:
        return None
    content = message["content"]
    text = content if isinstance(content, str) else text_of(content)
    if calls := message.get("tool_calls"):
        given = (leaf for call in calls for leaf in _leaves(arguments_of(call)))
        text = "\n".join((text, *given)).strip()
    if not text or text.isspace():
        return None
    limit = _TOOL_CHARS if message["role"] == "tool" else _TEXT_CHARS
    return text if len(text) <= limit else text[: limit // 2] + "\n" + text[-limit // 2 :]


def _leaves(tree: object) -> list[str]:
    """The values of a JSON tree as texts, in order: no escapes, no names of fields."""
    found: list[str] = []
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case dict() as fields:
                waiting.extend(reversed(fields.values()))
            case list() as items:
                waiting.extend(reversed(items))
            case None | bool():
                pass
            case value:
                found.append(str(value))
    return found


def segmented(text: str) -> str:
    """The text as it goes into the index."""
    return text if text.isascii() else _CJK_RUN.sub(_pairs, text)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(map(add, run, run[1:]))} {run[-1]} "


def query_terms(query: str) -> list[Term]:
    """The terms of a question; empty only if there is nothing in it that an index can hold."""
    text = query[:_QUERY_CHARS].lower()
    words = [word for word in _WORD.findall(text) if any(ch.isalnum() for ch in word)]
    runs = _CJK_RUN.findall(text)
    telling = [word for word in words if word not in _STOP_WORDS]
    pieces = [piece for run in runs for piece in _CJK_STOPS.split(run) if piece]
    if not telling and not pieces:
        telling, pieces = words, runs
    terms = [Term(f'"{word}"', word[: max(4, len(word) - 3)]) for word in telling]
    for piece in pieces:
        if len(piece) == 1:
            terms.append(Term(f'"{piece}"*', piece))
        terms.extend(Term(f'"{pair}"', pair) for pair in map(add, piece, piece[1:]))
    return list(dict.fromkeys(terms))[:_QUERY_TERMS]


def weigh(texts: Sequence[str], terms: Sequence[Term]) -> list[float]:
    """How well each text holds the terms close together, 0 to 1.

    It tells the message that says it from the long one that holds every word somewhere. A term
    counts by how rare it is among these texts.
    """
    lowered = [text[:_CANDIDATE_CHARS].lower() for text in texts]
    weights = {
        term.needle: math.log(1 + len(texts) / (1 + sum(term.needle in text for text in lowered)))
        for term in terms
    }
    whole = sum(weights.values()) or 1.0
    return [_best_share(text, weights) / whole for text in lowered]


def _best_share(text: str, weights: dict[str, float]) -> float:
    best, before = 0.0, frozenset[str]()
    for sentence in _SENTENCE_END.split(text):
        here = frozenset(needle for needle in weights if needle in sentence)
        alone = sum(weights[needle] for needle in here)
        pair = 0.9 * sum(weights[needle] for needle in here | before)
        best, before = max(best, alone, pair), here
    return best


def snippet(text: str, terms: Sequence[Term]) -> str:
    """About `SNIPPET_CHARS` of the text around its first hit, never inside a visible character."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals change their length
        lowered = text
    places = [place for term in terms if (place := lowered.find(term.needle)) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_CHARS // 4)
    end = min(len(text), start + SNIPPET_CHARS)
    start, end = _visible_border(text, start), _visible_border(text, end)
    cut = " ".join(text[start:end].split())
    return ("…" if start > 0 else "") + cut + ("…" if end < len(text) else "")


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
