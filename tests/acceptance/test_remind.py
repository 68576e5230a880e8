"""The daemon as a process: reminders in the chat, jobs of the model, and the operator's word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.harness import (
    DISCORD_USER,
    TELEGRAM_USER,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    eventually,
    run_command,
    settled,
)
from tests.fakes.anthropic_server import Answer, tool_use

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def jobs(world: World, *arguments: str) -> Any:
    result = await run_command(world.home, "jobs", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


async def of_people(world: World, *arguments: str) -> list[Any]:
    """Without the house's own."""
    return [job for job in await jobs(world, *arguments) if job["origin"] != "house"]


async def test_a_reminder_comes_at_its_time_and_the_model_is_not_asked(world: World) -> None:
    world.configure()
    daemon = await world.run()
    telegram, discord = TelegramChat(world), DiscordChat(world)
    for chat in (telegram, discord):
        chat.say("/remind in 2 seconds call mum")
        shown = await answered(chat, "⏰ call mum", daemon)
        assert shown[0].startswith("Set as job 1: call mum\n")
        assert len(shown) == 2
    await settled(world)
    listed = await of_people(world, "--all")
    assert [(job["name"], job["state"]) for job in listed] == [("call mum", "done")] * 2
    assert {job["last_run"]["state"] for job in listed} == {"done"}
    assert list(world.anthropic.requests) == []
    await daemon.kill()
    runs = await jobs(world, "runs", listed[0]["id"])
    assert [run["state"] for run in runs] == ["done"], "without a daemon, from its store"


async def test_discords_menu_has_it(world: World) -> None:
    world.configure()
    daemon = await world.run("discord")
    chat = DiscordChat(world)
    await eventually(lambda: world.discord.commands(), 20.0, "a menu", alive=daemon)
    said = world.discord.slash(
        chat.channel, DISCORD_USER, "remind", {"when-what": "every day at 9:00 water the plants"}
    )
    await answered(chat, "every day at 09:00: water the plants", daemon)
    assert said.acked
    chat.say("/jobs cancel 1")
    await answered(chat, "Job 1 is cancelled: water the plants", daemon)


async def test_the_button_cancels_it(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("/remind every weekday at 8 standup")
    await answered(chat, "First", daemon)
    [message] = [m for m in world.telegram.visible(TELEGRAM_USER) if "standup" in m.text]
    world.telegram.press(message.message_id, "Cancel", chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER)
    await answered(chat, "Job 1 is cancelled: standup", daemon)
    chat.say("/jobs")
    await answered(chat, "Nothing is set here.", daemon)
    [job] = await of_people(world, "--all")
    assert job["state"] == "cancelled"


async def test_the_model_sets_a_text_and_a_task_for_itself(world: World) -> None:
    world.configure()
    world.anthropic.script(
        Answer(
            [
                tool_use("schedule", {"action": "create", "when": "in 2 seconds", "what": "tea"}),
                tool_use(
                    "schedule",
                    {
                        "action": "create",
                        "when": "in 3 seconds",
                        "what": "say the weather",
                        "kind": "prompt",
                    },
                ),
            ]
        ),
        "both are set",
        "it rains",
    )
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("remind me of tea, and tell me the weather")
    await answered(chat, "both are set", daemon)
    await answered(chat, "⏰ tea", daemon)
    await answered(chat, "it rains", daemon)
    await settled(world)
    results = [row["content"] for row in world.database().originals("tool")]
    assert [text.partition(" Next run:")[0] for text in results] == [
        "Job 1 is set, once.",
        "Job 2 is set, once.",
    ]
    asked = [row["content"] for row in world.database().originals("user")]
    assert asked[0] == "remind me of tea, and tell me the weather"
    assert "say the weather" in asked[1]


async def test_the_operator_pauses_resumes_and_cancels(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("/remind every day at 9 tea")
    await answered(chat, "Set as job 1", daemon)
    [job] = await of_people(world)
    assert (await jobs(world, "pause", job["id"]))["state"] == "paused"
    chat.say("/jobs")
    await answered(chat, "↳ paused", daemon)
    assert (await jobs(world, "resume", job["id"]))["state"] == "active"
    table = await run_command(world.home, "jobs")
    assert "tea" in table.stdout
    assert "every day at 09:00" in table.stdout
    cancelled = await run_command(world.home, "jobs", "cancel", job["id"])
    assert cancelled.stdout == "cancelled: tea\n"
    again = await run_command(world.home, "jobs", "cancel", job["id"])
    assert again.returncode == 1
    assert "there is no job 1" in again.stderr
