"""Owns the benches of the file itself: its size, the worst append, loading and opening it.

The twins do the same with bare calls on a table of four columns; the search index of theirs holds
the same pieces of text as ours.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent.clock import RandomIds, SystemClock
from agent.messages import Draft
from agent.sessions import SessionPrefix, TurnOpening, session_key
from storage import changes
from storage.segment import indexable_text, segmented
from storage.sqlite import open_store
from tests.bench.measure import Result, median
from tests.bench.store import messages

ROUNDS = 5
CALM_WORST_MS = 25.0
_PREFIX = SessionPrefix("bench", "model", "You are helpful.")
_TWIN = """
    PRAGMA journal_mode=WAL;
    CREATE TABLE m(id INTEGER PRIMARY KEY, s TEXT, role TEXT, content TEXT, calls TEXT);
    CREATE INDEX m_by_session ON m(s, id);
    CREATE VIRTUAL TABLE f USING fts5(x, content='', columnsize=0);
"""


async def _fill(path: Path, count: int, at_once: int) -> tuple[str, list[float]]:
    """A session of so many messages; gives its id and how long each append took, in ms."""
    store = await open_store(path, clock=SystemClock(), ids=RandomIds())
    key = session_key("bench", "1", "0", None, None)
    opening = TurnOpening(key, "bench:1", (), Draft({"role": "user", "content": "go"}), _PREFIX)
    ticket = await store.begin_turn(opening)
    drafts = [Draft(message) for message in messages(count)]
    waits = []
    for start in range(0, count, at_once):
        begin = time.perf_counter()
        await store.append(ticket, ticket.session_id, drafts[start : start + at_once])
        waits.append((time.perf_counter() - begin) * 1000)
    await store.finish_turn(ticket, ticket.session_id, "done")
    await store.close()
    return ticket.session_id, waits


def _fill_twin(path: Path, count: int) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(_TWIN)
        for number, message in enumerate(messages(count), start=1):
            calls = json.dumps(message["tool_calls"]) if "tool_calls" in message else None
            row = (number, "s", message["role"], message["content"], calls)
            db.execute("INSERT INTO m VALUES(?,?,?,?,?)", row)
            text = segmented(indexable_text(message, None, None) or "")
            db.execute("INSERT INTO f(rowid, x) VALUES(?,?)", (number, text))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def _alternating(ours: Callable[[], object], twin: Callable[[], object]) -> list[list[float]]:
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 2):
        for took, call in zip(times, (ours, twin), strict=True):
            begin = time.perf_counter()
            call()
            took.append((time.perf_counter() - begin) * 1000)
    return [took[2:] for took in times]


def _load(folder: Path, count: int) -> Result:
    path, twin_path = folder / f"ours{count}.db", folder / f"twin{count}.db"
    session_id, _ = asyncio.run(_fill(path, count, 200))
    _fill_twin(twin_path, count)
    ours = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    twin = sqlite3.connect(twin_path)
    query = "SELECT role, content, calls FROM m WHERE s = 's' ORDER BY id"

    def load_twin() -> list[dict[str, object]]:
        return [
            {"role": role, "content": content}
            if calls is None
            else {"role": role, "content": content, "tool_calls": json.loads(calls)}
            for role, content, calls in twin.execute(query)
        ]

    mine, floor = _alternating(lambda: changes.load(ours, session_id, None), load_twin)
    ours.close()
    twin.close()
    return Result(f"3e load {count} messages", "ms", mine, floor, at_most=1.5)


def _size(folder: Path, count: int) -> Result:
    path, twin_path = folder / f"ours{count}.db", folder / f"twin{count}.db"
    mine, floor = ([each.stat().st_size / count] for each in (path, twin_path))
    return Result("3d bytes per message", "bytes", mine, floor, at_most=1.2, note="<= 1,600")


def _open(folder: Path, count: int) -> Result:
    path = folder / f"ours{count}.db"

    async def opened() -> None:
        begin = time.perf_counter()
        store = await open_store(path, clock=SystemClock(), ids=RandomIds())
        mine.append((time.perf_counter() - begin) * 1000)
        await store.close()

    mine: list[float] = []
    floor: list[float] = []
    for _ in range(ROUNDS * 4):
        asyncio.run(opened())
        begin = time.perf_counter()
        db = sqlite3.connect(path)
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        floor.append((time.perf_counter() - begin) * 1000)
        db.close()
    return Result(f"3f open, {count} messages", "ms", mine, floor, at_most=7)


def run() -> list[Result]:
    """3c to 3f."""
    # In this folder: the disk is part of what is measured, and /tmp may be memory.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as name:
        folder = Path(name)
        gc.collect()
        gc.freeze()  # as the daemon does once it is warm
        loads = [_load(folder, count) for count in (2_000, 20_000)]
        _, waits = asyncio.run(_fill(folder / "worst.db", 10_000, 1))
        worst = Result(
            "3c worst of 10,000 appends",
            "ms",
            [max(waits)],
            [CALM_WORST_MS],
            at_most=1,
            note=f"p50 {median(waits):.1f} ms; the limit is the budget on a calm disk",
        )
        return [worst, _size(folder, 20_000), *loads, _open(folder, 20_000)]
