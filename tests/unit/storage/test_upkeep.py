"""Owns the upkeep of the file beside the writes: the index joined a little at a time, the log."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.sessions import SearchScope
from storage import writer
from storage.sqlite import open_store
from tests.contract.lineage_suite import compress
from tests.contract.store_suite import begin, said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_the_index_is_joined_as_it_grows_and_never_by_itself(path: Path) -> None:
    """Each append adds a segment; SQLite may not join them at a moment of its own choice."""
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    ticket = await begin(store)
    for n in range(200):
        await store.append(ticket, ticket.session_id, (said(f"word{n} and more words {n % 7}"),))
    with closing(sqlite3.connect(path)) as db:
        settings = dict(db.execute("SELECT k, v FROM message_index_config").fetchall())
        (segments,) = db.execute("SELECT count(DISTINCT segid) FROM message_index_idx").fetchone()
        (indexed,) = db.execute("SELECT count(*) FROM message_index_docsize").fetchone()
    await store.close()
    assert (settings["automerge"], settings["crisismerge"]) == (0, 64)
    assert indexed == 201
    assert segments < 30


async def test_the_settings_outlive_a_rebuild(path: Path) -> None:
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    await store.rebuild_search_index()
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        settings = dict(db.execute("SELECT k, v FROM message_index_config").fetchall())
    assert (settings["automerge"], settings["crisismerge"]) == (0, 64)


@pytest.mark.parametrize("damaged", [False, True])
async def test_what_was_taken_back_stays_away_whatever_becomes_of_the_index(
    path: Path, damaged: bool
) -> None:
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    tip = await compress(store, await talk(store, said("the word is swordfish")), keep=2)
    await talk(store, said("and that of today is herring"), text="u2")
    if damaged:
        with closing(sqlite3.connect(path)) as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES ('index_damaged', '1')")
            db.commit()
    assert len((await store.undo(tip.session.conversation_id, 2)).removed) == 4
    for _ in range(2):
        for word in ("swordfish", "herring"):
            assert await store.search(word, SearchScope()) == []
        await store.rebuild_search_index()
    await store.close()
    check_invariants(path)


async def test_the_log_is_written_back_while_nobody_asks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = writer._check_point

    def check_point(connection: sqlite3.Connection, mode: str) -> None:
        real(connection, mode)
        modes.append(mode)
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(writer, "_check_point", check_point)
    monkeypatch.setattr(writer, "_IDLE_AFTER", 3)
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.001)
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    ticket = await begin(store)
    for n in range(3):
        await store.append(ticket, ticket.session_id, (said(str(n)),))
    await asyncio.wait_for(done.wait(), 10)
    assert modes[0] == "PASSIVE"
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        # The file alone, without its log.
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (4,)
    await store.append(ticket, ticket.session_id, (said("goes on"),))
    await store.close()
    assert modes[-1] == "TRUNCATE"
