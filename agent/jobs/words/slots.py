"""Owns which pieces make one time together, read on from a place in a text (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agent.jobs.words import clocks, dates, whiles
from agent.jobs.words.nouns import (
    After,
    Clock,
    Cron,
    Date,
    Day,
    DayPart,
    Found,
    Instant,
    MonthDay,
    Piece,
    Repeat,
    Weekday,
    Zone,
)
from agent.jobs.words.patterns import is_chinese

_NOTHING_MORE = re.compile(r"\s*(?:$|[:;,.!?])")
_GAP = re.compile(r"\s*,?\s*")


@dataclass(frozen=True, slots=True)
class Slots:
    """The pieces of one time."""

    instant: Instant | None = None
    cron: Cron | None = None
    after: After | None = None
    repeat: Repeat | None = None
    day: Day | Weekday | Date | MonthDay | None = None
    clock: Clock | None = None
    part: DayPart | None = None
    zone: Zone | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is known."""
        return self == Slots()

    @property
    def has_day(self) -> bool:
        """Is it said on which day, or days?"""
        return any((self.instant, self.cron, self.after, self.repeat, self.day))

    @property
    def has_hour(self) -> bool:
        """Is it said when on a day, or after which while?"""
        day, repeat = self.day, self.repeat
        return bool(
            self.instant or self.cron or self.after or self.clock or self.part
            or (isinstance(day, Day) and day.part)
            or (repeat and (repeat.seconds or repeat.part))
        )  # fmt: skip

    def with_piece(self, piece: Piece) -> Slots | None:
        """With one more; None: it does not belong to these."""
        is_fixed = self.instant or self.cron
        match piece:
            case Zone():
                fits = not self.zone and (self.clock or self.cron or self.instant)
                return replace(self, zone=piece) if fits else None
            case _ if is_fixed:
                return None
            case Instant():
                return replace(self, instant=piece) if self.is_empty else None
            case Cron():
                return replace(self, cron=piece) if self.is_empty else None
            case After():
                return replace(self, after=piece) if self.is_empty else None
            case Repeat():
                return replace(self, repeat=piece) if self._takes_repeat(piece) else None
            case Day() | Weekday() | Date() | MonthDay():
                return self._with_day(piece)
            case Clock():
                if self.clock or (piece.part and self.part) or not self._takes_clock():
                    return None
                return replace(self, clock=piece)
            case DayPart():
                said = self.part or (self.clock and self.clock.part)
                stands = piece.clear or not self.is_empty
                if said or not stands or not self._takes_clock():
                    return None
                return replace(self, part=piece)

    def _takes_repeat(self, piece: Repeat) -> bool:
        if self.after or self.repeat:
            return False
        if isinstance(self.day, MonthDay):
            return piece.unit == "month"
        if self.day:
            unit = {Weekday: "week", Date: "year"}.get(type(self.day))
            return bool(unit) and piece.unit == unit
        return not (piece.seconds and (self.clock or self.part))

    def _with_day(self, piece: Day | Weekday | Date | MonthDay) -> Slots | None:
        if self.day or self.after:
            return None
        if self.repeat is None:
            return replace(self, day=piece)
        match piece, self.repeat.unit:
            case (Weekday(which="coming"), "week") | (MonthDay(), "month"):
                return replace(self, day=piece)
            case (Date(year=None), "year"):
                return replace(self, day=piece)
            case _:
                return None

    def _takes_clock(self) -> bool:
        """A period has no hour, nor has a while in minutes."""
        if self.after:
            return not self.after.seconds and not self.after.bare
        return not (self.repeat and self.repeat.seconds)


@dataclass(frozen=True, slots=True)
class Reach:
    """A time read from a place in a text, and where it ends."""

    slots: Slots
    begin: int
    end: int


def reach(text: str, begin: int) -> Reach:
    """As many pieces as make one time from here on.

    Raises:
        TimeUnclear: one of them is none.
    """
    slots, end = Slots(), begin
    while (more := _one_more(text, slots, end)) is not None:
        slots, end = more
    return Reach(slots, begin, end)


def _one_more(text: str, slots: Slots, end: int) -> tuple[Slots, int] | None:
    gap = _GAP.match(text, end)
    at = gap.end() if gap and not slots.is_empty else end
    if end > 0 and at == end and _goes_on(text, at):
        return None
    for found in pieces(text, at, slots):
        piece = found.piece
        if isinstance(piece, Weekday) and piece.short and not _hour_next(text, found.end, slots):
            continue
        wider = slots.with_piece(piece)
        if wider is not None:
            return wider, found.end
    return None


def _goes_on(text: str, at: int) -> bool:
    """In the middle of a word: "8h" ends before no letter."""
    before, here = text[at - 1], text[at : at + 1]
    return bool(here) and _is_letter(before) and _is_letter(here)


def _is_letter(char: str) -> bool:
    return (char.isalnum() or char == "_") and not is_chinese(char)


def _hour_next(text: str, at: int, slots: Slots) -> bool:
    """A short name such as "sat" is a day where a time of day stands beside it."""
    if slots.clock:  # "9:00 sun", and no "9:00 sun protection"
        return _NOTHING_MORE.match(text, at) is not None
    gap = _GAP.match(text, at)
    place = gap.end() if gap else at
    return clocks.clock(text, place) is not None or clocks.part(text, place) is not None


def pieces(text: str, at: int, slots: Slots) -> Iterator[Found]:
    """What can be read here, the most telling first."""
    if at >= len(text):
        return
    readers = [
        whiles.cron, dates.instant, whiles.repeat, whiles.after, dates.day, clocks.clock,
        clocks.part,
    ]  # fmt: skip
    if isinstance(slots.day, MonthDay):
        readers.insert(0, whiles.of_every_month)
    if slots.clock or slots.cron or slots.instant:
        readers.append(clocks.zone)
    for read in readers:
        found = read(text, at)
        if found is not None:
            yield found
