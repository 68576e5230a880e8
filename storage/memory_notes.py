"""Owns notes in memory, for the in-memory store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.memory.notes import Note, Written, decided
from storage.codec import clean


class MemoryNotes:
    """The counterpart of `storage.notes`."""

    def __init__(self, now: Callable[[], float], today: Callable[[str], str]) -> None:
        """``today``: a session key as it is by now."""
        self._now = now
        self._today = today
        self._notes: dict[str, dict[int, Note]] = {}
        self._last: dict[str, int] = {}

    def notes(self, place: str) -> tuple[Note, ...]:
        return self._at(self._today(clean(place)))

    def _at(self, place: str) -> tuple[Note, ...]:
        return tuple(note for _, note in sorted(self._notes.get(place, {}).items()))

    def remember_note(
        self, place: str, owner: str, text: str, *, replaces: int | None = None
    ) -> Written:
        place = self._today(clean(place))
        number = self._last.get(place, 0) + 1
        written = decided(self._at(place), clean(owner), text, replaces, self._now(), number)
        if not written.known:
            if written.replaced is None:
                self._last[place] = number
            self._notes.setdefault(place, {})[written.note.number] = written.note
        return written

    def forget_note(self, place: str, number: int) -> Note | None:
        return self._notes.get(self._today(clean(place)), {}).pop(number, None)

    def count_of(self, owner: str) -> int:
        """How many are this person's, or were told in private."""
        return sum(
            place == owner or note.owner == owner
            for place, notes in self._notes.items()
            for note in notes.values()
        )

    def places_of(self, owner: str) -> set[str]:
        """Where this person has had something remembered."""
        return {
            place
            for place, notes in self._notes.items()
            if any(note.owner == owner for note in notes.values())
        }

    def forget_person(self, owner: str) -> None:
        """Take away all of those."""
        self._last.pop(owner, None)
        self._notes.pop(owner, None)
        for notes in self._notes.values():
            for number in [n for n, note in notes.items() if note.owner == owner]:
                del notes[number]

    def places(self) -> set[str]:
        return set(self._last)

    def move(self, moved: Mapping[str, str]) -> None:
        """Chats have got other ids: their notes follow, behind those that are there already."""
        for old_place, place in moved.items():
            moving, last = self._at(old_place), self._last.pop(old_place, 0)
            self._notes.pop(old_place, None)
            if not last:
                continue
            number = self._last.get(place, 0)
            alone = number == 0
            for note in moving:
                number = note.number if alone else number + 1
                self._notes.setdefault(place, {})[number] = replace(note, number=number)
            self._last[place] = last if alone else number
