"""Many files with an answer on Telegram: all kinds, what can not go, a kill between the parts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from agent.attachments import StoredFile
from agent.mail import OutboxDraft
from gateway import texts
from gateway.delivery.outbox import Delivery, DeliverySettings
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.out.planning import MARK
from storage.memory import MemoryStore
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.files import png
from tests.fakes.telegram_server import USER, Fault, TelegramServer
from tests.integration.test_telegram import HurriedClock, address, settings

OWNER = f"telegram:{USER}"


class Shelf(MemoryAttachments):
    """Files may vanish after they were planned."""

    gone: frozenset[str] = frozenset()

    async def read(self, name: str) -> bytes:
        if name in self.gone:
            raise LookupError(name)
        return await super().read(name)


class Post:
    """A store that outlives its deliveries, on the real adapter."""

    def __init__(self, server: TelegramServer) -> None:
        self.server, self.clock = server, HurriedClock()
        self.store = MemoryStore(FakeClock(self.clock.now()), SequentialIds())
        self.shelf = Shelf(FakeClock())
        self.boot()

    def boot(self) -> None:
        self.telegram = TelegramPlatform(
            settings(self.server),
            self.clock,
            attachments=self.shelf,
            menu=(),
            remembered=self.store,
        )
        self.delivery = Delivery(
            mailbox=self.store,
            platforms={"telegram": self.telegram},
            clock=self.clock,
            settings=DeliverySettings(),
        )

    async def put(self, data: bytes, name: str) -> StoredFile:
        return await self.shelf.keep(data, owner=OWNER, file_name=name, media_type="x/y")

    async def owe(self, text: str, *names: str) -> None:
        draft = OutboxDraft(address(), text, files=names, files_owner=OWNER)
        self.delivery.hand_over([await self.store.owe(draft)])

    async def kill(self) -> None:
        for task in set(self.delivery._tasks._tasks):
            task.cancel()
        await self.telegram.close()

    async def all_out(self) -> None:
        async with asyncio.timeout(20):
            while await self.store.owed():  # noqa: ASYNC110 - the adapter's clock hurries
                await asyncio.sleep(0.01)


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    async with TelegramServer() as server:
        server.private_text("hi")
        post = Post(server)
        yield post
        await post.kill()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)


async def put_twelve(post: Post) -> list[str]:
    names = []
    for n in range(12):
        picture = n % 2 == 0
        data = png(shade=n) if picture else f"text {n}".encode()
        file = await post.put(data, f"{n}.{'png' if picture else 'txt'}")
        names.append(file.name)
    return names


async def test_twelve_of_two_kinds_follow_their_words_in_order(post: Post) -> None:
    await post.owe("see", *await put_twelve(post))
    await post.all_out()
    kinds = [(m.kind, m.text) for m in post.server.sent]
    assert kinds == [("text", "see"), *[("photo", ""), ("document", "")] * 6]
    sent = [m.file_name for m in post.server.sent if m.kind == "document"]
    assert sent == [f"{n}.txt" for n in range(1, 12, 2)]


async def test_what_can_not_go_is_said_in_its_place_and_the_rest_goes(post: Post) -> None:
    fine = [await post.put(b"1", "1.txt"), await post.put(b"2", "2.txt")]
    empty, vanished = await post.put(b"", "empty.txt"), await post.put(b"v", "vanished.txt")
    post.shelf.gone = frozenset({vanished.name})
    names = (fine[0].name, empty.name, vanished.name, "/etc/passwd", fine[1].name)
    await post.owe("see", *names)
    await post.all_out()
    assert [m.file_name or m.text for m in post.server.sent] == [
        "see",
        "1.txt",
        texts.file_not_sent("empty.txt", texts.FILE_EMPTY),
        texts.file_not_sent("vanished.txt", texts.FILE_NOT_KEPT),
        texts.file_not_sent("", texts.FILE_NOT_KEPT),
        "2.txt",
    ]


@pytest.mark.parametrize("after", [1, 4, 9])
@pytest.mark.parametrize("arrived", [True, False])
async def test_a_kill_between_files_loses_none_and_doubles_none_unmarked(
    post: Post, after: int, arrived: bool
) -> None:
    names = await put_twelve(post)
    hang = Fault.hang("sendPhoto" if after % 2 else "sendDocument", after=arrived)
    await post.owe("see", *names)
    await until(lambda: len(post.server.sent) >= after)
    post.server.fault(hang)
    await until(lambda: hang.hits)
    await post.kill()
    post.boot()
    await post.delivery.start()
    await post.all_out()
    shown = [m for m in post.server.sent if MARK not in m.text]
    again = [m for m in post.server.sent if MARK in m.text]
    assert len(again) == 1
    assert len(shown) == (13 if arrived else 12)
    documents = Counter(m.file_name for m in post.server.sent if m.kind == "document")
    assert set(documents) == {f"{n}.txt" for n in range(1, 12, 2)}
    assert sum(documents.values()) <= 7
