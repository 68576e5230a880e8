"""What goes out to Discord a second time is shown once; and only by the bot that owes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from gateway.platforms.contract import SendRefused, SendUnavailable, SendUnknown
from gateway.platforms.discord.adapter import DiscordPlatform
from tests.fakes.discord_server import Channel, DiscordServer, User, discord_py_at
from tests.fakes.intake import RecordingIntake
from tests.integration.discord_rig import TOKEN, address, make, part, running


@pytest.fixture(autouse=True)
def addresses_put_back() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(TOKEN, nonce_window=0.0) as running_server:
        running_server.rest.tells_nonces = False  # the worst of memories
        yield running_server


@pytest.fixture
def alice(server: DiscordServer) -> User:
    return server.add_user("alice")


@pytest.fixture
def channel(server: DiscordServer) -> Channel:
    return server.add_channel(server.add_guild())


@pytest.fixture
async def bot(server: DiscordServer) -> AsyncIterator[DiscordPlatform]:
    platform = make(server)
    async with running(platform, RecordingIntake()):
        yield platform
    await platform.close()


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("lost", range(4))
async def test_parts_with_the_same_words_are_not_taken_for_each_other(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    alice: User,
    lost: int,
    arrived: bool,
) -> None:
    where = address(server, channel, server.user_says(channel, alice, "question"))
    ids: list[str] = []
    for n in range(4):
        one = part("same", n=n, id_=n + 1, follows=ids[-1] if ids else None)
        if n == lost:
            server.fault("reset", method="POST", path="/channels/*/messages", handled=arrived)
            with pytest.raises(SendUnknown):
                await bot.send(where, one)
            server.user_says(channel, alice, "same")
        ids.append(await bot.send(where, one, repeat=n == lost))
    assert server.bot_texts(channel) == ["same"] * 4
    assert ids == [str(sent.id) for sent in server.sent]


@pytest.mark.parametrize("arrived", [True, False])
async def test_the_question_was_gone_when_its_answer_was_sent(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, arrived: bool
) -> None:
    asked = server.user_says(channel, alice, "question")
    where = address(server, channel, asked)
    server.user_deletes(asked)
    server.fault("reset", method="POST", path="/channels/*/messages", handled=arrived)
    with pytest.raises(SendUnknown):
        await bot.send(where, part("answer"))
    await bot.send(where, part("answer"), repeat=True)
    assert server.bot_texts(channel) == ["answer"]


async def test_the_same_words_without_a_question_are_another_message(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    asked = server.user_says(channel, alice, "question")
    await bot.send(address(server, channel), part("Done.", id_=1))
    await bot.send(address(server, channel, asked), part("Done.", id_=2), repeat=True)
    assert server.bot_texts(channel) == ["Done.", "Done."]


async def test_an_odd_history_hides_no_earlier_answer(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    where = address(server, channel, server.user_says(channel, alice, "question"))
    first = await bot.send(where, part("answer"))
    server.rest.history_quirk = lambda page: [None, {}, {"id": "x"}, {"id": "5"}, *page]
    assert await bot.send(where, part("answer"), repeat=True) == first
    server.rest.history_quirk = lambda _page: 5
    with pytest.raises(SendUnknown):
        await bot.send(where, part("answer"), repeat=True)


async def test_another_bots_answer_waits_for_that_bot(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = replace(address(server, channel), bot_id="31337")
    calls = len(server.calls)
    for _ in range(3):
        with pytest.raises(SendUnavailable, match="another bot"):
            await bot.send(foreign, part())
        await bot.typing(foreign)
    assert len(server.calls) == calls
    assert caplog.text.count("owed by another bot") == 1


@pytest.mark.parametrize("channel_id", ["", "x", "-5", "٥", "1.0"])
async def test_an_address_that_names_no_channel(
    server: DiscordServer, bot: DiscordPlatform, channel_id: str
) -> None:
    with pytest.raises(SendRefused):
        await bot.send(address(server, channel_id), part())


async def test_a_send_that_hangs_lets_others_of_its_channel_pass(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    """The SDK lets one request of a channel wait for another: an answer to /stop came too late."""
    path = "/channels/*/messages"
    server.fault("hang", method="POST", path=path, contains="hangs", times=None)
    where = address(server, channel, server.user_says(channel, alice, "question"))
    hanging = asyncio.ensure_future(bot.send(where, part("hangs", id_=1)))
    await server.wait_for(
        lambda: any(call.body and "hangs" in str(call.body) for call in server.calls)
    )
    async with asyncio.timeout(5):  # half of what the one that hangs may take
        for n in range(2, 4):
            await bot.send(where, part(f"passes {n}", id_=n))
    server.fault("status", status=403, code=50013, method="POST", path=path, contains="refused")
    with pytest.raises(SendRefused):
        await bot.send(where, part("refused", id_=4))
    server.fault("reset", method="POST", path=path, contains="lost", handled=True)
    with pytest.raises(SendUnknown):
        await bot.send(where, part("lost", id_=5))
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    await bot.send(where, part("lost", id_=5), repeat=True)
    assert server.bot_texts(channel) == ["passes 2", "passes 3", "lost"]
