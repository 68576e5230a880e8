"""`/forget me` in a daemon whose plugins keep what is said: who is asked, in which order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.auxiliary_client import install
from agent.clock import SystemClock
from agent.sessions import session_key
from gateway.config.models import Memory, Sessions
from gateway.forgetting.retention import clear
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


# --- retention ------------------------------------------------------------------------------------


async def clear_all_but_the_newest(where: EngineHouse) -> str:
    """As in the night in which everything that was said before this moment is too old."""
    await where.say("the newest message of all stays", "99")
    desk = where.daemon._parts.forgetting
    assert desk is not None
    key = session_key("telegram", "1", "99", None, "99")
    newest = await where.store.conversation_for_key(key)
    assert newest is not None
    return await clear(where.store, SystemClock(), newest.created_at, desk.leavings)


async def test_retention_reaches_the_engine_that_we_ship(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with EngineHouse(tmp_path, server.base_url, "lossless") as where:
        for _ in range(3):
            await where.say(LONG)
        await where.say("/compress")
        await until_kept(tmp_path, WORD)
        said = await clear_all_but_the_newest(where)
        assert said.startswith("1 conversation,")
        assert "lossless has erased what it kept of them" in said
        assert not in_vault(tmp_path, WORD)
        await until_kept(tmp_path, "the newest message of all stays")
        await where.say("we begin anew")
        await until_kept(tmp_path, "we begin anew")
    assert not in_vault(tmp_path, WORD)


async def test_what_a_crash_left_untold_is_told_at_the_next_start(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with EngineHouse(tmp_path, server.base_url, "lossless") as where:
        await where.say(LONG)
        await until_kept(tmp_path, WORD)
        await where.say("the newest message of all stays", "99")
        await until_kept(tmp_path, "the newest message of all stays")
        tip = await where.tip("99")
        assert (await where.store.clear_silent(tip.session.started_at)).conversations == 1
    assert in_vault(tmp_path, WORD)
    async with EngineHouse(tmp_path, server.base_url, "lossless") as where, asyncio.timeout(10):
        while await where.store.cleared():  # noqa: ASYNC110 - it goes on by itself
            await asyncio.sleep(0.01)
    assert not in_vault(tmp_path, WORD)
    assert in_vault(tmp_path, "the newest message of all stays")


@pytest.mark.parametrize(("name", "able"), [("Clearing", True), ("Recording", False)])
async def test_retention_and_a_provider(
    tmp_path: Path, server: AnthropicServer, name: str, able: bool
) -> None:
    folder = tmp_path / "home"
    write_plugin(folder / "plugins", name.lower(), PLUGIN.format(name=name))
    memory, sessions = Memory(provider=name.lower()), Sessions(retention_days=365)
    async with EngineHouse(
        folder, server.base_url, "compressor", memory=memory, sessions=sessions
    ) as where:
        await where.say("hello")
        first = await where.tip()
        said = await clear_all_but_the_newest(where)
        report = where.daemon._parts.details()
        assert ("does not reach recording" in report.get("remarks", "")) is not able
        asked = [h for h in Recording.heard if h.method == "on_forget_sessions"]
        if not able:
            assert "recording can not erase what it keeps of them" in said
            assert asked == []
            return
        assert "clearing has erased what it kept of them" in said
        (one,) = asked
        assert one.args == ([first.session.id],)
        assert one.keywords == {"hermes_home": str(folder / "hermes")}
        at = Recording.heard.index(one)
        mine = next(h.instance for h in Recording.heard if first.session.id in h.args)
        assert [h.instance for h in Recording.heard[:at] if h.method == "shutdown"] == [mine]
    assert Recording.clashes == 0
