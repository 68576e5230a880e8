"""The daemon on Discord: its menu, answers for one, buttons that allow a command, kills between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gateway import approval_text as words
from gateway.texts import POSSIBLE_REPEAT
from tests.acceptance.harness import (
    DISCORD_USER,
    OTHER_DISCORD_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    open_world,
    settled,
)
from tests.fakes.anthropic_server import Answer, tool_use
from tests.fakes.discord_server import Channel, Message
from tests.fakes.discord_server.interactions import Interaction

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as world:
        world.configure(discord={"group_sessions_per_user": False, "admins": [DISCORD_USER]})
        yield world


@pytest.fixture
def channel(world: World) -> Channel:
    return world.discord.add_channel(world.discord.add_guild())


async def with_menu(world: World) -> Daemon:
    daemon = await world.run("discord")
    await eventually(world.discord.commands, 20.0, "the menu", alive=daemon)
    return daemon


def for_one(world: World, channel: Channel) -> list[str]:
    """What nobody sees but whoever asked."""
    messages = world.discord.world.channel(channel).messages.values()
    return [m.content for m in messages if m.ephemeral and not m.deleted]


async def acknowledged(interaction: Interaction, daemon: Daemon) -> None:
    await eventually(lambda: interaction.acked, 10.0, "the sign", alive=daemon)


async def test_commands_of_the_menu_and_answers_for_one(world: World, channel: Channel) -> None:
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    chat.say("hello")
    await answered(chat, "hello", daemon)
    open_ = world.discord.slash(channel, DISCORD_USER, "title", {"name": "Harbours"})
    await answered(chat, "Harbours", daemon)
    mine = world.discord.slash(channel, DISCORD_USER, "whoami")
    await eventually(lambda: for_one(world, channel), 20.0, "an answer for one", alive=daemon)
    stranger = world.discord.add_user("eve")
    refused = world.discord.slash(channel, stranger, "sessions")
    await acknowledged(refused, daemon)
    await settled(world)
    assert open_.acked
    assert mine.acked
    assert str(DISCORD_USER) in for_one(world, channel)[0]
    assert for_one(world, channel)[0] not in chat.shown()
    assert len(for_one(world, channel)) == 2
    assert world.database().one("SELECT count(*) FROM inbox") == 3
    puts = len(world.discord.calls_to("PUT", "*/commands"))
    await daemon.kill()
    daemon = await world.run("discord")
    world.discord.slash(channel, DISCORD_USER, "new")
    await answered(chat, "new conversation starts", daemon)
    assert len(world.discord.calls_to("PUT", "*/commands")) == puts == 1


async def asked_in(world: World, channel: Channel, daemon: Daemon, chat: DiscordChat) -> Message:
    chat.say("how much?")

    def questions() -> list[Message]:
        return [m for m in world.discord.visible(channel) if "May I" in m.content]

    found = await eventually(questions, 20.0, "a question", alive=daemon, seen=chat.shown)
    return found[-1]


async def test_a_press_lets_a_command_run_and_nobody_elses(world: World, channel: Channel) -> None:
    world.configure(agent={"tools": {"shell": True}})
    world.anthropic.script(
        Answer([tool_use("shell", {"command": "echo $((6*7)) > a"})]), "it is done"
    )
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    question = await asked_in(world, channel, daemon, chat)
    approve = question.components[0]["components"][0]["custom_id"]
    world.discord.click(question, OTHER_DISCORD_USER, approve)
    await eventually(lambda: for_one(world, channel), 20.0, "a refusal", alive=daemon)
    assert for_one(world, channel) == [words.NOT_YOURS]
    assert question.components
    for _ in range(2):  # the second press is one too many
        world.discord.click(question, DISCORD_USER, approve)
    await answered(chat, "it is done", daemon)
    await eventually(lambda: not question.components, 20.0, "no buttons", alive=daemon)
    await settled(world)
    [folder] = (world.home / "workspace").iterdir()
    assert (folder / "a").read_text() == "42\n"
    [line] = [row for row in daemon.log_lines() if row.get("message") == "approval"]
    assert (line["tool"], line["decision"]) == ("shell", "approved")
    assert chat.shown().count(words.APPROVED) == 1
    assert for_one(world, channel)[1:] == [words.APPROVED_ALREADY]


async def test_a_press_and_a_word_in_one_moment_decide_once(world: World, channel: Channel) -> None:
    world.configure(agent={"tools": {"shell": True}})
    world.anthropic.script(Answer([tool_use("shell", {"command": "echo 1 > a"})]), "so be it")
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    question = await asked_in(world, channel, daemon, chat)
    approve = question.components[0]["components"][0]["custom_id"]
    world.discord.click(question, DISCORD_USER, approve)
    chat.say(approve.replace("approve", "deny"))
    await answered(chat, "so be it", daemon)
    await eventually(lambda: not question.components, 20.0, "no buttons", alive=daemon)
    await settled(world)
    [line] = [row for row in daemon.log_lines() if row.get("message") == "approval"]
    approved = line["decision"] == "approved"
    [result] = [row["content"] for row in world.database().originals("tool")]
    assert ("approved by the user" in result) is approved
    assert chat.shown().count(words.APPROVED) + chat.shown().count(words.DENIED) == 1
    assert (words.APPROVED in chat.shown()) is approved


@pytest.mark.parametrize("platform", ["discord", "telegram"])
async def test_a_typed_word_takes_the_buttons_off_the_question(world: World, platform: str) -> None:
    world.configure(agent={"tools": {"shell": True}})
    world.anthropic.script(Answer([tool_use("shell", {"command": "true"})]), "left alone")
    daemon = await world.run(platform)
    chat = DiscordChat(world) if platform == "discord" else TelegramChat(world)
    chat.say("go")
    await answered(chat, "May I", daemon)
    buttons = buttons_in(world, chat)
    assert buttons() == 1
    chat.say("/deny")
    await answered(chat, "left alone", daemon)
    await eventually(lambda: buttons() == 0, 20.0, "no buttons", alive=daemon)
    await settled(world)


def buttons_in(world: World, chat: DiscordChat | TelegramChat) -> Callable[[], int]:
    """How many messages of a chat have buttons."""

    def count() -> int:
        if isinstance(chat, DiscordChat):
            return sum(bool(m.components) for m in world.discord.visible(chat.channel))
        return sum(bool(m.reply_markup) for m in world.telegram.visible(chat.user_id))

    return count


def latest(world: World, channel: Channel, text: str) -> Message | None:
    """The newest message with this in it, whoever sees it."""
    messages = world.discord.world.channel(channel).messages.values()
    found = [m for m in messages if text in m.content and not m.deleted]
    return max(found, key=lambda message: message.id, default=None)


async def test_pages_and_choices_by_buttons(world: World, channel: Channel) -> None:
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    for n in range(11):
        chat.say("/new")
        chat.say(f"talk {n}")
        await answered(chat, f"talk {n}", daemon)
    world.discord.slash(channel, DISCORD_USER, "sessions")
    listing = await eventually(
        lambda: latest(world, channel, "/sessions 2 shows the next"), 20.0, "a list", alive=daemon
    )
    world.discord.click(listing, DISCORD_USER, "/sessions 2")
    page = await eventually(
        lambda: latest(world, channel, "11. "), 20.0, "the next page", alive=daemon
    )
    assert listing.ephemeral
    assert page.ephemeral
    choices = {b["label"]: b["custom_id"] for row in page.components for b in row["components"]}
    world.discord.click(page, DISCORD_USER, choices["11"])
    await answered(chat, "Back in", daemon)
    await settled(world)
    assert not any("11. " in text for text in chat.shown())


@pytest.mark.parametrize("late", [False, True], ids=["in time", "after the token's life"])
async def test_killed_between_the_sign_and_the_answer_it_is_answered_after_the_start(
    world: World, channel: Channel, late: bool
) -> None:
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    chat.say("hello")
    await answered(chat, "hello", daemon)
    # The answer hangs on its way out; nobody hears of it.
    world.discord.fault("hang", method="PATCH", path="/webhooks/*", times=None)
    interaction = world.discord.slash(channel, DISCORD_USER, "title", {"name": "Harbours"})
    await eventually(
        lambda: world.discord.calls_to("PATCH", "/webhooks/*"), 20.0, "a try", alive=daemon
    )
    await daemon.kill()
    world.discord.clear_faults()
    if late:
        interaction.created_at -= 16 * 60
    daemon = await world.run("discord")
    await answered(chat, "Harbours", daemon)
    await settled(world)
    shown = [text for text in chat.shown() if "Harbours" in text]
    assert len(shown) == 1
    [message] = [m for m in world.discord.visible(channel) if "Harbours" in m.content]
    assert (message.id == interaction.response_id) is not late


async def test_killed_while_the_command_waits_it_is_answered_after_the_start(
    world: World, channel: Channel
) -> None:
    """Acknowledged and stored, and its turn has not come: a long answer goes before it."""
    daemon = await with_menu(world)
    chat = DiscordChat(world, channel=channel)
    chat.say("first")
    await answered(chat, "first", daemon)
    world.anthropic.responder = lambda request: Answer("slow", chunk_delay=0.3, pieces=60)
    chat.say("something long")
    await eventually(
        lambda: world.database().states("turns").get("running"), 20.0, "a turn", alive=daemon
    )
    interaction = world.discord.slash(channel, DISCORD_USER, "branch")
    stored = "SELECT count(*) FROM inbox WHERE text LIKE '/branch%'"
    await eventually(lambda: world.database().one(stored), 20.0, "its row", alive=daemon)
    assert interaction.acked
    await daemon.kill()
    world.anthropic.responder = lambda request: Answer("quick")
    daemon = await world.run("discord")
    await answered(chat, "quick", daemon, 40.0)
    original = world.discord.world.messages[interaction.response_id or 0]
    await eventually(lambda: original.content, 20.0, "its answer", alive=daemon)
    await settled(world)


async def test_killed_between_parts_a_streamed_answer_is_there_once(
    world: World, channel: Channel
) -> None:
    parts = [f"{n} " + "x" * 1_800 for n in range(4)]
    whole = "\n\n".join(parts)
    world.anthropic.responder = lambda request: Answer(whole, chunk_delay=0.05, pieces=40)
    daemon = await world.run("discord")
    chat = DiscordChat(world, channel=channel)
    world.discord.fault("hang", method="POST", path="*/messages", contains="2 xxx", handled=True)
    chat.say("parts")
    await eventually(
        lambda: (
            world.database().states("outbox_parts").get("sending")
            and any(text.startswith("2 x") for text in chat.shown())
        ),
        40.0,
        "the third part under way",
        alive=daemon,
        seen=lambda: [text[:10] for text in chat.shown()],
    )
    await daemon.kill()
    world.discord.clear_faults()
    daemon = await world.run("discord")
    await answered(chat, parts[3], daemon, 40.0)
    await settled(world)
    assert chat.shown() == parts
    assert not any(POSSIBLE_REPEAT in text for text in chat.shown())
    edited = [sent for sent in world.discord.sent_in(channel) if sent.edits]
    assert len(edited) == 1  # the first part took its preview's place
