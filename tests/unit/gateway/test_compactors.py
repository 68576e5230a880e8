"""The compactors of the busy conversations, bounded, each made once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from agent.ports import Compactor
from gateway.turns.compactors import CompactorCache
from tests.unit.gateway.rig import FakeCompactor


class Maker:
    """Makes compactors when it is let, and takes down for whom."""

    def __init__(self, *, slow: bool = False) -> None:
        self.made: list[str] = []
        self.go = asyncio.Event()
        self.fails = False
        if not slow:
            self.go.set()

    async def __call__(self, conversation_id: str) -> Compactor:
        self.made.append(conversation_id)
        await self.go.wait()
        if self.fails:
            raise RuntimeError("told to fail")
        return FakeCompactor()


class FakeKeeper:
    """Keeps all, and takes down whom it let go."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.followed: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.go = asyncio.Event()
        """Until then nothing ends."""
        self.go.set()

    def survives(self, compactor: Compactor) -> bool:
        return True

    async def succeed(self, compactor: Compactor, old_id: str, new_id: str) -> Compactor:
        self.followed.append((old_id, new_id))
        return compactor

    async def let_go(self, compactor: Compactor, conversation_id: str) -> None:
        await self.go.wait()
        self.gone.append(conversation_id)

    async def close(self, compactors: Iterable[tuple[str, Compactor]]) -> None:
        self.closed = [name for name, _ in compactors]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_longest_unused_goes_first() -> None:
    make = Maker()
    cache = CompactorCache(make, max_compactors=2)
    first = await cache.get("a")
    await cache.get("b")
    assert await cache.get("a") is first
    await cache.get("c")
    assert await cache.get("a") is first
    await cache.get("b")
    assert make.made == ["a", "b", "c", "b"]
    cache.succeed("a", "new")
    cache.succeed("unknown", "new")
    assert len(cache) == 1


async def test_two_who_ask_at_once_get_the_same_one() -> None:
    make = Maker(slow=True)
    cache = CompactorCache(make)
    one, other = asyncio.ensure_future(cache.get("a")), asyncio.ensure_future(cache.get("a"))
    cancelled = asyncio.ensure_future(cache.get("a"))
    await settle()
    cancelled.cancel()
    make.go.set()
    assert await one is await other
    assert make.made == ["a"]


async def test_one_that_could_not_be_made_is_made_at_the_next_chance() -> None:
    make = Maker()
    make.fails = True
    cache = CompactorCache(make)
    with pytest.raises(RuntimeError):
        await cache.get("a")
    make.fails = False
    await cache.get("a")
    assert make.made == ["a", "a"]


async def test_one_in_use_is_not_let_go_and_its_keeper_hears_of_the_others() -> None:
    keeper = FakeKeeper()
    cache = CompactorCache(Maker(), max_compactors=1, keeper=keeper)
    async with cache.using("a") as used:
        await cache.get("b")
        await cache.get("c")
        await settle()
        assert keeper.gone == ["b"]
        assert await cache.get("a") is used
    await cache.get("d")
    await settle()
    assert sorted(keeper.gone) == ["a", "b", "c"]


async def test_a_window_that_changed_makes_none_anew_that_minds_it_by_itself() -> None:
    kept, plain = CompactorCache(Maker(), keeper=FakeKeeper()), CompactorCache(Maker())
    for cache, same in ((kept, True), (plain, False)):
        before = await cache.get("a")
        cache.clear()
        assert (await cache.get("a") is before) is same


async def test_what_begins_in_another_ones_place_has_its_engine() -> None:
    keeper = FakeKeeper()
    make = Maker(slow=True)
    cache = CompactorCache(make, keeper=keeper)
    old = asyncio.ensure_future(cache.get("a"))
    await settle()
    cache.succeed("a", "b")
    following = asyncio.ensure_future(cache.get("b"))
    await settle()
    assert not following.done()
    make.go.set()
    assert await following is await old
    assert keeper.followed == [("a", "b")]
    cache.succeed(
        "never used", "c"
    )  # its session is over all the same: an engine has to hear of it
    await cache.get("c")
    assert keeper.followed[1:] == [("never used", "c")]


async def test_who_was_let_go_is_told_before_the_end_and_so_is_one_made_late() -> None:
    keeper, make = FakeKeeper(), Maker()
    cache = CompactorCache(make, max_compactors=2, keeper=keeper)
    for name in "ab":
        await cache.get(name)
    keeper.go.clear()
    cache.drop(["a"])
    make.go.clear()
    late = asyncio.ensure_future(cache.get("c"))
    await settle()
    closing = asyncio.ensure_future(cache.close())
    await settle()
    assert (keeper.closed, keeper.gone, closing.done()) == (["b"], [], False)
    make.go.set()
    keeper.go.set()
    await closing
    assert keeper.gone == ["a", "c"]
    await late


async def test_nothing_goes_on_behind_a_close_that_is_cut_off() -> None:
    keeper, make = FakeKeeper(), Maker()
    cache = CompactorCache(make, keeper=keeper)
    await cache.get("a")
    before = asyncio.all_tasks()
    keeper.go.clear()
    cache.drop(["a"])
    make.go.clear()
    cache.succeed("never used", "b")
    closing = asyncio.ensure_future(cache.close())
    await settle()
    closing.cancel()
    await settle()
    assert asyncio.all_tasks() == before
    assert keeper.gone == []
