"""Owns the bench of plugins' hooks: no-op ones beside a turn, hung ones beside the loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from agent.clock import SystemClock
from agent.messages import Row
from agent.turn_companions import TurnFacts
from gateway.plugins.calling import PluginCalls
from gateway.plugins.hook_companion import HookCompanion
from gateway.plugins.hooks import HookDispatch
from gateway.plugins.manager import PluginManager
from gateway.plugins.whereabouts import Places
from tests.bench.measure import Result, percentile

TURNS = 400
MESSAGES = 20
LIMIT_MS = 1.0
ROUNDS = 7
PROBE_SECONDS = 0.5
NOISE_MS = 5.0
"""Added to both sides: below that nobody waits, and a busy machine makes any ratio."""
FACTS = TurnFacts("t", "c", "s", "", "k", "o", "p", "telegram", "m", "hello")
ROWS = [Row(n, "s", n, {"role": "user", "content": "word " * 50}, 1.0) for n in range(MESSAGES)]


async def history() -> Sequence[Row]:
    return ROWS


def companion(**hooks: Any) -> HookCompanion:
    manager, clock = PluginManager(), SystemClock()
    for name, each in hooks.items():
        manager.hooks[name] = each
    return HookCompanion(HookDispatch(manager, PluginCalls(clock)), Places(), clock)


async def turns() -> list[float]:
    """Milliseconds that a turn waits for three no-op hooks that take whatever is offered."""

    def nothing(**offered: Any) -> None:
        return None

    one = companion(pre_llm_call=[nothing], post_llm_call=[nothing], on_session_end=[nothing])
    took: list[float] = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        await one.before(FACTS, history)
        await one.after(FACTS, "hi", history, completed=True, interrupted=False)
        took.append((time.perf_counter() - begun) * 1000)
        await one.close()
    return took[TURNS // 10 :]


async def lag(hanging: int) -> float:
    """Milliseconds by which the loop is late while so many hooks hang and names are resolved."""
    free = threading.Event()
    one = companion(pre_llm_call=[lambda: free.wait()] * hanging)
    loop = asyncio.get_running_loop()
    turn = asyncio.ensure_future(one.before(FACTS, history))
    late: list[float] = []
    end = time.perf_counter() + PROBE_SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await asyncio.sleep(0.005)
        late.append((time.perf_counter() - begun - 0.005) * 1000)
        await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    free.set()
    await turn
    return percentile(late, 99) + NOISE_MS


def run() -> list[Result]:
    took = asyncio.run(turns())
    rounds = [(asyncio.run(lag(10)), asyncio.run(lag(0))) for _ in range(ROUNDS)]
    late, quiet = zip(*rounds, strict=True)
    return [
        Result("turn with no-op hooks, p50", "ms", [percentile(took, 50)], [LIMIT_MS], at_most=1.0),
        Result("loop beside ten hung hooks, p99", "ms", late, quiet, at_most=2.0),
    ]  # fmt: skip
