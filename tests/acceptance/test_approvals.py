"""The daemon as a process: a command that a person allows with a button on Telegram."""

from __future__ import annotations

import pytest

from gateway import approval_text as words
from tests.acceptance.harness import TELEGRAM_USER, TelegramChat, World, eventually
from tests.fakes.anthropic_server import Answer, tool_use

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
