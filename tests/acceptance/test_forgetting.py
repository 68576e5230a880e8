"""A person asks the running daemon to be forgotten; the operator does it, with and without one."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.acceptance.harness import (
    TELEGRAM_USER,
    Daemon,
    DiscordChat,
    TelegramChat,
    World,
    answered,
    command,
    eventually,
)
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

WORD = b"quokkaphone"
ME = f"telegram:{TELEGRAM_USER}"


async def forget(world: World, *arguments: str) -> Any:
    return await asyncio.to_thread(command, world.home, "forget", *arguments)


def traces(world: World) -> list[str]:
    """Files of the home in which the word stands."""
    files = (path for path in world.home.rglob("*") if path.is_file())
    return [str(path) for path in files if WORD in path.read_bytes().lower()]


async def talk(world: World, daemon: Daemon) -> TelegramChat:
    chat = TelegramChat(world)
    chat.say("quokkaphone one")
    await answered(chat, "reply to: quokkaphone one", daemon)
    return chat


async def test_forgotten_from_the_chat_and_talking_on(world: World) -> None:
    world.configure()
    daemon = await world.run()
    chat, other = await talk(world, daemon), DiscordChat(world)
    other.say("lion")
    await answered(other, "reply to: lion", daemon)
    assert traces(world)
    chat.say("/forget me")
    shown = await answered(chat, "can not be undone", daemon)
    code = re.search(r"/forget me yes-[a-z0-9]+", shown[-1])
    assert code is not None
    chat.say(code[0])
    await answered(chat, "Done. I have erased", daemon)
    assert traces(world) == []
    assert "quokkaphone" not in daemon.log_text()
    chat.say("hello again")
    await answered(chat, "reply to: hello again", daemon)
    other.say("roar")
    await answered(other, "reply to: roar", daemon)
    assert "lion" in json.dumps(world.anthropic.requests[-1].messages)
    await eventually(lambda: world.database().unsettled() == {}, 10.0, "everything settled")
    assert world.anthropic.rejected == []
    await daemon.terminate()
    check_invariants(world.home / "state.db")


async def test_the_operator_erases_somebody(world: World) -> None:
    world.configure()
    daemon = await world.run()
    chat = await talk(world, daemon)
    wrong = await forget(world, "quokka", "--yes")
    assert (wrong.returncode, "is nobody" in wrong.stderr) == (1, True)
    refused = await forget(world, ME)  # nothing is typed
    assert (refused.returncode, "nothing was erased" in refused.stderr) == (1, True)
    assert "2  messages" in refused.stdout
    assert traces(world)
    done = await forget(world, ME, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["erased"]["messages"] == 2
    assert traces(world) == []
    chat.say("quokkaphone again")
    await answered(chat, "reply to: quokkaphone again", daemon)
    await daemon.terminate()
    done = await forget(world, ME, "--yes")  # without a daemon
    assert (done.returncode, "erased: 2 messages" in done.stdout) == (0, True), done.stderr
    assert traces(world) == []
    check_invariants(world.home / "state.db")
    nothing = await forget(world, ME)
    assert (nothing.returncode, nothing.stdout.strip()) == (0, f"nothing is held of {ME}")
