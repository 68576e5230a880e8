"""What fills the window, as people and scripts read it: in the chat and on the command line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.acceptance.harness import TelegramChat, World, answered, run_command

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

SECRET = "sk-ant-api03-" + "a1B2c3D4" * 6
LONG = "the courier changes horses and carries the same letter on " * 12


async def test_in_the_console(world: World) -> None:
    """The numbers in the chat are those of the command line; a secret in the focus stays secret."""
    world.home.mkdir(parents=True)
    (world.home / "config.yaml").write_text(
        "model: {context_length: 8000, max_tokens: 600}\nagent: {tools: {fetch_url: false}}\n"
    )

    async def chat(*lines: str) -> str:
        result = await run_command(world.home, "chat", stdin="".join(f"{s}\n" for s in lines))
        assert result.returncode == 0, result.stderr
        return result.stdout

    await chat(*(f"stage {n}: {LONG}" for n in range(10)))

    said = await chat(f"/compress the horses, key {SECRET}")
    assert (told := re.search(r"(\d+) messages with about ([\d,]+) tokens became (\d+)", said)), (
        said
    )
    assert int(told[3]) < int(told[1])
    assert "Kept in more detail: the horses, key [REDACTED]" in said
    assert "The summary was written by offline" in said
    assert "/uncompress brings everything back" in said

    said = await chat("/context", "/status")
    assert "Compression: from 4,000 tokens on, 50 % of the window" in said
    assert "Last compression" in said
    assert "was just compressed" in said
    assert "Next: at 4,000 tokens" in said

    listed = json.loads((await run_command(world.home, "sessions", "list", "--json")).stdout)
    shown = await run_command(world.home, "sessions", "show", listed[0]["id"][:12], "--json")
    session: dict[str, Any] = json.loads(shown.stdout)
    context = session["context"]
    assert session["id"] == listed[0]["id"]
    assert len(session["messages"]) == int(told[3])
    assert sum(context["parts"].values()) == context["estimated_tokens"]
    assert f"about {context['tokens']:,} of 8,000 tokens" in said
    assert f"my instructions: {context['parts']['system']:,} " in said
    assert context["last_compression"]["rows_before"] == int(told[1])
    for_people = await run_command(world.home, "sessions", "show", listed[0]["id"])
    assert f"window: {context['tokens']:,} of 8,000 tokens" in for_people.stdout
    assert SECRET not in json.dumps(context)


async def test_on_a_platform_with_a_cache(world: World) -> None:
    """The provider's figures: measured size, cache share, money of a model with a known price."""
    world.configure(model={"name": "claude-sonnet-5-5", "context_length": 20_000})
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    for n in range(4):
        chat.say(f"stage {n}: {LONG}")
        await answered(chat, f"reply to: stage {n}", daemon)
    chat.say("/context")
    said = (await answered(chat, "What fills it", daemon))[-1]
    assert "of 20,000 tokens" in said
    assert "The size is what the model's provider counted" in said
    assert re.search(r"Prompt cache: [\d.]+ % of [\d,]+ tokens read in 4 requests", said), said
    assert re.search(r"All requests together, summaries included: about \$0\.\d+\.", said), said
    chat.say("/status")
    said = (await answered(chat, "Compression: from", daemon))[-1]
    assert "Prompt cache: on, 5m" in said
    assert "of all prompts was read from it" in said
