"""`/forget me` in a daemon whose plugins keep what is said: who is asked, in which order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.auxiliary_client import install
from gateway.config.models import Memory
from tests.fakes.anthropic_server import Answer, AnthropicServer, text
from tests.fakes.engine_house import WINDOW, EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin
from tests.fakes.recording_provider import PLUGIN, Recording

WORD = "quokkaphone"
LONG = f"All work and no {WORD} makes a long message. " * 350


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HERMES_HOME", "x")
    Recording.begin()
    with clean_modules():
        yield
    install(None)


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(
        window=WINDOW, responder=lambda request: Answer([text("fine")])
    ) as running:
        yield running


def in_vault(home: Path, word: str) -> bool:
    files = (home / "hermes").glob("lossless.db*")
    return any(word.encode() in file.read_bytes() for file in files)


async def until_kept(home: Path, word: str) -> None:
    async with asyncio.timeout(10):
        while not in_vault(home, word):  # noqa: ASYNC110 - a thread writes it
            await asyncio.sleep(0.01)


async def forget(where: EngineHouse) -> tuple[str, str]:
    """The question, and what is said when it is done."""
    (question,) = await where.say("/forget me")
    code = re.search(r"yes-[a-z0-9]+", question)
    assert code is not None
    (done,) = await where.say(f"/forget me {code[0]}")
    return question, done


async def test_the_engine_that_we_ship_forgets_too(tmp_path: Path, server: AnthropicServer) -> None:
    async with EngineHouse(tmp_path, server.base_url, "lossless") as where:
        for _ in range(3):
            await where.say(LONG)
        await where.say("/compress")
        await where.say("a lion roars", "22")
        await until_kept(tmp_path, WORD)
        await until_kept(tmp_path, "a lion roars")
        question, done = await forget(where)
        assert "what lossless keeps of these conversations" in question
        assert "lossless has erased what it kept, too." in done
        assert "lossless.db" not in question + done
        assert not in_vault(tmp_path, WORD)
        assert in_vault(tmp_path, "a lion roars")
        # Its engine there is a new one, which keeps what is said from now on.
        await where.say("we begin anew")
        await until_kept(tmp_path, "we begin anew")
    assert not in_vault(tmp_path, WORD)


async def test_a_provider_that_is_able_to_is_asked_behind_the_end_of_its_instances(
    tmp_path: Path, server: AnthropicServer
) -> None:
    folder = tmp_path / "home"
    write_plugin(folder / "plugins", "erasing", PLUGIN.format(name="Erasing"))
    memory = Memory(provider="erasing")
    async with EngineHouse(folder, server.base_url, "compressor", memory=memory) as where:
        await where.say("hello")
        first = await where.tip()
        await where.say("hello", "22")
        question, done = await forget(where)
        assert "what erasing keeps" in question
        assert "erasing has erased what it kept, too." in done
        asked = next(h for h in Recording.heard if h.method == "on_forget_person")
        key = '["telegram","1","11",null,"11"]'
        assert asked.args == ("telegram:11",)
        assert asked.keywords == {
            "conversation_ids": [key],
            "session_ids": [first.session.id],
            "hermes_home": str(folder / "hermes"),
        }
        at = Recording.heard.index(asked)
        mine = next(h.instance for h in Recording.heard if first.session.id in h.args)
        ends = [h.instance for h in Recording.heard[:at] if h.method == "shutdown"]
        assert ends == [mine]  # that of the other chat goes on
        about = [h.method for h in Recording.heard if h.instance == asked.instance]
        assert about == ["on_forget_person", "shutdown"]
        await where.say("again")
    assert Recording.clashes == 0


async def test_one_that_is_not_able_to_is_named(tmp_path: Path, server: AnthropicServer) -> None:
    folder = tmp_path / "home"
    write_plugin(folder / "plugins", "recording", PLUGIN.format(name="Recording"))
    memory = Memory(provider="recording")
    async with EngineHouse(folder, server.base_url, "compressor", memory=memory) as where:
        await where.say("hello")
        question, done = await forget(where)
        assert "recording keeps" not in question
        assert "recording may keep things of its own that I can not erase: ask there." in done
