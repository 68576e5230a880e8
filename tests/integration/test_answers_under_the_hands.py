"""On both platforms, with the real SDKs: what people and servers do to answers under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from agent.clock import SystemClock
from agent.mail import Address, OutboxDraft
from agent.messages import Draft
from agent.sessions import SessionPrefix, TurnOpening, TurnTicket, session_key
from gateway.delivery.outbox import Delivery, DeliverySettings
from gateway.platforms.contract import Platform
from gateway.platforms.telegram.adapter import TelegramPlatform
from storage.memory import MemoryStore
from tests.fakes.clock import SequentialIds
from tests.fakes.discord_server import DiscordServer, discord_py_at
from tests.fakes.intake import RecordingIntake
from tests.fakes.telegram_server import GROUP, Fault, TelegramServer
from tests.integration import discord_rig, test_telegram

SENTENCE = "This is the beginning of an answer that is long enough to be shown. "
WHOLE = SENTENCE + "And this is its end."


class FarEnd(Protocol):
    """A platform over its loopback server, and one chat of it."""

    platform: Platform
    address: Address

    def texts(self) -> list[str]: ...
    def delete_newest(self) -> None: ...
    def refuse_edits(self, reason: int) -> None: ...
    def flood_at(self, part: int) -> None: ...


class Telegram:
    """A group: previews are messages there."""

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self.address = test_telegram.address(GROUP)
        self.platform = TelegramPlatform(test_telegram.settings(server), SystemClock())

    def texts(self) -> list[str]:
        return self.server.visible_texts(GROUP)

    def delete_newest(self) -> None:
        self.server.visible(GROUP)[-1].deleted = True
        chat = self.server.state.chats[GROUP]
        chat.messages[self.server.sent[-1].message_id].deleted = True

    def refuse_edits(self, reason: int) -> None:
        text = ("message can't be edited", "something new")[reason]
        self.server.fault(Fault.error(400, f"Bad Request: {text}", "editMessageText", times=9))

    def flood_at(self, part: int) -> None:
        self.server.fault(Fault.flood(1, skip=part))


class Discord:
    """A channel of a server."""

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        guild = server.add_guild()
        self.channel = server.add_channel(guild, "general")
        self.address = discord_rig.address(server, self.channel)
        self.platform = discord_rig.make(server)

    def texts(self) -> list[str]:
        return self.server.bot_texts(self.channel)

    def delete_newest(self) -> None:
        self.server.user_deletes(self.server.visible(self.channel)[-1])

    def refuse_edits(self, reason: int) -> None:
        status, code = ((400, 50006), (403, 50001))[reason]
        self.server.fault(
            "error", method="PATCH", path="*/messages/*", status=status, code=code, times=9
        )

    def flood_at(self, part: int) -> None:
        self.server.fault("429", method="POST", path="*/messages", retry_after=1.0, skip=part)


@pytest.fixture(params=["telegram", "discord"])
async def far(request: pytest.FixtureRequest) -> AsyncIterator[FarEnd]:
    if request.param == "telegram":
        async with TelegramServer() as server:
            server.group_text("hi")
            telegram = Telegram(server)
            yield telegram
            await telegram.platform.close()
        return
    # The SDK's addresses are process-wide.
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        async with DiscordServer(token=discord_rig.TOKEN) as chats:
            discord = Discord(chats)
            async with discord_rig.running(discord.platform, RecordingIntake()):
                yield discord
            await discord.platform.close()


class Talk:
    """A turn and its delivery over a far end."""

    def __init__(self, far: FarEnd) -> None:
        self.far = far
        self.store = MemoryStore(SystemClock(), SequentialIds())
        self.delivery = Delivery(
            mailbox=self.store,
            platforms={far.address.platform: far.platform},
            clock=SystemClock(),
            settings=DeliverySettings(),
        )

    async def begin(self) -> TurnTicket:
        to = self.far.address
        key = session_key(to.platform, to.bot_id, to.chat_id, None, None)
        said = Draft({"role": "user", "content": "go"})
        prefix = SessionPrefix(to.platform, "m", "")
        return await self.store.begin_turn(TurnOpening(key, "o", (), said, prefix))

    async def stream(self, meanwhile: Callable[[], None]) -> None:
        """A turn whose preview is shown, then something happens, then it goes on to its end."""
        ticket = await self.begin()
        async with self.delivery.previews(self.store).of(ticket, self.far.address) as preview:
            assert preview is not None
            preview.on_text(SENTENCE)
            await until(lambda: self.far.texts())
            meanwhile()
        await self.end(ticket, WHOLE)

    async def end(self, ticket: TurnTicket, text: str) -> None:
        draft = OutboxDraft(self.far.address, text)
        items = await self.store.finish_turn(ticket, ticket.session_id, "done", outbox=[draft])
        self.delivery.hand_over(items)
        assert await self.delivery.idle(20)
        assert await self.store.owed() == []


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.005)


async def test_a_preview_that_somebody_deletes(far: FarEnd) -> None:
    await Talk(far).stream(far.delete_newest)
    assert far.texts() == [WHOLE]


@pytest.mark.parametrize("reason", [0, 1])
async def test_a_preview_that_may_not_be_changed(far: FarEnd, reason: int) -> None:
    await Talk(far).stream(lambda: far.refuse_edits(reason))
    assert far.texts()[-1] == WHOLE
    assert far.texts().count(WHOLE) == 1
    assert len(far.texts()) <= 2  # what can not be changed stands there as it was


async def test_a_flood_in_the_middle_of_parts(far: FarEnd) -> None:
    talk = Talk(far)
    ticket = await talk.begin()
    limit = 4096 if isinstance(far, Telegram) else 2000
    words = [f"{n} " + "x" * (limit - 200) for n in range(4)]

    far.flood_at(2)
    await talk.end(ticket, "\n\n".join(words))
    assert [text.strip() for text in far.texts()] == words
