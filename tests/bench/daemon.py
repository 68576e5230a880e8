"""Owns the bench of the daemon at rest (rows 2a to 2c): how soon it is ready, what it takes idle.

The daemon as a process, with both platforms on loopback servers; ready is what it tells a service
manager. The limit twin imports what any such daemon has to import, and no more.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.acceptance.harness import (
    REPO,
    TelegramChat,
    World,
    environment,
    eventually,
    open_world,
)
from tests.bench.measure import Result

ROUNDS = 5
IDLE_SECONDS = 30.0
SETTLING_SECONDS = 8.0
"""Behind READY: the SDK of the model is imported then."""
IDLE_MS = 1.0
SLEEPER = """
import asyncio
async def main():
    while True:
        await asyncio.sleep(0.1)
asyncio.run(main())
"""
BARE = "import aiosqlite, asyncio, yaml, pydantic, telegram.ext, discord, aiohttp"
MODEL = f"{BARE}, anthropic; client = anthropic.AsyncAnthropic(api_key='none')"
SIZE = "; print(open('/proc/self/statm').read().split()[1])"
TICKS = os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS


def _imports_seconds() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-W", "ignore", "-c", BARE], check=True)
    return time.perf_counter() - begun


def _process(env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", "run"],
        cwd=REPO,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _bare_mib(statements: str) -> float:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", statements + SIZE],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def _started(world: World) -> AsyncIterator[tuple[int, float]]:
    """A daemon that has said READY=1: its process id, and how many seconds that took."""
    notify = world.home.parent / "notify"
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.setblocking(False)
        secrets = {**world.secrets, "NOTIFY_SOCKET": str(notify)}
        begun = time.perf_counter()
        process = _process(environment(world.home, secrets))
        try:
            async with asyncio.timeout(60):
                while True:
                    said = await asyncio.get_running_loop().sock_recv(manager, 4096)
                    if b"READY=1" in said:
                        break
            yield process.pid, time.perf_counter() - begun
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


async def _run(folder: Path) -> list[Result]:
    ready, bare, at_ready = [], [], []
    async with open_world(folder, window=None) as world:
        world.configure(model={"base_url": world.anthropic.base_url, "context_length": 200_000})
        for _ in range(ROUNDS):
            bare.append(await asyncio.to_thread(_imports_seconds))
            async with _started(world) as (pid, seconds):
                ready.append(seconds)
                at_ready.append(_memory_mib(pid))
        async with _started(world) as (pid, _):
            await asyncio.sleep(SETTLING_SECONDS)
            # Beside it, for the same time: some machines charge sleepers for being woken.
            sleeper = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER)
            before = _cpu_ms(pid)
            await asyncio.sleep(IDLE_SECONDS)
            idle, floor = (
                (_cpu_ms(pid) - before) / IDLE_SECONDS,
                _cpu_ms(sleeper.pid) / IDLE_SECONDS,
            )
            sleeper.kill()
            await sleeper.wait()
            chat = TelegramChat(world)
            chat.say("hello")
            await eventually(chat.shown, 20, "the first answer")
            loaded = _memory_mib(pid)
    bare_mib, model_mib = await asyncio.gather(
        *(asyncio.to_thread(_bare_mib, what) for what in (BARE, MODEL))
    )
    return [
        Result("2a daemon ready, both platforms", "s", ready, bare, at_most=1.5,
               note="absolute budget 0.75 s"),
        Result("2b memory at READY", "MiB", at_ready, [bare_mib] * ROUNDS, at_most=1.25,
               note="absolute budget 75 MiB"),
        Result("2b memory, idle and a first turn", "MiB", [loaded], [model_mib], at_most=1.15,
               note="absolute budget 125 MiB"),
        Result("2c idle processor time", "ms/s", [max(idle, 0.001)], [max(floor, IDLE_MS)],
               at_most=2.0, note="limit: a loop that wakes ten times a second, 1 ms/s at least"),
    ]  # fmt: skip


def run() -> list[Result]:
    """All of it."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        return asyncio.run(_run(Path(name).absolute()))
