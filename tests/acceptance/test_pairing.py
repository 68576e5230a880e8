"""A stranger on each platform, a code, and the operator's word on the server."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.acceptance.harness import (
    STRANGER,
    Chat,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    command,
    eventually,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

_CODE = re.compile(r"posthouse pair approve ([A-Z2-9]{8})")


async def code_for(chat: Chat, daemon: Daemon) -> str:
    """The code that this chat, which has had none yet, gets."""
    (shown,) = await answered(chat, "posthouse pair approve", daemon)
    found = _CODE.search(shown)
    assert found is not None
    return found[1]


async def pair(world: World, *arguments: str) -> Any:
    return await asyncio.to_thread(command, world.home, "pair", *arguments)


async def test_strangers_are_let_in_and_shut_out(world: World) -> None:
    eve = world.discord.add_user("eve")
    world.configure(telegram={"pairing": True}, discord={"pairing": True})
    daemon = await world.run()

    def open_chats() -> dict[str, Chat]:
        return {"telegram": TelegramChat(world, STRANGER), "discord": DiscordChat(world, eve)}

    ids = {"telegram": str(STRANGER), "discord": str(eve.id)}
    for name, chat in open_chats().items():
        chat.say("what I wrote before I was let in")
        done = await pair(world, "approve", await code_for(chat, daemon))
        assert (done.returncode, done.stderr) == (0, "")
        assert f"let in: {name} user {ids[name]}" in done.stdout
        chat.say(f"hello from {name}")
        await answered(chat, f"reply to: hello from {name}", daemon)
    await daemon.kill()
    assert "before I was let in" not in json.dumps(world.database().rows("SELECT * FROM inbox"))
    assert "before I was let in" not in daemon.log_text()
    daemon = await world.run()
    for name, chat in open_chats().items():
        chat.say(f"and after a crash, {name}")
        await answered(chat, f"reply to: and after a crash, {name}", daemon)
        assert (await pair(world, "revoke", name, ids[name])).returncode == 0
    for chat in open_chats().values():
        chat.say("am I still here?")
        await code_for(chat, daemon)  # a stranger again
    listed = json.loads((await pair(world, "list", "--json")).stdout)
    assert listed["paired"] == []
    assert sorted(r["platform"] for r in listed["requests"]) == ["discord", "telegram"]
    await eventually(lambda: world.database().unsettled() == {}, 10.0, "everything settled")
    assert world.anthropic.rejected == []
