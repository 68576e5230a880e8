"""Owns the soak: a daemon that has had ten thousand turns is as large and as quick as before.

The daemon as a process, two hundred chats on a loopback Telegram, a strict loopback provider with
a small window (so that every conversation is compressed again and again), tools, connections that
break on both sides. Every five hundred turns, once nothing runs, it is looked at from outside:
memory, descriptors, threads, the log of the database; and how long a turn took meanwhile.

`make soak` runs all of it; `python -m tests.bench.soak --turns 1000` less. Budgets: memory grows by
at most 1 MB per 1,000 turns, descriptors, threads and tasks not at all, turns stay as quick.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.acceptance.harness import Daemon, World
from tests.bench.measure import Result, percentile, text
from tests.fakes.anthropic_server import Answer, AnthropicServer, MessageRequest, echo, tool_use
from tests.fakes.discord_server import DiscordServer
from tests.fakes.telegram_server import Fault, TelegramServer

TURNS = 10_000
CHATS = 200
AT_ONCE = 8
EVERY = 500
TRACE_EVERY = 2_000
"""Turns between two looks."""
WARM_TURNS = 2_000
"""What is loaded once is loaded, every chat has been compressed: growth counts from here on."""
WINDOW = 8_000
FIRST_USER = 10_000
ANSWER_SECONDS = 60.0
AS_A_SERVICE = {"MALLOC_ARENA_MAX": "2"}
"""What the unit in systemd/ sets."""
QUIET_SECONDS = 3.0
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Look:
    """One look from outside, at a quiet moment."""

    turns: int
    rss_mib: float
    anonymous_mib: float
    """Its own memory: not the files that are mapped."""
    descriptors: int
    threads: int
    tasks: int
    wal_mib: float
    database_mib: float
    compressions: int
    turn_p50_ms: float
    turn_p99_ms: float


class Soak:
    """The daemon and those who talk to it."""

    def __init__(self, world: World, daemon: Daemon, seed: int, *, trace: bool) -> None:
        self._world, self._daemon, self._trace = world, daemon, trace
        self._random = random.Random(seed)
        self._took: list[float] = []
        self.looks: list[Look] = []

    async def run(self, turns: int) -> list[Look]:
        """So many turns, at most `AT_ONCE` of them at the same time."""
        chats = itertools.cycle(range(FIRST_USER, FIRST_USER + CHATS))

        async def talk(mine: Iterator[int]) -> None:
            for chat in mine:
                await self._turn(chat)

        for begun in range(0, turns, EVERY):
            number = min(EVERY, turns - begun)
            batch = itertools.islice(chats, number)  # all take from the same
            await asyncio.gather(*(talk(batch) for _ in range(AT_ONCE)))
            self.looks.append(await self._look(begun + number))
            if self._trace and (begun + number) % TRACE_EVERY == 0:
                self._daemon.process.send_signal(signal.SIGUSR1)
                await asyncio.sleep(10 * QUIET_SECONDS)
            await self._disturb(begun + number)
        return self.looks

    async def _turn(self, chat: int) -> None:
        before = len(self._world.telegram.visible(chat)) if self._knows(chat) else 0
        begun = time.perf_counter()
        words = text(self._random, self._random.randrange(80, 900), cjk=self._random.random() < 0.2)
        self._world.telegram.private_text(words, user_id=chat)
        deadline = begun + ANSWER_SECONDS
        while len(self._world.telegram.visible(chat)) <= before:
            if self._daemon.exit_code is not None or time.perf_counter() > deadline:
                raise SystemExit(f"no answer in chat {chat}\n{self._daemon.log_tail()}")
            await asyncio.sleep(0.005)
        self._took.append(time.perf_counter() - begun)

    def _knows(self, chat: int) -> bool:
        return chat in self._world.telegram.state.chats

    async def _disturb(self, turns: int) -> None:
        """The network is not always there."""
        telegram, discord = self._world.telegram, self._world.discord
        kind = (turns // EVERY) % 4
        if kind == 0:
            await telegram.pause()  # nobody listens there
            await asyncio.sleep(2.0)
            await telegram.resume()
        elif kind == 1:
            for _ in range(5):
                telegram.fault(Fault.html(502, "getUpdates"))
            discord.kill_sockets(4000)
        elif kind == 2:
            discord.reconnect()
            telegram.fault(Fault.drop("sendMessage"))
        await self._daemon.ready("telegram", "discord")

    async def _look(self, turns: int) -> Look:
        await asyncio.sleep(QUIET_SECONDS)
        pid = self._daemon.process.pid
        memory = _smaps(pid)
        took, self._took = self._took, []
        home = self._world.home
        numbers = await asyncio.to_thread(self._metrics)
        compressions = self._world.database().one(
            "SELECT count(*) FROM sessions WHERE end_reason = 'compression'"
        )
        look = Look(
            turns,
            memory["Rss"] / 1024,
            memory["Anonymous"] / 1024,
            len(os.listdir(f"/proc/{pid}/fd")),
            len(os.listdir(f"/proc/{pid}/task")),
            int(numbers.get("posthouse_asyncio_tasks", 0)),
            _size(home / "state.db-wal"),
            _size(home / "state.db"),
            int(compressions),
            percentile(took, 50) * 1000,
            percentile(took, 99) * 1000,
        )
        print(json.dumps(asdict(look)), file=sys.stderr, flush=True)
        return look

    def _metrics(self) -> dict[str, float]:
        status = self._daemon.status() or {}
        where = str(status.get("details", {}).get("http", ""))
        address = where.split()[0] if where else ""
        if not address:
            return {}
        address = address if address.startswith("http") else f"http://{address}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {
            line.split()[0]: float(line.split()[1])
            for line in lines
            if line and not line.startswith("#") and "{" not in line
        }


def _smaps(pid: int) -> dict[str, int]:
    """Sums over the whole process, in KiB."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0])
    return found


def _size(path: Path) -> float:
    return path.stat().st_size / MIB if path.exists() else 0.0


def slope_per_1000(looks: Sequence[Look], what: str) -> float:
    """Least squares over all looks behind the warm-up, per 1,000 turns."""
    counted = [look for look in looks if look.turns >= WARM_TURNS] or list(looks)
    if len(counted) < 2:
        return 0.0
    at = [look.turns / 1000 for look in counted]
    values = [float(getattr(look, what)) for look in counted]
    return statistics.linear_regression(at, values).slope


def _answer(request: MessageRequest) -> Answer:
    """Now and then it calls a tool first; answers are of all lengths."""
    words = request.last_user_text
    if not request.tool_results and len(words) % 7 == 0:
        return Answer([tool_use("current_time", {})])
    if request.tool_results and not request.fresh_text:
        return echo(request)
    return Answer(f"reply to: {words} " * (1 + len(words) % 3))


async def soak(turns: int, folder: Path, seed: int, trace: bool = False) -> list[Look]:
    """The looks, in order."""
    async with (
        AnthropicServer(window=WINDOW, keep=50, responder=_answer) as anthropic,
        TelegramServer() as telegram,
        DiscordServer(nonce_window=600.0) as discord,
    ):
        world = World(folder / "home", anthropic, telegram, discord)
        world.configure(telegram={"allow_from": ["*"]}, logging={"level": "WARNING"})
        launcher = ("-m", "tests.bench.traced") if trace else ("-m", "gateway")
        daemon = world.daemon(
            secrets={**world.secrets_for("telegram", "discord"), **AS_A_SERVICE},
            launcher=(*launcher, "run"),
        )
        try:
            await daemon.start().ready("telegram", "discord")
            return await Soak(world, daemon, seed, trace=trace).run(turns)
        finally:
            daemon.destroy()
            if trace:
                print(daemon.log_text(), file=sys.stderr)


def _middle(looks: Sequence[Look], what: str) -> float:
    """Connections come and go: the median."""
    return float(statistics.median(getattr(look, what) for look in looks))


def results(looks: Sequence[Look]) -> list[Result]:
    """The rows; each beside its budget."""
    counted = [look for look in looks if look.turns >= WARM_TURNS] or list(looks)
    first, last = counted[: len(counted) // 4 or 1], counted[-(len(counted) // 4 or 1) :]

    def mean(of: Sequence[Look], what: str) -> float:
        return statistics.fmean(getattr(look, what) for look in of)

    budget = "the limit is the budget"
    rows = [
        Result("soak memory, MB per 1,000 turns", "MB",
               [slope_per_1000(looks, "anonymous_mib") * MIB / 1e6], [1.0], at_most=1.0,
               note=budget),
        Result("soak turn, last to first quarter", "ms", [mean(last, "turn_p50_ms")],
               [mean(first, "turn_p50_ms")], at_most=1.2),
        Result("soak log of the database, most", "MiB", [max(look.wal_mib for look in looks)],
               [64.0], at_most=1.0, note=budget),
    ]  # fmt: skip
    for what in ("descriptors", "threads", "tasks"):
        rows.append(
            Result(
                f"soak {what}, last to first quarter",
                "",
                [_middle(last, what)],
                [max(1.0, _middle(first, what))],
                at_most=1.05,
            )
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="say where memory was taken")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        looks = asyncio.run(soak(options.turns, Path(name).absolute(), options.seed, options.trace))
    rows = results(looks)
    for row in rows:
        print(row.line())
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
