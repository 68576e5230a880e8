"""Owns the proof that the strict Messages API fake is strict, and speaks like the real one."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx2
import pytest

from tests.fakes.anthropic_server import (
    SECTIONS,
    SUMMARY_MARK,
    Answer,
    AnthropicServer,
    Fault,
    Match,
    common_prefix,
    redacted_thinking,
    text,
    thinking,
    tool_use,
)
from tests.fakes.anthropic_server.rule_images import sniff

MODEL = "claude-sonnet-5-5"
OLD = "claude-sonnet-4-5"  # takes prefill and temperature; raw requests only, the SDK warns
BINDING = "thinking-binding-controls-2026-08-01"
ROOT = Path(__file__).resolve().parents[2]

Json = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


@pytest.fixture
async def raw() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def client_of(server: AnthropicServer, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        api_key=server.api_key, base_url=server.base_url, max_retries=0, **options
    )


@pytest.fixture
async def client(server: AnthropicServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(server) as sdk:
        yield sdk


def user(content: Any = "hi") -> Json:
    return {"role": "user", "content": content}


def assistant(content: Any = "hello") -> Json:
    return {"role": "assistant", "content": content}


def request_body(*messages: Json, **fields: Any) -> Json:
    body: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages) or [user()]}
    return {**body, **fields}


def call(id_: str = "toolu_1", **fields: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": "look", "input": {}, **fields}


def result(id_: str = "toolu_1", content: Any = "seen", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}


def marked(value: str = "x", ttl: str = "5m") -> Json:
    return {**text(value), "cache_control": {"type": "ephemeral", "ttl": ttl}}


LOOK: Json = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


def png(width: int, height: int) -> Json:
    data = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\0" * 9
    encoded = base64.b64encode(data).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": encoded},
    }


async def post(
    raw: aiohttp.ClientSession,
    server: AnthropicServer,
    body: Json | bytes,
    path: str = "/v1/messages",
    **headers: str,
) -> tuple[int, Json]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fixed = {
        "x-api-key": server.api_key,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
    }
    sent = {k: v for k, v in {**fixed, **headers}.items() if v}
    # A stream, because aiohttp warns of large byte strings.
    async with raw.post(server.base_url + path, data=io.BytesIO(data), headers=sent) as response:
        assert response.headers["request-id"].startswith("req_")
        return response.status, await response.json()


# -- rules -------------------------------------------------------------------------------------

TOOL_TURN = [user(), assistant([call()])]
UNANSWERED = (
    "`tool_use` ids were found without `tool_result` blocks immediately after: {}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
EXTRA = "Extra inputs are not permitted"

BROKEN: list[tuple[str, str, Json, str]] = [
    ("no-messages", "1", request_body(messages=[]), "messages: at least one message is required"),
    ("messages-absent", "shape", {"model": MODEL, "max_tokens": 5}, "messages: Field required"),
    ("model-absent", "shape", {"max_tokens": 5, "messages": [user()]}, "model: Field required"),
    (
        "assistant-first",
        "2",
        request_body(assistant(), user()),
        'messages: first message must use the "user" role',
    ),
    (
        "role-tool",
        "shape",
        request_body({"role": "tool", "content": "x"}),
        "messages.0.role: Input should be 'user' or 'assistant'",
    ),
    (
        "system-role-old",
        "4",
        request_body(user(), {"role": "system", "content": "x"}, model="claude-sonnet-4-6"),
        'messages: Unexpected role "system". The Messages API accepts a top-level `system`',
    ),
    (
        "system-role-sonnet-5",
        "4",
        request_body(user(), {"role": "system", "content": "x"}, model="claude-sonnet-5"),
        'Unexpected role "system"',
    ),
    (
        "system-after-assistant",
        "4b",
        request_body(user(), assistant(), {"role": "system", "content": "x"}, user()),
        "messages.2: a `system` message must come immediately after a user turn",
    ),
    (
        "empty-list",
        "5",
        request_body(user(), assistant([]), user()),
        "messages.1: all messages must have non-empty content except for the optional final"
        " assistant message",
    ),
    ("empty-string", "5", request_body(user("")), "messages.0: all messages must have non-empty"),
    (
        "empty-text",
        "6",
        request_body(user([text("")])),
        "messages: text content blocks must be non-empty",
    ),
    (
        "empty-text-in-result",
        "6",
        request_body(*TOOL_TURN, user([result(content=[text("")])]), tools=[LOOK]),
        "messages: text content blocks must be non-empty",
    ),
    ("empty-system", "6", request_body(system=[text("")]), "text content blocks must be non-empty"),
    (
        "blank-text",
        "7",
        request_body(user([text(" \n\t")])),
        "messages: text content blocks must contain non-whitespace text",
    ),
    (
        "blank-string",
        "7",
        request_body(user("  ")),
        "messages: text content blocks must contain non-whitespace text",
    ),
    (
        "prefill-space",
        "8",
        request_body(user(), assistant("So "), model=OLD),
        "messages: final assistant content cannot end with trailing whitespace",
    ),
    (
        "prefill",
        "9",
        request_body(user(), assistant("So")),
        "This model does not support assistant message prefill."
        " The conversation must end with a user message.",
    ),
    (
        "call-unanswered",
        "10",
        request_body(user(), assistant([call("a"), call("b")]), user()),
        "messages.1: " + UNANSWERED.format("a, b"),
    ),
    (
        "call-last",
        "10",
        request_body(*TOOL_TURN),
        "messages.1: " + UNANSWERED.format("toolu_1"),
    ),
    (
        "one-of-two-answered",
        "10",
        request_body(user(), assistant([call("a"), call("b")]), user([result("a")])),
        "messages.1: " + UNANSWERED.format("b"),
    ),
    (
        "result-without-call",
        "11",
        request_body(user(), assistant(), user([result("nope")])),
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: nope."
        " Each `tool_result` block must have a corresponding `tool_use` block in the previous"
        " message.",
    ),
    (
        "result-first",
        "11",
        request_body(user([result()])),
        "messages.0.content.0: unexpected `tool_use_id`",
    ),
    (
        "result-too-late",
        "11",
        request_body(*TOOL_TURN, user([result()]), assistant(), user([result()])),
        "messages.4.content.0: unexpected `tool_use_id`",
    ),
    (
        "ids-twice",
        "12",
        request_body(*TOOL_TURN, user([result()]), assistant([call()]), user([result()])),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    (
        "two-results",
        "13",
        request_body(*TOOL_TURN, user([result(), result()])),
        "messages.2.content.1: each tool_use must have a single result."
        " Found multiple `tool_result` blocks with id: toolu_1",
    ),
    (
        "text-before-result",
        "14",
        request_body(*TOOL_TURN, user([text("first"), result()])),
        "messages.1: " + UNANSWERED.format("toolu_1"),
    ),
    (
        "bad-id",
        "15",
        request_body(user(), assistant([call("a b")]), user([result("a b")])),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        "bad-tool-name",
        "15",
        request_body(tools=[{**LOOK, "name": "no spaces"}]),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    (
        "long-tool-name",
        "15",
        request_body(tools=[{**LOOK, "name": "n" * 129}]),
        "tools.0.custom.name: String should match pattern",
    ),
    ("tools-twice", "15", request_body(tools=[LOOK, LOOK]), "tools: Tool names must be unique."),
    (
        "schema-type",
        "15",
        request_body(tools=[{**LOOK, "input_schema": {"type": "array"}}]),
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    (
        "schema-untyped",
        "15",
        request_body(tools=[{**LOOK, "input_schema": {}}]),
        "tools.0.custom.input_schema.type: Field required",
    ),
    (
        "input-no-object",
        "W12",
        request_body(user(), assistant([call(input="{}")]), user([result()])),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    (
        "five-marks",
        "17",
        request_body(user([marked() for _ in range(3)]), system=[marked(), marked()]),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        "marks-in-results-count",
        "17",
        request_body(
            *TOOL_TURN,
            user([result(content=[marked(), marked()]), marked(), marked()]),
            tools=[{**LOOK, "cache_control": {"type": "ephemeral"}}],
        ),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        "ttl-order",
        "18",
        request_body(user([marked(ttl="1h")]), system=[marked(ttl="5m")]),
        "messages.0.content.0.text.cache_control.ttl: a ttl='1h' cache_control block must not come"
        " after a ttl='5m' cache_control block. Note that blocks are processed in the following"
        " order: `tools`, `system`, `messages`.",
    ),
    (
        "mark-on-empty",
        "19",
        request_body(user([marked("")])),
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    ),
    (
        "mark-on-thinking",
        "30",
        request_body(
            user(),
            assistant([{**thinking("x"), "cache_control": {"type": "ephemeral"}}, text("y")]),
            user(),
        ),
        f"messages.1.content.0.thinking.cache_control: {EXTRA}",
    ),
    (
        "mark-ttl",
        "shape",
        request_body(user([marked(ttl="2h")])),
        "messages.0.content.0.text.cache_control.ttl: Input should be '5m' or '1h'",
    ),
    (
        "budget-small",
        "21",
        request_body(thinking={"type": "enabled", "budget_tokens": 100}, model=OLD),
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        "budget-over-max",
        "21",
        request_body(thinking={"type": "enabled", "budget_tokens": 2000}, model=OLD),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    (
        "no-thinking-first",
        "22",
        request_body(
            *TOOL_TURN,
            user([result()]),
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2000,
            model=OLD,
            tools=[LOOK],
        ),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
        " `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a"
        " thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)",
    ),
    (
        "temperature-new",
        "24",
        request_body(temperature=1),
        "`temperature` is deprecated for this model.",
    ),
    (
        "temperature-thinking",
        "24",
        request_body(
            temperature=0.2,
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2000,
            model=OLD,
        ),
        "`temperature` may only be set to 1 when thinking is enabled",
    ),
    (
        "top-k-thinking",
        "24",
        request_body(
            top_k=5,
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2000,
            model=OLD,
        ),
        "`top_k` must be unset when thinking is enabled",
    ),
    (
        "forced-choice",
        "24",
        request_body(
            tools=[LOOK],
            tool_choice={"type": "any"},
            thinking={"type": "adaptive"},
            model="claude-opus-5",
        ),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    (
        "choice-without-tools",
        "shape",
        request_body(tool_choice={"type": "auto"}),
        "tool_choice may only be specified while providing tools",
    ),
    (
        "choice-unknown",
        "shape",
        request_body(
            tools=[LOOK], tool_choice={"type": "tool", "name": "x"}, model="claude-opus-5"
        ),
        "Tool 'x' not found in provided tools",
    ),
    (
        "no-max-tokens",
        "25",
        {"model": MODEL, "messages": [user()]},
        "max_tokens: Field required",
    ),
    (
        "max-tokens-high",
        "25",
        request_body(max_tokens=128_001),
        f"max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for"
        f" {MODEL}",
    ),
    (
        "max-tokens-negative",
        "25",
        request_body(max_tokens=-1),
        "max_tokens: Input should be greater than or equal to 1",
    ),
    (
        "image-large",
        "28",
        request_body(user([png(8001, 10)])),
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions"
        " exceed max allowed size: 8000 pixels",
    ),
    (
        "images-many",
        "28",
        request_body(user([png(2400, 10) for _ in range(21)])),
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions"
        " exceed max allowed size for many-image requests: 2000 pixels",
    ),
    (
        "image-type",
        "28",
        request_body(
            user([{"type": "image", "source": {**png(1, 1)["source"], "media_type": "image/bmp"}}])
        ),
        "messages.0.content.0.image.source.base64.media_type: Input should be",
    ),
    (
        "image-type-lies",
        "28",
        request_body(
            user([{"type": "image", "source": {**png(1, 1)["source"], "media_type": "image/gif"}}])
        ),
        "Image does not match the provided media type image/gif",
    ),
    (
        "image-junk",
        "28",
        request_body(user([{"type": "image", "source": {**png(1, 1)["source"], "data": "AAAA"}}])),
        "Could not process image",
    ),
    (
        "image-heavy",
        "28",
        request_body(
            user(
                [
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": base64.b64encode(bytes(5 * 1024 * 1024 + 1)).decode(),
                        },
                    }
                ]
            )
        ),
        "image exceeds 5 MB maximum: 5242881 bytes > 5242880 bytes",
    ),
    ("extra-in-body", "30", request_body(_private=1), f"_private: {EXTRA}"),
    (
        "extra-in-message",
        "30",
        request_body({**user(), "timestamp": 1}),
        f"messages.0.timestamp: {EXTRA}",
    ),
    (
        "extra-in-block",
        "30",
        request_body(user([{**text("x"), "_row": 3}])),
        f"messages.0.content.0.text._row: {EXTRA}",
    ),
    (
        "extra-in-tool",
        "30",
        request_body(tools=[{**LOOK, "parameters": {}}]),
        f"tools.0.custom.parameters: {EXTRA}",
    ),
    (
        "beta-field",
        "30",
        request_body(context_management={"edits": []}),
        f"context_management: {EXTRA}",
    ),
    (
        "beta-binding",
        "30",
        request_body(
            thinking={
                "type": "adaptive",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            }
        ),
        f"thinking.adaptive.block_binding: {EXTRA}",
    ),
    (
        "call-from-user",
        "side",
        request_body(user([call()])),
        "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages",
    ),
    (
        "result-from-assistant",
        "side",
        request_body(user(), assistant([result()]), user()),
        "messages.1.content.0: `tool_result` blocks can only be in `user` messages",
    ),
    (
        "block-unknown",
        "shape",
        request_body(user([{"type": "function", "x": 1}])),
        "messages.0.content.0: Input tag 'function' found using 'type' does not match",
    ),
    (
        "content-none",
        "shape",
        request_body(user(), assistant(None), user()),
        "messages.1.content: Input should be a valid list",
    ),
    (
        "forged-thinking",
        "23",
        request_body(user(), assistant([{**thinking("x"), "signature": "abc"}, text("y")]), user()),
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant"
        " message cannot be modified. These blocks must remain as they were in the original"
        " response.",
    ),
]


@pytest.mark.parametrize(
    ("rule", "body", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
async def test_a_broken_rule_gets_its_error(
    server: AnthropicServer, raw: aiohttp.ClientSession, rule: str, body: Json, message: str
) -> None:
    status, answer = await post(raw, server, body)
    assert status == 400
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert message in answer["error"]["message"]
    assert answer["request_id"].startswith("req_")
    assert [r.rule for r in server.rejected] == [rule]
    assert server.requests[-1].verdict == "rejected"


ACCEPTED: list[tuple[str, Json]] = [
    ("string", request_body()),
    ("same-role-neighbours", request_body(user("a"), user("b"))),
    ("results-in-two-messages", request_body(
        user(), assistant([call("a"), call("b")]), user([result("a")]), user([result("b")]),
        tools=[LOOK],
    )),
    ("call-in-two-messages", request_body(
        user(), assistant([call("a")]), assistant([call("b")]), user([result("a"), result("b")]),
        tools=[LOOK],
    )),
    ("text-after-results", request_body(
        *TOOL_TURN, user([result(), text("and now?")]), tools=[LOOK]
    )),
    ("result-empty", request_body(*TOOL_TURN, user([result(content="")]), tools=[LOOK])),
    ("result-image", request_body(*TOOL_TURN, user([result(content=[png(9, 9)])]), tools=[LOOK])),
    ("adaptive-without-thought", request_body(
        *TOOL_TURN, user([result()]), tools=[LOOK], thinking={"type": "adaptive"}
    )),
    ("system-after-user", request_body(user(), {"role": "system", "content": "It is Monday."})),
    ("four-marks", request_body(
        user([marked(), marked()]), system=[marked(ttl="1h"), marked(ttl="1h")]
    )),
    ("prefill-old", request_body(user(), assistant("So"), model=OLD)),
    ("temperature-old", request_body(temperature=0.5, model=OLD)),
    ("twenty-large-images", request_body(user([png(2400, 10) for _ in range(20)]))),
    ("nulls", request_body(user([{**text("x"), "citations": None, "cache_control": None}]))),
    ("pre-warm", request_body(max_tokens=0)),
]  # fmt: skip


@pytest.mark.parametrize("body", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
async def test_what_the_api_accepts_is_accepted(
    server: AnthropicServer, raw: aiohttp.ClientSession, body: Json
) -> None:
    status, answer = await post(raw, server, body)
    assert (status, answer["type"]) == (200, "message"), answer
    assert server.rejected == []


async def test_doubtful_points_are_warnings(
    server: AnthropicServer, raw: aiohttp.ClientSession
) -> None:
    await post(raw, server, request_body(user(), user()))
    await post(raw, server, request_body(*TOOL_TURN, user([result()])))
    await post(raw, server, request_body(system="  "))
    budget = {"type": "enabled", "budget_tokens": 1024}
    await post(raw, server, request_body(max_tokens=2000, thinking=budget))
    assert [rule for _, rule, _ in server.warnings] == ["W2", "16", "6", "21"]
    assert server.rejected == []


async def test_bodies_that_are_no_json(server: AnthropicServer, raw: aiohttp.ClientSession) -> None:
    status, answer = await post(raw, server, b"{")
    assert status == 400
    assert "not valid JSON" in answer["error"]["message"]
    lone = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\ud83d"}]}'
    status, answer = await post(raw, server, lone)
    assert "no low surrogate in string" in answer["error"]["message"]
    status, answer = await post(raw, server, b"[1]")
    assert status == 400
    assert [r.rule for r in server.rejected] == ["json", "W14", "json"]


async def test_a_paired_surrogate_escape_is_fine(
    server: AnthropicServer, raw: aiohttp.ClientSession
) -> None:
    status, answer = await post(raw, server, request_body(user("\U0001f600")))
    assert status == 200
    assert answer["content"][0]["text"] == "reply to: \U0001f600"


async def test_a_body_over_32_mb_is_413(
    server: AnthropicServer, raw: aiohttp.ClientSession
) -> None:
    status, answer = await post(raw, server, b" " * (32 * 1024 * 1024 + 1))
    assert (status, answer["error"]["type"]) == (413, "request_too_large")
    assert [r.rule for r in server.rejected] == ["29"]


async def test_keys_versions_models_and_paths(
    server: AnthropicServer, raw: aiohttp.ClientSession
) -> None:
    body = request_body()
    bearer = {"x-api-key": "", "Authorization": f"Bearer {server.api_key}"}
    assert (await post(raw, server, body, **bearer))[0] == 200
    status, answer = await post(raw, server, body, **{"x-api-key": "wrong"})
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert "wrong" not in answer["error"]["message"]
    assert (await post(raw, server, body, **{"x-api-key": ""}))[0] == 401
    status, answer = await post(raw, server, body, **{"anthropic-version": ""})
    assert answer["error"]["message"] == "anthropic-version: header is required"
    status, answer = await post(raw, server, request_body(model="gpt-9"))
    assert (status, answer["error"]["type"]) == (404, "not_found_error")
    async with raw.get(server.base_url + "/v1/nothing") as response:
        assert response.status == 404
        assert (await response.json())["error"]["type"] == "not_found_error"
    dated = {"anthropic-version": "2026-10-21"}
    status, answer = await post(raw, server, request_body(temperature=1, model=OLD), **dated)
    assert answer["error"]["message"].startswith("`temperature`")


# -- window and output -------------------------------------------------------------------------


async def test_input_over_the_window(raw: aiohttp.ClientSession) -> None:
    async with AnthropicServer(window=100) as server:
        status, answer = await post(raw, server, request_body(user("x" * 4000), max_tokens=10))
        assert status == 400
        assert answer["error"]["message"] == "prompt is too long: 1004 tokens > 100 maximum"
        assert server.rejected == []
        assert server.requests[-1].verdict == "too_long"


async def test_output_over_the_window(raw: aiohttp.ClientSession) -> None:
    async with AnthropicServer(window=100, mode="long") as server:
        status, answer = await post(raw, server, request_body(user("x" * 200), max_tokens=60))
        assert (status, answer["stop_reason"]) == (200, "model_context_window_exceeded")
        assert answer["usage"]["output_tokens"] <= 46
    async with AnthropicServer(window=100, overflow="error") as server:
        status, answer = await post(raw, server, request_body(user("x" * 200), max_tokens=60))
        assert answer["error"]["message"] == (
            "input length and `max_tokens` exceed context limit: 54 + 60 > 100,"
            " decrease input length or `max_tokens` and try again"
        )


async def test_max_tokens_cuts_text_and_tool_calls(raw: aiohttp.ClientSession) -> None:
    async with AnthropicServer() as server:
        server.script("word " * 100, Answer([tool_use("look", {"path": "p" * 400})]))
        _, answer = await post(raw, server, request_body(max_tokens=10))
        assert answer["stop_reason"] == "max_tokens"
        assert len(answer["content"][0]["text"]) == 40
        _, answer = await post(raw, server, request_body(max_tokens=10, tools=[LOOK]))
        assert answer["stop_reason"] == "max_tokens"
        assert answer["content"][0]["input"] == {}


async def test_stop_sequences(server: AnthropicServer, raw: aiohttp.ClientSession) -> None:
    server.script("one two three")
    _, answer = await post(raw, server, request_body(stop_sequences=["two"]))
    assert answer["content"] == [text("one ")]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "two")


async def test_count_tokens_counts_everything_once(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    bare = await client.messages.count_tokens(model=MODEL, messages=[user("x" * 400)])
    full = await client.messages.count_tokens(
        model=MODEL, messages=[user("x" * 400)], system="y" * 400, tools=[LOOK]
    )
    assert bare.input_tokens == 104
    assert full.input_tokens > 204
    han = await client.messages.count_tokens(model=MODEL, messages=[user("压缩" * 50)])
    assert han.input_tokens == 104
    sent = await client.messages.create(
        model=MODEL, max_tokens=9, messages=[user("x" * 400)], system="y" * 400, tools=[LOOK]
    )
    assert sent.usage.input_tokens == full.input_tokens
    assert [r.path for r in server.other_requests] == ["/v1/messages/count_tokens"] * 3


async def test_models(client: anthropic.AsyncAnthropic, server: AnthropicServer) -> None:
    info = await client.models.retrieve(MODEL)
    assert (info.max_input_tokens, info.max_tokens) == (1_000_000, 128_000)
    assert info.capabilities is not None
    assert info.capabilities.thinking.types.adaptive.supported
    server.settings.window = 8000
    assert (await client.models.retrieve(MODEL)).max_input_tokens == 8000
    assert len([m async for m in client.models.list()]) >= 10
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("claude-nothing-1")


# -- through the SDK ---------------------------------------------------------------------------


async def test_stream_and_plain_answer_agree(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.settings.pieces = 5
    plain = await client.messages.create(model=MODEL, max_tokens=99, messages=[user("good day")])
    async with client.messages.stream(
        model=MODEL, max_tokens=99, messages=[user("good day")]
    ) as stream:
        parts = [part async for part in stream.text_stream]
        streamed = await stream.get_final_message()
    assert "".join(parts) == "reply to: good day"
    assert len(parts) == 5
    assert plain.content[0].text == streamed.content[0].text
    assert plain.usage == streamed.usage
    assert (plain.stop_reason, streamed.stop_reason) == ("end_turn", "end_turn")
    assert server.requests[0].headers["anthropic-version"]


async def test_the_event_sequence(server: AnthropicServer, raw: aiohttp.ClientSession) -> None:
    server.script(Answer([text("a text that has pieces"), tool_use("look", {"at": "this"})]))
    headers = {"x-api-key": server.api_key, "anthropic-version": "2023-06-01"}
    body = request_body(stream=True, tools=[LOOK])
    async with raw.post(server.base_url + "/v1/messages", json=body, headers=headers) as response:
        assert response.content_type == "text/event-stream"
        raw_text = await response.text()
    names = [line[7:] for line in raw_text.splitlines() if line.startswith("event: ")]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop") == 2
    pieces = [
        json.loads(line[6:])["delta"]["partial_json"]
        for line in raw_text.splitlines()
        if "input_json_delta" in line
    ]
    assert len(pieces) > 2
    assert json.loads("".join(pieces)) == {"at": "this"}


async def test_a_tool_round(server: AnthropicServer, client: anthropic.AsyncAnthropic) -> None:
    messages: list[Any] = [user('please [[tool look {"at": "sky"}]] and [[tool look]]')]
    first = await client.messages.create(
        model=MODEL, max_tokens=99, messages=messages, tools=[LOOK]
    )
    assert first.stop_reason == "tool_use"
    calls = [b for b in first.content if b.type == "tool_use"]
    assert [c.input for c in calls] == [{"at": "sky"}, {}]
    messages.append(assistant([b.model_dump(exclude_none=True) for b in first.content]))
    messages.append(user([result(c.id, f"blue {i}") for i, c in enumerate(calls)]))
    second = await client.messages.create(
        model=MODEL, max_tokens=99, messages=messages, tools=[LOOK]
    )
    assert second.content[0].text == "tool said: blue 0 | blue 1"
    assert server.rejected == []


async def _thinking_turns(client: anthropic.AsyncAnthropic, n: int) -> list[Any]:
    """A conversation of n answered turns with thinking, ending in an assistant message."""
    messages: list[Any] = []
    for i in range(n):
        messages.append(user(f"question {i}"))
        answer = await client.messages.create(
            model=MODEL,
            max_tokens=999,
            messages=messages,
            system="be kind",
            tools=[LOOK],
            thinking={"type": "adaptive"},
        )
        assert [b.type for b in answer.content] == ["thinking", "text"]
        messages.append(assistant([b.model_dump(exclude_none=True) for b in answer.content]))
    return messages


async def _ask(client: anthropic.AsyncAnthropic, messages: list[Any], **changes: Any) -> Any:
    fields: Json = {"system": "be kind", "tools": [LOOK], "thinking": {"type": "adaptive"}}
    return await client.messages.create(
        model=MODEL, max_tokens=999, messages=[*messages, user("next")], **{**fields, **changes}
    )


async def test_thinking_round_trip(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    messages = await _thinking_turns(client, 3)
    # The same request in another notation: block lists, cache marks, split system.
    for message in messages:
        if isinstance(message["content"], str):
            message["content"] = [marked(message["content"])]
    await _ask(client, messages, system=[text("be kind")])
    # A thought may be missing, as long as none stands behind it.
    messages[-1]["content"] = messages[-1]["content"][1:]
    await _ask(client, messages)
    assert server.rejected == []


async def test_streamed_thinking_comes_back_valid(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Answer([thinking("one"), redacted_thinking(), text("said"), thinking("two")]))
    async with client.messages.stream(
        model=MODEL, max_tokens=99, messages=[user()], thinking={"type": "adaptive"}
    ) as stream:
        answer = await stream.get_final_message()
    assert [b.type for b in answer.content] == [
        "thinking",
        "redacted_thinking",
        "text",
        "thinking",
    ]
    blocks = [b.model_dump(exclude_none=True, exclude={"parsed_output"}) for b in answer.content]
    await client.messages.create(
        model=MODEL, max_tokens=99, messages=[user(), assistant(blocks), user("on")]
    )
    assert server.rejected == []


@pytest.mark.parametrize(
    "change",
    [
        lambda m: {"system": "be rude"},
        lambda m: {"tools": [{**LOOK, "description": "Other."}]},
        lambda m: m[0].update(content="changed") or {},
        lambda m: m.pop(0) and m.pop(0) and {},
        lambda m: m[1].update(content=m[1]["content"][1:]) or {},
    ],
    ids=["system", "tools", "message", "cut", "earlier thought removed"],
)
async def test_thinking_behind_another_prefix_is_refused(
    server: AnthropicServer, client: anthropic.AsyncAnthropic, change: Any
) -> None:
    messages = await _thinking_turns(client, 2)
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        await _ask(client, messages, **change(messages))
    assert [r.rule for r in server.rejected] == ["binding"]


async def test_drop_block_drops_and_reports(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    messages = await _thinking_turns(client, 2)
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    answer = await client.beta.messages.create(
        model=MODEL,
        max_tokens=999,
        messages=[*messages, user("next")],
        system="be rude",
        tools=[LOOK],
        thinking=drop,
        betas=[BINDING],
    )
    assert [(t.path, t.reason) for t in answer.input_transformations or []] == [
        ("messages.1.content.0", "prefix_binding_mismatch"),
        ("messages.3.content.0", "prefix_binding_mismatch"),
    ]
    assert server.rejected == []
    assert len(server.requests[-1].transformations) == 2
    # The plain stream carries the report too.
    async with client.messages.stream(
        model=MODEL,
        max_tokens=999,
        messages=[*messages, user("next")],
        thinking=drop,
        extra_headers={"anthropic-beta": BINDING},
    ) as stream:
        message = await stream.get_final_message()
    assert len(message.input_transformations) == 2  # type: ignore[attr-defined]


async def test_a_changed_thought_is_refused(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    messages = await _thinking_turns(client, 2)
    messages[1]["content"][0]["thinking"] += "!"
    with pytest.raises(
        anthropic.BadRequestError, match=r"messages\.1\.content\.0: Invalid `signature`"
    ):
        await _ask(client, messages)
    messages[1]["content"][0]["thinking"] = messages[1]["content"][0]["thinking"][:-1]
    messages[3]["content"][0]["thinking"] += "!"
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        await _ask(client, messages)


async def test_a_thought_of_another_model_is_dropped_silently(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    messages = await _thinking_turns(client, 1)
    await client.messages.create(
        model="claude-haiku-5-5", max_tokens=99, messages=[*messages, user("next")]
    )
    assert server.requests[-1].transformations[0]["reason"] == "model_binding_mismatch"
    assert server.rejected == []


async def test_a_restarted_server_knows_old_thoughts() -> None:
    async with AnthropicServer() as one, client_of(one) as sdk:
        messages = await _thinking_turns(sdk, 1)
    async with AnthropicServer() as two, client_of(two) as sdk:
        await _ask(sdk, messages)
        assert two.rejected == []


async def test_hidden_thoughts(server: AnthropicServer, client: anthropic.AsyncAnthropic) -> None:
    answer = await client.messages.create(
        model=MODEL,
        max_tokens=99,
        messages=[user()],
        thinking={"type": "adaptive", "display": "omitted"},
    )
    assert answer.content[0].type == "thinking"
    assert answer.content[0].thinking == ""
    assert answer.content[0].signature
    assert answer.usage.output_tokens_details is not None


async def test_between_tools_thinks_only_there(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    fields: Json = {"model": MODEL, "max_tokens": 99, "thinking": {"type": "between_tools"}}
    first = await client.messages.create(messages=[user()], **fields)
    assert [b.type for b in first.content] == ["text"]
    second = await client.messages.create(
        messages=[*TOOL_TURN, user([result()])], tools=[LOOK], **fields
    )
    assert [b.type for b in second.content] == ["thinking", "text"]


async def test_on_demand_compaction_keeps_kept_thoughts_valid(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    messages = await _thinking_turns(client, 3)
    fields: Json = {"model": MODEL, "max_tokens": 999, "system": "be kind", "tools": [LOOK]}
    packed = await client.beta.messages.create(
        messages=messages[:2],
        compaction={"type": "summarize"},
        betas=["compact-2026-09-04"],
        thinking={"type": "adaptive"},
        **fields,
    )
    assert packed.stop_reason == "compaction"
    block = packed.content[0].model_dump(exclude_none=True)
    assert block["type"] == "compaction"
    assert packed.usage.input_tokens == 0
    assert packed.usage.iterations is not None
    await client.beta.messages.create(
        messages=[assistant([block]), *messages[2:], user("next")],
        betas=["compact-2026-09-04"],
        **fields,
    )
    assert server.rejected == []
    with pytest.raises(anthropic.BadRequestError, match="different conversation"):
        await client.beta.messages.create(
            messages=[assistant([block]), *messages[4:], user("next")],
            betas=["compact-2026-09-04"],
            **fields,
        )


# -- the cache ---------------------------------------------------------------------------------


def _cached_body(n: int, ttl: str = "5m") -> Json:
    """Turn n of a conversation with a mark on the system prompt and on the last message."""
    messages = []
    for i in range(n):
        messages.append(user([text(f"question {i} " + "x" * 4000)]))
        messages.append(assistant([text(f"answer {i}")]))
    messages.append(user([marked(f"question {n} " + "x" * 4000, ttl)]))
    return request_body(*messages, system=[marked("s" * 8000, ttl)])


async def test_cache_numbers_over_three_turns(client: anthropic.AsyncAnthropic) -> None:
    async with AnthropicServer(clock=lambda: 0.0) as server, client_of(server) as sdk:
        usages = []
        for n in range(3):
            answer = await sdk.messages.create(**_cached_body(n))
            usages.append(answer.usage)
        sizes = [u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens
                 for u in usages]  # fmt: skip
        assert [u.input_tokens for u in usages] == [0, 0, 0]
        assert [u.cache_read_input_tokens for u in usages] == [0, sizes[0], sizes[1]]
        assert usages[0].cache_creation_input_tokens == sizes[0]
        assert usages[2].cache_creation.ephemeral_5m_input_tokens == sizes[2] - sizes[1]
        assert usages[2].cache_creation.ephemeral_1h_input_tokens == 0
        assert sizes == [r.input_tokens for r in server.requests]

        server.advance(301)
        cold = (await sdk.messages.create(**_cached_body(2))).usage
        assert (cold.cache_read_input_tokens, cold.cache_creation_input_tokens) == (0, sizes[2])
        # A hit renews the entry.
        for _ in range(3):
            server.advance(200)
            warm = (await sdk.messages.create(**_cached_body(2))).usage
            assert warm.cache_read_input_tokens == sizes[2]


async def test_cache_details() -> None:
    async with AnthropicServer() as server, client_of(server) as sdk:
        hour = (await sdk.messages.create(**_cached_body(0, "1h"))).usage
        assert hour.cache_creation.ephemeral_1h_input_tokens == hour.cache_creation_input_tokens > 0
        server.advance(3000)
        assert (await sdk.messages.create(**_cached_body(0, "1h"))).usage.cache_read_input_tokens

        small = request_body(user([marked("x" * 4000)]), system="t")
        usage = (await sdk.messages.create(**small)).usage
        assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (0, 0)

        other = _cached_body(0, "1h") | {"model": "claude-haiku-5-5"}
        assert (await sdk.messages.create(**other)).usage.cache_read_input_tokens == 0

        # The tools stand in front of everything.
        tools = _cached_body(0, "1h") | {"tools": [LOOK]}
        assert (await sdk.messages.create(**tools)).usage.cache_read_input_tokens == 0

        # Another thinking setting keeps the system prompt but not the messages.
        system = round(8000 / 4) + 4
        think = _cached_body(0, "1h") | {"thinking": {"type": "adaptive"}}
        assert (await sdk.messages.create(**think)).usage.cache_read_input_tokens == system


@pytest.mark.parametrize(("added", "hit"), [(18, True), (19, True), (20, False), (25, False)])
async def test_cache_looks_back_20_blocks(added: int, hit: bool) -> None:
    head = text("h" * 40_000)
    async with AnthropicServer() as server, client_of(server) as sdk:
        first = [user([{**head, "cache_control": {"type": "ephemeral"}}])]
        await sdk.messages.create(model=MODEL, max_tokens=9, messages=first)
        blocks = [text(f"block {i}") for i in range(added - 1)]
        second = [user([head, *blocks, marked("last")])]
        usage = (await sdk.messages.create(model=MODEL, max_tokens=9, messages=second)).usage
        assert bool(usage.cache_read_input_tokens) is hit


async def test_automatic_cache_mark(client: anthropic.AsyncAnthropic) -> None:
    fields: Json = {"model": MODEL, "max_tokens": 9, "cache_control": {"type": "ephemeral"}}
    first = await client.messages.create(messages=[user("x" * 8000)], **fields)
    assert first.usage.cache_creation_input_tokens == 2004
    second = await client.messages.create(
        messages=[user("x" * 8000), assistant(), user("more")], **fields
    )
    assert second.usage.cache_read_input_tokens == 2004


# -- faults ------------------------------------------------------------------------------------


async def _stream_all(client: anthropic.AsyncAnthropic, **fields: Any) -> Any:
    body: Json = {"model": MODEL, "max_tokens": 99, "messages": [user()], **fields}
    async with client.messages.stream(**body) as stream:
        return await stream.get_final_message()


async def _create(client: anthropic.AsyncAnthropic) -> Any:
    return await client.messages.create(model=MODEL, max_tokens=9, messages=[user()])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("fault", "kind", "wire_type"),
    [
        ("401", anthropic.AuthenticationError, "authentication_error"),
        ("402", anthropic.APIStatusError, "billing_error"),
        ("403", anthropic.PermissionDeniedError, "permission_error"),
        ("404", anthropic.NotFoundError, "not_found_error"),
        ("408", anthropic.APIStatusError, "timeout_error"),
        ("409", anthropic.ConflictError, "conflict_error"),
        ("413", anthropic.APIStatusError, "request_too_large"),
        ("429", anthropic.RateLimitError, "rate_limit_error"),
        ("500", anthropic.InternalServerError, "api_error"),
        ("502", anthropic.InternalServerError, None),
        ("503", anthropic.InternalServerError, "api_error"),
        ("529", anthropic.InternalServerError, "overloaded_error"),
    ],
)
async def test_http_faults(
    server: AnthropicServer,
    client: anthropic.AsyncAnthropic,
    fault: str,
    kind: type[anthropic.APIStatusError],
    wire_type: str | None,
    streamed: bool,
) -> None:
    server.script(Fault(fault, retry_after=7) if fault == "429" else Fault(fault))
    ask = _stream_all if streamed else _create
    with pytest.raises(kind) as caught:
        await ask(client)
    assert caught.value.status_code == int(fault)
    assert caught.value.type == wire_type
    assert server.requests[-1].verdict == "fault"
    if fault == "429":
        assert caught.value.response.headers["retry-after"] == "7"
    if fault == "529":
        assert type(caught.value).__name__ == "OverloadedError"
    if fault == "413":
        assert type(caught.value).__name__ == "ContentTooLargeError"
    await _stream_all(client)  # one request only


async def _collect(client: anthropic.AsyncAnthropic, said: list[str]) -> None:
    async with client.messages.stream(model=MODEL, max_tokens=99, messages=[user()]) as stream:
        async for part in stream.text_stream:
            said.append(part)


async def test_in_band_error(server: AnthropicServer, client: anthropic.AsyncAnthropic) -> None:
    server.script(Fault("stream_error", text="The three causes are"))
    said: list[str] = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        await _collect(client, said)
    assert said
    assert caught.value.status_code == 200
    assert caught.value.type == "overloaded_error"
    assert type(caught.value) is anthropic.APIStatusError
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", ["drop_text", "drop_tool"])
async def test_a_dropped_stream(
    server: AnthropicServer, client: anthropic.AsyncAnthropic, fault: str
) -> None:
    server.script(Fault(fault))
    with pytest.raises(httpx2.RemoteProtocolError) as caught:
        await _stream_all(client, tools=[LOOK])
    assert not isinstance(caught.value, anthropic.APIError)


async def test_other_lost_connections(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("reset_text"), Fault("drop"), Fault("drop_text"))
    with pytest.raises(httpx2.HTTPError):
        await _stream_all(client)
    with pytest.raises(anthropic.APIConnectionError):
        await _stream_all(client)
    with pytest.raises((anthropic.APIConnectionError, httpx2.HTTPError)):
        await client.messages.create(model=MODEL, max_tokens=9, messages=[user()])
    assert [r.verdict for r in server.requests] == ["fault"] * 3


async def test_a_clean_end_before_message_stop(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("eof"), Fault("eof_tool"), Fault("eof", after=0))
    cut = await _stream_all(client)
    assert cut.stop_reason is None
    tool = await _stream_all(client, tools=[LOOK])
    assert tool.stop_reason is None
    assert tool.content[0].input == {"path": "a.txt"}
    empty = await _stream_all(client)
    assert empty.stop_reason is None
    assert empty.content[0].text == ""


async def test_garbage_in_a_stream(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("garbage"))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the SDK's affair
        await _stream_all(client)
    assert isinstance(caught.value, (ValueError, anthropic.AnthropicError))


async def test_slow_and_hanging(server: AnthropicServer, client: anthropic.AsyncAnthropic) -> None:
    server.script(Fault("slow", delay=0.01, pieces=5))
    started = time.monotonic()
    await _stream_all(client)
    assert time.monotonic() - started >= 0.05

    server.script(Fault("hang"), Fault("hang_text"))
    for wanted in ("reply to: hi", "The three causes"):
        task = asyncio.ensure_future(_stream_all(client))
        assert await server.wait_for(len(server.requests) + 1)
        await asyncio.sleep(0.05)
        assert not task.done()
        server.release()
        answer = await task
        assert wanted in answer.content[0].text
        assert answer.stop_reason == "end_turn"

    server.script(Fault("hang"))
    with pytest.raises(anthropic.APITimeoutError):
        await _stream_all(client.with_options(timeout=0.1))
    assert await server.wait_idle(5)
    assert server.requests[-1].client_gone


@pytest.mark.parametrize(
    ("fault", "types", "reason"),
    [
        ("empty", [], "end_turn"),
        ("whitespace", ["text"], "end_turn"),
        ("null_text", ["text"], "end_turn"),
        ("only_thinking", ["thinking"], "end_turn"),
        ("only_tool", ["tool_use"], "tool_use"),
        ("refusal", [], "refusal"),
        ("refusal_text", ["text"], "refusal"),
        ("max_tokens", ["text"], "max_tokens"),
        ("max_tokens_thinking", ["thinking"], "max_tokens"),
        ("max_tokens_tool", ["tool_use", "tool_use"], "max_tokens"),
        ("pause_turn", ["text"], "pause_turn"),
        ("window_exceeded", ["text"], "model_context_window_exceeded"),
        ("stop_null", ["text"], None),
        ("stop_unknown", ["text"], "brand_new"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_odd_answers(
    server: AnthropicServer,
    client: anthropic.AsyncAnthropic,
    fault: str,
    types: list[str],
    reason: str | None,
    streamed: bool,
) -> None:
    server.script(Fault(fault))
    body: Json = {"model": MODEL, "max_tokens": 99, "messages": [user()], "tools": [LOOK]}
    if streamed:
        answer = await _stream_all(client, tools=[LOOK])
    else:
        answer = await client.messages.create(**body)
    assert [b.type for b in answer.content] == types
    assert answer.stop_reason == reason
    if fault == "max_tokens_tool":
        assert answer.content[-1].input == {"path": "a.txt"}


async def test_a_paused_turn_goes_on(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("pause_turn"), "done")
    paused = await client.messages.create(model=MODEL, max_tokens=9, messages=[user()])
    back = assistant([b.model_dump(exclude_none=True) for b in paused.content])
    done = await client.messages.create(model=MODEL, max_tokens=9, messages=[user(), back])
    assert done.content[0].text == "done"
    back["content"][0]["text"] += "?"
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        await client.messages.create(model=MODEL, max_tokens=9, messages=[user(), back])


async def test_html_with_status_200(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("html200"), Fault("html200"))
    answer: Any = await client.messages.create(model=MODEL, max_tokens=9, messages=[user()])
    assert isinstance(answer, str)  # the SDK hands the page over as it is
    with pytest.raises(AssertionError):
        await _stream_all(client)


async def test_scripted_overflow_texts(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    server.script(Fault("too_long"), Fault("output_too_long"))
    with pytest.raises(
        anthropic.BadRequestError, match="prompt is too long: 233153 tokens > 200000 maximum"
    ):
        await _stream_all(client)
    with pytest.raises(anthropic.BadRequestError, match=r"188240 \+ 99 > 200000"):
        await _stream_all(client)


# -- scripts and responders --------------------------------------------------------------------


async def test_rules_queues_and_responders(server: AnthropicServer) -> None:
    async def shout(request: Any) -> Answer:
        return Answer(request.last_user_text.upper())

    async with client_of(server) as sdk:

        async def ask(words: str, system: str = "s") -> str:
            answer = await sdk.messages.create(
                model=MODEL, max_tokens=999, messages=[user(words)], system=system
            )
            return answer.content[0].text

        server.when(Match(text="magic"), "matched", times=2)
        server.script("first", shout)
        server.script_summary("short summary")
        assert server.pending() == 5
        assert await ask("magic") == "matched"
        assert await ask("x", SUMMARY_MARK) == "short summary"
        assert await ask("plain") == "first"
        assert await ask("loud") == "LOUD"
        assert await ask("plain") == "reply to: plain"
        assert await ask("more magic") == "matched"
        assert await ask("more magic") == "reply to: more magic"
        server.responder = shout
        assert await ask("again") == "AGAIN"
        server.fault_next("529", times=2, summary=True)
        for _ in range(2):
            with pytest.raises(anthropic.InternalServerError):
                await ask("x", SUMMARY_MARK)
        assert await ask("still") == "STILL"
        assert server.pending() == 0
        with pytest.raises(ValueError, match="unknown fault"):
            server.script(Fault("stream_eror"))
        assert len(server.summary_requests) == 3
        assert len(server.main_requests) == 8


async def test_default_summary_is_well_formed(server: AnthropicServer) -> None:
    async with client_of(server) as sdk:
        words = "user: please fix src/app.py\nassistant: CANARY-77 found\nold: FACT_9"
        answer = await sdk.messages.create(
            model=MODEL,
            max_tokens=4000,
            messages=[user(words)],
            system=f"{SUMMARY_MARK} Summarise.",
        )
        summary = answer.content[0].text
        assert [line[3:] for line in summary.splitlines() if line[:3] == "## "] == list(SECTIONS)
        assert "CANARY-77 FACT_9" in summary
        assert "src/app.py" in summary
        server.settings.summary_tokens = 900
        answer = await sdk.messages.create(
            model=MODEL, max_tokens=4000, messages=[user(words)], system=f"{SUMMARY_MARK} x"
        )
        assert 850 <= answer.usage.output_tokens <= 950
        assert "CANARY-77 FACT_9" in answer.content[0].text


async def test_a_responder_that_raises_is_seen(
    server: AnthropicServer, client: anthropic.AsyncAnthropic
) -> None:
    def broken(request: Any) -> Answer:
        raise KeyError("oops")

    server.responder = broken
    with pytest.raises(anthropic.InternalServerError, match="oops"):
        await client.messages.create(model=MODEL, max_tokens=9, messages=[user()])
    assert server.requests[-1].verdict == "crashed"


async def test_usage_overrides(server: AnthropicServer, client: anthropic.AsyncAnthropic) -> None:
    numbers = {"input_tokens": 12, "cache_read_input_tokens": 150_000}
    server.script(Answer("x", usage=numbers))
    usage = (await _stream_all(client)).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (12, 150_000)


async def test_memory_is_bounded(raw: aiohttp.ClientSession) -> None:
    async with AnthropicServer(keep=3) as server:
        await post(raw, server, request_body(messages=[]))
        for _ in range(5):
            await post(raw, server, request_body())
        assert [r.number for r in server.requests] == [4, 5, 6]
        assert [r.number for r in server.rejected] == [1]
        assert server.stats()["requests"] == 6


def test_common_prefix_sees_content_not_marks() -> None:
    first = request_body(user("a"), assistant("b"), user("c"), system="s")
    second = request_body(
        user([marked("a")]), assistant([text("b")]), user("d"), system=[marked("s")]
    )
    assert common_prefix(first, second) == (3, 4, 4)


def test_image_sizes_of_all_types() -> None:
    assert sniff(b"GIF89a" + struct.pack("<HH", 7, 9)) == ("image/gif", (7, 9))
    jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08" + struct.pack(">HH", 9, 7) + b"\0" * 12
    assert sniff(jpeg) == ("image/jpeg", (7, 9))
    extended = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x06\0\0" + b"\x08\0\0"
    assert sniff(extended) == ("image/webp", (7, 9))
    lossless = b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 5 + (6 | 8 << 14).to_bytes(4, "little")
    assert sniff(lossless) == ("image/webp", (7, 9))
    assert sniff(b"junk") == (None, None)


# -- as a process ------------------------------------------------------------------------------


@pytest.fixture
def process(tmp_path: Path) -> Any:
    port_file = tmp_path / "port"
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.fakes.anthropic_server", "--window", "50000"),
            *("--port-file", str(port_file), "--keep", "5", "--fault-next", "529:1"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line.startswith("listening http://127.0.0.1:")
    yield line.split()[1]
    started.terminate()
    assert started.wait(10) == 0
    started.stdout.close()


async def test_the_process_and_its_control_api(process: str, raw: aiohttp.ClientSession) -> None:
    async def control(path: str, body: Json | None = None) -> Json:
        url = f"{process}/_control/{path}"
        sending = raw.get(url) if body is None else raw.post(url, json=body)
        async with sending as response:
            answer = await response.json()
            return {"status": response.status, **answer}

    sdk = anthropic.AsyncAnthropic(api_key="test-key", base_url=process, max_retries=0)
    async with sdk:

        async def ask(words: str, **fields: Any) -> str:
            answer = await sdk.messages.create(
                model=MODEL, max_tokens=500, messages=[user(words)], **fields
            )
            return answer.content[0].text

        with pytest.raises(anthropic.InternalServerError):
            await ask("hi")
        items = ["429", {"text": "scripted"}, {"fault": "500"}, {"tool": "look", "input": {"a": 1}}]
        assert (await control("script", {"items": items}))["pending"] == 4
        with pytest.raises(anthropic.RateLimitError):
            await ask("hi")
        assert await ask("hi") == "scripted"
        with pytest.raises(anthropic.InternalServerError):
            await ask("hi")
        called = await sdk.messages.create(
            model=MODEL, max_tokens=50, messages=[user()], tools=[LOOK]
        )
        assert called.stop_reason == "tool_use"

        rule = {"match": {"text": "boom"}, "do": {"fault": "503"}, "times": 1}
        await control("when", rule)
        assert await ask("calm") == "reply to: calm"
        with pytest.raises(anthropic.InternalServerError):
            await ask("boom")
        await control("script", {"queue": "summary", "items": [{"fault": "empty"}]})
        summary = await sdk.messages.create(
            model=MODEL, max_tokens=50, messages=[user()], system=SUMMARY_MARK
        )
        assert summary.content == []

        assert (await control("config", {"mode": "static"}))["status"] == 200
        assert await ask("anything") == "ok"
        assert (await control("config", {"mod": "static"}))["status"] == 400
        assert (await control("script", {"items": ["nonsense"]}))["status"] == 400

        with pytest.raises(anthropic.BadRequestError):
            await ask(" ")
        stats = await control("stats")
        assert (stats["rejected"], stats["fault"], stats["summary"]) == (1, 5, 1)
        assert stats["rules"] == {"7": 1}
        assert (await control("rejected"))["requests"][0]["message"].startswith("messages: text")
        kept = (await control("requests?verdict=ok&limit=2"))["requests"]
        assert kept[-1]["body"]["messages"] == [user("anything")]
        assert (await control("wait?requests=10&idle=1&timeout=5"))["reached"]
        await control("advance", {"seconds": 400})
        assert (await control("reset", {}))["requests"] == 0
