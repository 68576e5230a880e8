"""Owns the bench of the way in: from a Telegram poll's socket to the durable row (row 6).

Fifty people write at the same moment: one answer to a poll brings fifty updates of fifty chats.
Ours is the real poll loop, conversion, gate, intake and store, over a bare HTTP client; the limit
twin reads the same bytes from the same server and commits one row for each, told apart by its
number, in groups, on a thread of its own. A latency runs from the moment at which the server writes
its answer to the one at which the event loop knows that the row is on the disk. No turns run: they
are rows 5a to 5d. The rows of one poll are known to be stored at about the same moment, so that p99
is the third worst of two hundred polls.
"""

from __future__ import annotations

import asyncio
import gc
import json
import queue
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.clock import RandomIds, SystemClock
from agent.mail import Cursor, InboxItem, InboxRecord, Receipt
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.gate import Gate
from gateway.intake.intake import GatewayIntake
from gateway.intake.pairing import PairingDesk
from gateway.platforms.telegram.convert import Me, convert
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.polling import PollLoop, PollTimes
from storage.sqlite import open_store
from tests.bench.measure import Result, percentile, text
from tests.bench.turn import write_in_groups

CHATS = 50
POLLS = 200
WARM_POLLS = 5
ROUNDS = 5


class Telegram:
    """One connection, one canned answer per request; knows when it wrote the last one."""

    def __init__(self, polls: int) -> None:
        source = random.Random(7)
        self._answers = [_answer(poll, source) for poll in range(polls)]
        self._next = 0
        self._served = asyncio.Event()
        self.written_at = 0.0

    async def __aenter__(self) -> Telegram:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()
        await self._served.wait()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            body = self._answers[self._next]
            self._next += 1
            self.written_at = time.perf_counter()
            writer.write(b"%d\n%s" % (len(body), body))
            await writer.drain()
        writer.close()
        self._served.set()

    async def poll(self) -> list[dict[str, Any]]:
        """The next updates, read from the socket and parsed."""
        self._writer.write(b"GET updates\n")
        size = int(await self._reader.readline())
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(size))
        result: list[dict[str, Any]] = answer["result"]
        return result

    @property
    def left(self) -> int:
        return len(self._answers) - self._next


def _answer(poll: int, source: random.Random) -> bytes:
    updates = []
    for chat in range(CHATS):
        number = poll * CHATS + chat + 1
        person = {"id": 1000 + chat, "is_bot": False, "first_name": f"P{chat}"}
        message = {
            "message_id": number,
            "date": int(time.time()),
            "chat": {"id": 1000 + chat, "type": "private", "first_name": f"P{chat}"},
            "from": person,
            "text": text(source, 200, cjk=chat % 5 == 0),
        }
        updates.append({"update_id": number, "message": message})
    return json.dumps({"ok": True, "result": updates}).encode()


class _Sink:
    """A dispatcher that begins nothing."""

    def submit(self, item: InboxItem) -> None:
        return None

    def holds(self, inbox_id: int) -> bool:
        return True

    def queues(self, record: InboxRecord) -> bool:
        return True

    def waiting(self, session_key: str) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class _Watched:
    """The store as it is; notes when each row was durable."""

    def __init__(self, store: Any, server: Telegram, found: list[float]) -> None:
        self._store, self._server, self._found = store, server, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def accept(self, record: InboxRecord, cursor: Cursor | None = None) -> Receipt:
        receipt: Receipt = await self._store.accept(record, cursor)
        self._found.append(time.perf_counter() - self._server.written_at)
        return receipt


class _Source:
    """A `gateway.platforms.telegram.polling.Source` that ends when there is nothing left."""

    def __init__(self, server: Telegram) -> None:
        self._server = server

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        if not self._server.left:
            raise asyncio.CancelledError
        return await self._server.poll()

    async def renew_polling(self) -> None:
        return None


async def _ours(folder: Path) -> list[float]:
    found: list[float] = []
    clock = SystemClock()
    store = await open_store(folder / "ours.db", clock=clock, ids=RandomIds())
    async with Telegram(WARM_POLLS + POLLS) as server:
        watched: Any = _Watched(store, server, found)
        policy = PlatformPolicy(AccessRules(allow_from=frozenset({"*"})))
        gate = Gate({"telegram": policy}, watched, watched)

        sink: Any = _Sink()
        intake = GatewayIntake(
            mailbox=watched,
            gate=gate,
            pairing=PairingDesk(gate, watched, lambda address, text: None, clock),
            dispatcher=sink,
            hand_over=lambda items: None,
            clock=clock,
        )
        me = Me(1, "bench_bot")
        incoming = Incoming(
            lambda update: convert(update, me), "1", intake, lambda state, reason: None, clock
        )
        times = PollTimes(poll_seconds=10, grace_seconds=5)
        loop = PollLoop(_Source(server), incoming, lambda state, reason: None, clock, times)
        await asyncio.gather(loop.run(), return_exceptions=True)
    await store.close()
    return found[WARM_POLLS * CHATS :]


async def _twin(folder: Path) -> list[float]:
    found: list[float] = []
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    arguments = (folder / "twin.db", jobs, asyncio.get_running_loop())
    thread = threading.Thread(target=write_in_groups, args=arguments, kwargs={"unique": True})
    thread.start()
    async with Telegram(WARM_POLLS + POLLS) as server:

        async def commit(update: dict[str, Any]) -> None:
            done = asyncio.get_running_loop().create_future()
            jobs.put((update["update_id"], json.dumps(update), done))
            await done
            found.append(time.perf_counter() - server.written_at)

        while server.left:
            await asyncio.gather(*map(commit, await server.poll()))
    jobs.put(None)
    thread.join()
    return found[WARM_POLLS * CHATS :]


async def _run() -> list[Result]:
    middle: tuple[list[float], list[float]] = ([], [])
    worst: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.freeze()  # as the daemon does once it is warm
    for _ in range(ROUNDS):
        for side, measure in enumerate((_ours, _twin)):
            with tempfile.TemporaryDirectory(dir=".") as folder:
                found = await measure(Path(folder))
            assert len(found) == POLLS * CHATS
            middle[side].append(percentile(found, 50) * 1000)
            worst[side].append(percentile(found, 99) * 1000)
    return [
        Result("6 socket to row, 50 chats, p99", "ms", *worst, at_most=2.0),
        Result("6 socket to row, 50 chats, p50", "ms", *middle, at_most=2.0),
    ]


def run() -> list[Result]:
    return asyncio.run(_run())
