"""Owns the tests of a damaged search index: whoever meets it, it is made anew; nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreUnavailable
from agent.sessions import SearchScope
from storage.copies import copy_database
from storage.search.index import ABANDONED, Kept
from storage.search.keeper import CALM_SECONDS, WAITS_SECONDS, IndexKeeper
from storage.sqlite import open_store
from storage.store import SqlStore
from storage.upkeep import examine
from tests.contract.store_suite import OWNER, begin, said, talk
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.index_damage import DAMAGE, damage
from tests.fakes.store_invariants import check_invariants

SEEN_BY_A_SEARCH = ("noise", "zeroed", "rows gone", "structure", "settings", "a table gone")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = await opened(path)
    await talk(store, *(said(f"swordfish note{n} " + "x y z " * 50) for n in range(120)))
    yield store
    await store.close()


async def opened(path: Path) -> SqlStore:
    return await open_store(path, clock=FakeClock(), ids=SequentialIds())


async def tended(store: SqlStore) -> None:
    for _ in range(100):
        if not await store.maintain():
            return
    raise AssertionError("it never comes to its end")


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_thorough_look_finds_every_kind(path: Path, store: SqlStore, kind: str) -> None:
    damage(path, kind)
    found = examine(path, thorough=True)
    assert found.search
    assert not found.pages


@pytest.mark.parametrize("kind", DAMAGE)
async def test_whoever_looks_after_it_makes_it_anew(path: Path, store: SqlStore, kind: str) -> None:
    damage(path, kind)
    await store.mend(examine(path, thorough=True))
    await talk(store, said("herring"), text="u2")
    await tended(store)
    assert store.index.remark is None
    assert examine(path, thorough=True).sound
    assert len(await store.search("herring", SearchScope())) == 1
    await store.close()
    check_invariants(path)


@pytest.mark.parametrize("kind", DAMAGE)
async def test_joining_its_segments_meets_it(path: Path, store: SqlStore, kind: str) -> None:
    """Upkeep said "the database can not be written" each time it tried, and never made it anew."""
    damage(path, kind)
    await tended(store)
    assert store.trouble() is None


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_person_is_forgotten_over_a_damaged_index(
    path: Path, store: SqlStore, kind: str
) -> None:
    await store.close()
    damage(path, kind)
    again = await opened(path)
    await again.begin_forgetting(OWNER)
    assert (await again.erase(OWNER)).erased is not None
    await tended(again)
    await again.finish_forgetting(OWNER)
    assert await again.search("swordfish", SearchScope()) == []
    await again.close()
    assert examine(path, thorough=True).sound
    check_invariants(path)


@pytest.mark.parametrize("kind", DAMAGE)
async def test_what_is_old_goes_whole_or_not_at_all_over_a_damaged_index(
    path: Path, store: SqlStore, kind: str
) -> None:
    """The index's error undid the transaction, and the rest was deleted outside of any."""
    ticket = await begin(store, session_key="other")
    await store.finish_turn(ticket, ticket.session_id, "done")
    await store.close()
    damage(path, kind)
    again = await opened(path)
    cleared = await again.clear_silent(FakeClock().now() + 1)
    assert cleared.conversations == 1
    await again.mend(examine(path, thorough=True))
    await tended(again)
    assert await again.search("swordfish", SearchScope()) == []
    await again.close()
    assert examine(path, thorough=True).sound
    check_invariants(path)


@pytest.mark.parametrize("kind", SEEN_BY_A_SEARCH)
async def test_a_search_that_meets_it_has_it_made_anew(
    path: Path, store: SqlStore, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path, kind)
    for _ in range(3):
        assert len(await store.search("swordfish", SearchScope(), limit=50)) == 50
    assert "made anew" in (store.index.remark or "")
    said_so = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert [r.message.startswith("search index is damaged") for r in said_so] == [True]
    await tended(store)
    assert store.index.remark is None
    assert examine(path, thorough=True).sound
    assert caplog.records[-1].message == "search index is whole again"


async def test_a_message_that_meets_it_is_stored_and_says_so(path: Path, store: SqlStore) -> None:
    damage(path, "structure")
    await talk(store, said("herring"), text="u2")
    assert store.index.remark is not None
    assert store.trouble() is None
    assert len(await store.search("herring", SearchScope())) == 1
    await tended(store)
    assert store.index.remark is None


async def test_a_mark_that_somebody_else_has_set_is_seen_at_once(
    path: Path, store: SqlStore
) -> None:
    """Retention sets it on the connection itself; the thread that writes knew nothing of it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO facts VALUES ('index_damaged', '1')")
        db.execute("UPDATE message_index_data SET block = x'00' WHERE id = 10")
    await tended(store)
    assert examine(path, thorough=True).sound


# --- pages of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["data", "idx", "docsize", "config"])
async def test_a_page_of_it_that_is_none_any_more(
    path: Path, store: SqlStore, clock: FakeClock, table: str
) -> None:
    """It could not even be dropped, no backup could be made, and no message be stored."""
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = db.execute(query, (f"message_index_{table}",)).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 300)
    copied = copy_database(path, path.with_name("copy.db"), 1.0)
    assert copied.index_damage
    assert examine(path.with_name("copy.db"), thorough=True).sound
    check_invariants(path.with_name("copy.db"))
    again = await open_store(path, clock=clock, ids=SequentialIds())
    await again.mend(examine(path, thorough=True))
    await talk(again, said("herring"), text="u2")
    with pytest.raises(StoreUnavailable, match=r"malformed|vtable"):
        await again.maintain()
    clock.jump(again.index.wait_seconds())
    await tended(again)
    assert again.index.remark is None
    assert examine(path, thorough=True).sound
    assert len(await again.search("herring", SearchScope())) == 1
    assert await again.fact(ABANDONED) == "1"
    assert await again.rewrite_file()
    assert len(await again.search("swordfish", SearchScope(), limit=50)) == 50
    await again.close()
    check_invariants(path)


# --- when it is made anew -------------------------------------------------------------------------


class Upkeep:
    """What the thread that writes says to each step."""

    def __init__(self) -> None:
        self.asked: list[tuple[bool, bool]] = []
        self.fails = False

    async def __call__(self, distrusted: bool, may_begin: bool, forsaken: bool) -> Kept:
        self.asked.append((distrusted, may_begin))
        if distrusted and may_begin and self.fails:
            raise StoreUnavailable("no room")
        if distrusted and not may_begin:
            return Kept(more=False, damaged=True)
        return Kept(more=False, begun=distrusted)


async def test_what_fails_is_tried_again_and_again_later(clock: FakeClock) -> None:
    keeper, upkeep = IndexKeeper(clock), Upkeep()
    upkeep.fails = True
    keeper.hurt("malformed")
    for wait in (*WAITS_SECONDS[1:], WAITS_SECONDS[-1]):
        with pytest.raises(StoreUnavailable):
            await keeper.step(upkeep)
        assert "no room" in (keeper.remark or "")
        assert keeper.wait_seconds() == wait
        assert not await keeper.step(upkeep)
        clock.jump(wait)
    upkeep.fails = False
    await keeper.step(upkeep)
    assert keeper.remark is None


async def test_an_index_that_is_damaged_again_and_again_is_not_made_anew_all_the_time(
    clock: FakeClock,
) -> None:
    keeper, upkeep = IndexKeeper(clock), Upkeep()
    for wait in (60.0, 600.0):
        keeper.hurt("malformed")
        await keeper.step(upkeep)
        assert (keeper.remark, keeper.wait_seconds()) == (None, wait)
        keeper.hurt("malformed")
        await keeper.step(upkeep)
        assert keeper.remark is not None
        clock.jump(wait)
    await keeper.step(upkeep)
    assert keeper.remark is None
    clock.jump(CALM_SECONDS + 1)
    assert keeper.wait_seconds() == 0


async def test_a_page_is_somebody_elses_to_look_at(clock: FakeClock) -> None:
    keeper = IndexKeeper(clock)
    keeper.found_by_writer("database disk image is malformed")
    assert keeper.remark is None
    assert await keeper.wanted()
    keeper.found_by_writer(None)
    assert not await keeper.wanted()


async def test_a_page_that_was_met_meanwhile_is_looked_at_once_it_is_whole(
    clock: FakeClock,
) -> None:
    keeper = IndexKeeper(clock)
    keeper.hurt("malformed")
    keeper.found_by_writer("database disk image is malformed")
    await keeper.step(Upkeep())
    assert keeper.remark is None
    assert await asyncio.wait_for(keeper.wanted(), 30)


async def test_what_was_seen_before_it_was_made_anew_is_nothing_any_more(clock: FakeClock) -> None:
    keeper, upkeep = IndexKeeper(clock), Upkeep()
    before = keeper.rebuilds
    keeper.hurt("malformed", of=before)
    await keeper.step(upkeep)
    keeper.hurt("malformed", of=before)
    assert keeper.remark is None
