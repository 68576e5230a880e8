"""Owns the store's faults that users of such systems met: each kind must be impossible here.

Named after the cases of the fault list. More of their kinds: every point of every transaction is
killed at in `test_kill`, both stores run in lockstep in ``tests/property/test_store_machine.py``.
"""

# ruff: noqa: ASYNC240 - nothing else runs on the loop meanwhile

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SessionEnded, SessionNotFound, StoreError
from agent.mail import OutboxDraft
from agent.messages import Keep, to_engine
from agent.sessions import session_key
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.lineage_suite import compress, refreeze, uncompress_of
from tests.contract.store_suite import (
    CHAT,
    KEY,
    OWNER,
    PREFIX,
    SUMMARY,
    begin,
    inbound,
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
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


# --- who leads where ----------------------------------------------------------------------------


async def test_b08_two_compressions_in_one_turn(
    path: Path, store: SqlStore, clock: FakeClock, ids: SequentialIds
) -> None:
    """The key leads to the newest session, for whoever holds an older id, after a restart too."""
    key = session_key("telegram", "7", "111", "7", None)
    ticket = await begin(store, "u1", session_key=key)
    chain = [ticket.session_id]
    for n in range(2):
        loaded = await store.load(chain[-1], ticket=ticket)
        changed = await store.split(split_of(loaded, SUMMARY, Keep(loaded.rows[-1].id)))
        await store.append(ticket, changed.tip.id, (said(f"a{n}"),))
        chain.append(changed.tip.id)
    await store.finish_turn(ticket, chain[-1], "done")
    await store.close()
    again = await open_store(path, clock=clock, ids=ids)
    try:
        assert [(await again.tip(each)).id for each in chain] == [chain[-1]] * 3
        following = await begin(again, "u2", session_key=key)
        assert following.session_id == chain[-1]
        assert texts(await again.load(following.session_id)) == [
            SUMMARY.message["content"], "a0", "a1", "u2",
        ]  # fmt: skip
    finally:
        await again.close()
    check_invariants(path)


async def test_b09_every_way_to_go_on_at_once(path: Path, store: SqlStore) -> None:
    """Compression, refreeze and undo race for one tip: one wins, the others get its tip."""
    await compress(store, await talk(store, said("one"), text="u1"))
    tip = await talk(store, said("two"), text="u2")
    results = await asyncio.gather(
        store.split(split_of(tip, SUMMARY)),
        store.uncompress(uncompress_of(tip)),
        refreeze(store, tip),
        store.split(split_of(tip, SUMMARY)),
        store.uncompress(uncompress_of(tip)),
    )
    assert [result.applied for result in results].count(True) == 1
    assert len({result.tip.id for result in results}) == 1
    check_invariants(path)


async def test_b09_a_worker_with_an_old_snapshot(store: SqlStore) -> None:
    parent = await talk(store, said("one"))
    tip = await compress(store, parent)
    for late in (
        await store.split(split_of(parent, SUMMARY)),
        await refreeze(store, parent),
        await store.uncompress(uncompress_of(parent)),
    ):
        assert (late.applied, late.tip.id) == (False, tip.session.id)


async def test_b22_flushing_again_stores_nothing_again(store: SqlStore) -> None:
    """What comes back from an engine is known by its row: kept rows are copied once, not stored."""
    loaded = await talk(store, said("one"), said("two"))
    view = to_engine(loaded.rows)
    assert [message["_row"] for message in view] == [row.id for row in loaded.rows]
    tip = await compress(store, loaded, keep=2)
    assert len(await store.active_rows(tip.session.id)) == tip.session.message_count == 3
    for _ in range(3):
        assert await store.load(tip.session.id) == tip
    assert not any("_row" in row.message for row in await store.all_rows(tip.session.id))


@pytest.mark.parametrize(
    ("ended_as", "same_session"), [("NULL", True), ("'reset'", False), ("'idle'", False)]
)
async def test_b23_a_key_that_leads_to_an_ended_session(
    path: Path, store: SqlStore, ended_as: str, same_session: bool
) -> None:
    loaded = await talk(store, said("one"))
    run_sql(path, f"UPDATE sessions SET ended_at = 5, end_reason = {ended_as}")
    ticket = await begin(store, "next")
    assert (ticket.session_id == loaded.session.id) is same_session
    check_invariants(path)


async def test_b56_a_child_is_found_like_its_parent(path: Path, store: SqlStore) -> None:
    """Owner, key and source belong to the conversation: no child can lose them."""
    parent = await talk(store, said("one"))
    tip = await compress(store, parent)
    (info,) = await store.conversations_of(OWNER)
    assert (info.tip_session_id, info.session_key) == (tip.session.id, KEY)
    assert tip.session.prefix == parent.session.prefix
    await store.start_conversation(KEY, OWNER, PREFIX)
    resumed = await store.resume(KEY, info.id)
    assert resumed.id == tip.session.id


# --- the file -----------------------------------------------------------------------------------


async def test_b48_a_foreign_writer_delays_and_loses_nothing(path: Path, store: SqlStore) -> None:
    ticket = await begin(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        appends = [
            asyncio.ensure_future(store.append(ticket, ticket.session_id, (said(f"a{n}"),)))
            for n in range(5)
        ]
        # Readers are served, and nobody on the loop waits for the lock.
        assert len(await store.active_rows(ticket.session_id)) == 1
        assert not any(append.done() for append in appends)
        foreign.execute("ROLLBACK")
    await asyncio.gather(*appends)
    assert texts(await store.load(ticket.session_id)) == ["hello", *(f"a{n}" for n in range(5))]


def test_b49_nobody_opens_the_live_file_by_hand() -> None:
    """A plain close would drop SQLite's locks on it; a copy is made by SQLite itself."""
    root = Path(__file__).parents[3]
    for module in (root / "storage").rglob("*.py"):
        text = module.read_text()
        if module.name == "in_place.py":  # looks whether the name is there
            assert "open(" not in text
            continue
        if module.name == "looking.py":  # copies it only where this process can not open it
            continue
        assert "-wal" not in text, module
        assert "-shm" not in text, module
        assert "shutil" not in text, module


async def test_b51_one_bad_entry_stops_nobody_else(path: Path, store: SqlStore) -> None:
    tickets = [
        await begin(store, f"u{n}", session_key=session_key("console", "1", str(n), None, None))
        for n in range(5)
    ]
    run_sql(path, "UPDATE conversations SET tip_session_id = 's_gone' WHERE rowid = 2")
    for n, ticket in enumerate(tickets):
        key = session_key("console", "1", str(n), None, None)
        if n == 1:
            with pytest.raises(SessionNotFound):
                await begin(store, "again", session_key=key)
        else:
            assert (await begin(store, "again", session_key=key)).session_id == ticket.session_id
    listed = await store.conversations_of(OWNER)
    assert len(listed) == 4


async def test_b54_an_open_that_fails_behind_the_connect_lets_go(
    path: Path, clock: FakeClock, ids: SequentialIds
) -> None:
    path.write_text("no database " * 100)
    with pytest.raises(StoreError):
        await open_store(path, clock=clock, ids=ids)
    path.unlink()
    store = await open_store(path, clock=clock, ids=ids)
    await store.close()


async def test_b124_what_is_done_late_arrives_where_the_conversation_is(
    path: Path, store: SqlStore
) -> None:
    """The turn began before the chat moved, was compressed and was ended: nothing is lost."""
    receipt = await store.accept(inbound(1))
    ticket = await begin(store, "u1", (receipt.inbox_id,))
    loaded = await store.load(ticket.session_id, ticket=ticket)
    tip = (await store.split(split_of(loaded, SUMMARY, Keep(loaded.last_row_id)))).tip
    assert await store.move_chat("telegram", "7", "111", "-100777")
    await store.start_conversation(KEY, OWNER, PREFIX)
    owed = (OutboxDraft(CHAT, "done"),)
    for session_id in (ticket.session_id, tip.id):
        with pytest.raises(SessionEnded):
            await store.finish_turn(ticket, session_id, "done", final=said("done"), outbox=owed)
    (item,) = await store.finish_turn(ticket, tip.id, "done", outbox=owed)
    assert item.draft.address.chat_id == "-100777"
    assert [i.state for i in await store.inbox_items((receipt.inbox_id,))] == ["answered"]
    # The conversation that was started meanwhile has nothing of it, and is the one that goes on.
    following = await begin(
        store, "u2", session_key=session_key("telegram", "7", "-100777", None, "222")
    )
    assert texts(await store.load(following.session_id, ticket=following)) == ["u2"]
    assert following.conversation_id != ticket.conversation_id
    check_invariants(path)


async def test_b128_the_same_message_twice_is_one(store: SqlStore) -> None:
    receipts = [await store.accept(inbound(n % 4)) for n in range(124)]
    assert [r.fresh for r in receipts].count(True) == 4
    assert len(await store.open_inbox()) == 4


# --- what only a hand can make ------------------------------------------------------------------


async def _in_time(call: Any) -> Any:
    return await asyncio.wait_for(call, 20)


async def test_a_circle_of_parents_ends(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    tip = await compress(store, loaded)
    run_sql(
        path,
        f"UPDATE sessions SET parent_session_id = '{tip.session.id}', link = 'continuation'"
        f" WHERE id = '{loaded.session.id}'",
    )
    for session_id in (loaded.session.id, tip.session.id):
        assert (await _in_time(store.tip(session_id))).id == tip.session.id
        assert len(await _in_time(store.lineage(session_id))) == 2
        await _in_time(store.uncompressed(session_id))
    run_sql(path, "UPDATE sessions SET ended_at = 5, end_reason = 'compression'")
    ticket = await _in_time(begin(store, "go on"))
    assert ticket.session_id in (loaded.session.id, tip.session.id)
    await _in_time(store.finish_turn(ticket, ticket.session_id, "done"))
    await _in_time(store.conversations_of(OWNER))


async def test_a_session_that_is_its_own_parent_ends(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    run_sql(path, "UPDATE sessions SET parent_session_id = id, link = 'continuation'")
    assert (await _in_time(store.tip(loaded.session.id))).id == loaded.session.id
    assert [s.id for s in await _in_time(store.lineage(loaded.session.id))] == [loaded.session.id]
    assert await _in_time(store.uncompressed(loaded.session.id)) == ()
    # It is its own one continuation: a second one is refused, in words, and nothing is changed.
    with pytest.raises(StoreError, match="refused"):
        await _in_time(store.split(split_of(loaded, SUMMARY)))
    assert (await begin(store, "go on")).session_id == loaded.session.id


async def test_a_child_without_messages_goes_on(path: Path, store: SqlStore) -> None:
    tip = await compress(store, await talk(store, said("one"), text="u1"))
    await begin(store, "elsewhere", session_key="another key")  # newer: no id is given anew
    run_sql(
        path,
        f"DELETE FROM messages WHERE session_id = '{tip.session.id}'",
        f"UPDATE sessions SET message_count = 0, carried_row_id = 0 WHERE id = '{tip.session.id}'",
    )
    assert (await store.load(tip.session.id)).rows == ()
    with pytest.raises(SessionEnded):
        await store.branch(tip.session.id, KEY, OWNER)
    assert (await store.undo(tip.session.conversation_id)).removed == ()
    ticket = await begin(store, "u2")
    await store.finish_turn(ticket, ticket.session_id, "done", final=said("two"))
    # And everything that was said before is a step away.
    loaded = await store.load(ticket.session_id)
    assert (await store.uncompress(uncompress_of(loaded))).applied
    again = await begin(store, "u3")
    assert texts(await store.load(again.session_id)) == ["u1", "one", "u2", "two", "u3"]
    check_invariants(path)


async def test_a_parent_whose_child_is_gone_goes_on(path: Path, store: SqlStore) -> None:
    parent = await talk(store, said("one"))
    tip = await compress(store, parent)
    run_sql(
        path,
        f"DELETE FROM messages WHERE session_id = '{tip.session.id}'",
        f"DELETE FROM sessions WHERE id = '{tip.session.id}'",
        f"UPDATE conversations SET tip_session_id = '{parent.session.id}'",
    )
    assert (await store.tip(parent.session.id)).id == parent.session.id
    assert await store.uncompressed(parent.session.id) == ()
    assert (await begin(store, "go on")).session_id == parent.session.id
    check_invariants(path)


async def test_replaced_lists_that_name_nothing_are_left_out(path: Path, store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    columns = {"session_id": loaded.session.id, "revision": 1, "carried_row_id": 99}
    with closing(sqlite3.connect(path)) as db:
        names = {row[1] for row in db.execute("PRAGMA table_info(replaced_lists)")}
        columns |= dict.fromkeys(names - columns.keys() - {"row_ids"}, 0)
        columns["row_ids"] = json.dumps([loaded.rows[0].id, 777])
        marks = ", ".join("?" * len(columns))
        db.execute(
            f"INSERT INTO replaced_lists ({', '.join(columns)}) VALUES ({marks})",
            tuple(columns.values()),
        )
        db.commit()
    assert [row.id for row in await store.uncompressed(loaded.session.id)] == [loaded.rows[0].id]


# --- growth -------------------------------------------------------------------------------------


async def test_finding_the_tip_does_not_walk_its_ancestors(path: Path, store: SqlStore) -> None:
    """SQLite's own count of steps: the same behind three ancestors and behind three hundred."""
    loaded = await talk(store, said("one"), text="u1")
    root = loaded.session.id
    steps: list[int] = []
    for n in range(1, 301):
        loaded = await store.load((await refreeze(store, loaded)).tip.id)
        if n in (3, 300):
            steps.append(_steps_to_the_tip(path, root))
    assert (await store.tip(root)).id == loaded.session.id
    assert steps[1] <= steps[0] + 20
    check_invariants(path)


def _steps_to_the_tip(path: Path, session_id: str) -> int:
    from storage import changes, sessions

    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    with closing(sqlite3.connect(path)) as db:
        db.set_progress_handler(step, 1)
        tip = sessions.tip(db, session_id)
        changes.load(db, tip.id, None)
        sessions.conversation_for_key(db, KEY)
    return count
