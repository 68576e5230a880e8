"""The full-text index: made anew in small steps, and never a lie meanwhile."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.sessions import SearchScope
from storage.search import index
from storage.segment import SEGMENTER
from storage.sqlite import open_archive, open_store
from storage.store import SqlStore
from tests.contract.store_suite import said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

SCHEMA = Path(index.__file__).parent.parent / "schema" / "0001_first.sql"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[SqlStore]:
    opened = await open_store(path, clock=clock, ids=SequentialIds())
    yield opened
    await opened.close()


def run_sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def facts(path: Path) -> dict[str, str]:
    db = sqlite3.connect(path)
    found = dict(db.execute("SELECT name, value FROM facts").fetchall())
    db.close()
    return found


async def ids_found(store: SqlStore, query: str, limit: int = 50) -> set[int]:
    return {h.message_id for h in await store.search(query, SearchScope(), limit=limit)}


def test_the_definition_is_the_schemas() -> None:
    assert " ".join(index.DEFINITION.split()) in " ".join(SCHEMA.read_text().split())


async def test_a_sound_index_needs_nothing(store: SqlStore) -> None:
    await talk(store, said("swordfish"))
    assert await store.maintain() is False


@pytest.mark.parametrize(
    "text", ["x" * 3900, "x" * 3900 + " y", f"marlin {'ab' * 2000}", "墨" * 3000]
)
async def test_one_endless_word_is_no_damage(
    store: SqlStore, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A pasted blob, then a question that nothing answers."""
    await talk(store, said("swordfish"), said(text))
    with caplog.at_level(logging.WARNING):
        assert await ids_found(store, "albatross") == set()
    assert caplog.records == []


async def test_a_newer_segmenter_makes_it_anew_step_by_step(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "REBUILD_ROWS", 7)
    loaded = await talk(store, *(said(f"swordfish {n} 墨水") for n in range(40)))
    run_sql(path, "UPDATE facts SET value = '0' WHERE name = 'segmenter'")
    everything = {row.id for row in loaded.rows[1:]}
    steps = 0
    while await store.maintain():
        steps += 1
        # At every moment all of it is found: by the index, and by looking through the rest.
        assert await ids_found(store, "swordfish") == everything
        assert await ids_found(store, "墨水") == everything
        assert steps < 100
    assert steps > 40 // 7
    assert facts(path) == {"segmenter": SEGMENTER}
    assert await ids_found(store, "swordfish") == everything


async def test_what_is_said_meanwhile_is_found_at_once(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "REBUILD_ROWS", 5)
    await talk(store, *(said(f"swordfish {n}") for n in range(20)))
    run_sql(path, "DROP TABLE message_index")
    run_sql(path, "INSERT OR REPLACE INTO facts VALUES ('segmenter', 'old')")
    assert await store.maintain()
    assert await store.maintain()
    later = await talk(store, said("a marlin came by"))
    assert later.rows[-1].id in await ids_found(store, "marlin")
    while await store.maintain():
        pass
    assert later.rows[-1].id in await ids_found(store, "marlin")
    assert len(await ids_found(store, "swordfish")) == 20


async def test_who_asks_is_not_found_by_looking_through_either(path: Path, store: SqlStore) -> None:
    told = await talk(store, said("a swordfish"))
    await talk(store, *(said(f"swordfish {n}") for n in range(150)))
    run_sql(path, "UPDATE facts SET value = '0' WHERE name = 'segmenter'")
    asked = told.rows[-1].id + 1
    (hit,) = await store.search("swordfish", SearchScope(), before_id=asked)
    assert (hit.message_id, hit.newer_id) == (told.rows[-1].id, None)


async def test_it_goes_on_after_a_restart_where_it_was(
    path: Path, store: SqlStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "REBUILD_ROWS", 5)
    await talk(store, *(said(f"swordfish {n}") for n in range(20)))
    run_sql(path, "UPDATE facts SET value = '0' WHERE name = 'segmenter'")
    for _ in range(3):
        assert await store.maintain()
    before = facts(path)["index_missing_upto"]
    await store.close()
    store = await open_store(path, clock=clock, ids=SequentialIds())
    try:
        assert facts(path)["index_missing_upto"] == before
        assert await store.maintain()
        assert int(facts(path).get("index_missing_upto", "0")) < int(before)
        while await store.maintain():
            pass
        assert len(await ids_found(store, "swordfish")) == 20
    finally:
        await store.close()
    check_invariants(path)


@pytest.mark.parametrize(
    "damage",
    [
        ("UPDATE message_index_data SET block = x'deadbeef'",),
        ("DELETE FROM message_index_data",),
        ("DROP TABLE message_index",),
    ],
)
async def test_damage_is_noticed_by_a_write_and_then_repaired(
    path: Path,
    store: SqlStore,
    clock: FakeClock,
    damage: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await talk(store, *(said(f"swordfish {n}") for n in range(20)))
    await store.close()
    run_sql(path, *damage)
    store = await open_store(path, clock=clock, ids=SequentialIds())
    try:
        with caplog.at_level(logging.WARNING):
            assert len(await ids_found(store, "swordfish")) == 20
            await talk(store, said("one more swordfish"))
            assert len(await ids_found(store, "swordfish")) == 21
            while await store.maintain():
                pass
        caplog.clear()
        assert len(await ids_found(store, "swordfish")) == 21
        assert "scanning" not in caplog.text
    finally:
        await store.close()


async def test_one_who_only_looks_sees_all_of_it_in_the_middle(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "REBUILD_ROWS", 3)
    await talk(store, *(said(f"swordfish {n}") for n in range(20)))
    run_sql(path, "UPDATE facts SET value = '0' WHERE name = 'segmenter'")
    await store.maintain()
    await store.maintain()
    archive = await open_archive(path)
    try:
        assert len(await archive.search("swordfish", SearchScope(), limit=50)) == 20
    finally:
        await archive.close()
