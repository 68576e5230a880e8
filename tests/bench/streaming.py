"""Owns the benches of showing answers while they are written: per piece of text, per look at it.

The twins do what can not be left out: keep the pieces, join them once per look.
"""

from __future__ import annotations

import asyncio
import random
import time

from agent.clock import RandomIds, SystemClock
from agent.mail import Address
from agent.messages import Draft
from agent.sessions import SessionPrefix, TurnOpening, session_key
from gateway.delivery.outbox import Delivery
from gateway.delivery.unfinished import unfinished
from storage.memory import MemoryStore
from tests.bench.measure import Result, text
from tests.fakes.platform import FakePlatform

ROUNDS = 5
PIECES = 20_000
LOOKS = 200
CHAT = Address("fake", "900", "111")


async def _pieces(shown: bool) -> float:
    """Microseconds of the loop for each piece of a long answer, its preview shown or not."""
    clock, ids = SystemClock(), RandomIds()
    store = MemoryStore(clock, ids)
    platform = FakePlatform(previews="message" if shown else "none", limit=4000)
    delivery = Delivery(mailbox=store, platforms={"fake": platform}, clock=clock)
    key = session_key("fake", "900", "111", None, None)
    prefix = SessionPrefix("fake", "m", "")
    said = Draft({"role": "user", "content": "go"})
    ticket = await store.begin_turn(TurnOpening(key, "fake:111", (), said, prefix))
    kept: list[str] = []
    async with delivery.previews(store).of(ticket, CHAT) as preview:
        say = preview.on_text if preview is not None else kept.append
        begin = time.perf_counter()
        for _ in range(PIECES):
            say("word ")
            await asyncio.sleep(0)  # each piece comes in a step of its own
        took = time.perf_counter() - begin
    await delivery.stop(1)
    return took / PIECES * 1e6


def _looks(answer: str) -> tuple[float, float]:
    """Microseconds for one look at an answer of this length: ours, and to join its pieces."""
    pieces = answer.split(" ")
    begin = time.perf_counter()
    for _ in range(LOOKS):
        unfinished(answer, 4096)
    middle = time.perf_counter()
    for _ in range(LOOKS):
        " ".join(pieces)
    return (middle - begin) / LOOKS * 1e6, (time.perf_counter() - middle) / LOOKS * 1e6


def run() -> list[Result]:
    """All of it."""
    ours, limit = [], []
    looks, joins = [], []
    answer = text(random.Random(1), 30_000)
    for _ in range(ROUNDS):
        ours.append(asyncio.run(_pieces(shown=True)))
        limit.append(asyncio.run(_pieces(shown=False)))
        mine, floor = _looks(answer)
        looks.append(mine)
        joins.append(floor)
    return [
        Result("streaming: a piece", "us", ours, limit, at_most=4.0, note="budget 20 us"),
        Result("streaming: a look at 30 kB", "us", looks, joins, at_most=20.0),
    ]
