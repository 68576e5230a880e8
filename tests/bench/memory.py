"""Owns the bench of memory providers of plugins: what one that does nothing adds to a turn.

The real gateway, store and SDK against a fake provider of models, once without and once with a
memory provider whose every method is there and does nothing, turn by turn.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from gateway.config.models import Memory
from tests.bench.measure import Result, percentile
from tests.bench.turn import provider
from tests.fakes.engine_house import EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin

LIMIT_MS = 1.0
"""Issue 8: what a no-op provider may add to a turn."""
ROUNDS, TURNS = 6, 40
NOOP = """
from agent.memory_provider import MemoryProvider

class Noop(MemoryProvider):
    name = "noop"
    def is_available(self): return True
    def initialize(self, session_id, **more): pass
    def get_tool_schemas(self): return []
    def prefetch(self, query, *, session_id=""): return ""
    def sync_turn(self, user, assistant, *, session_id=""): pass
    def on_turn_start(self, number, message, **more): pass

def register(ctx):
    ctx.register_memory_provider(Noop())
"""


async def _added_ms(noop: EngineHouse, plain: EngineHouse) -> float:
    took: dict[EngineHouse, list[float]] = {noop: [], plain: []}
    for _ in range(TURNS):
        for house, times in took.items():
            begun = time.perf_counter()
            await house.say("hello")
            times.append(time.perf_counter() - begun)
    for house in took:
        await house.say("/new")  # so that no list grows
    # Both at a quiet moment: what is between them is small beside a busy machine's.
    return (percentile(took[noop], 20) - percentile(took[plain], 20)) * 1000


async def _run(url: str, folder: Path) -> list[Result]:
    memory = Memory(provider="noop")
    noop = EngineHouse(folder / "noop", url, "compressor", window=200_000, memory=memory)
    plain = EngineHouse(folder / "plain", url, "compressor", window=200_000)
    async with noop, plain:
        assert noop.plugins.providers.works
        await _added_ms(noop, plain)  # the first round loads what is loaded once
        added = [await _added_ms(noop, plain) for _ in range(ROUNDS)]
    return [
        Result(
            "turn, what a no-op memory provider adds",
            "ms",
            [max(0.01, ms) for ms in added],
            [LIMIT_MS] * ROUNDS,
            at_most=1.0,
        )
    ]


def run() -> list[Result]:
    before = dict(os.environ)
    try:
        with provider() as url, tempfile.TemporaryDirectory(dir=".") as name, clean_modules():
            folder = Path(name).absolute()
            write_plugin(folder / "noop" / "plugins", "noop", NOOP)
            (folder / "plain").mkdir()
            return asyncio.run(_run(url, folder))
    finally:
        os.environ.clear()
        os.environ.update(before)
