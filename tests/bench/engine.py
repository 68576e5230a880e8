"""Owns the bench of engines of plugins: what one that does nothing costs a turn, and ten that hang.

The real gateway, store and SDK against a fake provider, once with the built-in engine and once with
a plugin's, turn by turn. Then ten conversations whose engines hang: how late the event loop is, and
another chat's answer, which no engine of theirs may hold up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.measure import Result, percentile
from tests.bench.turn import provider
from tests.fakes.engine_house import EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin

LIMIT_MS = 1.0
"""Issue 8: what a no-op engine may add to a turn."""
LAG_LIMIT_MS = 50.0
ROUNDS, TURNS = 6, 40
HANGING = 10
NOOP = """
import threading
from agent.context_engine import ContextEngine

GATE, HANGS = threading.Event(), []

class Noop(ContextEngine):
    name = "noop"
    def update_from_response(self, usage):
        if HANGS: GATE.wait(60)
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, **more): return messages

def register(ctx):
    ctx.register_context_engine(Noop())
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


async def _late_ms(noop: EngineHouse) -> tuple[float, float]:
    """How late the loop is at most, and how long another chat waits; while ten engines hang."""
    plugin: Any = sys.modules["plugins.context_engine.noop"]
    other = await noop.say("hello", "11")
    assert other
    plugin.HANGS.append(True)
    stuck = [asyncio.ensure_future(noop.say("hello", str(n))) for n in range(20, 20 + HANGING)]
    await asyncio.sleep(1.0)
    lags: list[float] = []
    probe = asyncio.ensure_future(_probe(lags))
    plugin.HANGS.clear()
    waits: list[float] = []
    for _ in range(20):
        begun = time.perf_counter()
        await noop.say("hello", "11")
        await asyncio.get_running_loop().getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        waits.append(time.perf_counter() - begun)
    probe.cancel()
    assert not any(task.done() for task in stuck)
    plugin.GATE.set()
    await asyncio.gather(*stuck)
    return percentile(lags, 99) * 1000, max(waits) * 1000


async def _probe(lags: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - begun - 0.005)


async def _run(url: str, folder: Path) -> list[Result]:
    noop = EngineHouse(folder / "noop", url, "noop", window=200_000)
    plain = EngineHouse(folder / "plain", url, "compressor", window=200_000)
    async with noop, plain:
        await _added_ms(noop, plain)  # the first round loads what is loaded once
        added = [await _added_ms(noop, plain) for _ in range(ROUNDS)]
        lag, wait = await _late_ms(noop)
    note = f"another chat at most {wait:.0f} ms"
    return [
        Result(
            "turn, what a no-op engine adds",
            "ms",
            [max(0.01, ms) for ms in added],
            [LIMIT_MS] * ROUNDS,
            at_most=1.0,
        ),
        Result(
            "ten engines hang: loop lag p99", "ms", [max(0.01, lag)], [LAG_LIMIT_MS], 1.0, note=note
        ),
    ]


def run() -> list[Result]:
    before = dict(os.environ)
    try:
        with provider() as url, tempfile.TemporaryDirectory(dir=".") as name, clean_modules():
            folder = Path(name).absolute()
            write_plugin(folder / "noop" / "plugins" / "context_engine", "noop", NOOP)
            (folder / "plain").mkdir()
            return asyncio.run(_run(url, folder))
    finally:
        os.environ.clear()
        os.environ.update(before)
