"""Owns how a question before a deed reads: what exactly, whole, nothing in it that acts. Pure.

What is asked about may be any text at all, written to be misread. It is shown in blocks whose end
it can not forge, with every character spelled out that could hide, turn or mislead; no two texts
look the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from agent.approvals import Proposal
from agent.messages import is_blank

APPROVE, DENY, SHOW_ALL = "Approve", "Deny", "Show all"
APPROVED = "Approved; I do it now."
DENIED = "Denied; I leave it."
APPROVED_ALREADY = "That was approved already, so I am at it or have done it."
DENIED_ALREADY = "That was denied already, so I have left it."
EXPIRED = "That question is over: nobody answered in time, so I have left it. Just ask me again."
WITHDRAWN = "That question is over: what I was at has ended, so I have left it. Just ask me again."
OVER = (
    "That question is over, and nothing was done by your answer. If you still want it, just ask me "
    "again."
)
"""One that nobody knows any more, mostly for a restart."""
NOTHING_OPEN = "I am not waiting for an approval here."
NOT_YOURS = (
    "That question is for whoever asked me (or for an admin, where a group shares one talk)."
)
USAGE = (
    "/approve says yes to what I have asked, /deny no. With the id in the question "
    "(/approve 3f9akx) it is certain which one is meant; /approve 3f9akx show lists all of it."
)
WAITS_FOR_ANSWER = (
    "I wait for an answer to my question above: /approve or /deny. Your message is in the queue "
    "and comes after that."
)

SHOWN_CHARS = 1_000
"""Of all that is asked about, in the question itself: with its words it fits into one message
of every platform."""
_LOOSE = re.compile(
    r"\\(?=u\{[0-9A-F]{1,6}\})"  # what would read like a spelled one
    r"|`{3,}"  # the end of the block
    r"|(?<=\n\n)\n+|\n+\Z"  # lines that push the rest away, or go lost at the end
    r"|(?<= {16}) +| +(?=\n|\Z)"  # the same in one line
    r"|[^\n\x20-\x7e]+"
)
_SPELLED_END = re.compile(r"\\u\{?[0-9A-F]{0,6}\Z")
_SPELLED_START = re.compile(r"\A(?:u?\{)?[0-9A-F]{0,6}\}")
_WORD = re.compile(r"\w+")
_RIGHT_TO_LEFT = ("R", "AL", "AN")
_ACTING = ("Cc", "Cf", "Cn", "Co", "Cs", "Me", "Zl", "Zp", "Zs")
_MOST_MARKS = 2
"""On one letter, as some scripts need them."""


def visible(text: str) -> str:
    """The text with each character spelled out that might not look like what it is."""
    return "\n".join(map(_line, _LOOSE.sub(_spell_unless_letters, text).split("\n")))


def _spell_unless_letters(match: re.Match[str]) -> str:
    found = match[0]
    return found if found[0] > "~" else _spelled(found)


def _line(line: str) -> str:
    """One line: whether a letter may mislead depends on those around it."""
    if line.isascii():
        return _CONTROL.sub(lambda m: _spelled(m[0]), line)
    latin = any("a" <= ch <= "z" for ch in line.lower())
    shown = _letters(line, latin=latin)
    # What is spelled is Latin as well, and would be moved about by its neighbours.
    return shown if latin or "\\u{" not in shown else _letters(line, latin=True)


def _letters(line: str, *, latin: bool) -> str:
    mixed = {
        at
        for word in _WORD.finditer(line)
        if any(ch.isascii() and ch.isalpha() for ch in word[0])
        for at in range(word.start(), word.end())
    }
    shown: list[str] = []
    marks = 0
    for at, ch in enumerate(line):
        marks = marks + 1 if unicodedata.category(ch) in ("Mn", "Mc") else 0
        if ch.isascii():
            plain = ch >= " " and ch != "\x7f"
        elif marks:
            plain = marks <= _MOST_MARKS and at >= marks and not line[at - marks].isascii()
            plain = plain and line[at - marks].isalpha()
        else:
            plain = _shows_as_itself(ch) and not (latin and _turns(ch))
            plain = plain and not (at in mixed and _may_pass_for_latin(ch))
        shown.append(ch if plain else _spelled(ch))
    return "".join(shown)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@lru_cache(4096)
def _shows_as_itself(ch: str) -> bool:
    if unicodedata.category(ch) in _ACTING or is_blank(ch) or not ch.isprintable():
        return False
    like = unicodedata.normalize("NFKC", ch)
    return not (like != ch and like.isascii() and like.isalnum())


def _turns(ch: str) -> bool:
    return unicodedata.bidirectional(ch) in _RIGHT_TO_LEFT


@lru_cache(4096)
def _may_pass_for_latin(ch: str) -> bool:
    """In the middle of Latin letters: those of a related script. Accents are no disguise."""
    return ch.isalpha() and not unicodedata.name(ch, "").startswith(
        ("LATIN SMALL LETTER", "LATIN CAPITAL LETTER", "CJK", "HIRAGANA", "KATAKANA", "HANGUL")
    )


def _spelled(text: str) -> str:
    return "".join(f"\\u{{{ord(ch):X}}}" for ch in text)


def question(proposal: Proposal, question_id: str, minutes: int, *, shared: bool = False) -> str:
    """What a person reads before anything is done. ``shared``: others read it as well."""
    blocks, cut = _blocks(proposal, SHOWN_CHARS)
    lines = [f"May I {proposal.deed}?", *blocks]
    if cut:
        lines.append(f"/approve {question_id} show: all of it (SHA-256 {proposal.digest}…).")
    lines += [*_note(proposal), f"/approve {question_id} or /deny {question_id} [why]."]
    if shared:
        lines.append("That is for whoever asked me, or an admin.")
    lines.append(f"Without an answer in {minutes} minutes I leave it.")
    return "\n".join(lines)


def which(ids: Sequence[str]) -> str:
    """It is not certain which question is meant."""
    return "To be certain which question you mean: " + " or ".join(f"/approve {i}" for i in ids)


def expired(deed: str, minutes: int) -> str:
    """Nobody has answered; maybe nobody has even seen the question."""
    return (
        f"I asked whether I may {deed}, and nobody answered within {minutes} minutes, so I have "
        "left it. If you still want it, just ask me again."
    )


def whole(proposal: Proposal, question_id: str) -> str:
    """All that the question is about."""
    blocks, _ = _blocks(proposal, None)
    head = f"All of question {question_id} (SHA-256 {proposal.digest}…): may I {proposal.deed}?"
    answer = f"/approve {question_id} or /deny {question_id} [why]."
    return "\n".join([head, *blocks, *_note(proposal), answer])


def fits(proposal: Proposal) -> bool:
    """Does the question itself show all of it?"""
    return sum(len(visible(text)) for _, text in proposal.shown) <= SHOWN_CHARS


def _note(proposal: Proposal) -> list[str]:
    if all(visible(text) == text for _, text in proposal.shown):
        return []
    return ["`\\u{…}` spells a character that would not show, or could mislead."]


def _blocks(proposal: Proposal, room: int | None) -> tuple[list[str], bool]:
    """The texts in blocks; True: something is left out."""
    texts = [visible(text) for _, text in proposal.shown]
    rooms = [len(text) for text in texts] if room is None else _shares(texts, room)
    lines: list[str] = []
    for (heading, _), text, share in zip(proposal.shown, texts, rooms, strict=True):
        if not text:
            lines.append(f"{heading or 'What'}: nothing at all")
            continue
        if heading:
            lines.append(f"{heading}:")
        lines += _block(text, share)
    return lines, any(len(text) > share for text, share in zip(texts, rooms, strict=True))


def _shares(texts: Sequence[str], room: int) -> list[int]:
    """How much of each is shown: short ones whole, and what they leave goes to the long ones."""
    shares = [0] * len(texts)
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for n, i in enumerate(by_length):
        shares[i] = min(len(texts[i]), room // (len(texts) - n))
        room -= shares[i]
    return shares


def _block(text: str, share: int) -> list[str]:
    """A text within its share: both of its ends, and between them, outside, how much is missing."""
    if len(text) <= share:
        return ["```", text, "```"]
    head, tail = text[: share * 3 // 5], text[len(text) - share * 2 // 5 :]
    head = _SPELLED_END.sub("", head)  # not half of a spelled one
    if (half := _SPELLED_START.match(tail)) and _is_spelled_at(text, len(text) - len(tail)):
        tail = tail[half.end() :]
    missing = len(text) - len(head) - len(tail)
    return ["```", head, "```", f"… {missing:,} characters left out …", "```", tail, "```"]


def _is_spelled_at(text: str, at: int) -> bool:
    """Does this place lie within a spelled character?"""
    return any(m.start() < at < m.end() for m in _SPELLED_WHOLE.finditer(text, max(0, at - 10)))


_SPELLED_WHOLE = re.compile(r"\\u\{[0-9A-F]{1,6}\}")
