"""Owns the tests of what is done to the whole file: written anew, its log emptied."""

# ruff: noqa: ASYNC240 - files of this test only

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreUnavailable
from agent.sessions import SearchScope
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.store_suite import begin, said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants

WORD = "heligoland"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    yield store
    await store.close()


def log_of(path: Path) -> Path:
    return path.with_name("state.db-wal")


async def erase(store: SqlStore) -> None:
    """What an erasure does to the rows, in short."""
    ticket = await begin(store)
    await store.append(
        ticket, ticket.session_id, tuple(said(f"{WORD} {n} " * 400) for n in range(60))
    )
    await store._writing.write(
        lambda tx: tx.execute("UPDATE messages SET content = '' WHERE role = 'assistant'")
    )
    await store.rebuild_search_index()


async def test_what_was_erased_is_in_no_file(path: Path, store: SqlStore) -> None:
    await erase(store)
    before = path.stat().st_size + log_of(path).stat().st_size
    assert WORD.encode() in path.read_bytes() + log_of(path).read_bytes()
    assert await store.rewrite_file()
    assert log_of(path).stat().st_size == 0
    assert WORD.encode() not in path.read_bytes()
    assert path.stat().st_size < before / 2
    await talk(store, said("and on it goes"))
    check_invariants(path)


async def test_calls_that_wait_meanwhile_are_answered(path: Path, store: SqlStore) -> None:
    await erase(store)
    loaded = await talk(store, said("lighthouse"))
    done = await asyncio.gather(
        store.rewrite_file(),
        *(talk(store, said(f"more {n}"), text=f"u{n}") for n in range(5)),
        *(store.search("lighthouse", SearchScope()) for _ in range(5)),
        *(store.load(loaded.session.id) for _ in range(5)),
    )
    assert done[0] is True
    assert [len(hits) for hits in done[6:11]] == [1] * 5
    check_invariants(path)


async def test_somebody_who_reads_for_long_keeps_the_log(
    path: Path, store: SqlStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.rewriting.EMPTYING_MILLISECONDS", 10)
    await talk(store, said("x"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        assert not await store.rewrite_file()
        assert "another process reads" in caplog.text
        await talk(store, said("y"), text="u2")
    assert await store.rewrite_file()
    assert log_of(path).stat().st_size == 0


async def test_the_log_stays_small_however_much_is_read_and_written(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that take turns without a pause would let it grow for ever."""
    monkeypatch.setattr("storage.rewriting.LONG_LOG_PAGES", 500)
    await talk(store, said("lighthouse"))
    while await store.maintain():
        pass
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        ticket = await begin(store, "again")
        for n in range(100):
            await store.append(ticket, ticket.session_id, (said(f"word{n} " * 3000),))
        grown = log_of(path).stat().st_size
        assert grown > 500 * 4096
        await store.maintain()  # somebody reads: nothing can be done, and nothing breaks
        assert log_of(path).stat().st_size >= grown
    stop = asyncio.Event()

    async def keep_reading() -> None:
        while not stop.is_set():
            await store.search("lighthouse", SearchScope())

    readers = [asyncio.ensure_future(keep_reading()) for _ in range(3)]
    for n in range(100):
        await store.append(ticket, ticket.session_id, (said(f"word{n} " * 500),))
        if n % 10 == 0:  # as the daemon does, once a minute
            while await store.maintain():
                pass
            assert log_of(path).stat().st_size < grown / 2
    stop.set()
    await asyncio.gather(*readers)


async def test_a_closed_store_rewrites_nothing(store: SqlStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.rewrite_file()


async def test_a_file_that_was_replaced_is_not_written_anew(path: Path, store: SqlStore) -> None:
    await talk(store, said("x"))
    path.rename(path.with_name("moved.db"))
    path.touch()
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.rewrite_file()
    assert path.read_bytes() == b""
    path.unlink()
    path.with_name("moved.db").rename(path)
    assert await store.rewrite_file()
