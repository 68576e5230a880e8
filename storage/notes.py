"""Owns `agent.memory.notes.NoteStore` in SQL. A place has few notes: they are read whole."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from agent.memory.notes import Note, Written, decided
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.places import key_of_today, today_in
from storage.sessions import Reader

_COLUMNS = "number, text, owner, created_at, changed_at"


def notes(db: Reader, place: str) -> tuple[Note, ...]:
    return _at(db, key_of_today(clean(place), today_in(db)))


def remember_note(
    tx: Transaction, place: str, owner: str, text: str, *, replaces: int | None = None
) -> Written:
    place = key_of_today(clean(place), today_in(tx))
    number = _last(tx, place) + 1
    written = decided(_at(tx, place), clean(owner), text, replaces, tx.now, number)
    if not written.known:
        if written.replaced is None:
            _give(tx, place, number)
            faultpoint("remember.number")
        _put(tx, place, written.note)
        faultpoint("remember.note")
    return written


def forget_note(tx: Transaction, place: str, number: int) -> Note | None:
    place = key_of_today(clean(place), today_in(tx))
    row = tx.execute(
        f"DELETE FROM notes WHERE place = ? AND number = ? RETURNING {_COLUMNS}", (place, number)
    ).fetchone()
    faultpoint("forget.note")
    return None if row is None else Note(*row)


def move(tx: Transaction, old_place: str, place: str) -> None:
    """A chat has got another id: its notes follow, behind those that are there already."""
    moving, number = _at(tx, old_place), _last(tx, place)
    if not moving and not _last(tx, old_place):
        return
    alone = number == 0
    for note in moving:
        number = note.number if alone else number + 1
        tx.execute(
            "UPDATE notes SET place = ?, number = ? WHERE place = ? AND number = ?",
            (place, number, old_place, note.number),
        )
        faultpoint("move_chat.note")
    _give(tx, place, max(number, _last(tx, old_place)) if alone else number)
    tx.execute("DELETE FROM note_numbers WHERE place = ?", (old_place,))
    faultpoint("move_chat.notes")


def _at(db: Reader, place: str) -> tuple[Note, ...]:
    query = f"SELECT {_COLUMNS} FROM notes WHERE place = ? ORDER BY number"
    return tuple(Note(*row) for row in db.execute(query, (place,)))


def _last(db: Reader, place: str) -> int:
    row = db.execute("SELECT last FROM note_numbers WHERE place = ?", (place,)).fetchone()
    return 0 if row is None else int(row[0])


def _give(tx: Transaction, place: str, number: int) -> None:
    tx.execute("INSERT OR REPLACE INTO note_numbers (place, last) VALUES (?, ?)", (place, number))


def _put(tx: Transaction, place: str, note: Note) -> None:
    tx.execute(
        f"INSERT OR REPLACE INTO notes (place, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        (place, note.number, note.text, note.owner, note.created_at, note.changed_at),
    )
