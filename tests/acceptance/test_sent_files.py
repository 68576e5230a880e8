"""A file that a tool sends arrives with the answer: once, on both platforms, also over a kill."""

from __future__ import annotations

import pytest

from agent.tools.paths import folder_name
from gateway.texts import POSSIBLE_REPEAT
from tests.acceptance.harness import (
    DISCORD_USER,
    TELEGRAM_USER,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    settled,
)
from tests.fakes.anthropic_server import Answer
from tests.fakes.anthropic_server.script import tool_use

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

DONE = "Here is the report."


def sent_files(world: World, platform: str) -> list[str]:
    if platform == "telegram":
        return [str(m.file_name) for m in world.telegram.sent if m.kind == "document"]
    return [name for message in world.discord.sent for name in message.files]


@pytest.mark.parametrize("platform", ["telegram", "discord"])
async def test_a_kill_behind_the_tool_does_not_cost_the_file(world: World, platform: str) -> None:
    world.configure(agent={"tools": {"files": True}})
    user = TELEGRAM_USER if platform == "telegram" else DISCORD_USER
    workspace = world.home / "workspace" / folder_name(f"{platform}:{user}")
    workspace.mkdir(parents=True, mode=0o700)
    (workspace / "report.txt").write_text("All is well.\n", encoding="utf-8")
    sending = tool_use("files", {"action": "send", "path": "report.txt"})
    world.anthropic.script(Answer([sending]), Answer(DONE, chunk_delay=1.0, pieces=60))
    daemon = await world.run(platform)
    chat = TelegramChat(world) if platform == "telegram" else DiscordChat(world)
    chat.say("send me the report")
    await eventually(
        lambda: len(world.anthropic.main_requests) == 2, 30.0, "the call's result", alive=daemon
    )
    await daemon.kill()
    (workspace / "report.txt").unlink()  # what was sent is kept: this is another file by now
    world.anthropic.responder = lambda request: Answer(DONE)
    daemon = await world.run(platform)
    await answered(chat, DONE, daemon, 40.0)
    await settled(world)
    assert sent_files(world, platform) == ["report.txt"]
    assert not any(POSSIBLE_REPEAT in text for text in chat.shown())
    chat.say("and now?")
    await eventually(
        lambda: world.database().states("turns").get("done") == 2, 30.0, "another", alive=daemon
    )
    await settled(world)
    assert sent_files(world, platform) == ["report.txt"]
