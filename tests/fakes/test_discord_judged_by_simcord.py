"""A second judge: the same exchanges against simcord and against the loopback server.

simcord replaces discord.py's transport within the process, so it judges what REST answers mean to
the client, not the wire. What it can not be asked, and is therefore left out here:

* nonces (it ignores them), rate limits, lost connections, the gateway protocol and RESUME;
* `fail_if_not_exists`: it takes a reply to an unknown message for a good one;
* `history(after=…, limit=n)` with more than n messages: it gives the newest, Discord the next n;
* white space: it keeps what Discord cuts off both ends; an empty message it answers 50035.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

import pytest

from gateway.platforms.discord.convert import Facts, convert
from gateway.platforms.discord.reading import read_or_not
from tests.fakes.discord_server import DiscordServer, discord_py_at
from tests.fakes.discord_server.pointing import discord

simcord = pytest.importorskip("simcord")


class Bot(discord.Client):
    def __init__(self) -> None:
        chosen = discord.Intents.none()
        chosen.guilds = chosen.guild_messages = chosen.dm_messages = chosen.message_content = True
        super().__init__(intents=chosen, guild_ready_timeout=0.05)
        self.heard: list[discord.Message] = []

    async def on_message(self, message: discord.Message) -> None:
        self.heard.append(message)


class Judge(Protocol):
    """One world with a guild, a channel and alice in it."""

    bot: Bot
    channel_id: int
    alice_id: int
    robot_id: int

    async def says(self, text: str, reply_to: int | None = None) -> int: ...

    async def dms(self, text: str) -> int: ...

    async def shows(self, text: str, name: str, data: bytes) -> int: ...

    async def edits(self, message_id: int, text: str) -> None: ...


class Loopback:
    def __init__(self, server: DiscordServer, bot: Bot) -> None:
        self.server = server
        self.bot = bot
        alice = server.add_user("alice")
        guild = server.add_guild("home")
        server.add_member(guild, alice)
        self.alice_id = alice.id
        self.robot_id = server.add_user("robot", bot=True).id
        self.channel_id = server.add_channel(guild).id

    async def _heard(self, message_id: int) -> int:
        async with asyncio.timeout(5):
            while message_id not in [one.id for one in self.bot.heard]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return message_id

    async def says(self, text: str, reply_to: int | None = None) -> int:
        message = self.server.user_says(self.channel_id, self.alice_id, text, reply_to=reply_to)
        return await self._heard(message.id)

    async def dms(self, text: str) -> int:
        return await self._heard(self.server.user_dms(self.alice_id, text).id)

    async def shows(self, text: str, name: str, data: bytes) -> int:
        files = [(name, data, "image/png")]
        message = self.server.user_says(self.channel_id, self.alice_id, text, files=files)
        return await self._heard(message.id)

    async def edits(self, message_id: int, text: str) -> None:
        self.server.user_edits(message_id, text)


class Simcord:
    def __init__(self, env: Any, bot: Bot) -> None:
        self.bot = bot
        guild = env.create_guild()
        self.user = env.create_user("alice")
        self.alice = guild.add_member(self.user)
        self.channel = guild.create_text_channel("general")
        self.alice_id = self.alice.id
        self.robot_id = env.create_user("robot", bot=True).id
        self.channel_id = self.channel.id

    async def says(self, text: str, reply_to: int | None = None) -> int:
        options: dict[str, Any] = {}
        if reply_to is not None:
            place = self.bot.get_channel(self.channel_id)
            assert isinstance(place, discord.TextChannel)
            options["reply_to"] = await place.fetch_message(reply_to)
        message: discord.Message = await self.alice.send(self.channel, text, **options)
        return message.id

    async def dms(self, text: str) -> int:
        message: discord.Message = await self.user.send_dm(text)
        return message.id

    async def shows(self, text: str, name: str, data: bytes) -> int:
        attachments = [(name, data)]
        message: discord.Message = await self.alice.send(
            self.channel, text, attachments=attachments
        )
        return message.id

    async def edits(self, message_id: int, text: str) -> None:
        place = self.bot.get_channel(self.channel_id)
        assert isinstance(place, discord.TextChannel)
        await self.alice.edit(await place.fetch_message(message_id), text)


@contextlib.asynccontextmanager
async def loopback() -> AsyncIterator[Judge]:
    bot = Bot()
    async with DiscordServer() as server:
        judge = Loopback(server, bot)
        with discord_py_at(server.api_base, server.gateway_url):
            task = asyncio.create_task(bot.start(server.token))
            await server.wait_connected()
            await bot.wait_until_ready()
            yield judge
            await bot.close()
            await task


@contextlib.asynccontextmanager
async def in_process() -> AsyncIterator[Judge]:
    bot = Bot()
    async with simcord.run(bot) as env:
        yield Simcord(env, bot)


Outcome = Any
Exchange = Callable[[Judge, discord.TextChannel], Awaitable[Outcome]]


def look(judge: Judge, message: discord.Message) -> dict[str, Any]:
    """What a bot sees in a message, without the ids that differ between worlds."""
    assert judge.bot.user is not None
    names = {judge.bot.user.id: "bot", judge.alice_id: "alice"}
    replied = message.reference.resolved if message.reference else None
    return {
        "content": message.content.replace(judge.bot.user.mention, "@bot"),
        "type": message.type.name,
        "author": names[message.author.id],
        "member": isinstance(message.author, discord.Member),
        "bot": message.author.bot,
        "guild": message.guild is not None,
        "channel": type(message.channel).__name__,
        "mentions": sorted(names[user.id] for user in message.mentions),
        "reply_to": replied.content if isinstance(replied, discord.Message) else None,
        "edited": message.edited_at is not None,
        "webhook": message.webhook_id is not None,
        "everyone": message.mention_everyone,
        "flags": message.flags.value,
    }


async def error(attempt: Awaitable[Any]) -> tuple[str, int, int]:
    """The class, status and code of what this raises."""
    with pytest.raises(discord.HTTPException) as caught:
        await attempt
    return type(caught.value).__name__, caught.value.status, caught.value.code


async def sending(judge: Judge, place: discord.TextChannel) -> Outcome:
    sent = await place.send("hello")
    return [look(judge, sent), look(judge, await place.fetch_message(sent.id))]


async def echo(judge: Judge, place: discord.TextChannel) -> Outcome:
    sent = await place.send("hello")
    await judge.says("done")
    return [look(judge, one) for one in judge.bot.heard if one.id == sent.id]


async def hearing(judge: Judge, place: discord.TextChannel) -> Outcome:
    assert judge.bot.user is not None
    await judge.says("plain")
    await judge.says(f"hi {judge.bot.user.mention}")
    return [look(judge, one) for one in judge.bot.heard]


async def replying(judge: Judge, place: discord.TextChannel) -> Outcome:
    question = await place.fetch_message(await judge.says("question"))
    loud = await question.reply("answer")
    quiet = await question.reply("answer", allowed_mentions=discord.AllowedMentions.none())
    seen = [look(judge, await place.fetch_message(one.id)) for one in (loud, quiet)]
    for one in seen:
        # Whether `mentions` lists the author of the message replied to: simcord never does,
        # Discord does when the reply rings.
        one.pop("mentions")
    return seen


async def replied_to(judge: Judge, place: discord.TextChannel) -> Outcome:
    own = await place.send("own")
    await judge.says("about that", reply_to=own.id)
    return {
        name: value
        for name, value in look(judge, judge.bot.heard[-1]).items()
        if name != "mentions"
    }


async def direct(judge: Judge, place: discord.TextChannel) -> Outcome:
    await judge.dms("psst")
    heard = judge.bot.heard[-1]
    answer = await heard.channel.send("what?")
    opened = await (await judge.bot.fetch_user(judge.alice_id)).create_dm()
    return [look(judge, heard), look(judge, answer), opened.id == heard.channel.id]


async def direct_to_a_bot(judge: Judge, place: discord.TextChannel) -> Outcome:
    channel = await (await judge.bot.fetch_user(judge.robot_id)).create_dm()
    return await error(channel.send("hello, colleague"))


async def too_long(judge: Judge, place: discord.TextChannel) -> Outcome:
    fits = [len((await place.send(letter * 2000)).content) for letter in "x漢😀"]
    return [*fits, *[await error(place.send(letter * 2001)) for letter in "x漢😀"]]


async def empty(judge: Judge, place: discord.TextChannel) -> Outcome:
    # simcord answers an empty message 50035, Discord 50006: only class and status agree.
    return (await error(place.send("")))[:2]


async def unknown_places(judge: Judge, place: discord.TextChannel) -> Outcome:
    nowhere = judge.bot.get_partial_messageable(4)
    return [
        await error(judge.bot.fetch_channel(4)),
        await error(nowhere.send("x")),
        await error(place.fetch_message(4)),
        await error(place.get_partial_message(4).edit(content="x")),
        await error(place.get_partial_message(4).delete()),
        await error(judge.bot.fetch_user(4)),
    ]


async def editing(judge: Judge, place: discord.TextChannel) -> Outcome:
    own = await place.send("one")
    edited = await own.edit(content="two")
    return [look(judge, edited), look(judge, await place.fetch_message(own.id))]


async def meddling(judge: Judge, place: discord.TextChannel) -> Outcome:
    theirs = place.get_partial_message(await judge.says("mine"))
    # simcord's bot may manage messages and so delete this one; a plain member may not.
    return await error(theirs.edit(content="ours"))


async def deleting(judge: Judge, place: discord.TextChannel) -> Outcome:
    own = await place.send("one")
    await own.delete()
    return [await error(own.delete()), await error(place.fetch_message(own.id))]


async def history(judge: Judge, place: discord.TextChannel) -> Outcome:
    ids = [await judge.says(str(number)) for number in range(5)]
    after, before = discord.Object(ids[1]), discord.Object(ids[3])
    return [
        [one.content async for one in place.history()],
        [one.content async for one in place.history(limit=2)],
        [one.content async for one in place.history(after=after)],
        [one.content async for one in place.history(after=after, oldest_first=False)],
        [one.content async for one in place.history(before=before, limit=2)],
        [one.content async for one in place.history(around=discord.Object(ids[2]), limit=3)],
        [one.content async for one in place.history(after=discord.Object(ids[-1]))],
    ]


async def edited_by_its_author(judge: Judge, place: discord.TextChannel) -> Outcome:
    message_id = await judge.says("one")
    await judge.edits(message_id, "two")
    return look(judge, await place.fetch_message(message_id))


async def files(judge: Judge, place: discord.TextChannel) -> Outcome:
    message_id = await judge.shows("look", "cat.png", b"0123456789")
    (file,) = (await place.fetch_message(message_id)).attachments
    (heard,) = judge.bot.heard[-1].attachments
    return [file.filename, file.size, file.id == heard.id, heard.filename]


async def read_by_ourselves(judge: Judge, place: discord.TextChannel) -> Outcome:
    """What the platform reads off both worlds' JSON: neither was made for it."""
    assert judge.bot.user is not None
    first = await judge.says(f"hi {judge.bot.user.mention}")
    await judge.says("about that", reply_to=first)
    await judge.shows("", "cat.png", b"0123456789")
    await judge.edits(await judge.says("one"), "two")
    own = await place.send("own")
    page = await judge.bot.http.logs_from(place.id, 100, after=first - 1)
    seen = []
    for payload in sorted(page, key=lambda one: int(one["id"])):
        facts = read_or_not(payload)
        assert isinstance(facts, Facts), facts
        message = convert(replace(facts, guild_id=5), judge.bot.user.id)
        seen.append((facts.is_person, facts.edited_at is not None, facts.id == own.id))
        if message is not None:
            names = [file.file_name for file in message.attachments]
            texts = [
                text.replace(judge.bot.user.display_name, "bot")
                for text in (message.text, message.quoted_text or "")
            ]
            seen.append((texts, names, message.sender_id == str(judge.alice_id)))
    return seen


EXCHANGES = [
    sending,
    echo,
    hearing,
    replying,
    replied_to,
    direct,
    direct_to_a_bot,
    too_long,
    empty,
    unknown_places,
    editing,
    meddling,
    deleting,
    history,
    edited_by_its_author,
    files,
    read_by_ourselves,
]


async def outcome(world: Callable[[], Any], exchange: Exchange) -> Outcome:
    async with world() as judge:
        place = judge.bot.get_channel(judge.channel_id)
        assert isinstance(place, discord.TextChannel)
        return await exchange(judge, place)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_judges_agree(exchange: Exchange) -> None:
    ours = await outcome(loopback, exchange)
    assert ours == await outcome(in_process, exchange)


async def differences(judge: Judge, place: discord.TextChannel) -> Outcome:
    """What the list at the top says; if simcord changes, move it to the exchanges."""
    first = await place.send("  one\n", nonce="n")
    second = await place.send("two", nonce="n")
    unknown = discord.MessageReference(message_id=4, channel_id=place.id)
    try:
        await place.send("reply", reference=unknown)
        refused = False
    except discord.HTTPException:
        refused = True
    for number in range(3):
        await judge.says(str(number))
    page = [one.content async for one in place.history(after=discord.Object(second.id), limit=2)]
    with pytest.raises(discord.HTTPException) as caught:
        await place.send("")
    return {
        "trimmed": first.content == "one",
        "nonce kept": first.id == second.id,
        "unknown reply refused": refused,
        "page after": [text for text in page if text != "reply"],
        "code of empty": caught.value.code,
    }


async def test_known_differences() -> None:
    assert await outcome(loopback, differences) == {
        "trimmed": True,
        "nonce kept": True,
        "unknown reply refused": True,
        "page after": ["0", "1"],
        "code of empty": 50006,
    }
    assert await outcome(in_process, differences) == {
        "trimmed": False,
        "nonce kept": False,
        "unknown reply refused": False,
        "page after": ["1", "2"],
        "code of empty": 50035,
    }
