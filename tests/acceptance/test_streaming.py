"""Answers that are shown while they are written, on both platforms, also over a kill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.delivery.unfinished import CURSOR
from tests.acceptance.harness import (
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    open_world,
    settled,
)
from tests.fakes.anthropic_server import Fault

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

ANSWER = "The harbour is open today. " * 12
WHOLE = ANSWER.strip()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as world:
        world.configure()
        yield world


def slowly(world: World) -> None:
    """The next answer takes about three seconds."""
    fault = Fault("slow", text=ANSWER, delay=0.2, pieces=14)
    world.anthropic.fault_next(fault, summary=False)


async def test_a_draft_in_a_private_chat_on_telegram_and_a_message_that_grows_on_discord(
    world: World,
) -> None:
    daemon = await world.run()
    private, channel = TelegramChat(world), DiscordChat(world)
    for chat in (private, channel):
        slowly(world)
        chat.say("is it open?")
    await eventually(lambda: channel.shown()[:1] and CURSOR in channel.shown()[0], 15.0, "preview")
    for chat in (private, channel):
        await answered(chat, WHOLE, daemon)
    await settled(world)
    assert (private.shown(), channel.shown()) == ([WHOLE], [WHOLE])
    drafts = [draft["text"] for draft in world.telegram.state.draft_history]
    assert drafts
    assert all(draft.endswith(CURSOR) and draft[:20] == ANSWER[:20] for draft in drafts)
    assert sorted(drafts, key=len) == drafts


async def test_a_kill_in_the_middle_goes_on_in_the_same_message(world: World) -> None:
    daemon = await world.run("discord")
    chat = DiscordChat(world)
    slowly(world)
    chat.say("is it open?")
    noted = "SELECT count(*) FROM previews"
    await eventually(lambda: world.database().one(noted) == 1, 15.0, "a preview", alive=daemon)
    await daemon.kill()
    assert CURSOR in chat.shown()[0]
    slowly(world)
    daemon = await world.run("discord")
    await answered(chat, WHOLE, daemon)
    await settled(world)
    assert chat.shown() == [WHOLE]
    assert world.database().one(noted) == 0


async def test_a_stop_in_the_middle_keeps_what_was_written(world: World) -> None:
    daemon = await world.run()
    chats = [TelegramChat(world), DiscordChat(world)]
    for chat in chats:
        slowly(world)
        chat.say("is it open?")
    drafts = world.telegram.state.draft_history
    await eventually(lambda: bool(drafts) and bool(chats[1].shown()), 15.0, "previews")
    for chat in chats:
        chat.say("/stop")
    for chat in chats:
        shown = await answered(chat, "(Stopped here.)", daemon)
        assert any(text.startswith(ANSWER[:20]) for text in shown)
        assert not any(CURSOR in text for text in chat.shown())
    states = world.database().states
    await eventually(lambda: set(states("outbox")) == {"sent"}, 15.0, "all sent")


async def test_switched_off(world: World) -> None:
    world.configure(gateway={"streaming": False})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    slowly(world)
    chat.say("is it open?")
    await answered(chat, WHOLE, daemon)
    assert not world.telegram.state.draft_history
