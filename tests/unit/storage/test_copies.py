"""Owns the tests of copies of the database, and of what becomes of one that is put to use."""

# ruff: noqa: ASYNC230 - files of this test only

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import DatabaseTooNew, StoreError, StoreUnavailable
from agent.jobs.nouns import Schedule
from agent.mail import Cursor, OutboxDraft, PartDraft
from storage.copies import copy_database, digest_of, facts_of, prepare
from storage.migrate import shipped
from storage.restored import RESTORED
from storage.sqlite import open_store
from storage.store import SqlStore
from storage.upkeep import examine
from tests.contract.inbox_suite import inbound
from tests.contract.jobs_suite import DUE, draft
from tests.contract.jobs_suite import asked as asked_now
from tests.contract.store_suite import CHAT, KEY, begin, said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.index_damage import DAMAGE, damage
from tests.fakes.store_invariants import check_invariants


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(path, clock=FakeClock(), ids=SequentialIds())
    yield store
    await store.close()


async def copied(path: Path, name: str = "copy.db") -> Path:
    target = path.with_name(name)
    await asyncio.to_thread(copy_database, path, target, 1.0)
    return target


async def test_a_copy_is_whole_private_and_alone(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, *(said(f"word {n}") for n in range(30)))
    target = path.with_name("copy.db")
    copy = await asyncio.to_thread(copy_database, path, target, 1.0)
    assert copy.counts == {"conversations": 1, "sessions": 1, "messages": 31}
    assert copy.sha256 == digest_of(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(os.listdir(path.parent)) == [
        "copy.db",
        "state.db",
        "state.db-shm",
        "state.db-wal",
    ]
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    assert await again.portable(loaded.session.id) == await store.portable(loaded.session.id)
    await again.close()


async def test_a_copy_beside_constant_writes_is_one_state(path: Path, store: SqlStore) -> None:
    ticket = await begin(store)
    done = asyncio.Event()

    async def keep_writing() -> int:
        n = 0
        while not done.is_set():
            await store.append(ticket, ticket.session_id, (said(f"first {n}"), said(f"second {n}")))
            n += 1
        return n

    writing = asyncio.ensure_future(keep_writing())
    copies = [await copied(path, f"copy{n}.db") for n in range(4)]
    done.set()
    written = await writing
    for target in copies:
        with closing(sqlite3.connect(target)) as db:
            (count,) = db.execute("SELECT count(*) FROM messages").fetchone()
        assert count % 2 == 1  # the first question, and pairs
        assert count <= 2 * written + 1
        check_invariants(target)


async def test_what_is_in_the_way_is_left_alone(path: Path, store: SqlStore) -> None:
    await talk(store, said("x"))
    path.with_name("copy.db").write_text("mine")
    with pytest.raises(StoreUnavailable, match="can not be made"):
        await copied(path)
    assert path.with_name("copy.db").read_text() == "mine"


async def test_a_damaged_source_leaves_no_copy(path: Path, store: SqlStore) -> None:
    await talk(store, *(said(f"{n} " + "x" * 3000) for n in range(40)))
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'messages'"
        (page,) = db.execute(query).fetchone()
    with open(path, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreUnavailable, match="can not be copied"):
        await copied(path)
    assert not path.with_name("copy.db").exists()


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_search_index_keeps_no_message_from_being_copied(
    path: Path, store: SqlStore, kind: str
) -> None:
    await talk(store, *(said(f"swordfish note{n} " + "x y z " * 50) for n in range(120)))
    damage(path, kind)
    target = path.with_name("copy.db")
    copy = await asyncio.to_thread(copy_database, path, target, 1.0)
    assert copy.index_damage
    assert examine(target, thorough=True).sound
    assert facts_of(target).index_damage is None
    check_invariants(target)
    again = await asyncio.to_thread(copy_database, target, path.with_name("again.db"), 1.0)
    assert again.index_damage is None


async def test_a_copy_of_an_older_version_is_marked(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(store, said("swordfish"))
    damage(path, "structure")
    newer = (*shipped(), replace(shipped()[-1], version=shipped()[-1].version + 1))
    monkeypatch.setattr("storage.copies.shipped", lambda: newer)
    target = await copied(path)
    assert facts_of(target).index_damage
    monkeypatch.undo()
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    while await again.maintain():
        pass
    await again.close()
    assert facts_of(target).index_damage is None
    check_invariants(target)


async def test_a_newer_database_is_not_copied(path: Path, store: SqlStore) -> None:
    await talk(store, said("x"))
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(DatabaseTooNew):
        await copied(path)
    assert not path.with_name("copy.db").exists()
    with pytest.raises(DatabaseTooNew):
        facts_of(path)


async def test_what_was_erased_meanwhile_is_in_no_copy(
    path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(store, said("a secret"))

    def facts_after_an_erasure(target: Path) -> object:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE messages SET content = '' WHERE role = 'assistant'")
        return facts_of(target)

    monkeypatch.setattr("storage.copies.facts_of", facts_after_an_erasure)
    with pytest.raises(StoreError, match="erased"):
        await copied(path)
    assert not path.with_name("copy.db").exists()


async def test_what_was_under_way_in_a_copy_is_over(path: Path, store: SqlStore) -> None:
    waiting = await store.accept(inbound(1))
    claimed = await store.accept(inbound(2), Cursor("discord", "7", "c", "50"))
    await begin(store, "cut off", (claimed.inbox_id,))
    owed = await store.owe(OutboxDraft(CHAT, "owed"))
    doubtful = await store.owe(OutboxDraft(CHAT, "in doubt"))
    (part,) = await store.plan_parts(doubtful.id, (PartDraft({}),))
    await store.mark_part(part.id, "unknown")
    target = await copied(path)
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    assert await again.owed() == []
    assert await again.open_inbox() == []
    assert await again.recover_turns() == []
    assert await again.cursors("discord", "7") == {}
    # What came in then is known: whoever sends it again is not answered again.
    assert (await again.accept(inbound(1))).inbox_id == waiting.inbox_id
    fresh = await again.owe(OutboxDraft(CHAT, "new"))
    await again.close()
    with closing(sqlite3.connect(target)) as db:
        query = "SELECT id, state, error FROM outbox ORDER BY id"
        assert db.execute(query).fetchall() == [
            (owed.id, "failed", RESTORED),
            (doubtful.id, "failed", RESTORED),
            (fresh.id, "planned", None),
        ]
        assert db.execute("SELECT state FROM outbox_parts").fetchall() == [("failed",)]
    check_invariants(target)
    # Once: what is under way in its new life is taken up as ever.
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    assert [item.id for item in await again.owed()] == [fresh.id]
    await again.close()


async def test_channels_are_read_on_from_where_the_replaced_store_was(
    path: Path, store: SqlStore
) -> None:
    await store.accept(inbound(1), Cursor("discord", "7", "c", "50"))
    target = await copied(path)
    await store.set_cursor(Cursor("discord", "7", "c", "90"))
    assert await asyncio.to_thread(prepare, target, path)
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    assert await again.cursors("discord", "7") == {"c": "90"}
    await again.close()


async def test_a_replaced_store_that_can_not_be_read_says_nothing(
    path: Path, store: SqlStore
) -> None:
    await store.accept(inbound(1), Cursor("discord", "7", "c", "50"))
    target = await copied(path)
    for content in (b"", b"garbage " * 1000):
        broken = path.with_name("broken.db")
        broken.write_bytes(content)
        assert not await asyncio.to_thread(prepare, target, broken)
    assert not await asyncio.to_thread(prepare, target, path.with_name("none.db"))
    again = await open_store(target, clock=FakeClock(), ids=SequentialIds())
    assert await again.cursors("discord", "7") == {}
    await again.close()


async def test_what_was_due_since_is_told_as_missed_and_never_fired(
    path: Path, store: SqlStore
) -> None:
    """The original has fired it, or nobody has; in neither case does anybody wait for it now."""
    tomorrow = Schedule("once", "2027-01-15T08:10:00", "UTC")
    hourly = await store.add_job(draft("drink"))
    once = await store.add_job(draft("call mum", schedule=tomorrow, due=DUE))
    paused = await store.add_job(draft("stretch", due=DUE))
    await store.set_job(paused.id, "paused", next_run_at=None)
    asked, _ = await asked_now(store)
    later = await store.add_job(draft("sleep", due=DUE + 40 * 3600))
    elsewhere = Schedule("cron", "0 9 * * *", "Mars/Olympus")
    unknown = await store.add_job(draft("dig", schedule=elsewhere, due=DUE))
    target = await copied(path)
    again = await open_store(target, clock=FakeClock(DUE + 30 * 3600), ids=SequentialIds())
    assert await again.due_jobs(DUE + 30 * 3600) == []
    views = {view.job.id: view for view in await again.job_views()}
    assert views[hourly.id].job.next_run_at == DUE + 31 * 3600 - 600
    over = await again.job_at(KEY, once.number)
    assert over is not None
    assert over.job.state == "done"
    assert views[paused.id].job.state == "paused"
    assert (views[unknown.id].job.state, "time zone" in views[unknown.id].job.reason) == (
        "paused",
        True,
    )
    assert views[later.id].job.next_run_at == DUE + 40 * 3600
    for job_id, count in ((hourly.id, 31), (once.id, 1)):
        (run,) = await again.job_runs(job_id)
        assert (run.state, run.reason, run.count) == ("missed", RESTORED, count)
    assert [run.state for run in await again.job_runs(asked.id)] == ["missed", "failed"]
    await again.close()
    check_invariants(target)
