"""The second judge, of interactions: what we register, read and answer, in both worlds.

What is asked goes out by our own code (`Hooks`, `Buttons`, `Parcel`): on the wire to the loopback
server, through discord.py's client to simcord, which was not made for it. What simcord can not be
asked: deadlines, the life of a token, and a follow-up ahead of the sign (it takes one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.commands.menu import entries
from gateway.commands.registry import COMMANDS
from gateway.platforms.discord.native.hooks import (
    DEFERRED_MESSAGE,
    DEFERRED_UPDATE,
    MESSAGE,
    Hooks,
    KeyGone,
)
from gateway.platforms.discord.native.menu import payload_of
from gateway.platforms.discord.native.pressed import Pressed, read_pressed
from gateway.platforms.discord.out.buttons import Buttons
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.parcels import Parcel
from gateway.platforms.discord.out.refusals import Refusal
from gateway.platforms.discord.out.rows import rows_of
from tests.fakes.discord_server.pointing import discord
from tests.fakes.test_discord_judged_by_simcord import (
    Judge,
    Loopback,
    Simcord,
    in_process,
    loopback,
)

QUESTION = (("Approve", "/approve 2abcde"), ("Deny", "/deny 2abcde"))


class ByClient(Direct):
    """The same requests through discord.py's client: simcord stands behind it."""

    def __init__(self, bot: discord.Client) -> None:
        super().__init__("http://127.0.0.1:9", "")
        self._bot = bot

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        parcel: Parcel | None = None,
        *,
        signed: bool,
        timeout_seconds: float,
    ) -> Any:
        bare, _, query = path.partition("?")
        options: dict[str, Any] = {"params": {"wait": "true"}} if query else {}
        try:
            return await self._bot.http.request(
                discord.http.Route(method, bare), json=body, **options
            )
        except discord.HTTPException as exc:
            raise Refusal(exc.status, exc.code, exc.text) from exc


class Hand:
    """One world, and what comes of what alice does in it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        if isinstance(judge, Loopback):
            self.direct = Direct(judge.server.api_base, judge.server.token)
        else:
            self.direct = ByClient(judge.bot)
        self.hooks, self.buttons = Hooks(self.direct), Buttons(self.direct)
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        judge.bot._connection.parsers["INTERACTION_CREATE"] = self.heard.put_nowait

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await self.direct.call(method, path, body, signed=True, timeout_seconds=5.0)

    async def register(self) -> list[Any]:
        path = f"/applications/{self.judge.bot.application_id}/commands"
        await self.call("PUT", path, payload_of(entries(COMMANDS)))
        found: list[Any] = await self.call("GET", path)
        return found

    async def slash(self, command: str, /, **options: Any) -> Pressed:
        judge = self.judge
        if isinstance(judge, Loopback):
            judge.server.slash(judge.channel_id, judge.alice_id, command, options)
        else:
            assert isinstance(judge, Simcord)
            await judge.alice.slash(judge.channel, command, **options)
        return read_pressed(await asyncio.wait_for(self.heard.get(), 5.0))

    async def press(self, message_id: int, custom_id: str) -> Pressed:
        judge = self.judge
        if isinstance(judge, Loopback):
            judge.server.click(message_id, judge.alice_id, custom_id)
        else:
            assert isinstance(judge, Simcord)
            place = judge.bot.get_channel(judge.channel_id)
            assert isinstance(place, discord.TextChannel)
            await judge.alice.click(await place.fetch_message(message_id), custom_id=custom_id)
        return read_pressed(await asyncio.wait_for(self.heard.get(), 5.0))

    async def question(self) -> int:
        body = Parcel("may I?", tuple(rows_of(QUESTION))).body()
        sent = await self.call("POST", f"/channels/{self.judge.channel_id}/messages", body)
        return int(sent["id"])

    async def shown(self) -> list[Any]:
        """What everybody sees, oldest first."""
        page = await self.call("GET", f"/channels/{self.judge.channel_id}/messages")
        return [
            (one["content"], one["flags"], len(one["components"]))
            for one in sorted(page, key=lambda one: int(one["id"]))
        ]


def read(hand: Hand, pressed: Pressed) -> dict[str, Any]:
    """What we read off an interaction, without the ids that differ between worlds."""
    facts, key = pressed.facts, pressed.key
    return {
        "kind": pressed.kind,
        "name": pressed.name,
        "text": facts.text,
        "author": facts.author_id == hand.judge.alice_id,
        "channel": facts.channel_id == hand.judge.channel_id,
        "guild": facts.guild_id is not None,
        "place": (facts.place_known, facts.is_thread, pressed.among_others, pressed.bot_is_there),
        "person": facts.is_person,
        "application": key.application_id == hand.judge.bot.application_id,
        "press": (key.is_press, key.pressed_id is not None),
    }


async def refused(attempt: Awaitable[Any]) -> str:
    with pytest.raises((KeyGone, Refusal)) as caught:
        await attempt
    return type(caught.value).__name__


Exchange = Callable[[Hand], Awaitable[Any]]


async def the_menu(hand: Hand) -> Any:
    return [
        (
            one["name"],
            one["description"],
            [(o["name"], o["type"], len(o.get("choices", []))) for o in one.get("options", [])],
            one.get("default_member_permissions"),
        )
        for one in await hand.register()
    ]


async def reading(hand: Hand) -> Any:
    await hand.register()
    whoami = await hand.slash("whoami")
    title = await hand.slash("title", name="Harbours at night")
    message_id = await hand.question()
    press = await hand.press(message_id, "/deny 2abcde")
    assert press.key.pressed_id == message_id
    return [read(hand, one) for one in (whoami, title, press)]


async def answered_in_the_open(hand: Hand) -> Any:
    await hand.register()
    key = (await hand.slash("new")).key
    await hand.hooks.acknowledge(key, DEFERRED_MESSAGE, timeout_seconds=2.0)
    again = await refused(hand.hooks.acknowledge(key, DEFERRED_MESSAGE, timeout_seconds=2.0))
    first = await hand.hooks.fill_in(key, Parcel("first"))
    same = await hand.hooks.fill_in(key, Parcel("first, in other words"))
    more = await hand.hooks.follow_up(key, Parcel("and more"))
    return [again, first == same, more != first, await hand.shown()]


async def answered_for_one(hand: Hand) -> Any:
    await hand.register()
    key = replace((await hand.slash("whoami")).key, quiet=True)
    await hand.hooks.acknowledge(key, DEFERRED_MESSAGE, timeout_seconds=2.0)
    await hand.hooks.fill_in(key, Parcel("you"))
    await hand.hooks.follow_up(key, Parcel("and more of you"))
    at_once = replace((await hand.slash("whoami")).key, quiet=True)
    await hand.hooks.acknowledge(at_once, MESSAGE, "not you", timeout_seconds=2.0)
    return await hand.shown()


async def pressing(hand: Hand) -> Any:
    message_id = await hand.question()
    key = (await hand.press(message_id, "/approve 2abcde")).key
    await hand.hooks.acknowledge(key, DEFERRED_UPDATE, timeout_seconds=2.0)
    untouched = await hand.shown()
    await hand.hooks.follow_up(key, Parcel("I do it"))
    assert key.pressed_id is not None
    await hand.buttons.take(hand.judge.channel_id, key.pressed_id)
    await hand.buttons.take(hand.judge.channel_id, key.pressed_id)
    return [untouched, await hand.shown()]


async def unacknowledged(hand: Hand) -> Any:
    await hand.register()
    key = (await hand.slash("new")).key
    return [
        await refused(hand.hooks.fill_in(key, Parcel("early"))),
        await hand.shown(),
    ]


EXCHANGES = [the_menu, reading, answered_in_the_open, answered_for_one, pressing, unacknowledged]


async def outcome(world: Callable[[], Any], exchange: Exchange) -> Any:
    async with world() as judge:
        hand = Hand(judge)
        try:
            return await exchange(hand)
        finally:
            await hand.direct.close()


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_judges_agree_on_interactions(exchange: Exchange) -> None:
    ours = await outcome(loopback, exchange)
    assert ours == await outcome(in_process, exchange)
