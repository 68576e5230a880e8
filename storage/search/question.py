"""Owns a question (pure): the terms to look for in it, and the kinds of answers it may want."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from operator import add

from storage.search.answer_types import AnswerType, kinds_asked
from storage.segment import CJK_RUN, WORD, folded

_QUERY_CHARS = 2_000
_QUERY_TERMS = 64
_PLACES = 40
_SHORT = 4
"""Words up to this length count at the beginning of a word only: ``art`` is not in ``part``."""

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about again all also am an and any are as at be been but by can could did do does doing
        done for from get got had has have he her here him his how i if in into is it its just
        know let like many me much my no not now of off ok on or our out please really remind said
        say she should so some tell than that the their them then there these they thing this those
        to told too up us was we were what when where which while who whom whose why will with
        would you your yours
        don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn ain
        s t re ll ve d m
        """,
    )
)
_CJK_STOPS = re.compile(
    "为什么|為什麼|什么时候|什么|什麼|怎么样|怎么|怎麼|怎样|如何|多少|哪里|哪裡|哪儿|哪个|哪個|哪些|哪天"
    "|是不是|有没有|能不能|可不可以|我们|我們|你们|他们|她们|咱们|这个|那个|这些|那些|这里|那里|可以|一下"
    "|告诉|请问|记得|还有|还是|或者|以及|关于|几点|几号|时候"
    "|的|了|是|吗|嗎|呢|吧|啊|在|和|与|跟|我|你|您|他|她|它|这|那|就|都|也|很|把|被|给|请|哪|谁|誰|几|要|有|没|说"
    "|何時|何日|何曜日?|何番|何月|何年|何分|何人|何個|何色|何|教えて|[\u3040-\u309f]+"
)
_PHRASE = re.compile(
    '"([^"\n]{2,200})"|“([^”\n]{2,200})”|「([^」\n]{2,200})」|『([^』\n]{2,200})』|`([^`\n]{2,200})`'
)
_IDENTIFIER = re.compile(r"(?<![a-z0-9_])[~./\\-]*[a-z0-9_]+(?:[._/\\:@#~+=&%?-]+[a-z0-9_]+)+")
_IDENTIFYING = re.compile(r"[0-9_./\\:@#]|^-")


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for."""

    match: str
    """As FTS5 takes it, quoted."""
    needle: str
    """As it is found in a folded text: a word without its ending."""
    weight: float = 1.0
    """Beside how rare it is."""
    begins: re.Pattern[str] | None = None
    """For a short or a numeric needle: where it does not stand inside of something longer."""

    def is_in(self, text: str) -> bool:
        """Does a folded text hold it?"""
        if self.needle not in text:
            return False
        return self.begins is None or self.begins.search(text) is not None

    def places(self, text: str) -> list[int]:
        """Where it stands in a folded text: the first places, as many as can matter."""
        at = text.find(self.needle)
        if at < 0 or not self.needle:
            return []
        if self.begins is not None:
            return [m.start() for m in islice(self.begins.finditer(text, at), _PLACES)]
        found: list[int] = []
        while at >= 0 and len(found) < _PLACES:
            found.append(at)
            at = text.find(self.needle, at + len(self.needle))
        return found


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody typed, read."""

    terms: tuple[Term, ...]
    """Empty: there is nothing in it that an index can hold."""
    kinds: tuple[AnswerType, ...]
    text: str
    """Folded and without blanks around."""
    numbers: tuple[str, ...]
    """The needles with a digit in them."""

    @property
    def needles(self) -> tuple[Term, ...]:
        """What to look for in texts; never empty."""
        return self.terms or (Term("", self.text),)


def read_question(query: str) -> Question:
    """Whatever is typed is a question: operators, quotes and emoji are nothing special."""
    text = folded(query[:_QUERY_CHARS]).strip()
    exact = [*_phrases(text), *_identifiers(text)]
    terms = [*exact, *_words(text), *_cjk(text)]
    if not terms:
        terms = [*_words(text, stops=frozenset()), *_runs(CJK_RUN.findall(text))]
    unique = {term.match: term for term in reversed(terms)}
    asked = tuple(reversed(unique.values()))[:_QUERY_TERMS]
    needles = [term.needle for term in asked] or [text]
    numbers = tuple(needle for needle in needles if any(ch.isdigit() for ch in needle))
    return Question(asked, kinds_asked(text), text, numbers)


def _phrases(text: str) -> list[Term]:
    """What stands in quotes, where it is more than one word."""
    found = ("".join(match.groups("")) for match in _PHRASE.finditer(text))
    return [
        Term(_phrase(phrase), phrase.strip(), weight=3.0)
        for phrase in found
        if len(WORD.findall(phrase)) + len(CJK_RUN.findall(phrase)) > 1 or CJK_RUN.fullmatch(phrase)
    ]


def _identifiers(text: str) -> list[Term]:
    """Names with punctuation inside: paths, versions, ``a_b.c``, addresses."""
    found = (name.rstrip("?=&%-") for name in _IDENTIFIER.findall(text))
    return [Term(_phrase(name), name, weight=2.0) for name in found if _IDENTIFYING.search(name)]


def _phrase(text: str) -> str:
    """The words as they follow one another in the index; the last one may go on there."""
    pieces: list[str] = []
    for run in re.finditer(f"{CJK_RUN.pattern}|{WORD.pattern}", text):
        piece = run[0]
        if CJK_RUN.fullmatch(piece) and len(piece) > 1:
            pieces.extend(map(add, piece, piece[1:]))
            if run.end() < len(text):
                pieces.append(piece[-1])
        else:
            pieces.append(piece)
    return f'"{" ".join(pieces)}"*'


def _words(text: str, *, stops: frozenset[str] = _STOP_WORDS) -> list[Term]:
    words = (word for word in WORD.findall(text) if any(ch.isalnum() for ch in word))
    return [_word(word) for word in words if word not in stops]


def _word(word: str) -> Term:
    """An English word is compared without its ending; a number or code only whole."""
    if any(ch.isdigit() for ch in word):
        whole = re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])")
        return Term(f'"{word}"', word, begins=whole)
    needle = word[: max(_SHORT, len(word) - 3)] if word.isascii() else word
    if len(needle) > _SHORT or not word.isascii():
        return Term(f'"{word}"', needle)
    return Term(f'"{word}"', needle, begins=re.compile(rf"(?<![a-z]){re.escape(needle)}"))


def _cjk(text: str) -> list[Term]:
    """The pieces between function words."""
    pieces = (piece for run in CJK_RUN.findall(text) for piece in _CJK_STOPS.split(run))
    return _runs([piece for piece in pieces if piece])


def _runs(pieces: list[str]) -> list[Term]:
    terms: list[Term] = []
    for piece in pieces:
        if len(piece) == 1:
            terms.append(Term(f'"{piece}"*', piece))
        terms.extend(Term(f'"{pair}"', pair) for pair in map(add, piece, piece[1:]))
    return terms
