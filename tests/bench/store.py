"""Owns the store's benches: durable appends against a limit twin, alternating in one run.

The twin does the same work with bare calls: sqlite3 on a thread of its own, group commit,
``synchronous=FULL``, a full-text index, an acknowledgement after COMMIT.
"""

from __future__ import annotations

import asyncio
import json
import queue
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from agent.clock import RandomIds, SystemClock
from agent.messages import Draft, Message
from agent.sessions import SessionPrefix, TurnOpening, session_key
from storage.sqlite import open_store
from tests.bench.measure import Result, median, percentile

ROUNDS = 5
_WORDS = [f"{stem}{ending}" for stem in ("deploy", "session", "token", "context", "error",
          "index", "query", "channel", "config", "worker", "queue", "schedule", "cache", "result")
          for ending in ("", "s", "er")]  # fmt: skip
_CJK = "会话压缩网关消息数据库索引查询令牌上下文摘要窗口错误重试异步超时频道处理配置工作队列"


def messages(count: int, seed: int = 7) -> list[Message]:
    """User / assistant with a call / 2 KB result / assistant; 200 characters, every fifth CJK."""
    rng = random.Random(seed)

    def english(chars: int) -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(chars // 4))[:chars]

    made: list[Message] = []
    for i in range(count):
        text = english(200) if i % 5 else "".join(rng.choice(_CJK) for _ in range(200))
        match i % 4:
            case 0:
                made.append({"role": "user", "content": text})
            case 1:
                arguments = json.dumps({"path": f"/srv/app/mod_{i}.py", "offset": i})
                call = {"name": "read_file", "arguments": arguments}
                made.append(
                    {
                        "role": "assistant",
                        "content": text,
                        "tool_calls": [{"id": f"call_{i}", "type": "function", "function": call}],  # type: ignore[typeddict-item]
                    }
                )
            case 2:
                output = json.dumps({"output": english(2000), "exit": 0})
                made.append(
                    {
                        "role": "tool",
                        "content": output,
                        "tool_call_id": f"call_{i - 1}",
                        "name": "read_file",
                    }
                )
            case _:
                made.append({"role": "assistant", "content": text})
    return made


# --- ours ---------------------------------------------------------------------------------------


async def _ours(folder: Path, sessions: int, each: int) -> list[float]:
    store = await open_store(folder / "ours.db", clock=SystemClock(), ids=RandomIds())
    prefix = SessionPrefix("bench", "model", "You are helpful.")
    drafts = [Draft(message) for message in messages(each)]
    tickets = []
    for i in range(sessions):
        key = session_key("bench", "1", str(i), None, None)
        opening = TurnOpening(key, "bench:1", (), Draft({"role": "user", "content": "go"}), prefix)
        tickets.append(await store.begin_turn(opening))

    async def one(i: int) -> list[float]:
        waits = []
        for draft in drafts:
            begin = time.perf_counter()
            await store.append(tickets[i], tickets[i].session_id, (draft,))
            waits.append(time.perf_counter() - begin)
        return waits

    try:
        return await _timed(one, sessions)
    finally:
        await store.close()


# --- the limit twin -----------------------------------------------------------------------------

_TWIN_SCHEMA = """
    PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
    CREATE TABLE m(id INTEGER PRIMARY KEY, s TEXT, role TEXT, content TEXT, calls TEXT);
    CREATE INDEX m_by_session ON m(s, id);
    CREATE TABLE s(id TEXT PRIMARY KEY, n INT DEFAULT 0) WITHOUT ROWID;
    CREATE VIRTUAL TABLE f USING fts5(x, content='', columnsize=0);
"""
_Job = tuple[str, Message, "asyncio.Future[None]"]


def _twin_writer(
    path: Path, jobs: queue.SimpleQueue[_Job | None], loop: asyncio.AbstractEventLoop
) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(_TWIN_SCHEMA)
    while (job := jobs.get()) is not None:
        group = [job]
        while len(group) < 256 and not jobs.empty():
            more = jobs.get()
            if more is None:
                jobs.put(None)
                break
            group.append(more)
        db.execute("BEGIN IMMEDIATE")
        for session, message, _ in group:
            calls = json.dumps(message["tool_calls"]) if "tool_calls" in message else None
            row = db.execute(
                "INSERT INTO m(s, role, content, calls) VALUES(?,?,?,?)",
                (session, message["role"], message["content"], calls),
            ).lastrowid
            db.execute("INSERT INTO f(rowid, x) VALUES(?,?)", (row, message["content"]))
            db.execute("INSERT INTO s VALUES(?,1) ON CONFLICT(id) DO UPDATE SET n=n+1", (session,))
        db.execute("COMMIT")
        loop.call_soon_threadsafe(_acknowledge, [future for _, _, future in group])
    db.close()


def _acknowledge(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


async def _limit(folder: Path, sessions: int, each: int) -> list[float]:
    loop = asyncio.get_running_loop()
    jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
    thread = threading.Thread(target=_twin_writer, args=(folder / "limit.db", jobs, loop))
    thread.start()
    mix = messages(each)

    async def one(i: int) -> list[float]:
        waits = []
        for message in mix:
            begin = time.perf_counter()
            future: asyncio.Future[None] = loop.create_future()
            jobs.put((f"s{i}", message, future))
            await future
            waits.append(time.perf_counter() - begin)
        return waits

    try:
        return await _timed(one, sessions)
    finally:
        jobs.put(None)
        thread.join()


# --- both ---------------------------------------------------------------------------------------


async def _timed(one: Callable[[int], Awaitable[list[float]]], sessions: int) -> list[float]:
    """Wall time of the whole, then each wait."""
    begin = time.perf_counter()
    waits = await asyncio.gather(*(one(i) for i in range(sessions)))
    return [time.perf_counter() - begin, *(wait for each in waits for wait in each)]


def _compare(name: str, sessions: int, each: int, target: float) -> Result:
    rates: dict[str, list[float]] = {"ours": [], "limit": []}
    p99: list[float] = []
    runners: dict[str, Callable[[Path, int, int], Coroutine[Any, Any, list[float]]]] = {
        "ours": _ours,
        "limit": _limit,
    }
    for _ in range(ROUNDS):
        for who, run_one in runners.items():
            # In this folder: the disk is what is measured, and /tmp may be memory.
            with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
                wall, *waits = asyncio.run(run_one(Path(folder), sessions, each))
            rates[who].append(len(waits) / wall)
            if who == "ours":
                p99.append(percentile(waits, 99) * 1000)
    return Result(
        name,
        "msg/s",
        rates["ours"],
        rates["limit"],
        at_least=target,
        note=f"p99 {median(p99):.1f} ms",
    )


def run() -> list[Result]:
    """3a: one append after the other. 3b: fifty sessions, each waiting for its own commit."""
    return [
        _compare("3a append, 1 session", sessions=1, each=1200, target=0.75),
        _compare("3b append, 50 sessions", sessions=50, each=60, target=0.5),
    ]
