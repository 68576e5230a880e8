"""Discord's connection when it dies, lies or hammers: each state, and how it is left again."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import discord
import pytest

from gateway.platforms.contract import (
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
)
from gateway.platforms.discord import gateway_socket, health, wire
from gateway.platforms.discord.adapter import DiscordPlatform
from tests.fakes.discord_server import Channel, DiscordServer, Guild, User, discord_py_at
from tests.fakes.intake import RecordingIntake, Reports
from tests.integration.discord_rig import TOKEN, make, running


@pytest.fixture(autouse=True)
def addresses_put_back() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(TOKEN, heartbeat_interval=0.2) as running_server:
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


async def test_a_zombie_is_left_and_the_session_goes_on(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By our own watch: the SDK's would take another minute."""
    monkeypatch.setattr(gateway_socket, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(gateway_socket, "CLOSE_SECONDS", 0.1)
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        server.user_says(channel, alice, "before")
        await intake.wait_messages(1)
        server.make_zombies()
        server.user_says(channel, alice, "said to nobody")
        await reports.wait(PlatformState.DEGRADED)
        await intake.wait_messages(2)
        await reports.wait(PlatformState.RUNNING)
        server.user_says(channel, alice, "after")
        await intake.wait_messages(3)
    assert intake.texts == ["before", "said to nobody", "after"]
    assert server.stats()["identifies"] == 1
    assert server.stats()["resumes"] == 1


async def test_a_living_connection_gives_signs_of_life(
    bot: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SIGN_EVERY_SECONDS", 0.3)
    async with running(bot, RecordingIntake()) as (reports, _):
        await reports.wait_count(5)
    assert set(reports.states[1:]) == {PlatformState.RUNNING}


async def test_a_living_connection_does_not_hide_a_store_that_is_down(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "SIGN_EVERY_SECONDS", 0.0)
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        intake.failures = 10_000
        server.user_says(channel, alice, "x")
        await reports.wait(PlatformState.DEGRADED)
        seen = len(reports.all)
        await reports.wait_count(seen + 3)
        assert set(reports.all[seen:]) == {(PlatformState.DEGRADED, health.NO_STORE)}
        server.kill_sockets(4000)
        await reports.wait(PlatformState.DEGRADED)
        intake.failures = 0
        await intake.wait_messages(1)
        await reports.wait(PlatformState.RUNNING)


@pytest.mark.parametrize("hello", [0, 1, None, "x", -5, 3_600_000], ids=str)
async def test_an_absurd_heartbeat_interval(
    server: DiscordServer, channel: Channel, alice: User, hello: Any
) -> None:
    server.gateway.hello = {"heartbeat_interval": hello}
    platform = make(server, shortest_heartbeat_seconds=0.2)
    intake = RecordingIntake()
    async with running(platform, intake):
        await asyncio.sleep(0.5)
        server.user_says(channel, alice, "there?")
        await intake.wait_messages(1)
    await platform.close()
    assert server.stats()["heartbeats"] <= 6


async def test_a_gateway_that_never_answers_is_given_up(server: DiscordServer) -> None:
    server.gateway.deaf = True
    platform = make(server, patience_seconds=0.5)
    reports = Reports()
    with pytest.raises(PlatformUnavailable, match="no connection for"):
        await asyncio.wait_for(platform.run(RecordingIntake(), reports), 10)
    assert PlatformState.RUNNING not in reports.states
    await platform.close()


async def test_a_gateway_that_greets_nobody(
    server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_socket, "HELLO_SECONDS", 0.05)
    monkeypatch.setattr(gateway_socket, "CLOSE_SECONDS", 0.05)
    server.gateway.mute = True
    platform = make(server)
    with pytest.raises(PlatformUnavailable, match="nothing"):
        await asyncio.wait_for(platform.run(RecordingIntake(), Reports()), 20)
    await platform.close()


async def test_a_greeting_that_is_broken_off_leaves_no_socket_open(server: DiscordServer) -> None:
    server.gateway.mute = True
    platform = make(server)
    async with running(platform, RecordingIntake(), ready=False):
        await server.wait_for(lambda: server.gateway.connections)
    await server.wait_for(lambda: not server.gateway.connections)
    assert server.gateway.stats.closes == [1000], "not left to the garbage collector"
    await platform.close()


async def test_an_unreachable_gateway_at_boot_is_retried_by_the_supervisor(
    server: DiscordServer, caplog: pytest.LogCaptureFixture
) -> None:
    platform = make(server, gateway_url="ws://127.0.0.1:9/gw/")
    reports = Reports()
    with pytest.raises(PlatformUnavailable, match=r"no connection .*Cannot connect"):
        await asyncio.wait_for(platform.run(RecordingIntake(), reports), 10)
    assert reports.states == [PlatformState.STARTING]
    await platform.close()


@pytest.mark.parametrize("code", [1000, 4000, 4009], ids=str)
async def test_connections_closed_one_after_another_are_not_hammered(
    server: DiscordServer, bot: DiscordPlatform, code: int
) -> None:
    async with running(bot, RecordingIntake()) as (_, task):
        connects = server.stats()["connects"]
        server.gateway.close_at_once = code
        server.kill_sockets(4000)
        with pytest.raises(PlatformUnavailable, match="at once"):
            await asyncio.wait_for(task, 20)
    assert server.stats()["connects"] - connects <= wire.FRUITLESS_LIMIT


@pytest.mark.parametrize(
    ("code", "text"),
    [(4004, "token"), (4010, "4010"), (4011, "4011"), (4013, "4013"), (4014, "Message Content")],
)
async def test_close_codes_that_only_the_operator_can_heal(
    server: DiscordServer, bot: DiscordPlatform, code: int, text: str
) -> None:
    async with running(bot, RecordingIntake()) as (_, task):
        server.kill_sockets(code)
        with pytest.raises(PlatformConfigError, match=text):
            await asyncio.wait_for(task, 10)


async def test_no_starts_left_today(server: DiscordServer, bot: DiscordPlatform) -> None:
    info = server._gateway_info()
    info["session_start_limit"] |= {"remaining": 0, "reset_after": 3_600_000}
    server.rest._gateway_info = lambda: info
    with pytest.raises(PlatformUnavailable, match="3600 s"):
        await bot.run(RecordingIntake(), Reports())
    assert server.stats()["identifies"] == 0


@pytest.mark.parametrize("odd", [{}, {"url": 5, "shards": "x", "session_start_limit": None}, []])
async def test_an_odd_answer_to_where_the_gateway_is(
    server: DiscordServer, bot: DiscordPlatform, odd: Any
) -> None:
    server.rest._gateway_info = lambda: odd
    with pytest.raises(PlatformUnavailable):
        await bot.run(RecordingIntake(), Reports())


@pytest.mark.parametrize(
    "told", ["ws://127.0.0.1:9", "wss://evil.example", "nonsense", None, 5], ids=str
)
async def test_a_wrong_address_to_resume_at(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, told: Any
) -> None:
    server.gateway.resume_url = "" if told is None else told
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        server.kill_sockets(4000)
        await reports.wait(PlatformState.DEGRADED)
        server.user_says(channel, alice, "meanwhile")
        await intake.wait_messages(1)
        await reports.wait(PlatformState.RUNNING)
    assert server.stats()["resumes"] == 1


@pytest.mark.parametrize(
    "raw", [b"garbage\x00\x00\xff\xff", "{", "[]", '{"op": 0, "t": 5, "s": "x", "d": 7}'], ids=str
)
async def test_garbage_costs_no_message(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, raw: str | bytes
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        server.user_says(channel, alice, "before")
        server.push_raw(raw)
        server.user_says(channel, alice, "after")
        await intake.wait_messages(2)
        await reports.wait(PlatformState.RUNNING)
    assert intake.texts == ["before", "after"]


ODD_MESSAGES: list[Any] = [
    None,
    [],
    {},
    {"id": "x"},
    {"content": None},
    {"author": None},
    {"author": {"id": "7", "username": "\ud83d"}, "content": "half \udc00"},
    {"mentions": 5, "attachments": "x", "embeds": {}, "type": None},
    {"id": str(1 << 80)},
    {"timestamp": None},
    {"unknown": {"deep": [[[[]]]]}},
]


async def test_odd_messages_end_no_session_and_hide_no_later_one(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake):
        for odd in ODD_MESSAGES:
            number = str(server.world.snowflakes.next())
            base = {"id": number, "channel_id": str(channel.id), "guild_id": str(guild.id)}
            whole = base | odd if isinstance(odd, dict) else odd
            for event in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE"):
                server.dispatch(event, whole, guild_id=guild.id)
        server.user_says(channel, alice, "after")
        await intake.until(lambda: "after" in intake.texts)
        # Those without a place have a queue of their own.
        await intake.until(lambda: len(intake.quarantined) >= len(ODD_MESSAGES) - 1)
    assert server.stats()["identifies"] == 1
    assert server.stats()["resumes"] == 0
    assert all(reason for _, _, reason in intake.quarantined)


async def test_odd_messages_in_the_history_hide_no_later_one(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    bad = server.user_says(channel, alice, "bad")
    server.user_says(channel, alice, "good")

    def spoil(page: list[dict[str, Any]]) -> list[Any]:
        return [one | {"author": 5} if one["id"] == str(bad.id) else one for one in page]

    server.rest.history_quirk = spoil
    async with running(bot, intake):
        await intake.wait_messages(1)
    assert intake.texts == ["good"]
    assert [number for number, _, _ in intake.quarantined] == [str(bad.id)]
    assert "bad" in intake.quarantined[0][1]


async def test_an_event_that_breaks_the_sdk_breaks_it_once(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake) as (_, task):
        odd = {"id": str(guild.id), "roles": [{"id": "x"}], "channels": 5}
        server.dispatch("GUILD_UPDATE", odd, guild_id=guild.id)
        server.user_says(channel, alice, "behind it")
        with pytest.raises(PlatformUnavailable, match="strange"):
            await asyncio.wait_for(task, 10)
    intake.stored.setdefault(str(channel.id), "1")
    async with running(bot, intake) as (_, task):
        server.dispatch("GUILD_UPDATE", odd, guild_id=guild.id)
        server.user_says(channel, alice, "after")
        await intake.until(lambda: "after" in intake.texts)
        assert not task.done()
    assert intake.texts == ["behind it", "after"]


async def test_a_guild_that_the_sdk_can_not_read_is_served_all_the_same(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    server.add_member(guild, alice, roles=[role])
    thread = server.add_thread(channel, "topic")
    server.gateway.mangle = lambda event, data: (
        data | {"roles": [{"id": None}]} if event == "GUILD_CREATE" else data
    )
    intake = RecordingIntake()
    with pytest.raises(PlatformUnavailable, match="strange"):
        await asyncio.wait_for(bot.run(intake, Reports()), 10)
    async with running(bot, intake):
        server.user_says(thread, alice, "hello")
        await intake.wait_messages(1)
    (message,) = intake.messages
    assert message.parent_chat_id == str(channel.id)
    assert message.sender_role_ids == {str(role.id)}


@pytest.mark.parametrize("change", [{"user": None}, {"guilds": 5}, {"session_id": ...}], ids=str)
async def test_a_session_that_begins_strangely(
    server: DiscordServer, bot: DiscordPlatform, change: dict[str, Any]
) -> None:
    def mangle(event: str, data: Any) -> Any:
        if event != "READY":
            return data
        return {k: v for k, v in (data | change).items() if v is not ...}

    server.gateway.mangle = mangle
    with pytest.raises(PlatformUnavailable):
        await asyncio.wait_for(bot.run(RecordingIntake(), Reports()), 10)
    server.gateway.mangle = lambda _event, data: data
    async with running(bot, RecordingIntake()):
        pass


async def test_a_cancellation_that_the_sdk_swallows_ends_it_all_the_same(
    bot: DiscordPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, swallowed = asyncio.Event(), []

    async def connect(_self: Any, **_: Any) -> None:
        connecting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as exc:
            swallowed.append(exc)
        await asyncio.Event().wait()

    monkeypatch.setattr(discord.Client, "connect", connect)
    task = asyncio.create_task(bot.run(RecordingIntake(), Reports()))
    await connecting.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=30)
    assert swallowed
    assert done
    assert task.cancelled()


async def test_failed_connections_leak_nothing(server: DiscordServer) -> None:
    server.gateway.close_at_once = 4000
    platform = make(server)

    def held() -> tuple[int, int, int]:
        gc.collect()
        tasks = len(asyncio.all_tasks())
        return len(os.listdir("/proc/self/fd")), threading.active_count(), tasks

    before = (0, 0, 0)
    for attempt in range(6):
        with pytest.raises(PlatformUnavailable):
            await asyncio.wait_for(platform.run(RecordingIntake(), Reports()), 20)
        if attempt == 1:
            before = held()
    after = held()
    assert after[0] <= before[0] + 3
    assert after[1] <= before[1] + 1
    assert after[2] <= before[2] + 2
    await platform.close()


def test_what_is_told_says_the_worse() -> None:
    reports = Reports()
    from tests.fakes.clock import FakeClock

    told = health.Health(reports, FakeClock())
    told.store(False)
    told.store(True)
    told.alive()
    assert reports.all == [], "it still starts"
    told.connection(True)
    told.store(False)
    told.connection(False)
    told.store(True)
    told.connection(True)
    assert reports.all == [
        (PlatformState.RUNNING, ""),
        (PlatformState.DEGRADED, health.NO_STORE),
        (PlatformState.DEGRADED, health.DISCONNECTED),
        (PlatformState.DEGRADED, health.DISCONNECTED),
        (PlatformState.RUNNING, ""),
    ]


def test_lines_are_ready_together_and_never_by_the_word_of_the_session_before() -> None:
    told: list[str] = []
    lines = health.Lines(
        lambda: told.append("new"),
        lambda: told.append("ready"),
        lambda up: told.append(json.dumps(up)),
    )
    lines.expect(2)
    lines.identifying(0)
    lines.begun(0)
    lines.ready(0)
    lines.identifying(1)
    lines.ready(1)  # of before
    lines.begun(1)
    lines.ready(1)
    lines.lost(0)
    lines.identifying(0)
    lines.ready(0)  # late: of the session that was lost
    lines.begun(0)
    lines.ready(0)
    assert told == ["new", "false", "new", "ready", "true", "false", "new", "ready", "true"]
