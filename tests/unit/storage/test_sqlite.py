"""Owns the tests of opening, closing and damaging a real database file."""

# ruff: noqa: ASYNC230, ASYNC240 - files of this test only

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest

from agent.errors import DatabaseDamaged, DatabaseTooNew, StoreError, StoreUnavailable
from agent.messages import Draft, Keep
from agent.sessions import SearchScope
from storage import migrate
from storage.sqlite import Connection, open_archive, open_store
from storage.store import SqlStore
from tests.contract.store_suite import (
    KEY,
    OWNER,
    PREFIX,
    SUMMARY,
    begin,
    calling,
    inbound,
    result,
    said,
    split_of,
    talk,
    texts,
)
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.store_invariants import check_invariants


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock, ids: SequentialIds) -> AsyncIterator[SqlStore]:
    store = await open_store(path, clock=clock, ids=ids)
    yield store
    await store.close()


def run_sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


# --- aiosqlite ----------------------------------------------------------------------------------


def test_what_is_private_in_aiosqlite_is_still_there() -> None:
    """If this fails after an upgrade: `storage.sqlite.Connection` is the one place to change."""
    driver = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), iter_chunk_size=64)
    assert inspect.iscoroutinefunction(driver._execute)
    assert next(iter(inspect.signature(driver._execute).parameters)) == "fn"
    assert isinstance(driver._thread, threading.Thread)
    assert not driver._thread.is_alive()


def test_nothing_else_imports_the_driver_or_opens_the_file() -> None:
    root = Path(__file__).parents[3]
    for package in ("agent", "storage", "gateway"):
        for module in (root / package).rglob("*.py"):
            text = module.read_text()
            if module != root / "storage" / "sqlite.py":
                assert "import aiosqlite" not in text, module
                assert "from aiosqlite" not in text, module
                # Another program's file is none of ours, and neither is what plugins take for one.
                foreign = {
                    root / "storage/hermes.py",
                    root / "gateway/plugins/facade.py",
                    root / "gateway/plugins/session_db.py",
                    root / "gateway/backups/trees.py",
                    # Looks only, and at copies that nobody else has open.
                    root / "gateway/doctor/database_file.py",
                    root / "storage/looking.py",
                    root / "storage/copies.py",
                }
                assert module in foreign or "sqlite3.connect(" not in text, module


def test_an_unclosed_store_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    program = f"""
import asyncio, warnings
warnings.simplefilter("ignore")
from agent.clock import RandomIds, SystemClock
from storage.sqlite import open_store
async def main():
    global store
    store = await open_store({str(tmp_path / "s.db")!r}, clock=SystemClock(), ids=RandomIds())
    raise SystemExit(7)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=20, check=False)
    assert done.returncode == 7


async def test_closing_lets_go_of_every_thread(
    path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    before = set(threading.enumerate())  # some of a test before may still be on their way out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = await open_store(path, clock=clock, ids=ids)
        own = set(threading.enumerate()) - before
        assert len(own) == 3
        await store.close()
        del store
        gc.collect()
    for thread in own:
        await asyncio.to_thread(thread.join, 10)
    assert not any(thread.is_alive() for thread in own)
    assert not path.with_name("state.db-wal").exists()


async def test_a_cancelled_close_closes_all_the_same(
    path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    store = await open_store(path, clock=clock, ids=ids)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.conversation("c")
    with pytest.raises(StoreUnavailable):
        await store.start_conversation(KEY, OWNER, PREFIX)


async def test_a_cancelled_open_leaves_nothing(
    path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    before = threading.active_count()
    for steps in range(12):
        opening = asyncio.ensure_future(open_store(path, clock=clock, ids=ids))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    for _ in range(200):
        if threading.active_count() == before:
            break
        await asyncio.sleep(0.01)
    assert threading.active_count() == before
    gc.collect()


# --- files --------------------------------------------------------------------------------------


async def test_a_newer_database_is_refused_and_left_alone(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    await store.close()
    run_sql(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(DatabaseTooNew, match="99"):
        await open_store(path, clock=clock, ids=ids)
    with pytest.raises(DatabaseTooNew):
        await open_archive(path)
    assert path.read_bytes() == before


async def test_an_edited_migration_is_refused(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    await store.close()
    run_sql(path, "UPDATE schema_migrations SET checksum = 'other'")
    with pytest.raises(StoreError, match="0001_first"):
        await open_store(path, clock=clock, ids=ids)


async def test_migrations_are_recorded_and_applied_once(
    path: Path, store: SqlStore, clock: FakeClock
) -> None:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT version, checksum, applied_at FROM schema_migrations").fetchall()
    assert rows == [(m.version, m.checksum, clock.now()) for m in migrate.shipped()]
    assert db.execute("PRAGMA user_version").fetchone() == (len(rows),)
    assert migrate.migrate(db, 0.0) == []
    db.close()


@pytest.mark.parametrize(
    "content", [b"not a database, " * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
async def test_what_is_no_database_is_said_so(
    path: Path, clock: FakeClock, ids: SequentialIds, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(DatabaseDamaged, match="posthouse restore"):
        await open_store(path, clock=clock, ids=ids)
    with pytest.raises(DatabaseDamaged, match="posthouse restore"):
        await open_archive(path)
    assert path.read_bytes() == content


async def test_an_empty_file_and_strange_names_become_a_database(
    tmp_path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    path = tmp_path / "a b?mode=ro#%41 é.db"
    path.touch()
    store = await open_store(path, clock=clock, ids=ids)
    await talk(store, said("x"))
    await store.close()
    assert sorted(os.listdir(tmp_path)) == [path.name]
    check_invariants(path)


async def test_a_missing_folder_is_said_so(
    tmp_path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    with pytest.raises(StoreUnavailable):
        await open_store(tmp_path / "no" / "state.db", clock=clock, ids=ids)


async def test_the_archive_reads_beside_the_daemon(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("swordfish"))
    archive = await open_archive(path)
    try:
        (hit,) = await archive.search("swordfish", SearchScope())
        assert hit.message_id == loaded.rows[1].id
        await talk(store, said("marlin"))
        assert len(await archive.search("marlin", SearchScope())) == 1
        assert [s.id for s in await archive.list_sessions()] == [loaded.session.id]
        assert [s.id for s in await archive.lineage(loaded.session.id)] == [loaded.session.id]
    finally:
        await archive.close()


async def test_the_archive_makes_no_file(path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await open_archive(path)
    assert not path.exists()


async def test_a_file_swapped_under_the_process_is_noticed(path: Path, store: SqlStore) -> None:
    await talk(store, said("x"))
    path.rename(path.with_name("moved.db"))
    path.touch()
    with pytest.raises(StoreUnavailable, match="replaced"):
        await begin(store)
    assert path.read_bytes() == b""
    path.unlink()
    path.with_name("moved.db").rename(path)
    await begin(store)


async def test_a_log_removed_under_the_process_loses_nothing(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    """What is written into a file without a name is gone with the process."""
    loaded = await talk(store, said("x"))
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size
    log.unlink()
    assert "log was removed" in (store.trouble() or "")
    with pytest.raises(StoreUnavailable, match="start posthouse again"):
        await begin(store)
    again = path.with_name("copied.db")
    shutil.copyfile(path, again)  # as after a kill: no log any more
    await store.close()
    for file in (path, again):
        opened = await open_store(file, clock=clock, ids=ids)
        assert await opened.load(loaded.session.id) == loaded
        assert opened.trouble() is None
        await opened.close()


async def test_the_log_of_a_linked_file_is_beside_the_file(
    tmp_path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    """It was looked for beside the link: what was written when it was gone was acknowledged."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "state.db").symlink_to(tmp_path / "disk" / "real.db")
    store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    await talk(store, said("x"))
    (tmp_path / "disk" / "real.db-wal").unlink()
    with pytest.raises(StoreUnavailable, match="start posthouse again"):
        await begin(store)
    await store.close()


async def test_what_was_acknowledged_is_there_for_the_next_process(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    loaded = await talk(store, calling("a"), result("a"), said("ok"))
    again = await open_store(path.with_name("state.db"), clock=clock, ids=ids)
    assert await again.load(loaded.session.id) == loaded
    await again.close()


# --- states that only a hand or a crash can make -------------------------------------------------


async def test_an_orphan_parent_is_reopened_with_its_id(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    for ending in ("'compression'", "NULL"):
        run_sql(path, f"UPDATE sessions SET ended_at = 5, end_reason = {ending}")
        ticket = await begin(store, "go on")
        assert ticket.session_id == loaded.session.id
        assert (await store.session(ticket.session_id)).ended_at is None
    await store.interrupt_turn(ticket)
    run_sql(path, "UPDATE sessions SET ended_at = 5, end_reason = 'compression'")
    assert (await store.resume_turn(ticket)).session.ended_at is None
    check_invariants(path)


async def test_a_tip_left_behind_is_followed(path: Path, store: SqlStore) -> None:
    parent = await talk(store, said("one"))
    child = (await store.split(split_of(parent, SUMMARY))).tip
    run_sql(path, f"UPDATE conversations SET tip_session_id = '{parent.session.id}'")
    ticket = await begin(store, "go on")
    assert ticket.session_id == child.id
    check_invariants(path)


async def test_a_session_ended_on_purpose_stays_ended(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    run_sql(path, "UPDATE sessions SET ended_at = 5, end_reason = 'reset'")
    ticket = await begin(store, "hello")
    assert ticket.conversation_id != loaded.session.conversation_id
    assert (await store.session(loaded.session.id)).end_reason == "reset"
    check_invariants(path)


async def test_a_second_continuation_is_impossible(path: Path, store: SqlStore) -> None:
    parent = await talk(store, said("one"))
    child = (await store.split(split_of(parent, SUMMARY))).tip
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        run_sql(
            path,
            "INSERT INTO sessions (id, conversation_id, parent_session_id, link, source, model,"
            f" started_at, system_prompt) VALUES ('s_x', '{child.conversation_id}',"
            f" '{parent.session.id}', 'continuation', 'x', 'x', 0, '')",
        )


async def test_the_order_of_sessions_is_a_column_that_vacuum_keeps(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    """SQLite may give bare rowids anew; ids are random, and clocks jump."""
    loaded = await talk(store, said("a"))
    clock.set_wall(clock.now() - 86_400)
    child = (await store.split(split_of(loaded, SUMMARY))).tip
    other = await store.start_conversation("another key", OWNER, PREFIX)
    order = [loaded.session.id, child.id, other.id]
    await store.close()
    run_sql(path, "VACUUM")
    again = await open_store(path, clock=clock, ids=ids)
    assert [s.id for s in await again.lineage(child.id)] == order[:2]
    assert (await again.tip(loaded.session.id)).id == child.id
    assert [info.id for info in await again.list_sessions()] == order[::-1]
    await again.close()
    with sqlite3.connect(path) as db:
        made = db.execute("SELECT id FROM sessions ORDER BY serial").fetchall()
    db.close()
    assert [row[0] for row in made] == order


async def test_a_numbered_title(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    run_sql(path, "UPDATE sessions SET title = 'Trip'")
    for expected in ("Trip #2", "Trip #3"):
        changed = await store.split(split_of(loaded, SUMMARY))
        assert changed.tip.title == expected
        loaded = await store.load(changed.tip.id)


async def test_what_was_prepared_goes_with_its_revision(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"), said("two"))
    prepare = f"INSERT INTO prepared VALUES ('{loaded.session.id}', 0, 1, '{{}}', 0)"
    run_sql(path, prepare)
    await store.split(split_of(loaded, SUMMARY, Keep(loaded.last_row_id)))
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM prepared").fetchone() == (0,)
    db.close()


async def test_columns_hold_what_operators_read(path: Path, store: SqlStore) -> None:
    inbox_id = (await store.accept(inbound(1))).inbox_id
    ticket = await begin(store, "hi", (inbox_id,))
    await store.append(ticket, ticket.session_id, (calling("a"), result("a", "plain")))
    db = sqlite3.connect(path)
    rows = db.execute(
        "SELECT role, content, tool_calls IS NOT NULL, tool_call_id, tool_name FROM messages"
    ).fetchall()
    assert rows == [
        ("user", "hi", 0, None, None),
        ("assistant", None, 1, None, None),
        ("tool", "plain", 0, "a", "clock"),
    ]
    assert db.execute("SELECT state FROM inbox").fetchall() == [("claimed",)]
    assert db.execute("SELECT source, model, system_prompt FROM sessions").fetchall() == [
        (PREFIX.source, PREFIX.model, PREFIX.system_prompt)
    ]
    db.close()


# --- damage -------------------------------------------------------------------------------------


async def test_a_damaged_index_degrades_search_and_can_be_rebuilt(
    path: Path,
    store: SqlStore,
    caplog: pytest.LogCaptureFixture,
    clock: FakeClock,
    ids: SequentialIds,
) -> None:
    loaded = await talk(store, *(said(f"swordfish {n} 墨水") for n in range(20)))
    await store.close()
    run_sql(path, "UPDATE message_index_data SET block = x'deadbeef'")
    store = await open_store(path, clock=clock, ids=ids)
    try:
        with caplog.at_level(logging.WARNING):
            hits = await store.search("swordfish", SearchScope(), limit=5)
            assert len(hits) == 5
            assert [h.role for h in await store.search("墨水", SearchScope(), limit=1)] == [
                "assistant"
            ]
        assert "search index is damaged" in caplog.text
        await talk(store, said("marlin"))
        (hit,) = await store.search("marlin", SearchScope())
        assert hit.session_id == loaded.session.id
        assert await store.rebuild_search_index() == 23
        caplog.clear()
        assert len(await store.search("swordfish", SearchScope(), limit=50)) == 20
        await talk(store, said("after the rebuild"))
        assert len(await store.search("rebuild", SearchScope())) == 1
        assert "damaged" not in caplog.text
    finally:
        await store.close()
    check_invariants(path)


async def test_page_damage_fails_closed(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    loaded = await talk(store, *(said(f"{n} " + "x" * 3000) for n in range(40)))
    await store.close()
    db = sqlite3.connect(path)
    (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    db.close()
    with open(path, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    store = await open_store(path, clock=clock, ids=ids)
    try:
        with pytest.raises(StoreUnavailable):
            await store.load(loaded.session.id)
        with pytest.raises(StoreUnavailable):
            await begin(store)
    finally:
        await store.close()


# --- many at once -------------------------------------------------------------------------------


async def test_fifty_conversations_at_once(path: Path, store: SqlStore) -> None:
    async def one(n: int) -> list[str]:
        ticket = await begin(store, f"q{n}", session_key=f"key{n}")
        for step in range(4):
            await store.append(ticket, ticket.session_id, (said(f"{n}.{step}"),))
        await store.finish_turn(ticket, ticket.session_id, "done", final=said(f"a{n}"))
        return texts(await store.load(ticket.session_id))

    results = await asyncio.gather(*(one(n) for n in range(50)))
    for n, got in enumerate(results):
        assert got == [f"q{n}", *(f"{n}.{step}" for step in range(4)), f"a{n}"]
    check_invariants(path)


async def test_a_lost_race_in_a_group_undoes_only_itself(path: Path, store: SqlStore) -> None:
    tickets = [await begin(store, session_key=f"key{n}") for n in range(10)]
    await store.finish_turn(tickets[3], tickets[3].session_id, "done")
    calls = [store.append(t, t.session_id, (said("x"),)) for t in tickets]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(r, Exception) for r in results].index(True) == 3
    assert sum(isinstance(r, Exception) for r in results) == 1
    check_invariants(path)


async def test_a_cancelled_append_leaves_a_whole_state(path: Path, store: SqlStore) -> None:
    ticket = await begin(store)
    appending = asyncio.ensure_future(
        store.append(ticket, ticket.session_id, (said("x"), said("y")))
    )
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    await store.finish_turn(ticket, ticket.session_id, "stopped")
    assert len((await store.load(ticket.session_id)).rows) in (1, 3)
    check_invariants(path)


async def test_a_connection_runs_things_on_its_own_thread(path: Path) -> None:
    connection = await Connection.open(f"file:{path}?mode=rwc", ())
    thread = await connection.run(lambda _: threading.current_thread())
    assert thread is not threading.current_thread()
    assert thread.daemon
    await connection.close()
    await connection.close()
    with pytest.raises(StoreUnavailable):
        await connection.run(lambda _: 1)


async def test_a_killed_process_leaves_a_log_that_the_archive_reads(path: Path) -> None:
    program = f"""
import asyncio, os, signal
from agent.clock import RandomIds, SystemClock
from storage.sqlite import open_store
from tests.contract.store_suite import said, talk
async def main():
    store = await open_store({str(path)!r}, clock=SystemClock(), ids=RandomIds())
    await talk(store, said("swordfish"))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    root = Path(__file__).parents[3]
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=root)
    assert await asyncio.wait_for(done.wait(), 30) == -signal.SIGKILL
    archive = await open_archive(path)
    try:
        assert len(await archive.search("swordfish", SearchScope())) == 1
    finally:
        await archive.close()
    check_invariants(path)


async def test_the_file_is_its_owners_only(path: Path, store: SqlStore) -> None:
    await talk(store, said("x"))
    for file in (path, path.with_name("state.db-wal"), path.with_name("state.db-shm")):
        assert file.stat().st_mode & 0o077 == 0, file


async def test_what_the_schema_refuses_is_an_error_of_ours(store: SqlStore) -> None:
    ticket = await begin(store)
    wrong = Draft({"role": "narrator", "content": "x"})  # type: ignore[typeddict-item]
    with pytest.raises(StoreError, match="CHECK"):
        await store.append(ticket, ticket.session_id, (said("before"), wrong))
    assert len((await store.load(ticket.session_id)).rows) == 1


async def test_a_key_that_names_no_chat_owes_nothing(store: SqlStore) -> None:
    for key in ("plain", "5", '["a"]', "[1, 2, null, null, null]"):
        await begin(store, session_key=key)
    assert await store.recover_turns(crash_limit=1) == []
    assert await store.owed() == []


async def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    os.mkfifo(path)
    with pytest.raises(StoreUnavailable, match="is no file"):
        await open_archive(path)
