"""What a trace is made of: the size of every original, once, and no word of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.clock import RandomIds
from agent.errors import SessionNotFound
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.lineage_suite import OTHER_KEY, compress, compress_in_place
from tests.contract.store_suite import OWNER, calling, result, said, talk
from tests.fakes.clock import FakeClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(tmp_path / "state.db", clock=FakeClock(), ids=RandomIds())
    yield opened
    await opened.close()


async def test_every_original_once_over_splits_and_rewrites(store: SqlStore) -> None:
    loaded = await talk(
        store, calling("c1", "c2", text="两个"), result("c1"), result("c2", "x"), said("done")
    )
    roles = ["user", "assistant", "tool", "tool", "assistant"]
    first = await store.row_sizes(loaded.session.id)
    assert [size.role for size in first] == roles
    assert first[1].call_chars == (len("clock{}"),) * 2
    assert [size.speaks for size in first] == [True] * 5
    assert [size.tokens for size in first] == [row.tokens for row in loaded.rows]
    loaded = await compress(store, loaded, keep=2)
    assert await store.row_sizes(loaded.session.id) == first
    loaded = await talk(store, calling("c3"), result("c3"), said("again"))
    loaded = await compress_in_place(store, loaded, keep=1)
    found = await store.row_sizes(loaded.session.id)
    assert found[:5] == first
    assert [size.role for size in found[5:]] == ["user", "assistant", "tool", "assistant"]
    assert not found[6].speaks


async def test_what_was_taken_back_is_not_there(store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    loaded = await talk(store, said("two"), text="a longer question")
    loaded = await compress(store, loaded, keep=3)
    await store.undo(loaded.session.conversation_id)
    assert [size.role for size in await store.row_sizes(loaded.session.id)] == ["user", "assistant"]


async def test_a_branch_begins_with_what_it_copied(store: SqlStore) -> None:
    loaded = await talk(store, said("one"))
    branch = await store.branch(loaded.session.id, OTHER_KEY, OWNER)
    assert await store.row_sizes(branch.id) == await store.row_sizes(loaded.session.id)


async def test_of_nobody(store: SqlStore) -> None:
    with pytest.raises(SessionNotFound):
        await store.row_sizes("nobody")
