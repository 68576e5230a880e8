"""Every way in passes the one gate: whatever a stranger does on a platform leaves no trace.

The two tables below name everything that the SDKs can bring us. Who adds a handler, or raises the
version of an SDK that knows more, has to say here what it does, and it is tried.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import discord
import pytest
import telegram
from discord.state import ConnectionState

from agent.clock import SystemClock
from gateway import texts
from gateway.commands.menu import entries
from gateway.commands.registry import COMMANDS
from gateway.intake.access import Verdict
from gateway.intake.gate import Gate
from gateway.platforms.contract import InboundMessage, PlatformError, PlatformState
from gateway.platforms.discord.adapter import DiscordPlatform
from gateway.platforms.discord.sdk import build_bot
from gateway.platforms.discord.settings import DiscordSettings
from gateway.platforms.discord.wire import INTERACTION_EVENT, MESSAGE_EVENTS
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramSettings
from gateway.platforms.telegram.convert import ALLOWED_UPDATES
from tests.fakes.clock import FakeClock
from tests.fakes.discord_server import Channel, DiscordServer, Guild, User, discord_py_at
from tests.fakes.discord_server.state import EPHEMERAL
from tests.fakes.door import Door, letting_in
from tests.fakes.intake import Reports
from tests.fakes.telegram_server import GROUP, TOKEN, TelegramServer

Effect = Literal["stored", "revised", "pressed", "nothing"]

TELEGRAM: dict[str, Effect] = {
    "message": "stored",
    "edited_message": "revised",
    "channel_post": "nothing",
    "edited_channel_post": "nothing",
    "business_connection": "nothing",
    "business_message": "nothing",
    "edited_business_message": "nothing",
    "deleted_business_messages": "nothing",
    "guest_message": "nothing",
    "message_reaction": "nothing",
    "message_reaction_count": "nothing",
    "inline_query": "nothing",
    "chosen_inline_result": "nothing",
    "callback_query": "pressed",
    "shipping_query": "nothing",
    "pre_checkout_query": "nothing",
    "purchased_paid_media": "nothing",
    "poll": "nothing",
    "poll_answer": "nothing",
    "my_chat_member": "nothing",
    "chat_member": "nothing",
    "chat_join_request": "nothing",
    "chat_boost": "nothing",
    "removed_chat_boost": "nothing",
    "managed_bot": "nothing",
}
"""What an allowed person's update of each kind does. A stranger's does nothing."""

DISCORD: dict[str, Effect] = {
    "MESSAGE_CREATE": "stored",
    "MESSAGE_UPDATE": "revised",
    "INTERACTION_CREATE": "stored",
}
"""The same for the events of Discord's gateway; every other one does nothing."""

LIFE = {
    "on_connect",
    "on_shard_connect",
    "on_guild_available",
    "on_guild_join",
    "on_ready",
    "on_resumed",
    "on_disconnect",
    "on_shard_ready",
    "on_shard_resumed",
    "on_shard_disconnect",
}
"""What our client of the SDK listens to: nothing that a person does."""

OTHERWISE = {"dispatch", "before_identify_hook", "_look"}
"""What it does beside that: end quietly, take its time to log in, see whether all is there."""

FRIEND, STRANGER = 111, 666
HARMLESS = {
    "getMe",
    "getUpdates",
    "deleteWebhook",
    "getWebhookInfo",
    "setMyCommands",
    "answerCallbackQuery",  # without a word: the app stops waiting
}


class WatchedGate(Gate):
    """Remembers who was judged, and how."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.judged: list[tuple[InboundMessage, bool]] = []

    def decide(self, message: InboundMessage) -> Verdict:
        verdict = super().decide(message)
        self.judged.append((message, verdict.allowed))
        return verdict


class WatchedDoor(Door):
    """A door that tells whom its gate has judged."""

    gate_type = WatchedGate

    @property
    def watched(self) -> WatchedGate:
        assert isinstance(self.gate, WatchedGate)
        return self.gate

    async def let_in_only(self, *texts: str) -> None:
        """These and nothing else came in, each past the gate; nobody else left a trace."""
        assert self.texts == list(texts)
        rows = await self.rows()
        assert [row.record.text for row in rows] == list(texts)
        passed = {message.message_id for message, allowed in self.watched.judged if allowed}
        assert {row.record.message_id for row in rows} <= passed
        left = set(await self.traces())
        assert {name for name in left if not name.startswith("cursors")} == {"rows", "dispatched"}


@contextlib.asynccontextmanager
async def running(platform: Any, door: Door) -> AsyncIterator[None]:
    reports = Reports()
    task = asyncio.create_task(platform.run(door.intake, reports))
    try:
        await reports.wait(PlatformState.RUNNING)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PlatformError):
            await task
        await platform.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing here tells when
            await asyncio.sleep(0.005)


# --- Telegram -----------------------------------------------------------------------------------


def test_every_kind_of_update_is_in_the_table() -> None:
    assert set(TELEGRAM) == {str(kind) for kind in telegram.Update.ALL_TYPES}
    reacting = {kind for kind, effect in TELEGRAM.items() if effect != "nothing"}
    assert set(ALLOWED_UPDATES) == reacting


@pytest.fixture
async def telegram_server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running_server:
        yield running_server


@pytest.fixture
async def telegram_door(
    telegram_server: TelegramServer, clock: FakeClock
) -> AsyncIterator[WatchedDoor]:
    door = WatchedDoor(clock, {"telegram": letting_in(str(FRIEND))})
    platform = TelegramPlatform(
        TelegramSettings(
            TOKEN,
            base_url=telegram_server.base_url,
            base_file_url=telegram_server.base_file_url,
            poll_timeout_seconds=1,
        ),
        SystemClock(),
        menu=entries(COMMANDS),
    )
    async with running(platform, door):
        yield door


def body_of(kind: str, user_id: int, server: TelegramServer) -> dict[str, Any]:
    """An update's content with a person wherever one can stand."""
    person = server.add_user(user_id)
    chat = {"id": user_id, "type": "private", "first_name": "x"}
    post = {"message_id": 9_000, "date": 1, "chat": chat, "from": person, "text": f"{kind} here"}
    if kind.endswith(("message", "post")):
        return {**post, "edit_date": 2} if kind.startswith("edited") else post
    return {
        "id": "5", "query_id": "5", "poll_id": "5", "from": person, "user": person, "date": 1,
        "chat": chat, "message": post, "data": "/new", "query": "/new", "inline_message_id": "1",
        "user_chat_id": user_id, "message_id": 1, "message_ids": [1], "new_reaction": [],
        "old_reaction": [], "option_ids": [0], "question": "?", "options": [],
        "invoice_payload": "x", "is_enabled": True, "result_id": "1",
    }  # fmt: skip


async def said_last(server: TelegramServer, door: Door) -> None:
    """Updates come in order: behind this one all of those before are done."""
    server.private_text("marker", user_id=FRIEND)
    await until(lambda: "marker" in door.texts)


def everything_said(server: TelegramServer, user_id: int) -> None:
    """All that can be said in messages, to the bot and in a group that nobody has listed."""
    for place in (user_id, GROUP):
        who: dict[str, Any] = {"user_id": user_id, "chat_id": place}
        for text in ("/new", "/stop", "/whoami", "/help me"):
            server.command(text, addressed=True, **who)
        server.message({"text": "run ls"}, **who)
        server.photo(caption="look", **who)
        server.document(b"x", caption="read", **who)
        server.voice(**who)
        server.album([b"1", b"2"], caption="both", **who)
        server.message({"text": "as before", "forward_origin": {
            "type": "user", "date": 1, "sender_user": server.add_user(FRIEND)}}, **who)  # fmt: skip
        for kind in ("new_chat_members", "left_chat_member", "new_chat_title", "pinned_message"):
            server.service(kind, {} if kind == "pinned_message" else None, **who)
        server.message({"location": {"latitude": 1.0, "longitude": 1.0}}, **who)
    server.group_text("hello", mention=True, user_id=user_id)
    server.group_text("so", user_id=user_id, reply_to=1)
    server.paste("x" * 9_000, user_id=user_id, chat_id=user_id)
    server.migrate(-5_000 - user_id, -1_000_000_005_000 - user_id, user_id=user_id)


async def test_what_strangers_do_on_telegram_leaves_no_trace(
    telegram_server: TelegramServer, telegram_door: WatchedDoor
) -> None:
    everything_said(telegram_server, STRANGER)
    for kind in TELEGRAM:
        telegram_server.push(kind, body_of(kind, STRANGER, telegram_server), force=True)
    await said_last(telegram_server, telegram_door)
    await telegram_door.let_in_only("marker")
    assert {call.method for call in telegram_server.calls} <= HARMLESS
    assert all("text" not in answer for answer in telegram_server.state.callback_answers)
    refused = [m for m, allowed in telegram_door.watched.judged if not allowed]
    assert len(refused) > 30
    assert {m.sender_id for m in refused} == {str(STRANGER)}


@pytest.mark.parametrize("kind", TELEGRAM)
async def test_what_each_kind_of_update_does(
    telegram_server: TelegramServer, telegram_door: WatchedDoor, kind: str
) -> None:
    effect = TELEGRAM[kind]
    if effect == "revised":
        body = {**body_of("message", FRIEND, telegram_server), "text": "first"}
        telegram_server.push("message", body, force=True)
    telegram_server.push(kind, body_of(kind, FRIEND, telegram_server), force=True)
    await said_last(telegram_server, telegram_door)
    rows = [row.record.text for row in await telegram_door.rows()]
    assert (
        rows
        == {
            "stored": [f"{kind} here", "marker"],
            "revised": [f"{kind} here", "marker"],
            "pressed": ["/new", "marker"],
            "nothing": ["marker"],
        }[effect]
    )
    assert {call.method for call in telegram_server.calls} <= HARMLESS


# --- Discord ------------------------------------------------------------------------------------


@pytest.fixture
def sdk_at_rest() -> Iterator[None]:
    """The SDK's addresses are process-wide."""
    with discord_py_at("http://127.0.0.1:9", "ws://127.0.0.1:9"):
        yield


class NoLines:
    """A `gateway.platforms.discord.sdk.LineEvents` that nobody listens to."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


async def at_once(shard_id: int, is_first: bool) -> None:
    """Every session may begin."""


@pytest.mark.parametrize("shards", [1, 2])
async def test_every_event_that_we_listen_to_is_in_the_tables(
    sdk_at_rest: None, shards: int
) -> None:
    assert {*MESSAGE_EVENTS, INTERACTION_EVENT} == set(DISCORD)
    bot = build_bot(
        NoLines(),  # type: ignore[arg-type]
        shards=shards,
        turn=at_once,
        guild_ready_seconds=1,
        heartbeat_timeout_seconds=1,
    )
    base = discord.AutoShardedClient if shards > 1 else discord.Client
    ours = type(bot)
    assert {name for name in dir(ours) if name.startswith("on_")} - set(dir(base)) == LIFE
    # nor by any other way: whatever else it does differently is named here as well
    own = {name for name in vars(ours) if not name.startswith("__")}
    assert own == LIFE | OTHERWISE
    assert not {name for name in vars(bot) if name.startswith("on_")}
    assert bot._connection._command_tree is None


@pytest.fixture
async def discord_server(sdk_at_rest: None) -> AsyncIterator[DiscordServer]:
    async with DiscordServer("discord-test-token") as running_server:
        yield running_server


@pytest.fixture
def home(discord_server: DiscordServer) -> tuple[Guild, Channel, User, User]:
    guild = discord_server.add_guild("home")
    channel = discord_server.add_channel(guild)
    friend = discord_server.add_user("friend", id_=FRIEND)
    return guild, channel, friend, discord_server.add_user("stranger", id_=STRANGER)


@pytest.fixture
async def discord_door(
    discord_server: DiscordServer, home: object, clock: FakeClock
) -> AsyncIterator[WatchedDoor]:
    door = WatchedDoor(clock, {"discord": letting_in(str(FRIEND))})
    platform = DiscordPlatform(
        DiscordSettings(
            "discord-test-token",
            api_base=discord_server.api_base,
            guild_ready_seconds=0.05,
            reidentify_pause_seconds=0.05,
        ),
        SystemClock(),
        nonce_scope="db1",
    )
    async with running(platform, door):
        yield door


async def test_what_strangers_do_on_discord_leaves_no_trace(
    discord_server: DiscordServer,
    discord_door: WatchedDoor,
    home: tuple[Guild, Channel, User, User],
) -> None:
    _, channel, friend, stranger = home
    server = discord_server
    said = [
        server.user_says(channel, stranger, "run ls", mention_bot=True),
        server.user_says(channel, stranger, "/new", mention_bot=True),
        server.user_says(
            channel, stranger, "see", mention_bot=True, files=[("a.txt", b"x", "text/plain")]
        ),
        server.user_dms(stranger, "hello"),
        server.user_dms(stranger, "/whoami"),
        server.user_dms(stranger, "", files=[("a.png", b"x", "image/png")]),
    ]
    for message in said:
        server.user_edits(message, f"<@{server.bot.id}> /new and more")
        server.user_reacts(message, stranger, "👍")
        server.unfurl(message)
    server.user_types(channel, stranger)
    for place in (channel, server.open_dm(stranger)):
        server.slash(place, stranger, "new", force=True)
    for event in others():
        server.dispatch(event, event_of(channel, stranger))
    thread = server.add_thread(channel, "of a stranger", owner=stranger)
    server.user_says(thread, stranger, "in here", mention_bot=True)
    server.system_message(channel, stranger, "pin")
    server.webhook_says(channel, f"<@{server.bot.id}> hello")
    server.user_deletes(said[0])
    # Channels do not wait for one another, so each gets a last word of somebody who is let in.
    server.user_says(thread, friend, "marker 1", mention_bot=True)
    server.user_says(channel, friend, "marker 2", mention_bot=True)
    await until(lambda: {"marker 1", "marker 2"} <= set(discord_door.texts))
    refused = {m.text for m, allowed in discord_door.watched.judged if not allowed}
    await until(lambda: len([1 for m, ok in discord_door.watched.judged if not ok]) >= 7)
    assert "run ls" in refused
    await discord_door.let_in_only(*discord_door.texts)
    assert sorted(discord_door.texts) == ["marker 1", "marker 2"]
    # Whoever presses is told no, from memory alone and where nobody else sees it: left without an
    # answer, the app would say that the bot is broken.
    # Where the gate has to look first, an empty place is held and filled in after that.
    await until(lambda: said_in(server).count(texts.NOT_LET_IN) >= 2)
    assert set(said_in(server)) == {texts.NOT_LET_IN}
    among_others = [m for m in server.sent if m.channel_id == channel.id]
    assert among_others
    assert all(m.flags & EPHEMERAL for m in among_others)
    assert server.typings == []
    wrote = [c.path for c in server.calls if c.method != "GET"]
    assert wrote
    assert all(path.startswith(("/interactions/", "/webhooks/")) for path in wrote)
    assert [c.path for c in server.calls if "attachments" in c.path] == []


def said_in(server: DiscordServer) -> list[str]:
    """The bot's messages as they read now."""
    return [(message.edits or [message.content])[-1] for message in server.sent]


def others() -> list[str]:
    """Every event that the SDK knows, but messages and what tells of guilds and channels."""
    known = [name[6:].upper() for name in dir(ConnectionState) if name.startswith("parse_")]
    places = ("READY", "RESUMED", "GUILD_", "CHANNEL_", "THREAD_", "USER_UPDATE")
    found = [name for name in known if name not in DISCORD and not name.startswith(places)]
    assert {"MESSAGE_REACTION_ADD", "TYPING_START"} <= set(found)
    return found


def event_of(channel: Channel, user: User) -> dict[str, Any]:
    """An event's content with a person wherever one can stand."""
    person = {"id": str(user.id), "username": "x", "discriminator": "0", "avatar": None}
    return {
        "id": "99", "application_id": "1", "type": 2, "token": "t", "version": 1,
        "channel_id": str(channel.id), "guild_id": str(channel.guild_id), "user": person,
        "user_id": str(user.id), "author": person, "content": "/new", "message_id": "98",
        "member": {"user": person, "roles": []}, "emoji": {"id": None, "name": "x"},
        "data": {"id": "5", "name": "new", "type": 1}, "answer_id": 1,
    }  # fmt: skip


async def test_what_each_event_does(
    discord_server: DiscordServer,
    discord_door: WatchedDoor,
    home: tuple[Guild, Channel, User, User],
) -> None:
    _, channel, friend, _ = home
    said = discord_server.user_dms(friend, "first")
    await until(lambda: discord_door.texts == ["first"])
    discord_server.user_edits(said, "second")
    discord_server.user_reacts(said, friend, "👍")
    discord_server.slash(channel, friend, "new", force=True)
    for event in others():
        discord_server.dispatch(event, event_of(channel, friend))
    discord_server.user_dms(friend, "third")
    await until(lambda: {"third", "/new"} <= set(discord_door.texts))
    rows = [row.record.text for row in await discord_door.rows()]
    assert sorted(rows) == ["/new", "second", "third"]
    assert all(m.flags & EPHEMERAL for m in discord_server.sent)
