"""Owns the tests of the locks of conversations: order, and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.keyed_locks import KeyedLocks


async def test_first_come_first_served_and_other_keys_do_not_wait() -> None:
    locks, seen, go = KeyedLocks(), list[str](), asyncio.Event()

    async def work(key: str, name: str) -> None:
        async with locks.hold(key):
            if name == "a1":
                await go.wait()
            seen.append(name)

    tasks = [asyncio.ensure_future(work(name[0], name)) for name in ("a1", "a2", "a3", "b1")]
    await tasks[-1]
    assert seen == ["b1"]
    go.set()
    await asyncio.gather(*tasks)
    assert seen == ["b1", "a1", "a2", "a3"]
    assert not locks.in_use


async def test_who_gives_up_leaves_the_place_to_the_next() -> None:
    locks, seen, go = KeyedLocks(), list[str](), asyncio.Event()

    async def work(name: str) -> None:
        async with locks.hold("a"):
            await go.wait()
            seen.append(name)

    tasks = [asyncio.ensure_future(work(name)) for name in ("first", "tired", "last")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    go.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert seen == ["first", "last"]
    assert not locks.in_use


async def test_a_failure_inside_lets_go() -> None:
    locks = KeyedLocks()
    with pytest.raises(ZeroDivisionError):
        async with locks.hold("a"):
            raise ZeroDivisionError
    assert not locks.in_use


@given(st.lists(st.sampled_from("abc"), max_size=20), st.data())
def test_whoever_gives_up_turns_are_taken_as_they_came(keys: list[str], data: Any) -> None:
    gone = data.draw(st.sets(st.integers(0, 19)))

    async def scene() -> None:
        locks, order, running = KeyedLocks(), list[tuple[str, int]](), set[str]()

        async def one(n: int, key: str) -> None:
            async with locks.hold(key):
                assert key not in running, "one at a time"
                running.add(key)
                order.append((key, n))
                await asyncio.sleep(0)
                running.discard(key)

        tasks = [asyncio.create_task(one(n, key)) for n, key in enumerate(keys)]
        await asyncio.sleep(0)
        for n in gone & set(range(len(tasks))):
            tasks[n].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for key in "abc":
            mine = [n for k, n in order if k == key]
            assert mine == sorted(mine)
        assert not locks.in_use

    asyncio.run(scene())
