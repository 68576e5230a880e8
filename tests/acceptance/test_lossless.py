"""The daemon with `context.engine: lossless`: compressions, restarts, a fact that only it holds."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest

from tests.acceptance.harness import Daemon, TelegramChat, World, answered, eventually, settled
from tests.fakes.store_invariants import check_invariants

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

FACT = "The harbour master's cat is called Bramble-7341."
FILLER = "the quartz lighthouse stands in the fog of the northern bay " * 20


def given_by_tool(world: World) -> dict[str, Any]:
    """What the model was given by the tool that it called last."""
    (block,) = world.anthropic.main_requests[-1].messages[-1]["content"]
    content = block["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    answer: dict[str, Any] = json.loads(text)
    return answer


async def talk_until(
    world: World, chat: TelegramChat, daemon: Daemon, compressions: int, name: str
) -> None:
    """Talk until the conversation was compressed so many times in all."""
    for count in range(60):
        if sum(len(chain) - 1 for chain in world.database().chains().values()) >= compressions:
            return
        chat.say(f"{name} {count}: {FILLER}")
        await answered(chat, f"reply to: {name} {count}:", daemon)
    raise AssertionError("it was not compressed")


async def test_many_compressions_a_restart_and_the_fact_of_the_first_message(
    world: World,
) -> None:
    world.configure(
        context={"engine": "lossless"},
        model={"context_length": 8000, "max_tokens": 500},
        plugins={"entries": {"lossless": {"settings": {"leaf_tokens": 1000, "fanout": 3}}}},
    )
    daemon = await world.run("telegram")
    status = daemon.status()
    assert status is not None
    assert "lossless" in str(status["details"])
    chat = TelegramChat(world)
    chat.say(FACT)
    await answered(chat, "reply to: The harbour", daemon)
    await talk_until(world, chat, daemon, 4, "before")
    await settled(world)
    await daemon.terminate()

    daemon = await world.run("telegram")
    await talk_until(world, chat, daemon, 7, "after")
    chat.say("/compress the lighthouse")
    await eventually(
        lambda: sum(len(c) - 1 for c in world.database().chains().values()) >= 8,
        20.0,
        "the compression that was asked for",
        alive=daemon,
        seen=lambda: chat.shown()[-1],
    )
    ((_, chain),) = world.database().chains().items()
    (shown,) = [
        row["content"]
        for row in world.database().active(chain[-1])
        if row["kind"] == "summary" and "depth 0" not in row["content"]
    ][:1]
    assert re.match(r"\[Summary of earlier messages, node n[0-9a-f]{20}, depth [1-9],", shown)
    view = "\n".join(str(row["content"]) for row in world.database().active(chain[-1]))
    assert "Bramble-7341" not in view

    chat.say('[[tool lossless_search {"query": "harbour master cat called", "limit": 1}]]')
    await answered(chat, "tool said: ", daemon)
    (hit,) = given_by_tool(world)["results"]
    assert "Bramble-7341" in hit["excerpt"]
    before = len(chat.shown())
    chat.say(f'[[tool lossless_expand {{"ref": "{hit["ref"]}"}}]]')
    await eventually(lambda: len(chat.shown()) > before, 20.0, "the original", alive=daemon)
    assert given_by_tool(world)["text"] == FACT
    assert world.anthropic.rejected == []
    await settled(world)
    code, _ = await daemon.terminate()
    assert code == 0
    check_invariants(world.database().path)
    file = world.home / "hermes" / "lossless.db"
    assert file.stat().st_mode & 0o077 == 0
    database = sqlite3.connect(file)
    assert database.execute("SELECT count(*) FROM conversations").fetchone() == (1,)
    database.close()


async def test_a_broken_file_means_the_built_in_engine_and_loud_words(world: World) -> None:
    world.configure(context={"engine": "lossless"})
    file = world.home / "hermes" / "lossless.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"this is no database" * 300)
    daemon = await world.run("telegram")
    status = daemon.status()
    assert status is not None
    remarks = str(status["details"])
    assert "lossless.db can not be used" in remarks
    assert "the built-in compressor works in its place" in remarks
    chat = TelegramChat(world)
    chat.say("are you there?")
    await answered(chat, "reply to: are you there?", daemon)
