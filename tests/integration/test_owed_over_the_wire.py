"""What is owed reaches its chat through servers that reset and hang, once or marked, and soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from agent.clock import RandomIds, SystemClock
from agent.mail import Address, OutboxDraft, OutboxItem
from gateway.delivery.outbox import Delivery
from gateway.delivery.tries import DeliverySettings
from gateway.platforms.contract import Platform
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.render import REPEAT_MARK
from storage.memory import MemoryStore
from tests.fakes.discord_server import DiscordServer, discord_py_at
from tests.fakes.intake import RecordingIntake
from tests.fakes.telegram_server import TOKEN, USER, Fault, TelegramServer
from tests.integration import discord_rig
from tests.integration.test_telegram import running, settings

HASTY = DeliverySettings(
    first_backoff_seconds=0.01,
    recovery_seconds=0.05,
    least_backoff_seconds=0.01,
    unknown_pause_seconds=0.05,
    unknown_growth=1.2,
    hold_seconds=0.1,
)
TELEGRAM = Address("telegram", TOKEN.partition(":")[0], str(USER))


class Post:
    """Delivery to one platform, out of a store in memory."""

    def __init__(self, platform: Platform) -> None:
        clock = SystemClock()
        self.store = MemoryStore(clock, RandomIds())
        self.delivery = Delivery(
            mailbox=self.store, platforms={platform.name: platform}, clock=clock, settings=HASTY
        )

    async def owe(self, address: Address, text: str, kind: str = "reply") -> OutboxItem:
        item = await self.store.owe(
            OutboxDraft(address, text, "command" if kind == "command" else "reply")
        )
        self.delivery.hand_over([item])
        return item

    async def paid(self) -> bool:
        return await self.delivery.idle(10) and not await self.store.owed()


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.private_text("hello")  # or it is no chat of the bot's
        yield server


@pytest.mark.parametrize("fault", ["drop", "hang", "garbage", "html"])
async def test_sends_fail_for_long_while_polling_works(
    telegram: TelegramServer, fault: str
) -> None:
    """More often than twice, and the answer is there all the same."""
    platform = TelegramPlatform(settings(telegram, send_timeout_seconds=0.1), SystemClock())
    post = Post(platform)
    telegram.fault(Fault(fault, "sendMessage", times=5))
    async with running(platform, RecordingIntake()):
        await post.owe(TELEGRAM, "the answer")
        assert await post.paid()
        shown = telegram.visible_texts(USER)
        assert [text.removeprefix(REPEAT_MARK).strip() for text in shown] == ["the answer"]
        assert shown[0].startswith(REPEAT_MARK.strip())
        assert len(telegram.calls_of("sendMessage")) == 6
        await post.delivery.stop(0)
    await platform.close()


async def test_a_doubtful_answer_holds_up_no_newer_one(telegram: TelegramServer) -> None:
    platform = TelegramPlatform(settings(telegram), SystemClock())
    post = Post(platform)
    telegram.fault(Fault.drop(times=3))
    async with running(platform, RecordingIntake()):
        await post.owe(TELEGRAM, "first")
        await post.owe(TELEGRAM, "second")
        assert await post.paid()
        shown = telegram.visible_texts(USER)
        assert {text.removeprefix(REPEAT_MARK).strip() for text in shown} == {"first", "second"}
        assert len(shown) == 2
        await post.delivery.stop(0)
    await platform.close()


async def test_a_command_is_answered_while_an_answer_hangs(telegram: TelegramServer) -> None:
    platform = TelegramPlatform(settings(telegram, send_timeout_seconds=10.0), SystemClock())
    post = Post(platform)
    telegram.fault(Fault.hang(times=1))
    async with running(platform, RecordingIntake()):
        await post.owe(TELEGRAM, "hangs")
        await telegram.until(lambda: telegram.calls_of("sendMessage"))
        await post.owe(TELEGRAM, "Stopped.", "command")
        await telegram.until(lambda: telegram.visible_texts(USER) == ["Stopped."])
        await post.delivery.stop(0)
    await platform.close()


@pytest.fixture
def addresses_put_back() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


@pytest.mark.usefixtures("addresses_put_back")
@pytest.mark.parametrize("handled", [True, False])
async def test_on_discord_it_is_there_once(handled: bool) -> None:
    async with DiscordServer(discord_rig.TOKEN, nonce_window=0.0) as server:
        channel = server.add_channel(server.add_guild())
        question = server.user_says(channel, server.add_user("alice"), "question")
        platform = discord_rig.make(server)
        post = Post(platform)
        path = "/channels/*/messages"
        server.fault("reset", method="POST", path=path, times=4, handled=handled)
        async with discord_rig.running(platform, RecordingIntake()):
            where = discord_rig.address(server, channel, question)
            for text in ("first", "second"):
                await post.owe(where, text)
            assert await post.paid()
            assert sorted(server.bot_texts(channel)) == ["first", "second"]
            await post.delivery.stop(0)
        await platform.close()


@pytest.mark.usefixtures("addresses_put_back")
async def test_on_discord_a_command_is_answered_while_an_answer_hangs() -> None:
    async with DiscordServer(discord_rig.TOKEN) as server:
        channel = server.add_channel(server.add_guild())
        platform = discord_rig.make(server)
        post = Post(platform)
        path = "/channels/*/messages"
        server.fault("hang", method="POST", path=path, contains="hangs", times=None)
        async with discord_rig.running(platform, RecordingIntake()):
            where = discord_rig.address(server, channel)
            await post.owe(where, "hangs")
            await server.wait_for(lambda: any("hangs" in str(call.body) for call in server.calls))
            await post.owe(where, "Stopped.", "command")
            async with asyncio.timeout(8):
                await server.wait_for(lambda: server.bot_texts(channel) == ["Stopped."])
            await post.delivery.stop(0)
        await platform.close()
