"""Owns the words of /memory and /forget (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.memory.notes import Note

MEMORY_USAGE = "Send /memory to see what I keep, or /memory 2 for the second page."
FORGET_USAGE = (
    "Send /forget with the id of a note (/memory lists them), or with words that only it has. "
    "/forget me erases everything that I hold of you; I ask first."
)
NOT_ALL_AT_ONCE = (
    "I take notes away one by one: send /memory, then /forget with an id. To have everything "
    "erased that I hold of you, send /forget me."
)
NOT_YOURS = "Somebody else had me remember that: they can take it away, or an admin can."
GONE_ALREADY = "That note is gone already."
EARLIER, LATER = "◀", "▶"


def none(*, shared: bool) -> str:
    """There is nothing."""
    of = "in this chat" if shared else "about you"
    return f"I keep no notes {of}. Tell me to remember something, and I will."


def listing(notes: Sequence[Note], count: int, page: int, last: int, *, signed: bool) -> str:
    """A page of notes. ``signed``: each says who had it remembered."""
    pages = f", page {page} of {last}" if last > 1 else ""
    head = f"What I remember here ({count} {'note' if count == 1 else 'notes'}{pages}):"
    lines = [_line(note, signed=signed) for note in notes]
    return "\n".join([head, *lines, "", "/forget with an id takes a note away."])


def state(count: int, provider: str) -> str:
    """A line of /status; "": there is nothing to say."""
    kept = f"{count} {'note' if count == 1 else 'notes'} (/memory)" if count else ""
    both = "; ".join(filter(None, (kept, provider)))
    return f"Memory: {both}" if both else ""


def several_say(words: str, notes: Sequence[Note], count: int) -> str:
    """More than one note may be meant."""
    head = f"{count} notes say “{_short(words)}”. Which one? Send /forget with its id:"
    more = [f"… and {count - len(notes)} more"] if count > len(notes) else []
    return "\n".join([head, *(_line(note, signed=False) for note in notes), *more])


def nothing_says(words: str) -> str:
    """No note is meant."""
    return f"No note is called or says “{_short(words)}”. /memory lists them all."


def forgotten(note: Note) -> str:
    """It is gone."""
    return f"Forgotten: {note.text}"


def forget_button(note: Note) -> str:
    """On a button."""
    return f"Forget {note.id}"


def _line(note: Note, *, signed: bool) -> str:
    return f"{note.id}: {note.text}" + (f" (from {note.owner})" if signed else "")


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= 80 else f"{line[:79]}…"
