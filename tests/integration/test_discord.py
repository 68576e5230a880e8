"""The Discord platform, with the real SDK, against the loopback Discord."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.mail import Address, OutboxDraft, OutboxPart
from gateway.platforms.contract import (
    ChatGone,
    KnowsRoles,
    PlatformConfigError,
    PlatformState,
    PlatformUnavailable,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.discord import adapter
from gateway.platforms.discord.adapter import DiscordPlatform
from gateway.platforms.discord.render import nonce
from tests.fakes.discord_server import Channel, DiscordServer, Guild, User, discord_py_at
from tests.fakes.intake import RecordingIntake, Reports
from tests.integration.discord_rig import TOKEN, make, part, running, settings

BOT_ID = "900000000000000001"


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


def address(channel: Any, reply: Any = None) -> Address:
    number = str(getattr(channel, "id", channel))
    return Address("discord", BOT_ID, number, None, None if reply is None else str(reply.id))


# --- receiving ----------------------------------------------------------------------------------


async def test_what_a_message_becomes(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    server.add_member(guild, alice, roles=[role], nick="Al")
    thread = server.add_thread(channel, "topic")
    intake = RecordingIntake()
    async with running(bot, intake):
        first = server.user_says(channel, alice, "hello <@1> 😀", mention_bot=True)
        server.user_says(channel, alice, "not for you")
        server.user_says(thread, alice, "in the thread")
        server.user_dms(alice, "psst")
        server.user_says(channel, alice, "look", files=[("cat.png", b"x", "image/png")])
        await intake.wait_messages(5)
    by_text = {message.text: message for message in intake.messages}
    hello = by_text["hello @unknown-user 😀"]
    assert (hello.platform, hello.bot_id, hello.chat_id) == (
        "discord",
        str(server.bot.id),
        str(channel.id),
    )
    assert (hello.message_id, hello.sender_id) == (str(first.id), str(alice.id))
    assert (hello.sender_name, hello.chat_kind) == ("Al", "group")
    assert hello.addressed
    assert hello.sent_at == pytest.approx(first.created_at, abs=0.01)
    assert str(role.id) in hello.sender_role_ids
    assert not by_text["not for you"].addressed
    inside = by_text["in the thread"]
    assert (inside.chat_id, inside.thread_id, inside.parent_chat_id) == (
        str(thread.id),
        str(thread.id),
        str(channel.id),
    )
    direct = by_text["psst"]
    assert (direct.chat_kind, direct.addressed, direct.thread_id) == ("direct", True, None)
    (picture,) = by_text["look"].attachments
    assert (picture.kind, picture.file_name, picture.media_type, picture.size_bytes) == (
        "image",
        "cat.png",
        "image/png",
        1,
    )


async def test_bots_webhooks_system_messages_and_ourselves_are_nothing(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    other = server.add_user("other", bot=True)
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_says(channel, other, "beep", mention_bot=True)
        server.webhook_says(channel, "hook")
        server.system_message(channel, alice, "join")
        await bot.send(address(channel), part("my own words"))
        server.user_edits(server.user_says(channel, alice, "said"), "edited")
        server.user_says(channel, alice, "last")
        await intake.until(lambda: "last" in intake.texts)
    assert intake.texts == ["said", "last"]


async def test_a_reply_to_the_bot_is_addressed_and_quotes_unless_it_is_the_newest(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake):
        old = int(await bot.send(address(channel), part("old answer", id_=1)))
        new = int(await bot.send(address(channel), part("new answer", id_=2)))
        server.user_says(channel, alice, "about old", reply_to=old, ping=False)
        server.user_says(channel, alice, "about new", reply_to=new, ping=False)
        note = server.user_says(channel, alice, "a note")
        server.user_says(channel, alice, "about the note", reply_to=note)
        await intake.wait_messages(4)
    facts = {m.text: (m.addressed, m.quoted_text) for m in intake.messages}
    assert facts["about old"] == (True, "old answer")
    assert facts["about new"] == (True, None)
    assert facts["about the note"] == (False, "a note")


async def test_messages_without_their_text_are_said_once_and_never_handed_in(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    alice: User,
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_says(channel, alice, "")
        server.user_says(channel, alice, "")
        server.user_says(channel, alice, "after")
        await intake.wait_messages(1)
    assert intake.texts == ["after"]
    assert caplog.text.count("Message Content intent") == 1


async def test_the_store_is_down_the_order_stays(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        intake.failures = 3
        for i in range(5):
            server.user_says(channel, alice, f"m{i}")
        await intake.wait_messages(5)
        await reports.wait(PlatformState.RUNNING)
    assert intake.texts == [f"m{i}" for i in range(5)]
    assert PlatformState.DEGRADED in reports.states


async def test_a_message_that_breaks_the_intake_is_quarantined(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    intake.refuse = lambda m: ValueError("bug") if m.text == "bad" else None
    async with running(bot, intake):
        bad = server.user_says(channel, alice, "bad")
        server.user_says(channel, alice, "good")
        await intake.wait_messages(1)
    assert intake.texts == ["good"]
    assert intake.quarantined[0][0] == str(bad.id)


# --- what was missed ----------------------------------------------------------------------------


async def test_downtime_is_caught_up_without_gaps_or_doubles_while_live_messages_come(
    server: DiscordServer, channel: Channel, guild: Guild, alice: User
) -> None:
    intake = RecordingIntake()
    thread = server.add_thread(channel, "topic")
    archived = server.add_thread(channel, "old topic")
    direct = server.open_dm(alice)
    places = [channel, thread, archived, direct]
    first = make(server)
    async with running(first, intake):
        for place in places:
            server.user_says(place, alice, f"{place.id} start")
        await intake.wait_messages(len(places))
    await first.close()
    expected = {place.id: [f"{place.id} start"] for place in places}
    for place in places:
        for i in range(230):  # more than two pages
            text = f"{place.id} missed {i}"
            server.user_says(place, alice, text)
            expected[place.id].append(text)
        other = server.add_user(f"robot {place.id}", bot=True)
        if place is not direct:
            server.user_says(place, other, "beep")
    server.archive(archived)
    second = make(server)
    async with running(second, intake):
        for i in range(50):
            for place in places:
                text = f"{place.id} live {i}"
                server.user_says(place, alice, text)
                expected[place.id].append(text)
            await asyncio.sleep(0)
        await intake.wait_messages(len(places) * 281, timeout=30)
    await second.close()
    for place in places:
        got = [m.text for m in intake.messages if m.chat_id == str(place.id)]
        assert got == expected[place.id]
    old = [m for m in intake.messages if m.chat_id == str(archived.id)]
    assert {m.parent_chat_id for m in old} == {str(channel.id)}
    assert {m.thread_id for m in old} == {str(archived.id)}


async def test_live_messages_wait_for_the_backfill_of_their_channel_only(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    other = server.add_channel(guild, "other")
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    server.user_says(channel, alice, "missed")
    server.fault("hang", path=f"/channels/{channel.id}/messages")
    async with running(bot, intake):
        server.user_says(channel, alice, "live")
        server.user_says(other, alice, "elsewhere")
        await intake.wait_messages(1)
        assert intake.texts == ["elsewhere"]
        server.clear_faults()
        await intake.wait_messages(3)
    assert intake.texts == ["elsewhere", "missed", "live"]


async def test_history_that_fails_is_asked_again(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    for i in range(150):
        server.user_says(channel, alice, f"m{i}")
    server.fault("503", path=f"/channels/{channel.id}/messages", times=1)
    server.fault("reset", path=f"/channels/{channel.id}/messages", skip=1, times=1)
    async with running(bot, intake):
        await intake.wait_messages(150)
    assert intake.texts == [f"m{i}" for i in range(150)]
    assert intake.doubles == []


async def test_a_channel_that_is_gone_stops_nobody(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    gone = server.add_channel(guild, "gone")
    hidden = server.add_channel(guild, "hidden")
    intake = RecordingIntake()
    for place in (gone, hidden, channel):
        intake.stored[str(place.id)] = str(server.user_says(place, alice, "known").id)
    server.user_says(channel, alice, "missed")
    server.remove_channel(gone)
    server.deny(hidden, "view")
    async with running(bot, intake):
        await intake.wait_messages(1)
        server.allow(hidden, "view")
        server.user_says(hidden, alice, "visible again")
        await intake.wait_messages(2)
    assert intake.texts == ["missed", "visible again"]


async def test_roles_are_known_for_missed_messages(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    server.add_member(guild, alice, roles=[role])
    gone = server.add_user("gone")
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    server.user_says(channel, alice, "one")
    server.user_says(channel, alice, "two")
    server.user_says(channel, gone, "left since")
    del guild.members[gone.id]
    async with running(bot, intake):
        await intake.wait_messages(3)
    assert [str(role.id) in m.sender_role_ids for m in intake.messages] == [True, True, False]
    assert len(server.calls_to("GET", f"/guilds/*/members/{alice.id}")) == 1


async def test_roles_are_told_as_they_are_now(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    server.add_member(guild, alice, roles=[role])
    gone = server.add_user("gone")
    server.add_member(guild, gone, roles=[role])
    thread = server.add_thread(channel, "plans")
    assert isinstance(bot, KnowsRoles)
    assert await bot.roles_of(address(channel), str(alice.id)) is None, "not connected yet"
    async with running(bot, RecordingIntake()):
        assert await bot.roles_of(address(channel), str(alice.id)) == {str(role.id)}
        assert await bot.roles_of(address(thread), str(alice.id)) == {str(role.id)}
        assert len(server.calls_to("GET", f"/guilds/*/members/{alice.id}")) == 1
        del guild.members[gone.id]
        assert await bot.roles_of(address(channel), str(gone.id)) == set()
        other_bot = replace(address(channel), bot_id="5")
        assert await bot.roles_of(other_bot, str(alice.id)) is None
        assert await bot.roles_of(address(channel), "somebody") is None
        assert await bot.roles_of(address("no channel"), str(alice.id)) is None
        with pytest.raises(ChatGone):
            await bot.roles_of(address("4242"), str(alice.id))


@pytest.mark.parametrize("fault", ["hang", "drop", "status", "cloudflare"])
async def test_roles_that_can_not_be_asked_are_unknown_soon(
    server: DiscordServer,
    bot: DiscordPlatform,
    guild: Guild,
    channel: Channel,
    alice: User,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "_ROLES_SECONDS", 0.3)
    server.add_member(guild, alice, roles=[server.add_role(guild, "staff")])
    async with running(bot, RecordingIntake()):
        server.fault(fault, path="/guilds/*/members/*", times=None)
        assert await bot.roles_of(address(channel), str(alice.id)) is None
        server.clear_faults()
        assert await bot.roles_of(address(channel), str(alice.id))


@pytest.mark.parametrize("way", ["op 7", "close 4000", "cut"])
async def test_a_resume_needs_no_backfill(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, way: str
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        server.user_says(channel, alice, "before")
        await intake.wait_messages(1)
        match way:
            case "op 7":
                server.reconnect()
            case "close 4000":
                server.kill_sockets(4000)
            case "cut":
                server.kill_sockets(None)
        server.user_says(channel, alice, "meanwhile")
        await intake.wait_messages(2, timeout=20)
        await reports.wait(PlatformState.RUNNING)
    assert intake.texts == ["before", "meanwhile"]
    assert server.calls_to("GET", "/channels/*/messages") == []
    assert server.stats()["identifies"] == 1


async def test_a_lost_session_is_caught_up_before_anything_live(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    async with running(bot, intake) as (reports, _):
        server.user_says(channel, alice, "before")
        await intake.wait_messages(1)
        server.forget_sessions()
        server.kill_sockets(4000)
        for i in range(120):
            server.user_says(channel, alice, f"lost {i}", deliver=False)
        await server.wait_connected(timeout=20)
        # Between READY and the SDK's on_ready live events come already.
        server.user_says(channel, alice, "live")
        await intake.wait_messages(122, timeout=20)
        await reports.wait(PlatformState.RUNNING)
    assert intake.texts == ["before", *(f"lost {i}" for i in range(120)), "live"]


async def test_cut_off_in_the_middle_of_a_backfill_nothing_is_lost(
    server: DiscordServer, channel: Channel, alice: User
) -> None:
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    for i in range(250):
        server.user_says(channel, alice, f"m{i}")
    for _ in range(4):
        platform = make(server)
        goal = len(intake.messages) + 40
        async with running(platform, intake):
            await intake.wait_messages(goal)
        await platform.close()
    platform = make(server)
    async with running(platform, intake):
        await intake.wait_messages(250)
    await platform.close()
    assert intake.texts == [f"m{i}" for i in range(250)]


# --- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["wrong-token", "", "  "])
async def test_a_bad_token_is_the_operators_business(server: DiscordServer, token: str) -> None:
    platform = make(server, token=token)
    with pytest.raises(PlatformConfigError, match="DISCORD_BOT_TOKEN"):
        await platform.run(RecordingIntake(), Reports())
    with pytest.raises(SendUnavailable):
        await platform.send(address(1), part())
    await platform.typing(address(1))
    await platform.close()


async def test_a_missing_intent_is_the_operators_business(
    server: DiscordServer, bot: DiscordPlatform
) -> None:
    server.set_privileged()
    with pytest.raises(PlatformConfigError, match="Message Content intent"):
        await bot.run(RecordingIntake(), Reports())


async def test_a_token_reset_while_running(server: DiscordServer, bot: DiscordPlatform) -> None:
    async with running(bot, RecordingIntake()) as (_, task):
        server.set_token("another")
        server.forget_sessions()
        server.kill_sockets(4000)
        with pytest.raises(PlatformConfigError):
            await asyncio.wait_for(task, 20)


async def test_discord_is_down_at_start_and_comes_back(server: DiscordServer) -> None:
    await server.stop()
    platform = make(server)
    for _ in range(3):
        with pytest.raises(PlatformUnavailable, match="is the network up"):
            await platform.run(RecordingIntake(), Reports())
    await server.start()
    async with running(platform, RecordingIntake()):
        assert platform.bot_id == str(server.bot.id)
    await platform.close()


async def test_an_outage_degrades_and_then_asks_for_a_new_start(server: DiscordServer) -> None:
    platform = make(server, patience_seconds=0.5)
    async with running(platform, RecordingIntake()) as (reports, task):
        server.refuse_gateway()
        server.kill_sockets(None)
        with pytest.raises(PlatformUnavailable, match="no connection"):
            await asyncio.wait_for(task, 20)
        assert reports.states[-1] is PlatformState.DEGRADED
    await platform.close()


async def test_a_gateway_that_says_nothing_any_more_is_left(server: DiscordServer) -> None:
    async with DiscordServer(TOKEN, heartbeat_interval=0.2) as quick:
        guild = quick.add_guild()
        channel = quick.add_channel(guild)
        alice = quick.add_user("alice")
        platform = make(quick, heartbeat_timeout_seconds=1.0)
        intake = RecordingIntake()
        async with running(platform, intake) as (reports, _):
            quick.make_zombies()
            await reports.wait(PlatformState.DEGRADED, timeout=20)
            quick.user_says(channel, alice, "still there?")
            await intake.wait_messages(1, timeout=20)
        await platform.close()


async def test_failed_starts_leak_no_sockets(server: DiscordServer) -> None:
    import os

    await server.stop()
    platform = make(server)
    before = 0
    for attempt in range(30):
        with pytest.raises(PlatformUnavailable):
            await platform.run(RecordingIntake(), Reports())
        if attempt == 5:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    await platform.close()


# --- sending ------------------------------------------------------------------------------------


async def test_the_first_part_answers_and_every_part_has_its_nonce(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    async with running(bot, RecordingIntake()):
        asked = server.user_says(channel, alice, "question")
        where = address(channel, asked)
        ids = [await bot.send(where, part(f"p{n}", n=n, id_=n + 1)) for n in range(3)]
    sent = server.sent
    assert [str(one.id) for one in sent] == ids
    assert [one.reply_to for one in sent] == [asked.id, None, None]
    assert [one.nonce for one in sent] == [nonce("db1", n + 1) for n in range(3)]
    assert all(one.pings == [] for one in sent)
    calls = server.calls_to("POST", "/channels/*/messages")
    assert all(call.body["enforce_nonce"] is True for call in calls)


async def test_nobody_is_pinged(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    async with running(bot, RecordingIntake()):
        asked = server.user_says(channel, alice, "x")
        text = f"@everyone <@{alice.id}> <@&{role.id}>"
        await bot.send(address(channel, asked), part(text))
    assert server.sent[0].pings == []


async def test_a_direct_answer_and_one_in_a_thread(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    thread = server.add_thread(channel, "topic")
    server.archive(thread)
    direct = server.open_dm(alice)
    async with running(bot, RecordingIntake()):
        await bot.send(address(direct), part("d", id_=1))
        where = Address("discord", BOT_ID, str(channel.id), str(thread.id))
        await bot.send(where, part("t", id_=2))
        await bot.typing(where)
    assert server.bot_texts(direct) == ["d"]
    assert server.bot_texts(thread) == ["t"]
    assert server.typings[0].channel_id == thread.id


async def test_an_answer_to_a_deleted_message_arrives_whole(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    async with running(bot, RecordingIntake()):
        asked = server.user_says(channel, alice, "question")
        server.user_deletes(asked)
        server.fault("error", status=400, code=10008, message="Unknown Message", method="POST")
        for n in range(3):
            await bot.send(address(channel, asked), part(f"p{n}", n=n, id_=n + 1))
        server.fault(
            "error",
            status=400,
            code=50035,
            message="Invalid Form Body In message_reference: Unknown message",
            method="POST",
        )
        await bot.send(address(channel, asked), part("again", id_=9))
    assert server.bot_texts(channel) == ["p0", "p1", "p2", "again"]


@pytest.mark.parametrize("window", [180.0, 0.0], ids=["nonce known", "nonce forgotten"])
async def test_a_repeat_of_what_arrived_is_shown_once(alice: User, window: float) -> None:
    async with DiscordServer(TOKEN, nonce_window=window) as server:
        channel = server.add_channel(server.add_guild())
        alice = server.add_user("alice")
        platform = make(server)
        async with running(platform, RecordingIntake()):
            asked = server.user_says(channel, alice, "question")
            where = address(channel, asked)
            server.fault("reset", method="POST", path="/channels/*/messages", handled=True)
            with pytest.raises(SendUnknown):
                await platform.send(where, part("the answer"))
            for i in range(120):
                server.user_says(channel, alice, f"chatter {i}")
            found = await platform.send(where, part("the answer"), repeat=True)
            assert server.bot_texts(channel) == ["the answer"]
            assert found == str(server.sent[0].id)
        await platform.close()


async def test_a_repeat_is_found_by_content_where_the_history_tells_no_nonce(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    async with running(bot, RecordingIntake()):
        earlier = server.user_says(channel, alice, "first question")
        await bot.send(address(channel, earlier), part("Yes.", id_=1))
        asked = server.user_says(channel, alice, "second question")
        where = address(channel, asked)
        # The same words as an answer to something else are not this answer.
        first = await bot.send(where, part("Yes.", id_=2), repeat=True)
        second = await bot.send(where, part("And more.", id_=3, n=1), repeat=True)
        assert server.bot_texts(channel) == ["Yes.", "Yes.", "And more."]
        for message in channel.messages.values():
            message.nonce = None
        assert await bot.send(where, part("Yes.", id_=2), repeat=True) == first
        assert await bot.send(where, part("And more.", id_=3, n=1), repeat=True) == second
    assert server.bot_texts(channel) == ["Yes.", "Yes.", "And more."]


async def test_a_repeat_of_what_never_arrived_is_sent(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    async with running(bot, RecordingIntake()):
        asked = server.user_says(channel, alice, "question")
        server.fault("reset", method="POST", path="/channels/*/messages")
        with pytest.raises(SendUnknown):
            await bot.send(address(channel, asked), part("the answer"))
        await bot.send(address(channel, asked), part("the answer"), repeat=True)
    assert server.bot_texts(channel) == ["the answer"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "error", "status": 403, "code": 50013}, SendRefused),
        ({"kind": "error", "status": 403, "code": 50001}, SendRefused),
        ({"kind": "error", "status": 403, "code": 50007}, SendRefused),
        ({"kind": "error", "status": 404, "code": 10003}, SendRefused),
        ({"kind": "error", "status": 400, "code": 50006}, SendRefused),
        ({"kind": "error", "status": 401}, SendUnavailable),
        ({"kind": "503"}, SendUnknown),
        ({"kind": "reset"}, SendUnknown),
        ({"kind": "drop", "handled": True}, SendUnknown),
        ({"kind": "429", "retry_after": 1000.0}, SendFlood),
        ({"kind": "429-cloudflare"}, SendFlood),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
async def test_how_a_send_fails(
    server: DiscordServer,
    bot: DiscordPlatform,
    channel: Channel,
    fault: dict[str, Any],
    error: type[SendError],
) -> None:
    async with running(bot, RecordingIntake()):
        server.fault(**{"method": "POST", "path": "/channels/*/messages", **fault})
        with pytest.raises(error):
            await bot.send(address(channel), part())
        assert len(server.calls_to("POST", "/channels/*/messages")) == 1


async def test_a_long_flood_is_told_to_delivery_and_not_slept_through(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, guild: Guild
) -> None:
    other = server.add_channel(guild, "other")
    async with running(bot, RecordingIntake()):
        server.fault("429", retry_after=1000.0, method="POST", channel_id=channel)
        with pytest.raises(SendFlood) as caught:
            await bot.send(address(channel), part())
        assert caught.value.retry_after_seconds == 1000
        server.fault("429", retry_after=900.0, method="POST", path="/channels/*/typing")
        with pytest.raises(SendFlood):  # whoever sends there waits as well
            await bot.typing(address(channel))
        await bot.send(address(other), part(id_=2))
    assert server.bot_texts(other) == ["hello"]


async def test_a_short_flood_is_waited_for(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    async with running(bot, RecordingIntake()):
        server.fault("429", retry_after=0.05, method="POST", channel_id=channel)
        await bot.send(address(channel), part())
    assert server.bot_texts(channel) == ["hello"]


async def test_no_connection_means_certainly_not_delivered(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    async with running(bot, RecordingIntake()):
        await server.stop()
        with pytest.raises(SendUnavailable):
            await bot.send(address(channel), part())
        await bot.typing(address(channel))
        await server.start()
        await bot.send(address(channel), part())
    assert server.bot_texts(channel) == ["hello"]


async def test_a_long_answer_arrives_in_order(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    text = (
        "```python\n" + "\n".join(f"line_{i} = {i}" for i in range(400)) + "\n```\n" + "😀" * 3000
    )
    async with running(bot, RecordingIntake()):
        asked = server.user_says(channel, alice, "question")
        for n, draft in enumerate(bot.render(OutboxDraft(Address("discord", "1", "1"), text))):
            one = OutboxPart(n + 1, 1, n, "planned", draft.payload)
            await bot.send(address(channel, asked), one)
    shown = server.bot_texts(channel)
    plan = bot.render(OutboxDraft(Address("discord", "1", "1"), text))
    assert shown == [draft.payload["content"] for draft in plan]
    assert "".join(shown).count("😀") == 3000


async def test_sends_still_go_out_after_receiving_has_stopped(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel
) -> None:
    async with running(bot, RecordingIntake()):
        pass
    await server.wait_connected(False)
    await bot.send(address(channel), part("bye"))
    await bot.close()
    await bot.close()
    with pytest.raises(SendUnavailable):
        await bot.send(address(channel), part("too late", id_=2))
    assert server.bot_texts(channel) == ["bye"]


async def test_an_address_that_is_no_channel_is_refused(bot: DiscordPlatform) -> None:
    with pytest.raises(SendRefused):
        await bot.send(address("nonsense"), part())
    await bot.typing(address("nonsense"))


async def test_the_token_is_in_no_log_line(
    server: DiscordServer, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("discord").setLevel(logging.DEBUG)
    platform = make(server)
    async with running(platform, RecordingIntake()):
        server.fault("503", method="POST", path="/channels/*/messages")
        with pytest.raises(SendUnknown):
            await platform.send(address(channel), part())
    await platform.close()
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(settings(server))
