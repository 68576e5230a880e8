"""Owns the tests of the group-committing writer, on a plain connection and thread."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SessionEnded, StoreError, StoreUnavailable
from agent.store_ports import StoreWork
from storage import faultpoint, long_work
from storage.database import READER_PRAGMAS, WRITER_PRAGMAS, Transaction
from storage.migrate import migrate
from storage.writer import Writer
from tests.fakes.clock import FakeClock, SequentialIds


class Rig:
    """A writer on a thread of its own, with a gate that lets calls pile up into one group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in WRITER_PRAGMAS:
            self.connection.execute(pragma)
        migrate(self.connection, 0.0)
        self.connection.execute("CREATE TABLE t (k TEXT PRIMARY KEY, n INTEGER NOT NULL)")
        self.in_place = True
        self.clock = FakeClock()
        self.commits = 0
        self.connection.set_trace_callback(self._trace)
        self.writer = Writer(
            clock=self.clock,
            ids=SequentialIds(),
            estimate=lambda _: 1,
            in_place=lambda: self.in_place,
        )
        self.thread = threading.Thread(target=self.writer.serve, args=(self.connection,))
        self.thread.start()

    def _trace(self, statement: str) -> None:
        self.commits += statement == "COMMIT"

    @contextlib.asynccontextmanager
    async def one_group(self) -> AsyncIterator[None]:
        """Calls made inside are committed together."""
        gate = threading.Event()
        held = self.writer.submit(lambda _: gate.wait(10), (), alone=True)
        yield
        gate.set()
        await held

    async def stop(self) -> None:
        await self.writer.stop()
        self.thread.join(10)
        self.connection.close()

    def stored(self) -> dict[str, int]:
        reader = sqlite3.connect(self.path)
        try:
            return dict(reader.execute("SELECT k, n FROM t").fetchall())
        finally:
            reader.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "t.db")
    yield rig
    await rig.stop()


async def test_how_long_a_transaction_takes_is_known_and_said(rig: Rig) -> None:
    begun = threading.Event()
    gate = threading.Event()

    def hang(_: Transaction) -> None:
        begun.set()
        gate.wait(10)

    assert rig.writer.at_work() is None
    held = rig.writer.submit(hang, ())
    await asyncio.to_thread(begun.wait, 10)
    rig.clock.jump(40)
    assert rig.writer.at_work() == StoreWork(40.0)
    assert rig.writer.trouble() == "a write has been under way for 40 s"
    gate.set()
    await held
    assert rig.writer.trouble() is None
    await rig.writer.submit(put, ("a",))
    assert rig.writer.at_work() is None


@pytest.mark.parametrize("way", [{"alone": True}, {"outside": True}])
async def test_work_on_the_whole_file_says_what_it_is_and_has_its_own_bound(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, way: dict[str, bool]
) -> None:
    """VACUUM was no work at all to whoever watches; making indexes anew was stuck too soon."""
    begun, gate = threading.Event(), threading.Event()

    def tidy(_: object) -> None:
        begun.set()
        gate.wait(10)

    monkeypatch.setitem(long_work.WORDS, f"{__name__}.tidy", "writing it anew")
    monkeypatch.setattr(long_work, "SLOWEST_BYTES_PER_SECOND", 1)
    held = rig.writer.submit(tidy, (), **way)
    await asyncio.to_thread(begun.wait, 10)
    rig.clock.jump(400)
    work = rig.writer.at_work()
    assert work is not None
    assert (work.seconds, work.what) == (400.0, "writing it anew")
    assert work.bound_seconds is not None
    assert work.bound_seconds > long_work.LEAST_SECONDS + 50 * 4096  # pages, also those in the log
    assert rig.writer.trouble() is None
    rig.clock.jump(work.bound_seconds)
    assert str(rig.writer.trouble()).startswith("writing it anew has been under way for ")
    gate.set()
    await held
    assert (rig.writer.at_work(), rig.writer.trouble()) == (None, None)


@pytest.mark.parametrize("name", long_work.WORDS)
def test_what_works_on_the_whole_file_is_there_under_its_name(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert long_work.words_for(getattr(importlib.import_module(module), function))


async def test_a_thread_that_ends_by_itself_is_trouble_for_ever(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = RuntimeError("a bug of ours")
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(rig.writer, "_answer", raiser(ended))
    lost = rig.writer.submit(put, ("a",))
    await asyncio.to_thread(rig.thread.join, 10)
    await asyncio.sleep(0)
    assert rig.writer.at_work() == StoreWork(float("inf"))
    assert rig.writer.trouble() == "the thread that writes has ended"
    lost.cancel()


def raiser(error: Exception) -> Any:
    def call(*_: object) -> None:
        raise error

    return call


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    faultpoint.install(None)


def put(tx: Transaction, key: str, n: int = 1) -> str:
    tx.execute("INSERT INTO t VALUES (?, ?)", (key, n))
    return key


def put_then(error: BaseException) -> Any:
    def call(tx: Transaction, key: str) -> None:
        put(tx, key)
        tx.index(1, "never")
        raise error

    return call


def full_disk() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = 13
    return error


async def test_what_was_queued_meanwhile_is_one_commit(rig: Rig) -> None:
    async with rig.one_group():
        calls = [rig.writer.submit(put, (f"k{i}",)) for i in range(50)]
    assert await asyncio.gather(*calls) == [f"k{i}" for i in range(50)]
    assert rig.commits == 2  # the gate's, and one for all
    assert len(rig.stored()) == 50


async def test_what_one_turn_of_the_loop_asks_for_is_one_commit(rig: Rig) -> None:
    first = rig.writer.submit(put, ("first",))
    time.sleep(0.05)  # noqa: ASYNC251 - the loop makes the other calls, the idle thread could begin
    others = [rig.writer.submit(put, (f"k{i}",)) for i in range(49)]
    await asyncio.gather(first, *others)
    assert rig.commits == 1


async def test_what_was_asked_for_just_before_the_stop_is_stored(rig: Rig) -> None:
    call = rig.writer.submit(put, ("last",))
    await rig.writer.stop()
    assert await call == "last"
    assert rig.stored() == {"last": 1}


@pytest.mark.parametrize(
    "error", [SessionEnded("s"), sqlite3.IntegrityError("unique"), KeyError("bug"), ValueError("x")]
)
@pytest.mark.parametrize("neighbours", [0, 2])
async def test_a_failed_call_undoes_only_itself(
    rig: Rig, error: Exception, neighbours: int
) -> None:
    async with rig.one_group():
        before = [rig.writer.submit(put, (f"a{i}",)) for i in range(neighbours)]
        failing = rig.writer.submit(put_then(error), ("bad",))
        after = [rig.writer.submit(put, (f"b{i}",)) for i in range(neighbours)]
    await asyncio.gather(*before, *after)
    with pytest.raises(StoreError if isinstance(error, sqlite3.Error) else type(error)):
        await failing
    assert len(rig.stored()) == 2 * neighbours
    assert rig.connection.execute("SELECT count(*) FROM message_index_docsize").fetchone() == (0,)


async def test_a_broken_constraint_undoes_only_itself(rig: Rig) -> None:
    async with rig.one_group():
        calls = [rig.writer.submit(put, (key,)) for key in ("x", "x", "y")]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(r) for r in results] == [str, StoreError, str]
    assert rig.stored() == {"x": 1, "y": 1}


@pytest.mark.parametrize("neighbours", [0, 2])
async def test_a_full_disk_fails_the_group_and_the_next_one_works(
    rig: Rig, neighbours: int
) -> None:
    async with rig.one_group():
        calls = [rig.writer.submit(put, (f"a{i}",)) for i in range(neighbours)]
        calls.append(rig.writer.submit(put_then(full_disk()), ("bad",)))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(r) for r in results} == {StoreUnavailable}
    assert rig.stored() == {}
    await rig.writer.submit(put, ("later",))
    assert rig.stored() == {"later": 1}


async def test_a_really_full_database(rig: Rig) -> None:
    def shrink(tx: Transaction) -> None:
        (pages,) = tx.execute("PRAGMA page_count").fetchone()
        tx.execute(f"PRAGMA max_page_count = {pages + 2}")

    await rig.writer.submit(shrink, ())
    async with rig.one_group():
        calls = [rig.writer.submit(put, ("x" * 30_000 + str(i),)) for i in range(5)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(r) for r in results} == {StoreUnavailable}
    assert rig.stored() == {}
    await rig.writer.submit(put, ("small",))
    assert rig.stored() == {"small": 1}


async def test_a_failed_commit_fails_the_whole_group(rig: Rig) -> None:
    rig.connection.execute(
        "CREATE TABLE child (p TEXT REFERENCES t (k) DEFERRABLE INITIALLY DEFERRED)"
    )

    def orphan(tx: Transaction) -> None:
        tx.execute("INSERT INTO child VALUES ('nobody')")

    async with rig.one_group():
        calls = [rig.writer.submit(put, ("x",)), rig.writer.submit(orphan, ())]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(r) for r in results} == {StoreUnavailable}
    assert rig.stored() == {}


async def test_a_cancelled_caller_stops_nobody(rig: Rig) -> None:
    async with rig.one_group():
        calls = [rig.writer.submit(put, (f"k{i}",)) for i in range(3)]
        calls[1].cancel()
    assert await calls[0] == "k0"
    assert await calls[2] == "k2"
    assert len(rig.stored()) == 3  # a cancelled call may have happened


async def test_long_calls_have_a_transaction_of_their_own(rig: Rig) -> None:
    async with rig.one_group():
        calls = [
            rig.writer.submit(put, ("a",)),
            rig.writer.submit(put, ("b",), alone=True),
            rig.writer.submit(put, ("c",)),
        ]
    await asyncio.gather(*calls)
    assert rig.commits == 4
    assert [list(rig.stored())[i] for i in range(3)] == ["a", "b", "c"]


async def test_a_replaced_file_is_not_written_to(rig: Rig) -> None:
    assert rig.writer.trouble() is None
    rig.in_place = False
    assert "put it back" in (rig.writer.trouble() or ""), "also while nobody writes"
    with pytest.raises(StoreUnavailable, match="replaced"):
        await rig.writer.submit(put, ("x",))
    rig.in_place = True
    assert rig.stored() == {}
    await rig.writer.submit(put, ("y",))
    assert rig.writer.trouble() is None


async def test_whoever_watches_is_told_that_nothing_can_be_written(rig: Rig) -> None:
    with pytest.raises(StoreUnavailable):
        await rig.writer.submit(put_then(full_disk()), ("bad",))
    assert "disk is full" in (rig.writer.trouble() or "")
    with pytest.raises(StoreError):  # a statement that is wrong says nothing about the disk
        await rig.writer.submit(put_then(sqlite3.IntegrityError("twice")), ("bad",))
    assert rig.writer.trouble() is None
    await rig.writer.submit(put, ("good",))
    assert rig.writer.trouble() is None


async def test_stop_finishes_what_is_queued(rig: Rig) -> None:
    async with rig.one_group():
        calls = [rig.writer.submit(put, (f"k{i}",)) for i in range(300)]
        stopping = asyncio.ensure_future(rig.writer.stop())
    await stopping
    assert all(call.done() for call in calls)
    assert len(rig.stored()) == 300
    with pytest.raises(StoreUnavailable):
        rig.writer.submit(put, ("late",))
    await rig.writer.stop()


async def test_a_thread_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "empty.db", check_same_thread=False)
    writer = Writer(clock=FakeClock(), ids=SequentialIds(), estimate=len, in_place=lambda: True)
    waiting = writer.submit(put, ("x",))
    with pytest.raises(sqlite3.OperationalError, match="facts"):
        await asyncio.to_thread(writer.serve, connection)
    with pytest.raises(StoreUnavailable):
        await waiting
    connection.close()


async def test_damage_of_the_index_stops_no_message(rig: Rig) -> None:
    def index(tx: Transaction, row_id: int) -> None:
        put(tx, f"k{row_id}")
        tx.index(row_id, "some words")

    await rig.writer.submit(index, (1,))
    rig.connection.execute("UPDATE message_index_data SET block = x'ffffffff' WHERE id > 1")
    rig.connection.execute("UPDATE message_index_data SET block = x'00' WHERE id = 10")
    rig.connection.execute("UPDATE message_index_docsize SET sz = x''")
    async with rig.one_group():
        calls = [rig.writer.submit(index, (n,)) for n in range(2, 5)]
    await asyncio.gather(*calls)
    assert len(rig.stored()) == 4
    found = rig.connection.execute(
        "SELECT value FROM facts WHERE name = 'index_damaged'"
    ).fetchone()
    assert found == ("1",)


async def test_damage_of_the_index_that_shows_at_the_commit_stops_no_message(rig: Rig) -> None:
    def index(tx: Transaction, row_id: int) -> None:
        put(tx, f"k{row_id}")
        tx.index(row_id, "some words")

    rig.connection.execute("DROP TABLE message_index_idx")  # asked for only when it writes out
    async with rig.one_group():
        calls = [rig.writer.submit(index, (n,)) for n in range(1, 4)]
        lost = rig.writer.submit(put_then(ValueError("a bug")), ("lost",))
    await asyncio.gather(*calls)
    with pytest.raises(ValueError, match="a bug"):
        await lost
    assert set(rig.stored()) == {"k1", "k2", "k3"}
    assert rig.connection.execute(
        "SELECT value FROM facts WHERE name = 'index_damaged'"
    ).fetchone() == ("1",)


async def test_damage_that_could_not_be_noted_is_found_again(rig: Rig) -> None:
    """Else this run would store without index, and the next would trust an index with holes."""

    def index(tx: Transaction, row_id: int) -> None:
        put(tx, f"k{row_id}")
        tx.index(row_id, "some words")

    def full_at_commit(point: str) -> None:
        if point == "commit.indexed":
            raise full_disk()

    await rig.writer.submit(index, (1,))
    rig.connection.execute("UPDATE message_index_data SET block = x'00' WHERE id = 10")
    faultpoint.install(full_at_commit)
    with pytest.raises(StoreUnavailable):
        await rig.writer.submit(index, (2,))
    faultpoint.install(None)
    await rig.writer.submit(index, (3,))
    noted = rig.connection.execute("SELECT value FROM facts WHERE name = 'index_damaged'")
    assert noted.fetchall() == [("1",)]


async def test_a_locked_database_is_waited_for(rig: Rig) -> None:
    other = sqlite3.connect(rig.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    calls = [rig.writer.submit(put, (f"k{i}",)) for i in range(5)]
    timer = threading.Timer(0.3, other.execute, ("ROLLBACK",))
    timer.start()
    await asyncio.gather(*calls)
    timer.join()
    other.close()
    assert len(rig.stored()) == 5


def test_readers_can_neither_write_nor_check_point(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (k)")
    writer.commit()
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for pragma in READER_PRAGMAS:
        reader.execute(pragma)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO t VALUES (1)")
    assert reader.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    reader.close()
    writer.close()
