"""Owns the bench of the pause: the turn that crosses the threshold, beside its limit.

The real gateway, store and SDK against a fake provider. The summary is prepared by the time that
the turn comes, so what is measured is the swap: reading what is kept, the split, the new list.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from pathlib import Path

from tests.bench.measure import Result, median, text
from tests.bench.turn import Ours, provider

LIMIT_MS = 100.0
"""BUDGETS: over a normal turn, to the first byte of the answer."""
LONG_CHARS = 80_000
"""More than what lies between the level and the threshold."""
SHORT_CHARS = 8_000
LOOK_SECONDS = 0.05
MAX_TURNS = 150
ROUNDS = 3


def _count(database: Path, query: str) -> int:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


async def _extra_ms(ours: Ours, chat: int) -> float:
    """By how much the turn that swaps takes longer than those right before it."""
    source, database = random.Random(chat), ours.folder / "state.db"
    prepared = "SELECT count(*) FROM prepared"
    compressed = "SELECT count(*) FROM sessions WHERE end_reason = 'compression'"
    before = _count(database, compressed)
    for _ in range(2):
        await ours.turn(chat, text(source, LONG_CHARS))
    usual: list[float] = []
    for _ in range(MAX_TURNS):
        usual.append(await ours.turn(chat, text(source, SHORT_CHARS)))
        await asyncio.sleep(LOOK_SECONDS)  # the provider of the bench needs no longer
        if _count(database, prepared):
            break
    crossing = await ours.turn(chat, text(source, LONG_CHARS))
    assert _count(database, compressed) == before + 1, "the threshold was not crossed"
    return (crossing - median(usual[-5:])) * 1000


async def _run() -> list[Result]:
    with provider() as url, tempfile.TemporaryDirectory(dir=".") as folder:
        async with Ours(url, Path(folder)) as ours:
            extra = [max(0.1, await _extra_ms(ours, 70_000 + n)) for n in range(ROUNDS)]
    limit = [LIMIT_MS] * ROUNDS
    return [Result("4g pause when it is prepared", "ms", extra, limit, at_most=1.0)]


def run() -> list[Result]:
    return asyncio.run(_run())
