"""Owns how notes are written and taken away, for the model's tools and people's commands alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from agent.memory.notes import Note, NoteStore, Written, found

Action = Literal["add", "replace", "remove"]


class Mirror(Protocol):
    """Hears of every change (a provider of others, which may keep a copy)."""

    def written(self, action: Action, conversation_id: str, note: Note) -> None:
        """A note was written or taken away. Returns at once, never raises."""
        ...


class NoteDesk:
    """The notes of every place."""

    def __init__(self, store: NoteStore) -> None:
        self._store = store
        self._mirror: Mirror | None = None

    def mirrored_by(self, mirror: Mirror) -> None:
        """Tell this one of every change from now on."""
        self._mirror = mirror

    async def notes(self, place: str) -> Sequence[Note]:
        """All of a place."""
        return await self._store.notes(place)

    async def remember(
        self,
        place: str,
        owner: str,
        text: str,
        *,
        replaces: int | None = None,
        conversation_id: str = "",
    ) -> Written:
        """As `NoteStore.remember_note`.

        Raises:
            NoteRefused: as there.
        """
        written = await self._store.remember_note(place, owner, text, replaces=replaces)
        if self._mirror is not None and not written.known:
            action: Action = "add" if written.replaced is None else "replace"
            self._mirror.written(action, conversation_id, written.note)
        return written

    async def meant(self, place: str, what: str) -> Sequence[Note]:
        """Which notes an id, or words, may mean."""
        return found(await self._store.notes(place), what)

    async def forget(self, place: str, note: Note, *, conversation_id: str = "") -> bool:
        """Take one away; False: it is gone already."""
        gone = await self._store.forget_note(place, note.number)
        if gone is not None and self._mirror is not None:
            self._mirror.written("remove", conversation_id, gone)
        return gone is not None
