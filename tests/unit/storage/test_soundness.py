"""Owns the tests of what a check of the file finds, and of what becomes of it."""

# ruff: noqa: ASYNC240 - files of this test only

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreUnavailable
from agent.sessions import SearchScope
from storage.sqlite import open_store
from storage.store import SqlStore
from storage.upkeep import check_file, examine
from tests.contract.store_suite import begin, said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    yield store
    await store.close()


async def filled(store: SqlStore) -> None:
    await talk(store, *(said(f"swordfish {n} " + "x" * 900) for n in range(120)))


def page_of(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return int(db.execute(query, (name,)).fetchone()[0])


def spoil(path: Path, name: str) -> None:
    page = page_of(path, name)
    with open(path, "r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xff" * 300)


@pytest.mark.parametrize("thorough", [False, True])
async def test_a_sound_file_has_nothing_against_it(
    path: Path, store: SqlStore, thorough: bool
) -> None:
    await filled(store)
    assert check_file(path, thorough=thorough) == []  # beside the writer
    await store.close()
    assert check_file(path, thorough=thorough) == []


@pytest.mark.parametrize("name", ["messages", "sessions", "outbox", "messages_by_place"])
async def test_a_damaged_page(path: Path, store: SqlStore, name: str) -> None:
    await filled(store)
    await store.close()
    spoil(path, name)
    found = examine(path)
    assert found.pages
    assert not found.search


@pytest.mark.parametrize("name", ["message_index_data", "message_index_docsize"])
async def test_damage_in_the_pages_of_search_alone(path: Path, store: SqlStore, name: str) -> None:
    await filled(store)
    await store.close()
    spoil(path, name)
    found = examine(path)
    assert found.search
    assert not found.pages


async def test_an_index_that_answers_nothing_is_no_index(path: Path, store: SqlStore) -> None:
    """Nothing that checks pages sees it: B52."""
    await filled(store)
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message_index_data SET block = x'deadbeef' WHERE id > 10")
    assert examine(path).search


async def test_a_word_in_the_middle_of_the_index(path: Path, store: SqlStore) -> None:
    """The newest message is still found; only reading every word shows it."""
    await filled(store)
    await store.rebuild_search_index()
    await talk(store, said("the newest of them"), text="u2")
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        oldest = "(SELECT min(id) FROM message_index_data WHERE id > 10)"
        db.execute(f"UPDATE message_index_data SET block = x'00' WHERE id = {oldest}")
    assert examine(path, thorough=True).search


async def test_an_index_that_does_not_fit_its_table_is_made_anew(
    path: Path, store: SqlStore
) -> None:
    await filled(store)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        query = "SELECT sql FROM sqlite_master WHERE name = 'conversations_by_owner'"
        (sql,) = db.execute(query).fetchone()
        other = sql.replace("(owner)", "(session_key)")
        change = "UPDATE sqlite_master SET sql = ? WHERE name = 'conversations_by_owner'"
        db.execute(change, (other,))
        db.execute("PRAGMA writable_schema = RESET")
        db.execute("INSERT INTO conversations SELECT 'c_x', 'o', 'k', 't', 1")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(change, (sql,))
        db.execute("DELETE FROM conversations WHERE rowid < 0")
    found = examine(path, thorough=True)
    assert (found.pages, found.indexes) == ((), ("conversations_by_owner",))
    again = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    await again.mend(found)
    await again.close()
    assert check_file(path, thorough=True) == []


async def test_what_can_be_made_anew_is(path: Path, store: SqlStore) -> None:
    await filled(store)
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message_index_data SET block = x'deadbeef' WHERE id > 10")
    again = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    await again.mend(examine(path))
    while await again.maintain():
        pass
    assert examine(path, thorough=True).sound
    assert len(await again.search("swordfish", SearchScope(), limit=50)) == 50
    await again.close()
    check_invariants(path)


async def test_a_condemned_store_takes_nothing_more(path: Path, store: SqlStore) -> None:
    await filled(store)
    store.condemn("the database is damaged; `posthouse restore`")
    with pytest.raises(StoreUnavailable, match="posthouse restore"):
        await begin(store, "again")
    with pytest.raises(StoreUnavailable, match="posthouse restore"):
        await store.rewrite_file()
    assert store.trouble() == "the database is damaged; `posthouse restore`"
    assert await store.search("swordfish", SearchScope(), limit=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"garbage " * 1000, "not a database"), (None, "unable to open")],
)
def test_what_is_no_database(path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        path.write_bytes(content)
    assert words in check_file(path)[0]
    assert path.exists() == (content is not None)


async def test_a_file_that_was_cut_off(path: Path, store: SqlStore) -> None:
    await filled(store)
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // PAGE * PAGE])
    assert examine(path).pages
