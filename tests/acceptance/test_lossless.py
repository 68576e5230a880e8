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
    assert status["details"]["compression from"].startswith("6,000 tokens, 75 % of the window")
    (start,) = [line for line in daemon.log_lines() if line.get("message") == "model"]
    assert start["compression_from_tokens"] == 6000
    assert start["context_engine"].startswith("lossless")
    chat = TelegramChat(world)
    chat.say("/status")
    (said,) = await answered(chat, "Compression: from 6,000 tokens on, 75 % of the window", daemon)
    assert "Context engine: lossless" in said
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


async def told(chat: TelegramChat, command: str, daemon: Daemon) -> str:
    """Say something and wait for the one answer to it."""
    before = len(chat.shown())

    def answers() -> list[str]:
        return [text for text in chat.shown()[before:] if not text.startswith("Context ▰")]

    chat.say(command)
    await eventually(lambda: bool(answers()), 20.0, f"an answer to {command}", alive=daemon)
    return answers()[0]


async def test_a_branch_knows_what_it_came_from_a_new_conversation_nothing(world: World) -> None:
    """And what was brought back word for word: no model reads the same twice."""
    world.configure(
        context={"engine": "lossless"},
        model={"context_length": 8000, "max_tokens": 500},
        lossless={"leaf_tokens": 500, "threshold": 0.5},
    )
    ask = '[[tool lossless_search {"query": "harbour master cat called", "limit": 1}]]'
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    await told(chat, FACT, daemon)
    await talk_until(world, chat, daemon, 1, "before")
    asked = summary_prompts(world)
    assert "word for word again" in await told(chat, "/uncompress", daemon)
    assert "messages" in await told(chat, "/compress", daemon)
    assert len(set(summary_prompts(world))) == len(summary_prompts(world)) >= len(asked) > 0

    assert "/resume" in await told(chat, "/branch", daemon)
    await told(chat, ask, daemon)
    assert [hit["excerpt"] for hit in given_by_tool(world)["results"]] == [FACT]
    assert "Zanzibar" in await told(chat, "the swan is called Zanzibar", daemon)
    await told(chat, "/undo", daemon)
    await told(chat, ask.replace("harbour master cat called", "Zanzibar swan called"), daemon)
    assert "Zanzibar" not in str(given_by_tool(world)["results"])

    await told(chat, "/new", daemon)
    await told(chat, "hello again", daemon)
    await told(chat, ask, daemon)
    assert given_by_tool(world)["results"] == []
    assert world.anthropic.rejected == []


def summary_prompts(world: World) -> list[str]:
    """What the engine asked the model about messages."""
    asked = [r for r in world.anthropic.requests if "[lossless:summary]" in str(r.body)]
    prompts = [str(request.messages) for request in asked]
    return [prompt for prompt in prompts if "[SUMMARY OF EARLIER" not in prompt]


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
