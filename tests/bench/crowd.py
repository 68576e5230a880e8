"""Owns the bench of many turns at once (rows 5c, 5d) and of chats that must not slow each other."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from agent.mail import Address, OutboxPart
from gateway.platforms.contract import SendFlood
from tests.bench.measure import Result, percentile, text
from tests.bench.turn import Ours, Twin, provider

CROWD = 500
WAVES = 1
SLOW_MODEL_SECONDS = 2.0
SLOW_CHATS = 50
SLOW_WAVES = 2
ROUNDS = 3
BAN_SECONDS = 1_000.0
HELD, BANNED = 101, 102
"""Chats of which the model, or the platform, does not answer."""
FREE = 103
"""No chat is number 1: that is the bot itself, whose words are nobody's."""


def resident_mib() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def wave(side: Ours | Twin, chats: int, base: int) -> list[float]:
    """The latencies, in seconds, of one turn in each of so many chats at once."""
    source = random.Random(base)
    words = [text(source, 200) for _ in range(chats)]
    return list(await asyncio.gather(*(side.turn(base + c, words[c]) for c in range(chats))))


async def _crowd() -> list[Result]:
    speed: tuple[list[float], list[float]] = ([], [])
    worst: tuple[list[float], list[float]] = ([], [])
    grown: list[float] = []
    with provider() as url, tempfile.TemporaryDirectory(dir=".") as folder:
        async with Ours(url, Path(folder)) as ours, Twin(url, Path(folder)) as twin:
            for side in (ours, twin):
                await wave(side, 10, 500)
            before = resident_mib()
            await wave(ours, CROWD, 1_000)
            grown.append(resident_mib() - before)
            await wave(twin, CROWD, 1_000)
            for n in range(ROUNDS):
                for at, side in enumerate((ours, twin)):
                    start = time.perf_counter()
                    found: list[float] = []
                    for w in range(WAVES):
                        # new people each time, as after a broadcast
                        found += await wave(side, CROWD, 10_000 * (n + 1) + CROWD * w)
                    speed[at].append(len(found) / (time.perf_counter() - start))
                    worst[at].append(percentile(found, 99))
    budget_mib = 60.0
    return [
        Result("5c turns, 500 chats at once", "per s", *speed, at_least=0.38),
        Result("5c turns, 500 at once, p99", "s", *worst, at_most=2.67),
        Result("5c memory of the first 500", "MiB", grown, [budget_mib], at_most=1.0,
               note="the limit is the budget itself"),
    ]  # fmt: skip


async def _slow_model() -> list[Result]:
    beyond: tuple[list[float], list[float]] = ([], [])
    options = ("--first-delay", str(SLOW_MODEL_SECONDS))
    with provider(*options) as url, tempfile.TemporaryDirectory(dir=".") as folder:
        async with Ours(url, Path(folder)) as ours, Twin(url, Path(folder)) as twin:
            for side in (ours, twin):
                await wave(side, SLOW_CHATS, 1_000)
            for n in range(ROUNDS):
                for at, side in enumerate((ours, twin)):
                    found: list[float] = []
                    for _ in range(SLOW_WAVES):
                        found += await wave(side, SLOW_CHATS, 10_000 * (n + 1))
                    beyond[at].append((percentile(found, 50) - SLOW_MODEL_SECONDS) * 1000)
    return [Result("5d 50 at once, 2 s model: more", "ms", *beyond, at_most=4.5)]


def _ban(ours: Ours) -> None:
    """From now on one chat may not be written to for a quarter of an hour."""
    send = ours.platform.send

    async def refuse(address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        if address.chat_id == str(BANNED):
            raise SendFlood(BAN_SECONDS)
        return await send(address, part, repeat=repeat)

    platform: Any = ours.platform
    platform.send = refuse


async def _neighbours() -> list[Result]:
    beside: tuple[list[float], list[float]] = ([], [])
    with (
        provider("--fault-next", "hang:1") as held,
        provider() as free,
        tempfile.TemporaryDirectory(dir=".") as one,
        tempfile.TemporaryDirectory(dir=".") as other,
    ):
        async with Ours(held, Path(one)) as beside_them, Ours(free, Path(other)) as alone:
            stuck = [asyncio.ensure_future(beside_them.turn(HELD, "this takes long"))]
            await asyncio.sleep(1.0)  # it has the hanging answer
            _ban(beside_them)
            stuck.append(asyncio.ensure_future(beside_them.turn(BANNED, "nobody hears this")))
            for chat in (FREE, FREE + 1):
                for side in (beside_them, alone):
                    await side.turn(chat, "hello")
            for _ in range(ROUNDS * 2):
                for at, side in enumerate((beside_them, alone)):
                    found = [await side.turn(FREE, "and now?") for _ in range(25)]
                    beside[at].append(percentile(found, 50) * 1000)
            assert not any(task.done() for task in stuck)
            for task in stuck:
                task.cancel()
    return [
        Result("a turn beside a stuck and a banned", "ms", *beside, at_most=1.3,
               note="the limit is the same without them"),
    ]  # fmt: skip


async def _run() -> list[Result]:
    return [*await _crowd(), *await _slow_model(), *await _neighbours()]


def run() -> list[Result]:
    return asyncio.run(_run())
