"""Owns the contract of `agent.memory.notes.NoteStore`; a subclass gives the ``store`` fixture."""

from __future__ import annotations

import pytest

from agent.memory.notes import MAX_NOTE_CHARS, MAX_NOTES, NoteRefused
from agent.store_ports import Store
from tests.contract.moving_suite import NEW, OLD, key, move
from tests.contract.store_suite import OWNER

OTHER = "telegram:333"


async def lines(store: Store, place: str = OWNER) -> list[tuple[str, str]]:
    return [(note.id, note.text) for note in await store.notes(place)]


async def keep(store: Store, *texts: str, place: str = OWNER) -> None:
    for text in texts:
        await store.remember_note(place, OWNER, text)


class NotesContract:
    async def test_notes_are_kept_by_place_in_their_order(self, store: Store) -> None:
        written = await store.remember_note(OWNER, OTHER, "likes tea")
        await keep(store, "has a dog")
        await keep(store, "of another", place=OTHER)
        assert await lines(store) == [("n1", "likes tea"), ("n2", "has a dog")]
        assert await lines(store, OTHER) == [("n1", "of another")]
        assert await lines(store, "nobody") == []
        assert (written.note.owner, written.replaced, written.known) == (OTHER, None, False)

    async def test_a_note_is_one_line_without_anything_unseen(self, store: Store) -> None:
        await keep(store, " a\n- n9: b\x00\u202e\ud83d \u200b c ")
        assert await lines(store) == [("n1", "a - n9: b \ufffd c")]

    async def test_the_same_line_twice_is_one_note(self, store: Store) -> None:
        await keep(store, "likes tea")
        again = await store.remember_note(OWNER, OTHER, "likes  tea ")
        assert again.known
        assert (again.note.id, again.note.owner) == ("n1", OWNER)
        assert len(await store.notes(OWNER)) == 1

    async def test_a_note_is_replaced_in_its_place(self, store: Store) -> None:
        await keep(store, "likes tea", "has a dog")
        written = await store.remember_note(OWNER, OTHER, "likes coffee", replaces=1)
        assert written.replaced is not None
        assert written.replaced.text == "likes tea"
        assert await lines(store) == [("n1", "likes coffee"), ("n2", "has a dog")]
        with pytest.raises(NoteRefused, match="there is no note n7"):
            await store.remember_note(OWNER, OWNER, "x", replaces=7)
        with pytest.raises(NoteRefused, match="note n2 says this already"):
            await store.remember_note(OWNER, OWNER, "has a dog", replaces=1)
        assert await lines(store) == [("n1", "likes coffee"), ("n2", "has a dog")]

    async def test_a_number_is_never_given_twice(self, store: Store) -> None:
        await keep(store, "one", "two")
        gone = await store.forget_note(OWNER, 2)
        assert gone is not None
        assert gone.text == "two"
        assert await store.forget_note(OWNER, 2) is None
        assert await store.forget_note(OTHER, 1) is None
        await keep(store, "three")
        assert await lines(store) == [("n1", "one"), ("n3", "three")]

    async def test_there_is_room_for_so_many_and_for_so_much(self, store: Store) -> None:
        with pytest.raises(NoteRefused, match=f"at most {MAX_NOTE_CHARS}"):
            await keep(store, "x" * (MAX_NOTE_CHARS + 1))
        with pytest.raises(NoteRefused, match="nothing in this note"):
            await keep(store, "\u200d \n")
        await keep(store, *(f"fact {i}" for i in range(MAX_NOTES)))
        with pytest.raises(NoteRefused, match="full \\(100 notes\\)"):
            await keep(store, "one more")
        assert (await store.remember_note(OWNER, OWNER, "other", replaces=3)).note.id == "n3"
        with pytest.raises(NoteRefused, match="2,000 tokens"):
            await keep(store, *("語" * 400 + str(i) for i in range(9)), place=OTHER)
        assert await store.notes(OTHER)

    async def test_notes_of_a_chat_follow_it(self, store: Store) -> None:
        await keep(store, "one", "two", place=key(OLD))
        await store.forget_note(key(OLD), 2)
        await keep(store, "of a thread", place=key(OLD, thread="3"))
        await keep(store, "mine", place=OWNER)
        assert await move(store)
        assert await lines(store, key(NEW)) == [("n1", "one"), ("n3", "of a thread")]
        assert await lines(store, key(OLD)) == await lines(store, key(NEW))
        await keep(store, "late words", place=key(OLD))
        assert (await lines(store, key(NEW)))[-1] == ("n4", "late words")
        assert await lines(store) == [("n1", "mine")]
