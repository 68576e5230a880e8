"""All that people do on Discord besides writing plain messages, with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway import texts
from gateway.platforms.contract import FetchRefused, FetchUnavailable
from gateway.platforms.discord import files
from gateway.platforms.discord.adapter import DiscordPlatform
from tests.fakes.discord_server import Channel, DiscordServer, Guild, User, discord_py_at
from tests.fakes.discord_server.state import VOICE
from tests.fakes.intake import RecordingIntake
from tests.integration.discord_rig import TOKEN, make, running


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


async def test_only_what_its_author_changed_is_an_edit(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, guild: Guild, alice: User
) -> None:
    role = server.add_role(guild, "staff")
    server.add_member(guild, alice, roles=[role])
    intake = RecordingIntake()
    async with running(bot, intake):
        said = server.user_says(channel, alice, "https://example.org")
        server.unfurl(said)
        # As Discord also says it: only what is new.
        odd: dict[str, Any] = {"id": str(said.id), "channel_id": str(channel.id)}
        server.dispatch("MESSAGE_UPDATE", odd | {"embeds": [{}]})
        server.dispatch("MESSAGE_UPDATE", odd | {"edited_timestamp": "2026-01-01T00:00:00+00:00"})
        server.user_edits(said, "never mind")
        server.user_deletes(server.user_says(channel, alice, "deleted"))
        server.user_reacts(said, alice, "👍")
        server.user_types(channel, alice)
        server.user_says(channel, alice, "last")
        await intake.until(lambda: "last" in intake.texts)
    assert intake.texts == ["https://example.org", "deleted", "last"]
    (edit,) = intake.edits
    assert (edit.text, edit.message_id, edit.chat_id) == (
        "never mind",
        str(said.id),
        str(channel.id),
    )
    assert edit.sender_role_ids == {str(role.id)}
    assert intake.quarantined == []


async def test_edits_by_bots_and_of_bots_are_nothing(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    other = server.add_user("other", bot=True)
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_edits(server.user_says(channel, other, "beep", mention_bot=True), "boop")
        server.user_edits(server.webhook_says(channel, "hook"), "hooked")
        server.user_says(channel, alice, "last")
        await intake.wait_messages(1)
    assert (intake.texts, intake.edits) == (["last"], [])


async def test_bots_that_answer_while_we_are_away_start_no_loop(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    other = server.add_user("other", bot=True)
    intake = RecordingIntake()
    intake.stored[str(channel.id)] = str(server.user_says(channel, alice, "known").id)
    for i in range(10):
        server.user_says(channel, other, f"beep {i}", mention_bot=True)
        server.webhook_says(channel, "hook")
        server.system_message(channel, alice, "pin")
    newest = server.webhook_says(channel, "hook")
    async with running(bot, intake):
        await intake.until(lambda: intake.stored[str(channel.id)] == str(newest.id))
    assert all(m.sender_is_bot and not m.addressed and not m.text for m in intake.messages)


async def test_what_is_meant_for_the_bot(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, channel: Channel, alice: User
) -> None:
    own = server.add_role(guild, "posthouse", of_the_bot=True)
    staff = server.add_role(guild, "staff")
    server.add_member(guild, server.bot, roles=[own, staff])
    thread = server.add_thread(channel, "mine", owner=server.bot)
    others = server.add_thread(channel, "theirs", owner=alice)
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_says(channel, alice, f"<@&{own.id}> by role")
        server.user_says(channel, alice, f"<@&{staff.id}> another role of it")
        server.user_says(channel, alice, "@everyone listen")
        server.user_says(thread, alice, "in the bot's thread")
        server.user_says(others, alice, "in another thread")
        await intake.wait_messages(5)
    assert {m.text: m.addressed for m in intake.messages} == {
        "by role": True,
        "@staff another role of it": False,
        "@everyone listen": False,
        "in the bot's thread": True,
        "in another thread": False,
    }


async def test_posts_of_a_forum_name_it_as_their_channel(
    server: DiscordServer, bot: DiscordPlatform, guild: Guild, alice: User
) -> None:
    forum = server.add_channel(guild, "questions", forum=True)
    post = server.add_thread(forum, "how?", owner=alice)
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_says(post, alice, "like this?")
        new = server.add_thread(forum, "why?", owner=alice)
        server.user_says(new, alice, "because?")
        await intake.wait_messages(2)
    assert [(m.chat_id, m.parent_chat_id) for m in intake.messages] == [
        (str(post.id), str(forum.id)),
        (str(new.id), str(forum.id)),
    ]
    assert [m.chat_name for m in intake.messages] == ["how?", "why?"]
    assert server.calls_to("GET", "/channels/*") == []


async def test_stickers_polls_forwards_and_voice(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, guild: Guild, alice: User
) -> None:
    hidden = server.add_channel(guild, "hidden")
    secret = server.user_says(hidden, alice, "/stop", files=[("s.png", b"x", "image/png")])
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_says(channel, alice, stickers=[{"id": "1", "name": "wave", "format_type": 1}])
        poll = {"question": {"text": "Tea?"}, "answers": [{"poll_media": {"text": "yes"}}]}
        server.user_says(channel, alice, poll=poll)
        server.user_forwards(channel, alice, secret)
        server.user_says(channel, alice, files=[("v.ogg", b"ogg", "audio/ogg")], flags=VOICE)
        await intake.wait_messages(4)
    sticker, poll_message, forward, voice = intake.messages
    assert sticker.text == "[sticker: wave]"
    assert poll_message.text == "[poll: Tea? / yes]"
    assert (forward.text, forward.forwarded_from) == ("/stop", "")
    assert [file.file_name for file in forward.attachments] == ["s.png"]
    assert (voice.text, voice.attachments[0].label) == ("", "voice message")


# --- files --------------------------------------------------------------------------------------


async def attached(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User, data: bytes
) -> Any:
    intake = RecordingIntake()
    server.user_says(channel, alice, files=[("a b/ß.bin", data, "application/x-thing")])
    newest = max(channel.messages)
    intake.stored[str(channel.id)] = str(newest - 1)
    async with running(bot, intake):
        await intake.wait_messages(1)
    return intake.messages[0].attachments[0]


async def test_a_file_is_there_days_later_and_after_a_restart(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    file = await attached(server, bot, channel, alice, b"0123456789")
    assert await bot.fetch(file, 10) == b"0123456789"
    assert server.calls_to("GET", f"/channels/{channel.id}/messages/*") == []
    server.expire_links()
    later = make(server)
    with pytest.raises(FetchUnavailable):  # not logged in yet
        await later.fetch(file, 10)
    async with running(later, RecordingIntake()):
        assert await later.fetch(file, 10) == b"0123456789"
        server.expire_links()
        assert await later.fetch(file, 10) == b"0123456789"
    await later.close()


async def test_a_forwarded_file_is_found_again(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, guild: Guild, alice: User
) -> None:
    hidden = server.add_channel(guild, "hidden")
    original = server.user_says(hidden, alice, "x", files=[("s.png", b"png", "image/png")])
    intake = RecordingIntake()
    async with running(bot, intake):
        server.user_forwards(channel, alice, original)
        await intake.wait_messages(1)
        server.deny(hidden, "view")
        server.expire_links()
        assert await bot.fetch(intake.messages[0].attachments[0], 3) == b"png"


async def test_a_file_that_is_gone(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    file = await attached(server, bot, channel, alice, b"0123456789")
    server.expire_links()
    async with running(bot, RecordingIntake()):
        server.world.cdn.files[next(iter(server.world.cdn.files))].quirk = "gone"
        with pytest.raises(FetchRefused, match=texts.FILE_GONE):
            await bot.fetch(file, 10)
        server.fault("503", method="GET", path="/channels/*/messages/*")
        with pytest.raises(FetchUnavailable):
            await bot.fetch(file, 10)
        server.user_deletes(max(channel.messages))
        with pytest.raises(FetchRefused, match=texts.FILE_GONE):
            await bot.fetch(file, 10)


async def test_a_file_that_is_withheld_is_not_said_to_be_gone(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    """Something in front of the files lets nothing through for a while."""
    file = await attached(server, bot, channel, alice, b"0123456789")
    (stored,) = server.world.cdn.files.values()
    async with running(bot, RecordingIntake()):
        stored.quirk = "403"
        asked = len(server.world.cdn.asked)
        with pytest.raises(FetchUnavailable, match=texts.FILE_WITHHELD):
            await bot.fetch(file, 10)
        assert len(server.world.cdn.asked) - asked == 2, "once more at a fresh address, no oftener"
        stored.quirk = None
        assert await bot.fetch(file, 10) == b"0123456789"


@pytest.mark.parametrize(
    ("quirk", "error"),
    [
        ("redirect", FetchRefused),
        ("endless", FetchRefused),
        ("hang", FetchUnavailable),
        ("short", FetchUnavailable),
        ("packed", FetchUnavailable),
        ("403", FetchUnavailable),
        ("500", FetchUnavailable),
        ("429", FetchUnavailable),
    ],
)
async def test_a_file_server_that_misbehaves(
    server: DiscordServer, channel: Channel, alice: User, quirk: str, error: type[Exception]
) -> None:
    bot = make(server, file_timeout_seconds=0.5 if quirk == "hang" else 10.0)
    file = await attached(server, bot, channel, alice, b"0123456789")
    for stored in server.world.cdn.files.values():
        stored.quirk = quirk
    with pytest.raises(error):
        await bot.fetch(file, 1_000_000)
    assert not [path for path in server.world.cdn.asked if "elsewhere" in path]
    await bot.close()


async def test_a_file_is_never_larger_than_allowed(
    server: DiscordServer, bot: DiscordPlatform, channel: Channel, alice: User
) -> None:
    from dataclasses import replace

    file = await attached(server, bot, channel, alice, b"0123456789")
    asked = len(server.world.cdn.asked)
    with pytest.raises(FetchRefused, match="larger"):
        await bot.fetch(file, 9)
    assert len(server.world.cdn.asked) == asked, "what is said to be too large is not asked for"
    with pytest.raises(FetchRefused, match="larger"):
        await bot.fetch(replace(file, size_bytes=1), 9)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:1/x",
        "https://cdn.discordapp.com.evil.example/x",
        "https://cdn.discordapp.com@evil.example/x",
        "https://cdn.discordapp.com:8443/x",
        "http://cdn.discordapp.com/x",
        "https://user:word@cdn.discordapp.com/x",
        "https://[::1]/x",
        "https://cdn.discordapp.com./x",
    ],
)
async def test_no_other_host_is_ever_asked(url: str) -> None:
    cdn = files.Cdn("https://discord.com/api/v10", timeout_seconds=0.5)
    with pytest.raises(FetchRefused, match=texts.FILE_ODD_PLACE):
        await cdn.load(url, 10)


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", "//x", "https://x y", "https://ü.example"]
)
async def test_what_is_no_address_is_asked_anew(url: str) -> None:
    cdn = files.Cdn("https://discord.com/api/v10", timeout_seconds=0.5)
    with pytest.raises(files.Expired):
        await cdn.load(url, 10)
