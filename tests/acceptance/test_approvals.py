"""The daemon as a process: commands that a person allows, and what stands around the question."""

from __future__ import annotations

import pytest

from gateway import approval_text as words
from gateway.delivery.unfinished import CURSOR
from tests.acceptance.harness import (
    TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    settled,
)
from tests.fakes.anthropic_server import Answer, tool_use
from tests.fakes.anthropic_server.script import text
from tests.fakes.telegram_server import GROUP

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_a_press_lets_a_command_run(world: World) -> None:
    world.configure(agent={"tools": {"shell": True}})
    world.anthropic.script(
        Answer([tool_use("shell", {"command": "env; echo $((6*7)) > a"})]), "it is done"
    )
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("how much?")
    [question] = await eventually(
        lambda: [m for m in world.telegram.visible(TELEGRAM_USER) if "May I" in m.text],
        20.0,
        "a question",
        alive=daemon,
        seen=chat.shown,
    )
    for _ in range(2):  # the second press is one too many
        world.telegram.press(
            question.message_id, words.APPROVE, chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER
        )
    await eventually(
        lambda: "it is done" in chat.shown(), 20.0, "the answer", alive=daemon, seen=chat.shown
    )
    folder = world.home / "workspace" / f"telegram-{TELEGRAM_USER}"
    assert (folder / "a").read_text() == "42\n"
    [result] = [row["content"] for row in world.database().originals("tool")]
    assert "approved by the user" in result
    assert not any(secret in result for secret in world.secrets.values())
    [line] = [row for row in daemon.log_lines() if row.get("message") == "approval"]
    assert (line["tool"], line["decision"]) == ("shell", "approved")


SPOKEN = "I look at the folder first. " * 6
BEFORE = SPOKEN.strip()
AFTER = "It is empty, as you said it would be. " * 6
ANSWER = AFTER.strip()


class TelegramGroup(TelegramChat):
    """Where previews are messages."""

    def __init__(self, world: World) -> None:
        super().__init__(world, GROUP)

    def say(self, text: str) -> None:
        self._server.group_text(text, mention=True, user_id=TELEGRAM_USER)

    def approve(self) -> None:
        question = self._server.visible(GROUP)[1]
        self._server.press(question.message_id, words.APPROVE, chat_id=GROUP, user_id=TELEGRAM_USER)


class DiscordDirect(DiscordChat):
    def approve(self) -> None:
        self.say("/approve")


Place = TelegramGroup | DiscordDirect


def asking_slowly(world: World) -> None:
    """The model says what it will do, asks for it, and then has an answer; each with a preview."""
    asks = [text(SPOKEN), tool_use("shell", {"command": "ls"})]
    world.anthropic.script(
        Answer(asks, chunk_delay=0.1, pieces=14), Answer(AFTER, chunk_delay=0.3, pieces=14)
    )


async def asked_below(world: World, platform: str) -> tuple[Daemon, Place]:
    world.configure(
        agent={"tools": {"shell": True}},
        telegram={"allow_chats": [GROUP], "admins": [TELEGRAM_USER]},
    )
    asking_slowly(world)
    daemon = await world.run(platform)
    chat = TelegramGroup(world) if platform == "telegram" else DiscordDirect(world)
    chat.say("is it empty?")
    await eventually(
        lambda: chat.shown()[:1] and CURSOR in chat.shown()[0], 15.0, "preview", alive=daemon
    )
    await answered(chat, "May I", daemon)
    assert chat.shown()[0] == BEFORE
    assert "May I" in chat.shown()[1]
    return daemon, chat


@pytest.mark.parametrize("platform", ["telegram", "discord"])
async def test_the_question_stands_below_what_was_said_and_the_answer_below_it(
    world: World, platform: str
) -> None:
    daemon, chat = await asked_below(world, platform)
    chat.approve()
    await eventually(
        lambda: CURSOR in chat.shown()[-1], 15.0, "another preview", alive=daemon, seen=chat.shown
    )
    await answered(chat, ANSWER, daemon)
    await settled(world)
    assert chat.shown()[0] == BEFORE
    assert "May I" in chat.shown()[1]
    assert chat.shown()[-1] == ANSWER
    assert sum(said in (BEFORE, ANSWER) for said in chat.shown()) == 2


@pytest.mark.parametrize("platform", ["telegram", "discord"])
async def test_a_kill_while_it_waits_goes_on_below_the_question(
    world: World, platform: str
) -> None:
    daemon, chat = await asked_below(world, platform)
    states = world.database().states
    await eventually(lambda: set(states("outbox")) == {"sent"}, 15.0, "sent", alive=daemon)
    await daemon.kill()
    daemon = await world.run(platform)
    await eventually(
        lambda: CURSOR in chat.shown()[-1], 15.0, "another preview", alive=daemon, seen=chat.shown
    )
    await answered(chat, ANSWER, daemon)
    await settled(world)
    assert [chat.shown()[0], *chat.shown()[2:]] == [BEFORE, ANSWER]
