"""Owns the entities of a message: what stands under each, and what only says whom it is for (pure).

Telegram counts in UTF-16 units; so does everything here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BETWEEN = " \t\r\n,:"
"""What may stand between an address and what is said."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An entity with the text under it."""

    type: str
    start: int
    end: int
    text: str
    user_id: int | None

    def names(self, user_id: int, username: str) -> bool:
        """Does it mean this bot?"""
        if self.type == "text_mention":
            return self.user_id == user_id
        if self.type not in ("mention", "bot_command"):
            return False
        return self.text.partition("@")[2].lower() == username.lower() != ""


def read_text(message: Mapping[str, Any]) -> tuple[str, list[Mark]]:
    """Text or caption with its marks, in order; marks that point nowhere are left out.

    Raises:
        TypeError, ValueError, LookupError, AttributeError: it is not as Telegram makes it.
    """
    text, entities = message.get("text"), message.get("entities")
    if text is None:
        text, entities = message.get("caption"), message.get("caption_entities")
    if text is None:
        return "", []
    if not isinstance(text, str):
        raise TypeError("the text is no string")
    if not entities:
        return text, []
    units = _units(text)
    marks = []
    for entity in entities:
        start, length = int(entity["offset"]), int(entity["length"])
        if start < 0 or length <= 0 or (start + length) * 2 > len(units):
            continue
        user = entity.get("user") or {}
        under = _text(units[start * 2 : (start + length) * 2])
        marks.append(Mark(str(entity["type"]), start, start + length, under, user.get("id")))
    return text, sorted(marks, key=lambda mark: mark.start)


def command_of(marks: Sequence[Mark]) -> Mark | None:
    """The command that a text is, if it is one: the first mark of all, at the very beginning."""
    if marks and marks[0].type == "bot_command" and marks[0].start == 0:
        return marks[0]
    return None


def without_address(text: str, marks: Sequence[Mark], user_id: int, username: str) -> str:
    """The text without what only says whom it is for: ``@bot`` in front, ``@bot`` of a command."""
    if not marks:
        return text.strip()
    command = command_of(marks)
    if command is not None:
        return text.replace(command.text, command.text.partition("@")[0], 1).strip()
    units = _units(text)
    at = 0
    for mark in marks:
        if mark.type == "bot_command" or not mark.names(user_id, username):
            continue
        if _text(units[at * 2 : mark.start * 2]).strip(_BETWEEN):
            break
        at = mark.end
    rest = _text(units[at * 2 :])
    said = rest.lstrip(_BETWEEN).rstrip() if at else text.strip()
    # A bare mention still says something ("look here"): it must not become an empty message.
    return said or text.strip()


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _text(units: bytes) -> str:
    return units.decode("utf-16-le", "surrogatepass")
