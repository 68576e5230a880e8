"""The daemon on Telegram: answers that stream, buttons, pages, floods and kills; each text once."""

from __future__ import annotations

import pytest

from gateway.commands.lineage_text import OLDER
from gateway.texts import POSSIBLE_REPEAT
from tests.acceptance.harness import (
    TELEGRAM_USER,
    Daemon,
    TelegramChat,
    World,
    answered,
    eventually,
    settled,
)
from tests.fakes.anthropic_server import Answer
from tests.fakes.telegram_server import GROUP, TelegramServer

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

LONG = " ".join(f"Sentence {n} of a **long** answer." for n in range(60))
SHOWN = LONG.replace("**", "")


def in_the_group(server: TelegramServer) -> list[str]:
    return server.visible_texts(GROUP)


async def slowly(world: World) -> Daemon:
    """A daemon whose model takes some seconds for the long answer."""
    world.configure(telegram={"allow_chats": [GROUP], "admins": [TELEGRAM_USER]})
    world.anthropic.responder = lambda request: Answer(LONG, chunk_delay=0.06, pieces=50)
    return await world.run("telegram")


async def growing(world: World, daemon: Daemon) -> None:
    """Say something in the group and wait until half an answer is shown."""
    world.telegram.group_text("stream this", mention=True, user_id=TELEGRAM_USER)
    await eventually(
        lambda: [1 for m in world.telegram.visible(GROUP) if m.edits], 20.0, "an edited preview",
        alive=daemon,
    )  # fmt: skip


async def test_a_group_sees_one_message_that_grows_and_becomes_the_answer(world: World) -> None:
    daemon = await slowly(world)
    await growing(world, daemon)
    await eventually(
        lambda: in_the_group(world.telegram) == [SHOWN], 30.0, "the answer", alive=daemon,
        seen=lambda: in_the_group(world.telegram),
    )  # fmt: skip
    (message,) = world.telegram.visible(GROUP)
    assert message.reply_to is not None
    assert {entity["type"] for entity in message.entities} == {"bold"}
    await settled(world)


async def test_a_private_chat_sees_drafts_and_then_one_message(world: World) -> None:
    daemon = await slowly(world)
    chat = TelegramChat(world)
    chat.say("stream this")
    assert await answered(chat, SHOWN, daemon, 30.0) == [SHOWN]
    drafts = list(world.telegram.state.draft_history)
    assert len(drafts) >= 2
    assert len({draft["draft_id"] for draft in drafts}) == 1
    assert not world.telegram.calls_of("editMessageText")
    await settled(world)


@pytest.mark.parametrize("place", ["while it grows", "in the final edit"])
async def test_killed_between_preview_and_answer_there_is_one_full_text(
    world: World, place: str
) -> None:
    daemon = await slowly(world)
    if place == "in the final edit":
        # Accepted, and nobody hears of it: the worst moment there is.
        await growing(world, daemon)
        world.telegram.fault("hang", "editMessageText", times=None, after=True)
        await eventually(
            lambda: world.database().states("turns").get("done") == 1, 30.0, "the turn's end",
            alive=daemon,
        )  # fmt: skip
    else:
        await growing(world, daemon)
    await daemon.kill()
    world.telegram.faults.clear()
    world.telegram.release()
    daemon = await world.run("telegram")
    await eventually(
        lambda: SHOWN in in_the_group(world.telegram), 40.0, "the answer", alive=daemon,
        seen=lambda: in_the_group(world.telegram),
    )  # fmt: skip
    await settled(world)
    assert in_the_group(world.telegram) == [SHOWN]
    assert POSSIBLE_REPEAT not in "".join(in_the_group(world.telegram))


async def test_floods_in_the_middle_of_parts_lose_and_double_nothing(world: World) -> None:
    parts = [f"{n} " + "x" * 2_400 for n in range(3)]
    world.configure()
    world.anthropic.responder = lambda request: Answer("\n\n".join(parts))
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    world.telegram.fault("flood", "sendMessage", retry_after=2, skip=1)
    world.telegram.fault("flood", "sendMessage", retry_after=1, skip=2)
    chat.say("parts")
    await answered(chat, parts[-1], daemon, 30.0)
    assert chat.shown() == parts
    await settled(world)


async def test_pages_and_choices_by_buttons(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    for n in range(11):
        chat.say("/new")
        chat.say(f"talk {n}")
        await answered(chat, f"reply to: talk {n}", daemon)
    chat.say("/sessions")
    await answered(chat, "/sessions 2 shows the next", daemon)
    listing = world.telegram.visible(TELEGRAM_USER)[-1]
    world.telegram.press(listing.message_id, OLDER, chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER)
    shown = await answered(chat, "11. talk 0", daemon)
    page = world.telegram.visible(TELEGRAM_USER)[-1]
    assert page.text == shown[-1]
    assert page.reply_to == listing.message_id
    world.telegram.press(page.message_id, "11", chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER)
    await answered(chat, "Back in “talk 0”", daemon)
    await eventually(
        lambda: len(world.telegram.state.callback_answers) == 2, 10.0, "answers to the presses"
    )
    await eventually(
        lambda: len(world.telegram.state.commands) >= 2, 10.0, "the menu", alive=daemon
    )
    before = len(world.telegram.calls_of("setMyCommands"))
    await daemon.kill()
    daemon = await world.run("telegram")
    chat.say("/whoami")
    await answered(chat, str(TELEGRAM_USER), daemon)
    assert len(world.telegram.calls_of("setMyCommands")) == before
