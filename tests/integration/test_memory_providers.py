"""A memory provider of a plugin in whole conversations: what it hears, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.brought import split
from agent.memory import provider_companion
from gateway.config.models import Compression, Memory
from tests.fakes.anthropic_server import Answer, AnthropicServer, text, tool_use
from tests.fakes.engine_house import WINDOW, EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin
from tests.fakes.recording_provider import PLUGIN, Hanging, Heard, Recording

LONG = "All work and no play makes a long message. " * 350


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HERMES_HOME", "x")
    Recording.begin()
    Hanging.gate.clear()
    with clean_modules():
        yield
    Hanging.gate.set()


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(
        window=WINDOW, responder=lambda request: Answer([text("fine")])
    ) as running:
        yield running


def house(tmp_path: Path, server: AnthropicServer, kind: str, **settings: Any) -> EngineHouse:
    folder = tmp_path / "home"
    write_plugin(folder / "plugins", kind.lower(), PLUGIN.format(name=kind))
    memory = Memory(provider=kind.lower())
    return EngineHouse(folder, server.base_url, "compressor", memory=memory, **settings)


def methods(heard: Sequence[Heard]) -> list[str]:
    return [h.method for h in heard]


def of(method: str) -> list[Heard]:
    return [h for h in Recording.heard if h.method == method]


async def until(method: str, times: int = 1) -> None:
    async with asyncio.timeout(10):
        while len(of(method)) < times:  # noqa: ASYNC110 - threads hear it
            await asyncio.sleep(0.01)


async def test_a_conversation_with_a_compression_new_and_a_restart(
    tmp_path: Path, server: AnthropicServer
) -> None:
    where = house(tmp_path, server, "Recording", compression=Compression(background=False))
    async with where:
        await where.say("hello")
        await until("queue_prefetch")
        first = await where.tip()
        assert methods(Recording.heard) == [
            "initialize",
            "on_turn_start",
            "system_prompt_block",
            "prefetch",
            "sync_turn",
            "queue_prefetch",
        ]
        begun = of("initialize")[0]
        key = (await where.store.conversation(first.session.conversation_id)).session_key
        assert begun.args == (first.session.id,)
        assert begun.keywords == {
            "hermes_home": str(where.folder / "hermes"),
            "platform": "telegram",
            "agent_context": "primary",
            "agent_identity": "posthouse",
            "agent_workspace": "posthouse",
            "gateway_session_key": key,
            "user_id": "11",
            "user_name": "u",
            "chat_id": "11",
            "chat_type": "dm",
        }
        assert of("on_turn_start")[0].args == (1, "hello")
        synced = of("sync_turn")[0]
        assert synced.args == ("hello", "fine")
        assert [m["content"] for m in synced.keywords["messages"]] == ["hello", "fine"]
        said = first.rows[0]
        assert said.message["content"] == "hello"
        assert "I keep facts." in said.wire_content
        assert "found for hello" in said.wire_content
        assert split(said.wire_content)[1] == "hello"

        Recording.heard.clear()
        await where.say(LONG)
        await until("queue_prefetch")
        assert "system_prompt_block" not in methods(Recording.heard)
        await where.say(LONG)
        await until("queue_prefetch", 2)
        Recording.heard.clear()
        compressed = await where.say("/compress")
        await where.say("more")
        await until("queue_prefetch")
        second = await where.tip()
        assert second.session.parent_session_id == first.session.id, compressed
        assert methods(Recording.heard) == [
            "on_pre_compress",
            "on_session_end",
            "on_session_switch",
            "on_turn_start",
            "prefetch",  # the list still shows its block
            "sync_turn",
            "queue_prefetch",
        ]
        summary = server.summary_requests[-1].body
        assert "KEEP THE LIGHTHOUSE" in str(summary)
        switched = of("on_session_switch")[0]
        assert switched.args == (second.session.id,)
        assert switched.keywords == {
            "parent_session_id": first.session.id,
            "reset": False,
            "rewound": False,
            "reason": "compression",
        }
        (ended,) = of("on_session_end")
        assert [m["content"] for m in ended.args[0]][:2] == ["hello", "fine"]
        texts = [row.message["content"] for row in second.rows]
        assert "vandalised" not in texts

        Recording.heard.clear()
        await where.say("/undo")
        await where.say("/new")
        await where.say("again")
        await until("queue_prefetch")
        third = await where.tip()
        assert methods(Recording.heard) == [
            "on_session_switch",
            "on_session_end",
            "on_session_switch",
            "on_turn_start",
            "system_prompt_block",
            "prefetch",
            "sync_turn",
            "queue_prefetch",
        ]
        undone, reset = of("on_session_switch")
        assert (undone.args, undone.keywords["rewound"]) == ((second.session.id,), True)
        assert reset.args == (third.session.id,)
        assert reset.keywords["parent_session_id"] == second.session.id
        assert reset.keywords["reset"] is True
        Recording.heard.clear()
    assert methods(Recording.heard) == ["shutdown"]

    Recording.begin()
    async with where:
        await where.say("after a restart")
        await until("queue_prefetch")
        assert methods(Recording.heard)[0] == "initialize"
        assert "system_prompt_block" not in methods(Recording.heard)
        assert of("initialize")[0].args == (third.session.id,)
    assert Recording.clashes == 0
    assert all(h.thread.startswith("memory provider") for h in Recording.heard)


async def test_every_conversation_has_its_own(tmp_path: Path, server: AnthropicServer) -> None:
    async with house(tmp_path, server, "Recording") as where:
        await asyncio.gather(*(where.say("hello", chat) for chat in ("11", "12", "13")))
        await until("queue_prefetch", 3)
        by_chat = {h.keywords["chat_id"]: h.instance for h in of("initialize")}
        assert len(set(by_chat.values())) == 3
        sessions = {h.instance: h.keywords["session_id"] for h in of("sync_turn")}
        assert len(set(sessions.values())) == 3


async def test_its_tools_and_our_notes_reach_the_conversations_own(
    tmp_path: Path, server: AnthropicServer
) -> None:
    steps = [
        Answer([tool_use("look_up", {"q": "tea"})], stop_reason="tool_use"),
        Answer([tool_use("remember", {"text": "likes tea"})], stop_reason="tool_use"),
        Answer([text("done")]),
    ]
    server.script(*steps)
    async with house(tmp_path, server, "Recording") as where:
        assert await where.say("hello") == ["done"]
        await until("queue_prefetch")
        assert of("handle_tool_call")[0].args == ("look_up", {"q": "tea"})
        written = of("on_memory_write")[0]
        assert written.args == ("add", "memory", "likes tea")
        assert written.keywords["metadata"]["note"] == "n1"


async def test_what_was_written_before_it_woke_is_told_then(
    tmp_path: Path, server: AnthropicServer
) -> None:
    server.script(Answer([tool_use("remember", {"text": "likes tea"})], stop_reason="tool_use"))
    async with house(tmp_path, server, "Recording") as where:
        await where.say("hello")
        await until("queue_prefetch")
    Recording.heard.clear()
    async with house(tmp_path, server, "Recording") as where:
        await where.say("/forget n1")
        assert of("on_memory_write") == []
        await where.say("and now?")
        await until("queue_prefetch")
        assert methods(Recording.heard)[:2] == ["initialize", "on_memory_write"]
        assert of("on_memory_write")[0].args == ("remove", "memory", "likes tea")


async def test_an_old_one_gets_what_its_methods_take(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with house(tmp_path, server, "Old") as where:
        await where.say("hello")
        await until("queue_prefetch")
        await where.say("/new")
        await until("on_session_switch")
        assert of("prefetch")[0].args == ("hello",)
        assert of("sync_turn")[0].args == ("hello", "fine")
        assert of("sync_turn")[0].keywords == {}


async def test_one_that_fails_at_everything_breaks_no_turn(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with house(tmp_path, server, "Raising") as where:
        for message in ("hello", "again"):
            assert await where.say(message) == ["fine"]
        await until("sync_turn", 2)
        assert {row.wire_content for row in (await where.tip()).rows} == {None}


async def test_ten_that_hang_cost_their_time_out_once_and_block_nobody(
    tmp_path: Path, server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_companion, "PREFETCH_SECONDS", 0.2)
    monkeypatch.setattr(provider_companion, "CLOSE_SECONDS", 0.2)
    async with house(tmp_path, server, "Hanging") as where:
        chats = [str(n) for n in range(20, 30)]
        answers = await asyncio.gather(*(where.say("hello", chat) for chat in chats))
        assert answers == [["fine"]] * 10
        assert await where.say("and again", chats[0]) == ["fine"]
        assert len(of("prefetch")) == 10
        assert of("sync_turn") == []


async def test_one_that_never_gets_ready_is_waited_for_once(
    tmp_path: Path, server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_companion, "PREFETCH_SECONDS", 0.1)
    monkeypatch.setattr(provider_companion, "START_SECONDS", 0.2)
    async with house(tmp_path, server, "Stuck") as where:
        for _ in range(3):
            assert await where.say("hello") == ["fine"]
            await asyncio.sleep(0.15)
        assert methods(Recording.heard) == ["initialize"]


async def test_one_that_is_not_available_is_said_aloud(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with house(tmp_path, server, "Unavailable") as where:
        assert await where.say("hello") == ["fine"]
        (line,) = where.plugins.providers.troubles()
        assert "it says that it is not available" in line
        assert Recording.heard == []
        assert "off: unavailable does not work" in where.plugins.memory()
