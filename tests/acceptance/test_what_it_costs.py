"""The ledger, the budget and the endpoint of a real daemon, over a restart and a second daemon."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.acceptance.harness import (
    OTHER_TELEGRAM_USER,
    TELEGRAM_USER,
    Daemon,
    TelegramChat,
    World,
    answered,
    eventually,
    open_world,
    run_command,
)
from tests.fakes.exposition import read_exposition

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def endpoint(daemon: Daemon) -> str:
    def where() -> str:
        status = daemon.status()
        address = "" if status is None else status["details"]["http"]
        return address if address.startswith("http") else ""

    return await eventually(where, 20, "the endpoint", alive=daemon)


async def get(url: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(read)


async def test_spent_told_refused_and_shown(world: World) -> None:
    world.configure(
        model={"name": "claude-sonnet-5-5"},
        budget={"usd_per_user_day": 0.0001},
    )
    daemon = await world.run("telegram")
    chat, other = TelegramChat(world), TelegramChat(world, OTHER_TELEGRAM_USER)
    chat.say("the first question")
    await answered(chat, "last answer for today", daemon)
    asked = len(world.anthropic.main_requests)
    chat.say("one too many")
    await answered(chat, "is used up", daemon)
    other.say("somebody else")
    await answered(other, "somebody else", daemon)
    assert len(world.anthropic.main_requests) == asked + 1

    url = await endpoint(daemon)
    assert await get(f"{url}/healthz") == "ok\n"
    assert json.loads(await get(f"{url}/readyz"))["ready"] is True
    shown = await get(f"{url}/metrics")
    families = read_exposition(shown)
    turns = families["posthouse_turns_total"].samples
    assert turns[("posthouse_turns_total", (("outcome", "done"),))] == 2
    refusals = families["posthouse_budget_refusals_total"].samples
    assert list(refusals.values()) == [1]
    assert sum(families["posthouse_model_cost_usd_total"].samples.values()) > 0
    for secret in (str(TELEGRAM_USER), str(OTHER_TELEGRAM_USER), *world.secrets.values()):
        assert re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", shown) is None

    await daemon.kill()
    daemon = await world.run("telegram")
    chat.say("and after a restart")
    await eventually(
        lambda: sum("is used up" in text for text in chat.shown()) == 2,
        30, "the refusal after a restart", alive=daemon, seen=chat.shown,
    )  # fmt: skip
    printed = await run_command(world.home, "usage", "--json")
    lines = json.loads(printed.stdout)
    assert {line["owner"] for line in lines} == {
        f"telegram:{TELEGRAM_USER}",
        f"telegram:{OTHER_TELEGRAM_USER}",
    }
    assert all(line["purpose"] == "turn" and line["usd"] > 0 for line in lines)
    assert "telegram:" in (await run_command(world.home, "usage")).stdout


async def test_two_daemons_want_one_port(world: World, tmp_path: Path) -> None:
    """The second one runs all the same, and says why it has no endpoint."""
    world.configure()
    first = await world.run("telegram")
    port = int((await endpoint(first)).rpartition(":")[2])
    (tmp_path / "second").mkdir()
    async with open_world(tmp_path / "second") as second:
        second.configure(gateway={"http": {"port": port}})
        daemon = await second.run("telegram")
        chat = TelegramChat(second)
        chat.say("are you there?")
        await answered(chat, "are you there", daemon)
        status = daemon.status()
        assert status is not None
        assert status["details"]["http"].startswith(f"off: 127.0.0.1:{port} can not be opened")
        assert (await daemon.terminate())[0] == 0
