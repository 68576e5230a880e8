"""What was missed on Discord, under races, floods and lies; and a bot of several shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import pytest

from gateway.platforms.contract import PlatformState
from gateway.platforms.discord.adapter import DiscordPlatform
from tests.fakes.discord_server import Channel, DiscordServer, Guild, User, discord_py_at
from tests.fakes.intake import RecordingIntake
from tests.integration.discord_rig import TOKEN, address, make, part, running


@pytest.fixture(autouse=True)
def addresses_put_back() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(TOKEN) as running_server:
        yield running_server


@pytest.fixture
def alice(server: DiscordServer) -> User:
    return server.add_user("alice")


@pytest.fixture
def guild(server: DiscordServer) -> Guild:
    return server.add_guild("home")


@pytest.fixture
def channel(server: DiscordServer, guild: Guild) -> Channel:
    return server.add_channel(guild)


@pytest.fixture
async def bot(server: DiscordServer) -> AsyncIterator[DiscordPlatform]:
    platform = make(server)
    yield platform
    await platform.close()


def heard_in(intake: RecordingIntake, place: Channel) -> list[str]:
    return [
        message.text
        for message in intake.messages
        if message.chat_id == str(place.id) and not message.sender_is_bot
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_no_interleaving_loses_doubles_or_reorders(
    server: DiscordServer, guild: Guild, alice: User, seed: int
) -> None:
    """Lost sockets, lost sessions, restarts, failing requests and a failing store, as it comes."""
    random = Random(seed)
    robot = server.add_user("robot", bot=True)
    home = server.add_channel(guild, "home")
    places = [home, server.add_thread(home, "topic"), server.open_dm(alice)]
    wanted: dict[int, list[str]] = {place.id: [] for place in places}
    intake = RecordingIntake()
    for place in places:
        intake.stored[str(place.id)] = str(server.user_says(place, alice, "known").id)

    def say(count: int) -> None:
        for _ in range(count):
            place = random.choice(places)
            if place.guild_id is not None and random.random() < 0.2:
                server.user_says(place, robot, "beep")
                continue
            text = f"{place.id} {len(wanted[place.id])}"
            wanted[place.id].append(text)
            server.user_says(place, alice, text)

    platform = make(server)
    for _ in range(3):
        say(random.randint(0, 150))
        async with running(platform, intake, ready=random.random() < 0.7):
            for _ in range(6):
                match random.choice(["say", "say", "cut", "op 7", "op 9", "forget", "rest", "db"]):
                    case "say":
                        say(random.randint(1, 40))
                    case "cut":
                        server.kill_sockets(random.choice([None, 4000]))
                    case "op 7":
                        server.reconnect()
                    case "op 9":
                        server.invalidate_session(resumable=random.random() < 0.5)
                    case "forget":
                        server.forget_sessions()
                        server.kill_sockets(4000)
                    case "rest":
                        server.fault(
                            random.choice(["503", "reset", "429"]),
                            path="/channels/*/messages",
                            method="GET",
                        )
                    case _:
                        intake.failures += 2
                await asyncio.sleep(random.choice([0.0, 0.0, 0.02, 0.1]))
        if random.random() < 0.5:  # a new process
            await platform.close()
            platform = make(server)
    async with running(platform, intake):
        server.clear_faults()
        say(5)
        for place in places:
            await intake.until(
                lambda place=place: len(heard_in(intake, place)) >= len(wanted[place.id]), 20
            )
    await platform.close()
    for place in places:
        assert heard_in(intake, place) == wanted[place.id]


async def test_a_new_thread_in_a_known_channel_is_read_from_its_beginning(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    elsewhere = server.add_channel(guild, "elsewhere")
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    thread = server.add_thread(channel, "new", owner=alice)
    server.user_says(thread, alice, "first words")
    unknown = server.add_thread(elsewhere, "new too", owner=alice)
    server.user_says(unknown, alice, "outside the promise")
    async with running(bot, intake):
        server.user_says(thread, alice, "live")
        await intake.wait_messages(2)
    assert intake.texts == ["first words", "live"]
    assert {message.parent_chat_id for message in intake.messages} == {str(channel.id)}


async def test_the_first_words_to_us_in_an_old_thread_of_a_known_channel_are_read(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    thread, silent = server.add_thread(channel, "old"), server.add_thread(channel, "silent")
    for place in (thread, silent):
        server.user_says(place, alice, "before anybody knew us")
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    server.user_says(thread, alice, "while we were away")
    async with running(bot, intake):
        server.user_says(silent, alice, "live")
        await intake.wait_messages(2)
    assert sorted(intake.texts) == ["live", "while we were away"]


@pytest.mark.parametrize("code", [0, 40333])
async def test_a_guard_in_front_of_discord_is_no_end_of_a_gap(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, code: int
) -> None:
    """Taken for a channel that is gone, its messages would be lost."""
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    server.user_says(channel, alice, "missed")
    server.fault(
        "error", status=403, code=code, method="GET", path="*/messages", message="no", times=1
    )
    async with running(bot, intake):
        server.user_says(channel, alice, "live")
        await intake.wait_messages(2)
    assert intake.texts == ["missed", "live"]


async def test_a_history_that_lies_comes_to_an_end(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    for i in range(100):
        server.user_says(channel, alice, f"m{i}")
    pages: list[list[dict[str, Any]]] = []

    def same(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pages.append(page)
        return Random(5).sample(pages[0], k=len(pages[0]))

    server.rest.history_quirk = same
    async with running(bot, intake):
        server.user_says(channel, alice, "live")
        await intake.wait_messages(101)
    assert intake.texts == [*(f"m{i}" for i in range(100)), "live"]
    assert len(pages) == 2


@pytest.mark.parametrize("odd", [None, {}, 5, [5, None, {}]], ids=str)
async def test_a_history_of_nonsense_closes_no_channel(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, odd: Any
) -> None:
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    answers = iter([odd])
    server.rest.history_quirk = lambda page: next(answers, page)
    async with running(bot, intake):
        server.user_says(channel, alice, "live")
        await intake.wait_messages(1)
    assert intake.texts == ["live"]


async def test_a_long_history_makes_no_other_channel_wait(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    other = server.add_channel(guild, "other")
    intake = RecordingIntake()
    intake.receive = _counted(intake)  # type: ignore[method-assign]
    for place in (other, channel):
        intake.stored[str(place.id)] = str(server.user_says(place, alice, "known").id)
    server.user_says(other, alice, "me too")
    for i in range(3_000):
        server.user_says(channel, alice, f"m{i}", deliver=False)
    async with running(bot, intake):
        await intake.until(lambda: "me too" in intake.texts)
        assert len(heard_in(intake, channel)) < 1_000
        await intake.wait_messages(3_001, 30)
    assert heard_in(intake, channel) == [f"m{i}" for i in range(3_000)]
    assert len(server.calls_to("GET", f"/channels/{channel.id}/messages")) == 31


def _counted(intake: RecordingIntake) -> Any:
    """As `RecordingIntake.receive`, without looking for doubles each time."""

    async def receive(message: Any, cursor: Any = None) -> None:
        await asyncio.sleep(0)
        intake.messages.append(message)
        intake.stored[cursor.channel_id] = cursor.message_id
        intake._changed()

    return receive


# --- shards -------------------------------------------------------------------------------------


async def test_a_bot_of_two_shards(alice: User) -> None:
    async with DiscordServer(TOKEN, shards=2) as server:
        alice = server.add_user("alice")
        # The guild's id says which shard it is on.
        guilds = [server.add_guild(f"g{n}", id_=(5_000_000 + n) << 22) for n in range(2)]
        places = [server.add_channel(guild) for guild in guilds]
        intake = RecordingIntake()
        for place in places:
            intake.stored[str(place.id)] = str(server.user_says(place, alice, "known").id)
            server.user_says(place, alice, f"missed {place.id}")
        platform = make(server)
        async with running(platform, intake) as (reports, _):
            for place in places:
                server.user_says(place, alice, f"live {place.id}")
            server.user_dms(alice, "psst")
            await intake.wait_messages(5)
            assert server.stats()["identifies"] == 2
            await platform.send(address(server, places[1]), part("answer"))
            # One of them loses its session; what it missed is read before it goes on.
            shard = next(s for s in server.gateway.sessions.values() if s.shard[0] == 1)
            del server.gateway.sessions[shard.id]
            assert shard.connection is not None
            shard.connection.close(4000)
            server.user_says(places[1], alice, "lost")
            await reports.wait(PlatformState.DEGRADED)
            await reports.wait(PlatformState.RUNNING)
            server.user_says(places[1], alice, "found")
            server.user_says(places[0], alice, "meanwhile")
            await intake.wait_messages(8)
        await platform.close()
        assert heard_in(intake, places[1])[-2:] == ["lost", "found"]
        assert heard_in(intake, places[0])[0].startswith("missed")
        assert server.bot_texts(places[1]) == ["answer"]
        assert intake.doubles == []
