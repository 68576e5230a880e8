"""Owns the benches of showing answers while they are written: how soon, and what it costs.

The twins do what can not be left out: keep the pieces, join them once per look; wait as long as
ours waits on purpose and make one bare request; run the same turns and show nothing.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from agent.clock import RandomIds, SystemClock
from agent.mail import Address
from agent.messages import Draft
from agent.sessions import SessionPrefix, TurnOpening, session_key
from gateway.delivery.outbox import Delivery
from gateway.delivery.pace import PreviewSettings
from gateway.delivery.unfinished import unfinished
from gateway.platforms.telegram.adapter import TelegramPlatform, TelegramSettings
from storage.memory import MemoryStore
from tests.bench.crowd import wave
from tests.bench.measure import Result, text
from tests.bench.turn import Ours, provider
from tests.fakes.platform import FakePlatform
from tests.fakes.telegram_server import GROUP, TOKEN, USER, TelegramServer

ROUNDS = 5
PIECES = 20_000
LOOKS = 200
CHAT = Address("fake", "900", "111")
SENTENCE = "This is the first sentence of an answer, and it is long enough to be shown. "


async def _pieces(shown: bool) -> float:
    """Microseconds of the loop for each piece of a long answer, its preview shown or not."""
    clock, ids = SystemClock(), RandomIds()
    store = MemoryStore(clock, ids)
    platform = FakePlatform(previews="message" if shown else "none", limit=4000)
    delivery = Delivery(mailbox=store, platforms={"fake": platform}, clock=clock)
    key = session_key("fake", "900", "111", None, None)
    prefix = SessionPrefix("fake", "m", "")
    said = Draft({"role": "user", "content": "go"})
    ticket = await store.begin_turn(TurnOpening(key, "fake:111", (), said, prefix))
    kept: list[str] = []
    async with delivery.previews(store).of(ticket, CHAT) as preview:
        say = preview.on_text if preview is not None else kept.append
        begin = time.perf_counter()
        for _ in range(PIECES):
            say("word ")
            await asyncio.sleep(0)  # each piece comes in a step of its own
        took = time.perf_counter() - begin
    await delivery.stop(1)
    return took / PIECES * 1e6


def _looks(answer: str) -> tuple[float, float]:
    """Microseconds for one look at an answer of this length: ours, and to join its pieces."""
    pieces = answer.split(" ")
    begin = time.perf_counter()
    for _ in range(LOOKS):
        unfinished(answer, 4096)
    middle = time.perf_counter()
    for _ in range(LOOKS):
        " ".join(pieces)
    return (middle - begin) / LOOKS * 1e6, (time.perf_counter() - middle) / LOOKS * 1e6


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0)


class _Far:
    """The loopback Telegram, and what is in front of it."""

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self.store = MemoryStore(SystemClock(), RandomIds())
        self.settings = TelegramSettings(
            token=TOKEN, base_url=server.base_url, base_file_url=server.base_file_url
        )
        self.telegram = TelegramPlatform(self.settings, SystemClock())
        self.delivery = Delivery(
            mailbox=self.store, platforms={"telegram": self.telegram}, clock=SystemClock()
        )
        self.http = httpx.AsyncClient(base_url=f"{server.base_url}{TOKEN}/")

    async def close(self) -> None:
        await self.delivery.stop(1)
        await self.telegram.close()
        await self.http.aclose()

    async def ours(self, chat: int, method: str) -> float:
        """Milliseconds from the first piece of text to the request that shows it."""
        bot_id = TOKEN.partition(":")[0]
        key = session_key("telegram", bot_id, str(chat), None, None)
        said = Draft({"role": "user", "content": "go"})
        prefix = SessionPrefix("telegram", "m", "")
        ticket = await self.store.begin_turn(TurnOpening(key, "telegram:1", (), said, prefix))
        seen = len(self.server.calls_of(method))
        address = Address("telegram", bot_id, str(chat))
        async with self.delivery.previews(self.store).of(ticket, address) as preview:
            assert preview is not None
            begin = time.perf_counter()
            preview.on_text(SENTENCE)
            await _until(lambda: len(self.server.calls_of(method)) > seen)
            took = time.perf_counter() - begin
        await self.store.finish_turn(ticket, ticket.session_id, "done")
        return took * 1000

    async def twin(self, chat: int, method: str) -> float:
        """The same with a bare wait and a bare request."""
        seen = len(self.server.calls_of(method))
        body: dict[str, object] = {"chat_id": chat, "text": SENTENCE, "draft_id": 1}
        begin = time.perf_counter()
        await asyncio.sleep(PreviewSettings().first_seconds)
        sending = asyncio.ensure_future(self.http.post(method, json=body))
        await _until(lambda: len(self.server.calls_of(method)) > seen)
        took = time.perf_counter() - begin
        await sending
        return took * 1000


async def _first_visible() -> list[Result]:
    """In a private chat (a draft) and in a group (a message)."""
    results = []
    async with TelegramServer() as server:
        server.private_text("hi")
        server.group_text("hi")
        far = _Far(server)
        try:
            for what, chat, method in (
                ("a draft", USER, "sendMessageDraft"),
                ("a message", GROUP, "sendMessage"),
            ):
                sides: tuple[list[float], list[float]] = ([], [])
                await far.ours(chat, method)
                await far.twin(chat, method)
                for _ in range(ROUNDS):
                    await asyncio.sleep(1.0)  # what a chat takes is no part of it
                    sides[0].append(await far.ours(chat, method))
                    await asyncio.sleep(1.0)
                    sides[1].append(await far.twin(chat, method))
                name = f"first text to {what}"
                results.append(Result(name, "ms", *sides, at_most=1.1, note="300 ms on purpose"))
        finally:
            await far.close()
    return results


async def _quick_and_slow_turns() -> list[Result]:
    """A turn that shows something costs no more than one that does not, nearly."""
    quick: tuple[list[float], list[float]] = ([], [])
    slow: tuple[list[float], list[float]] = ([], [])
    chats = 10
    with (
        provider() as at_once,
        provider("--mode", "long", "--chunk-delay", "0.02") as in_pieces,
        tempfile.TemporaryDirectory(dir=".") as folder,
    ):
        homes = [Path(folder, str(n)) for n in range(4)]
        for home in homes:
            home.mkdir()
        for sides, url, some in ((quick, at_once, homes[:2]), (slow, in_pieces, homes[2:])):
            async with (
                Ours(url, some[0], preview="message") as shown,
                Ours(url, some[1]) as silent,
            ):
                for side in (shown, silent):
                    await side.turn(500, "hello")
                for n in range(ROUNDS):
                    for at, side in enumerate((shown, silent)):
                        cpu = time.process_time()
                        if sides is quick:
                            for _ in range(30):
                                await side.turn(500, "hello")
                            turns = 30
                        else:
                            await wave(side, chats, 1_000 * (n + 1))
                            turns = chats
                        sides[at].append((time.process_time() - cpu) / turns * 1000)
                shows = shown.platform.previews
            assert (shows > 0) == (sides is slow)
    per_turn = f"{shows / (ROUNDS * chats + 1):.1f} shown a turn"
    return [
        Result("a turn at once, CPU", "ms", *quick, at_most=1.1, note="shown or not"),
        Result("a turn of 2 s, CPU", "ms", *slow, at_most=1.4, note=per_turn),
    ]


def run() -> list[Result]:
    """All of it."""
    ours, limit = [], []
    looks, joins = [], []
    answer = text(random.Random(1), 30_000)
    for _ in range(ROUNDS):
        ours.append(asyncio.run(_pieces(shown=True)))
        limit.append(asyncio.run(_pieces(shown=False)))
        mine, floor = _looks(answer)
        looks.append(mine)
        joins.append(floor)
    return [
        Result("streaming: a piece", "us", ours, limit, at_most=4.0, note="budget 20 us"),
        Result("streaming: a look at 30 kB", "us", looks, joins, at_most=20.0),
        *asyncio.run(_first_visible()),
        *asyncio.run(_quick_and_slow_turns()),
    ]
