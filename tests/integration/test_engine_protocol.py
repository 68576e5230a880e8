"""A plugin's engine in whole conversations: what it hears, in which order, on which threads."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.anthropic_server import Answer, AnthropicServer, text, tool_use
from tests.fakes.engine_house import WINDOW, EngineHouse
from tests.fakes.plugins import clean_modules, write_plugin
from tests.fakes.recording_engine import PLUGIN, Heard, Recording, Selecting

LONG = "All work and no play makes a long message. " * 350
ASKED = (
    "should_defer_preflight_to_real_usage",
    "get_active_compression_failure_cooldown",
    "should_compress",
)
USAGE_KEYS = {
    *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH"):
        monkeypatch.setenv(name, "x")
    Recording.begin()
    with clean_modules():
        yield


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(
        window=WINDOW, responder=lambda request: Answer([text("fine")])
    ) as running:
        yield running


def house(tmp_path: Path, server: AnthropicServer, kind: str, **settings: Any) -> EngineHouse:
    folder = tmp_path / "home"
    write_plugin(folder / "plugins" / "context_engine", kind.lower(), PLUGIN.format(name=kind))
    return EngineHouse(folder, server.base_url, kind.lower(), **settings)


def sent_by(server: AnthropicServer) -> list[Any]:
    """The messages of the newest request."""
    body = server.records.requests[-1].body
    assert body is not None
    return list(body["messages"])


def methods(heard: Sequence[Heard]) -> list[str]:
    return [h.method for h in heard]


def of(method: str) -> list[Heard]:
    return [h for h in Recording.heard if h.method == method]


async def test_a_conversation_with_a_compression_new_and_a_restart(
    tmp_path: Path, server: AnthropicServer
) -> None:
    where = house(tmp_path, server, "Recording")
    async with where:
        await where.say("hello")
        first = await where.tip()
        assert methods(Recording.heard) == [
            "get_tool_schemas",  # of the plugin's own engine, at the start
            "update_model",
            "bind_session_state",
            "get_tool_schemas",
            "on_session_start",
            *ASKED,
            "update_from_response",
            "on_turn_complete",
        ]
        assert [h.engine for h in Recording.heard] == [0, *[1] * (len(Recording.heard) - 1)]
        begun = of("on_session_start")[0]
        assert begun.args == (first.session.id,)
        conversation = await where.store.conversation(first.session.conversation_id)
        assert conversation is not None
        assert begun.keywords == {
            "hermes_home": str(where.folder / "hermes"),
            "platform": "telegram",
            "model": first.session.prefix.model,
            "context_length": WINDOW,
            "conversation_id": conversation.session_key,
        }
        assert of("update_model")[0].keywords["api_key"] == ""
        assert of("bind_session_state")[0].args == (first.session.id, True)
        assert set(of("update_from_response")[0].keywords) == USAGE_KEYS

        Recording.heard.clear()
        await where.say(LONG)
        Recording.heard.clear()
        said = await where.say(LONG, answers=2)
        second = await where.tip()
        assert second.session.parent_session_id == first.session.id
        assert "shortening (preflight)" in said
        assert methods(Recording.heard) == [
            *ASKED,
            "status",
            "pending_compression_operation",
            "compress",
            "on_session_end",
            "on_session_start",
            *ASKED,
            "update_from_response",
            "on_turn_complete",
        ]
        assert of("on_session_end")[0].args[0] == first.session.id
        moved = of("on_session_start")[0]
        assert moved.args == (second.session.id,)
        assert moved.keywords["boundary_reason"] == "compression"
        assert moved.keywords["old_session_id"] == first.session.id
        assert set(of("compress")[0].keywords) == {
            *("current_tokens", "focus_topic", "force", "memory_context"),
        }
        texts = [row.message["content"] for row in second.rows]
        assert "vandalised" not in texts
        assert LONG in texts

        Recording.heard.clear()
        await where.say("/new")
        await where.say("again")
        third = await where.tip()
        assert methods(Recording.heard)[:3] == [
            "on_session_end",
            "on_session_reset",
            "on_session_start",
        ]
        assert of("on_session_end")[0].args[0] == second.session.id
        fresh = of("on_session_start")[0]
        assert fresh.args == (third.session.id,)
        assert fresh.keywords["old_session_id"] == second.session.id
        assert "boundary_reason" not in fresh.keywords
        Recording.heard.clear()
    assert methods(Recording.heard)[-2:] == ["on_session_end", "shutdown"]
    assert of("on_session_end")[-1].args[0] == third.session.id
    assert {h.engine for h in Recording.heard} == {1}

    Recording.heard.clear()
    async with where:
        await where.say("are you there?")
        resumed = of("on_session_start")[0]
        assert resumed.args == (third.session.id,)
        assert "old_session_id" not in resumed.keywords
    assert all(h.thread.startswith("foreign engine") for h in Recording.heard)
    assert threading.main_thread().name not in {h.thread for h in Recording.heard}


async def test_each_conversation_has_an_engine_of_its_own_and_its_tools_go_there(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with house(tmp_path, server, "Recording") as where:
        for chat in ("11", "12"):
            server.script(Answer([tool_use("look_up", {"for": chat})]), Answer([text("found")]))
            assert await where.say("look", chat) == ["found"]
        (one, other) = of("handle_tool_call")
        assert {one.engine, other.engine} == {1, 2}
        assert one.args == ("look_up", {"for": "11"})
        assert [m["role"] for m in one.keywords["messages"]] == ["user", "assistant"]
        results = [r for r in (await where.tip("12")).rows if r.message["role"] == "tool"]
        assert results[0].message["content"] == '{"found_by": 2, "seen": 2}'
        names = [tool.name for tool in (await where.tip("11")).session.prefix.tools]
        assert names == sorted(names)
        assert names.count("look_up") == 1


@pytest.mark.parametrize("kind", ["Old", "Uncopyable"])
async def test_old_parameters_and_engines_that_can_not_be_copied(
    tmp_path: Path, server: AnthropicServer, kind: str
) -> None:
    async with house(tmp_path, server, kind) as where:
        for chat in ("11", "12"):
            await where.say(LONG, chat)
            await where.say(LONG, chat, answers=2)
            await where.say("/compress the play", chat)
        assert {h.engine for h in of("compress")} == {1, 2}
        assert [h.keywords["focus_topic"] for h in of("compress")] == [None, "the play"] * 2
        assert of("has_content_to_compress")
        assert not where.plugins.troubles()


async def test_what_an_engine_selects_is_sent_and_stored_is_what_was_said(
    tmp_path: Path, server: AnthropicServer
) -> None:
    async with house(tmp_path, server, "Selecting") as where:
        Selecting.choice = lambda messages: None
        await where.say("one")
        Selecting.choice = lambda messages: [
            {"role": "system", "content": "Only the last."},
            {"role": "tool", "tool_call_id": "orphan", "content": "x"},
            messages[-1],
        ]
        await where.say("two")
        sent = sent_by(server)
        assert len(sent) == 1
        assert "Only the last." in str(sent)
        assert "one" not in str(sent)
        assert [
            r.message["content"] for r in (await where.tip()).rows if r.message["role"] == "user"
        ] == [
            "one",
            "two",
        ]
        told = of("select_context")[-1].keywords
        assert told["budget_tokens"] == WINDOW
        assert told["incoming_message"]["content"] == "two"
        assert len(told["conversation_messages"]) == 3


@pytest.mark.parametrize(
    "choice",
    [
        lambda messages: messages,
        lambda messages: [],
        lambda messages: "nonsense",
        lambda messages: [1, 2],
        lambda messages: [{"role": "user", "content": {1, 2}}],
        lambda messages: messages[:-1] or messages,
        lambda messages: [{"role": "user", "content": "x"}] * 1_000_000,
        lambda messages: messages.clear(),
        lambda messages: [*messages[:-1], {"role": "user", "content": "y" * 400_000}],
        lambda messages: 1 / 0,
    ],
)
async def test_a_selection_that_is_none_changes_no_byte(
    tmp_path: Path, server: AnthropicServer, choice: Any
) -> None:
    bodies = []
    for folder, chosen in (("none", lambda messages: None), ("it", choice)):
        Selecting.choice = chosen
        (tmp_path / folder).mkdir()
        before = len(server.records.requests)
        async with house(tmp_path / folder, server, "Selecting") as where:
            await where.say("one")
            await where.say("two")
        asked = [json.dumps(request.body) for request in list(server.records.requests)[before:]]
        # The server signs each thought anew.
        bodies.append([re.sub(r'"signature": "[^"]*"', "", body) for body in asked])
    assert len(bodies[0]) == 2
    assert bodies[1] == bodies[0]


async def test_what_a_person_does_to_conversations(tmp_path: Path, server: AnthropicServer) -> None:
    async with house(tmp_path, server, "Recording") as where:
        await where.say(LONG)
        await where.say(LONG, answers=2)
        compressed = (await where.tip()).session.id
        await where.say("short")
        Recording.heard.clear()

        assert await where.say("/retry") == ["fine"]
        await where.say("/undo")
        await where.say("instead")
        # The same session, so it is only asked again; twice, for two questions.
        assert methods(Recording.heard) == [*ASKED, "update_from_response", "on_turn_complete"] * 2
        undone = (await where.tip()).session.id
        assert undone == compressed
        Recording.heard.clear()

        await where.say("/branch")
        await where.say("in the branch")
        branch = (await where.tip()).session.id
        begun = of("on_session_start")[0]
        assert begun.args == (branch,)
        assert begun.engine == 2
        assert begun.keywords["old_session_id"] == undone
        assert begun.keywords["boundary_reason"] == "branch"
        assert not of("on_session_end")  # what it was copied from goes on
        Recording.heard.clear()

        listed = (await where.say("/sessions"))[0]
        assert "2" in listed
        await where.say("/resume 2")
        await where.say("back")
        assert not of("on_session_start")
        assert {h.engine for h in of("on_turn_complete")} == {1}


async def test_uncompress_is_told(tmp_path: Path, server: AnthropicServer) -> None:
    async with house(tmp_path, server, "Recording", window=60_000) as where:
        await where.say(LONG)
        before = (await where.tip()).session.id
        await where.say(LONG, answers=2)
        compressed = (await where.tip()).session.id
        assert compressed != before
        Recording.heard.clear()
        await where.say("/uncompress")
        await where.say("hello")
        told = of("on_session_start")[0].keywords
        assert (told["boundary_reason"], told["old_session_id"]) == ("uncompress", compressed)
        assert of("on_session_end")[0].args[0] == compressed


async def test_a_chat_that_moved(tmp_path: Path, server: AnthropicServer) -> None:
    async with house(tmp_path, server, "Recording") as where:
        await where.say("hello")
        session = (await where.tip()).session
        await where.intake.moved("telegram", "1", "11", "12")
        await where.say("hello again", "12", sender="11")
        first, again = of("on_session_start")
        assert first.args == again.args == (session.id,)
        assert first.keywords["conversation_id"] != again.keywords["conversation_id"]
