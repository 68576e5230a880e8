"""Owns reading a time from a text: the whole of it, or what stands beside a text (pure).

A time stands first or last. What is found is never a guess: where words could belong to the time or
to the text, or say half of a time, the answer is a question.
"""

from __future__ import annotations

import re

from agent.jobs.nouns import as_name
from agent.jobs.words.meaning import meaning
from agent.jobs.words.nouns import Meant, Split, TimeUnclear
from agent.jobs.words.patterns import MARKS, narrowed
from agent.jobs.words.slots import Reach, Slots, reach
from agent.messages import is_blank

MAX_WHEN_CHARS = 200
"""A time is short."""
MAX_ARGUMENT_CHARS = 8_000
_LAST_CHARS = 120
"""A time at the end of a text begins within so many."""
_LOOKED_THROUGH_CHARS = 400
"""For a time in the middle, which is only looked for to help."""
EXAMPLES = "“tomorrow at 9:00”, “in 20 minutes”, “every weekday at 8:00”"
_ME = re.compile(
    r"(?:(?:remind|erinnere?)\s+)?(?:me|us|mich|uns)\s+(?=\S)|(?:提醒)?我\s*(?=\S)", re.IGNORECASE
)
_SEPARATOR = re.compile(r"[ \t]*(?:[:;,]|[-–—](?=\s))\s*")
"""On the same line: a dash that begins the next one is a list's."""
_TO = re.compile(r"to\s+(?!do\b)(?=\S)", re.IGNORECASE)
_AND = re.compile(r"(?:and|und|or|oder|和)?\s*", re.IGNORECASE)
_MORE_HOURS = re.compile(
    r"(?:,\s*(?=\d{1,2}\s*(?:,\s*\d|and\b|und\b))|(?:and|und)\s+)"
    r"(?:[01]?\d|2[0-4])(?![\d/.:]\d|\w)",
    re.IGNORECASE,
)
"""Behind an hour: "and 17", or ", 12 and 18"."""
_END_OF_REPEAT = re.compile(r"(?:until|till|starting|except|bis|außer|直到)\b", re.IGNORECASE)
_WORD_BEGINS = re.compile(r"(?<![^\W\u3400-\u9fff])(?=\S)|(?=[\u3400-\u9fff])")


def read_when(text: str, now: float, zone: str) -> Meant:
    """The schedule that a text means; all of the text is the time.

    Raises:
        TimeUnclear: it is none, or could be two; the text asks back.
    """
    if len(text) > MAX_WHEN_CHARS:
        raise TimeUnclear(f"That is too long for a time. Say, for example, {EXAMPLES}.")
    plain = narrowed(text)
    begin = len(plain) - len(plain.lstrip())
    found = reach(plain, begin)
    rest = plain[found.end :].strip(" .!?")
    if found.slots.is_empty:
        raise TimeUnclear(_no_time(text))
    if rest:
        raise TimeUnclear(
            f"I understand “{plain[begin : found.end].strip()}”, but not “{_short(rest)}” behind "
            f"it. Say, for example, {EXAMPLES}."
        )
    return meaning(found.slots, now, zone)


def split(argument: str, now: float, zone: str) -> Split:
    """The time that stands first or last in a text, and the rest, word for word.

    Raises:
        TimeUnclear: there is none, no text is left, or it could be read in two ways.
    """
    argument = argument.strip().strip(MARKS).strip()
    if len(argument) > MAX_ARGUMENT_CHARS:
        raise TimeUnclear("That is too long. Say it in fewer words.")
    me = _ME.match(argument)
    body = argument[me.end() :] if me else argument
    plain = narrowed(body)
    first = reach(plain[:MAX_WHEN_CHARS], 0)
    if not first.slots.is_empty and _is_time(first.slots):
        return _first(body, plain, first, now, zone)
    last = _last(plain)
    if last is not None:
        text = body[: last.begin].rstrip().rstrip(",;").rstrip()
        if to := _TO.match(text):
            text = text[to.end() :]
        return Split(meaning(last.slots, now, zone), _said(text))
    inside = _inside(plain, now, zone)
    if inside is not None:
        time, rest = inside
        raise TimeUnclear(
            f"I found “{time}” in the middle. Put the time first, and a colon behind it: "
            f"“{time}: {_short(rest)}”."
        )
    raise TimeUnclear(_no_time(argument))


def _first(body: str, plain: str, found: Reach, now: float, zone: str) -> Split:
    """The time stands first."""
    behind = plain[found.end :].strip()
    if found.slots.clock and _MORE_HOURS.match(behind):
        time = plain[: found.end].strip()
        raise TimeUnclear(
            f"One time of day each, please: I read “{time}”, and then “{_short(behind)}”. If that "
            f"belongs to the text, put a colon before it: “{time}: {_short(behind)}”."
        )
    separator = _SEPARATOR.match(body, found.end)
    text = body[separator.end() if separator else found.end :].strip()
    if not separator:
        _check_beside(plain[found.end :].strip(), found, plain)
        if to := _TO.match(text):
            text = text[to.end() :]
    meant = meaning(found.slots, now, zone)
    return Split(meant, _said(text))


def _check_beside(rest: str, found: Reach, plain: str) -> None:
    """Does what follows belong to the time? Then it is not taken for text.

    Raises:
        TimeUnclear: it may.
    """
    slots, time = found.slots, plain[: found.end].strip()
    if slots.after and slots.after.bare:
        raise TimeUnclear(
            f"Do you mean in {time}? Then say “in {time} {_short(rest)}”; with a time of day, "
            f"“tomorrow at 9:00: {_short(f'{time} {rest}')}”."
        )
    if (slots.repeat or slots.cron) and _END_OF_REPEAT.match(rest):
        raise TimeUnclear(
            "I can not begin or end a repeat by a date: /jobs cancels it any time. If those words "
            f"belong to the text, put a colon behind the time: “{time}: {_short(rest)}”."
        )
    joint = _AND.match(rest)
    begin = joint.end() if joint else 0
    next_to_it = reach(rest[:MAX_WHEN_CHARS], begin)
    if not next_to_it.slots.is_empty and _is_time(next_to_it.slots):
        more = rest[begin : next_to_it.end].strip()
        raise TimeUnclear(
            f"I read “{time}”, and then “{more}”. One time each, please; if that belongs to the "
            f"text, put a colon before it: “{time}: {_short(rest)}”."
        )
    is_vague = slots.clock is None and slots.after is None and not slots.cron and not slots.instant
    if slots.has_day and not is_vague:
        return
    last = _last(rest)
    if last is not None and (is_vague or last.slots.has_day):
        late = rest[last.begin :].strip(" .!?")
        raise TimeUnclear(
            f"There are two times in that: “{time}” and “{late}”. Put the whole time first, and a "
            f"colon behind it if the rest is the text: “{time}: {_short(rest)}”."
        )


def _last(plain: str) -> Reach | None:
    """The longest time that ends where the text ends."""
    end = len(plain.rstrip(" .!?"))
    for match in _WORD_BEGINS.finditer(plain, max(0, end - _LAST_CHARS), end):
        try:
            found = reach(plain, match.start())
        except TimeUnclear:
            if match.start() and not _is_near(plain, match.start(), end):
                continue
            raise
        if found.end == end and not found.slots.is_empty and _is_time(found.slots):
            return found
    return None


def _is_near(plain: str, begin: int, end: int) -> bool:
    """Does an unreadable time stand at the end?"""
    return end - begin < 24


def _inside(plain: str, now: float, zone: str) -> tuple[str, str] | None:
    """A time in the middle, and the text around it."""
    best: Reach | None = None
    for match in list(_WORD_BEGINS.finditer(plain[:_LOOKED_THROUGH_CHARS])):
        try:
            found = reach(plain[: _LOOKED_THROUGH_CHARS + _LAST_CHARS], match.start())
            strong = found.slots.has_hour and found.slots.has_day
            if strong:
                meaning(found.slots, now, zone)
        except TimeUnclear:
            continue
        if strong and (best is None or found.end - found.begin > best.end - best.begin):
            best = found
    if best is None:
        return None
    around = f"{plain[: best.begin].strip()} {plain[best.end :].strip()}"
    return plain[best.begin : best.end].strip(), around


def _is_time(slots: Slots) -> bool:
    """Enough of one to be meant as one: "morning" alone is a word."""
    if slots.part and not (slots.clock or slots.day or slots.repeat or slots.after):
        return slots.part.clear
    return True


def _said(text: str) -> str:
    if is_blank(text):
        raise TimeUnclear("And what shall I say then? Put it behind the time.")
    return text


def _no_time(text: str) -> str:
    return f"I find no time in “{_short(text)}” that I understand. Say, for example, {EXAMPLES}."


def _short(text: str) -> str:
    """As it can be said back: on one line, and nothing in it that turns the rest around."""
    return as_name(text)
