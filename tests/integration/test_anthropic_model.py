"""The real SDK against the strict loopback server: streams, tools, thinking, cache, faults."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agent.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelBadRequest,
    ModelConnectionError,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelQuotaError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    OutputLimitTooHigh,
    RequestTooLarge,
    ThinkingMismatch,
)
from agent.llm.anthropic import AnthropicModel
from agent.llm.retry import RetryingModel, RetryPolicy
from agent.messages import Message, ToolSchema, text_of, without_thinking
from agent.ports import ModelRequest, ModelResponse
from gateway.probing import model as probing
from tests.fakes.anthropic_server import (
    Answer,
    AnthropicServer,
    Fault,
    ModelFacts,
    common_prefix,
    redacted_thinking,
    text,
    thinking,
    tool_use,
)
from tests.fakes.clock import FakeClock

MODEL = "claude-sonnet-5-5"
TOOL = ToolSchema(
    "lookup",
    "Looks something up.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
OTHER = ToolSchema("another", "Another one.")


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


def model_for(server: AnthropicServer, clock: FakeClock, **options: Any) -> AnthropicModel:
    options.setdefault("api_key", server.api_key)
    return AnthropicModel(MODEL, base_url=server.base_url, clock=clock, **options)


@pytest.fixture
async def model(server: AnthropicServer, clock: FakeClock) -> AsyncIterator[AnthropicModel]:
    async with contextlib.aclosing(model_for(server, clock)) as made:
        yield made


def user(content: Any = "hello") -> Message:
    return {"role": "user", "content": content}


def result(call_id: str, content: str = "found it") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "name": "lookup", "content": content}


def request(*messages: Message, **fields: Any) -> ModelRequest:
    fields = {"system": "You help.", "max_tokens": 500, "tools": (TOOL, OTHER)} | fields
    return ModelRequest(messages=messages or (user(),), **fields)


async def failure(model: Any, asked: ModelRequest | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.respond(asked or request())
    return caught.value


# --- answers


async def test_text_is_streamed_and_given_back_whole(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    said = "Grüße 😀, 你好. " * 20
    server.script(Answer(said, pieces=40))
    shown: list[str] = []
    response = await model.respond(request(), on_text=shown.append)
    assert without_thinking(response.message) == {"role": "assistant", "content": said}
    assert "".join(shown) == said
    assert len(shown) > 10
    assert response.stop_reason == "end_turn"
    assert response.usage is not None
    assert response.usage.prompt_tokens == server.requests[0].input_tokens
    assert server.warnings == []


async def test_every_request_asks_for_a_stream_so_no_answer_is_too_long_to_ask_for(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    await model.respond(request(max_tokens=64_000))
    await model.respond(
        request(max_tokens=64_000, system="[posthouse:summary] Condense.", tools=())
    )
    assert [r.stream for r in server.requests] == [True, True]


async def test_a_tool_loop_with_thinking_replays_the_blocks_as_they_came(
    server: AnthropicServer, clock: FakeClock
) -> None:
    async with contextlib.aclosing(
        model_for(server, clock, thinking={"type": "adaptive"})
    ) as model:
        first, second = tool_use("lookup", {"q": '界 "quoted" \\n'}), tool_use("another")
        server.script(
            Answer(
                [thinking("Let me look. 😀"), redacted_thinking(), text("Looking."), first, second]
            ),
            Answer([thinking("So that is it."), text("Here it is.")]),
            Answer("And more."),
        )
        messages: list[Message] = [user()]
        response = await model.respond(request(*messages))
        assert response.stop_reason == "tool_use"
        assert [c["function"]["name"] for c in response.message["tool_calls"]] == [
            "lookup",
            "another",
        ]
        messages += [response.message, result(first["id"]), result(second["id"], "")]
        messages.append((await model.respond(request(*messages))).message)
        messages.append(user("and more?"))
        await model.respond(request(*messages))
    assert server.rejected == []
    replayed = server.requests[-1].messages[1]["content"]
    assert replayed == server.requests[0].answer
    sent = [r.body for r in server.requests]
    for before, after in itertools.pairwise(sent):
        shared, had, _ = common_prefix(before, after)
        assert shared == had


async def test_messages_survive_a_store_as_json(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.script(
        Answer([thinking("deep"), text("said"), tool_use("lookup", {"q": "x", "n": 1.5})])
    )
    response = await model.respond(request())
    assert json.loads(json.dumps(response.message)) == response.message


async def test_thinking_behind_another_prefix_is_named_and_a_copy_without_it_passes(
    server: AnthropicServer, clock: FakeClock
) -> None:
    async with contextlib.aclosing(model_for(server, clock, drop_unbound_thinking=False)) as model:
        server.script(Answer([thinking("deep"), text("said")], thinking=False))
        response = await model.respond(request())
        moved = [user("something else"), response.message, user("go on")]
        assert isinstance(await failure(model, request(*moved)), ThinkingMismatch)
        moved[1] = without_thinking(moved[1])
        await model.respond(request(*moved))


@pytest.mark.parametrize("name", ["claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-1"])
async def test_unbound_thinking_is_dropped_where_the_family_binds_it(
    server: AnthropicServer, clock: FakeClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level("INFO")
    model = AnthropicModel(name, api_key=server.api_key, base_url=server.base_url, clock=clock)
    async with contextlib.aclosing(model):
        server.script(Answer([thinking("deep"), text("said")]))
        response = await model.respond(request())
        again = await model.respond(request(user("another"), response.message, user("go on")))
    assert server.requests[-1].transformations
    assert again.dropped_thinking == 1
    assert "The provider dropped thinking" in caplog.messages
    assert server.rejected == []


@pytest.mark.parametrize("name", ["claude-sonnet-5", "claude-opus-4-8", "claude-haiku-4-5"])
async def test_other_models_are_asked_as_ever(
    server: AnthropicServer, clock: FakeClock, name: str
) -> None:
    model = AnthropicModel(name, api_key=server.api_key, base_url=server.base_url, clock=clock)
    async with contextlib.aclosing(model):
        await model.respond(request())
    assert "thinking" not in (server.requests[0].body or {})
    assert "anthropic-beta" not in server.requests[0].headers


REFUSALS = [
    "litellm.BadRequestError: BedrockException - thinking.adaptive.block_binding: Extra inputs are"
    " not permitted",
    "Unexpected value(s) `thinking-binding-controls-2026-08-01` for the `anthropic-beta` header",
    "invalid beta flag",
]


@pytest.mark.parametrize("text", REFUSALS)
async def test_an_endpoint_that_does_not_know_the_binding_is_asked_without_for_good(
    server: AnthropicServer, model: AnthropicModel, text: str
) -> None:
    server.script(Fault("400", message=text))
    assert (await model.respond(request())).stop_reason == "end_turn"
    await model.respond(request())
    sent = [r.body["thinking"] for r in server.requests if r.body]
    assert ["block_binding" in thinking for thinking in sent] == [True, False, False]
    assert [r.headers.get("anthropic-beta") is None for r in server.requests] == [
        False, True, True,
    ]  # fmt: skip


async def test_an_endpoint_that_knows_no_thinking_is_asked_without_any(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.script(
        Fault("400", message="thinking.adaptive.block_binding: Extra inputs are not permitted"),
        Fault("400", message="thinking: Extra inputs are not permitted"),
    )
    assert (await model.respond(request())).stop_reason == "end_turn"
    assert "thinking" not in (server.requests[-1].body or {})
    assert len(server.requests) == 3


async def test_a_refusal_of_something_else_is_not_sent_again(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.script(
        Fault("400", message="messages.1.content.0.thinking.foo: Extra inputs are not permitted")
    )
    assert isinstance(await failure(model), ModelBadRequest)
    assert len(server.requests) == 1


async def test_side_tasks_think_as_the_model_likes(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    await model.respond(request(side_task=True))
    assert "thinking" not in (server.requests[0].body or {})


async def test_adaptive_thinking_is_a_budget_where_the_family_takes_budgets(
    server: AnthropicServer, clock: FakeClock
) -> None:
    model = AnthropicModel(
        "claude-haiku-4-5",
        api_key=server.api_key,
        base_url=server.base_url,
        clock=clock,
        thinking={"type": "adaptive"},
    )
    async with contextlib.aclosing(model):
        await model.respond(request(max_tokens=8000))
        await model.respond(request(max_tokens=2000))
    first, second = (r.body or {} for r in server.requests)
    assert first["thinking"]["type"] == "enabled"
    assert "thinking" not in second  # no room for it
    assert server.rejected == []


async def test_the_providers_diagnosis_of_the_cache_is_asked_for_and_read(
    server: AnthropicServer, clock: FakeClock
) -> None:
    server.settings.diagnosis = "tools_changed"
    async with contextlib.aclosing(model_for(server, clock, diagnoses=True)) as model:
        first = await model.respond(request(cache_ttl="5m"))
        again = await model.respond(request(cache_ttl="5m", previous_answer_id=first.answer_id))
        server.settings.diagnosis = None
        pending = await model.respond(request(cache_ttl="5m"))
        await model.respond(request(cache_ttl="5m", side_task=True))
    assert first.answer_id.startswith("msg_")
    assert (again.cache_diagnosis, pending.cache_diagnosis) == ("tools", "")
    asked = [(r.body or {}).get("diagnostics") for r in server.requests]
    assert asked == [
        {"previous_message_id": None},
        {"previous_message_id": first.answer_id},
        {"previous_message_id": None},
        None,
    ]


async def test_a_diagnosis_that_nobody_gives_is_not_asked_for_again(
    server: AnthropicServer, clock: FakeClock
) -> None:
    async with contextlib.aclosing(model_for(server, clock, diagnoses=True)) as model:
        server.script(Fault("400", message="diagnostics: Extra inputs are not permitted"))
        for _ in range(2):
            await model.respond(request(cache_ttl="5m"))
    asked = ["diagnostics" in (r.body or {}) for r in server.requests]
    assert asked == [True, False, False]


async def test_elsewhere_than_on_the_native_api_no_diagnosis_is_asked_for(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    await model.respond(request(cache_ttl="5m"))
    assert "diagnostics" not in (server.requests[0].body or {})


async def test_models_without_cache_marks_get_none(
    server: AnthropicServer, clock: FakeClock
) -> None:
    facts = ModelFacts("kimi-k3")
    async with AnthropicServer(models=[facts]) as other:
        model = AnthropicModel(
            "kimi-k3", api_key=other.api_key, base_url=other.base_url, clock=clock
        )
        async with contextlib.aclosing(model):
            await model.respond(request(cache_ttl="5m"))
        assert "cache_control" not in json.dumps(other.requests[0].body)


async def test_thinking_with_a_budget_is_left_out_when_the_open_loop_lost_it(
    server: AnthropicServer, clock: FakeClock
) -> None:
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    async with contextlib.aclosing(model_for(server, clock, **options)) as model:
        call = tool_use("lookup", {"q": "x"})
        server.script(Answer([thinking("deep"), call]), "done")
        response = await model.respond(request(max_tokens=4000))
        assert server.requests[0].body is not None
        assert server.requests[0].body["thinking"]["type"] == "enabled"
        stripped = without_thinking(response.message)
        await model.respond(request(user(), stripped, result(call["id"]), max_tokens=4000))
    assert server.rejected == []
    assert "thinking" not in server.requests[1].messages[-1]


async def test_the_cache_is_read_up_to_the_end_of_the_request_before(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    messages: list[Message] = [user("x" * 8000)]
    asked = request(*messages, system="s" * 8000, cache_ttl="5m")
    usages = []
    for n in range(5):
        calls = [tool_use("lookup", {"q": f"{n}.{i}"}) for i in range(25 if n == 2 else 2)]
        server.script(Answer([text("Looking."), *calls]))
        response = await model.respond(dataclasses.replace(asked, messages=tuple(messages)))
        usages.append(response.usage)
        messages.append(response.message)
        messages += [result(c["id"], "y" * 400) for c in calls]
    assert usages[0].cache_read_tokens == 0
    for before, after in itertools.pairwise(usages):
        # More than 20 blocks in one step (the third) must not lose the entry either.
        assert after.cache_read_tokens == before.prompt_tokens
        assert after.input_tokens == 0


async def test_no_marks_without_a_lifetime(server: AnthropicServer, model: AnthropicModel) -> None:
    await model.respond(request(cache_ttl=None))
    assert "cache_control" not in json.dumps(server.requests[0].body)


async def test_one_lifetime_in_a_request(server: AnthropicServer, model: AnthropicModel) -> None:
    await model.respond(request(cache_ttl="1h"))
    marks = json.dumps(server.requests[0].body).count('"ttl": "1h"')
    assert marks == json.dumps(server.requests[0].body).count("cache_control") == 2


async def test_size_and_window_are_asked_from_the_provider(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    assert await model.count_tokens(request(user("x" * 4000))) == pytest.approx(1050, abs=60)
    assert await model.window_tokens() == 1_000_000


async def test_an_answer_is_never_asked_longer_than_the_model_can(
    clock: FakeClock,
) -> None:
    facts = ModelFacts(MODEL, window=50_000, max_output=2000)
    async with (
        AnthropicServer(models=[facts]) as server,
        contextlib.aclosing(model_for(server, clock)) as model,
    ):
        error = await failure(model, request(max_tokens=8000))
        assert isinstance(error, OutputLimitTooHigh)
        assert error.limit_tokens == 2000
        assert await model.window_tokens() == 50_000
        await model.respond(request(max_tokens=8000))
        assert server.requests[-1].body is not None
        assert server.requests[-1].body["max_tokens"] == 2000


async def test_a_refused_length_is_learned_for_the_next_request(clock: FakeClock) -> None:
    facts = ModelFacts(MODEL, window=50_000, max_output=2000)
    async with (
        AnthropicServer(models=[facts]) as server,
        contextlib.aclosing(model_for(server, clock)) as model,
    ):
        await failure(model, request(max_tokens=8000))
        await model.respond(request(max_tokens=8000))
        server.script(Fault("400", message="max_tokens: 2000 > 1, which is the maximum"))
        await failure(model, request(max_tokens=8000))
        await model.respond(request(max_tokens=8000))
        asked = [r.body["max_tokens"] for r in server.requests if r.body]
    assert asked == [8000, 2000, 2000, 2000]


async def test_an_unknown_window_is_none(clock: FakeClock, server: AnthropicServer) -> None:
    model = AnthropicModel("claude-unheard-of", api_key="k", base_url=server.base_url, clock=clock)
    async with contextlib.aclosing(model):
        assert await model.window_tokens() is None
        assert await model.count_tokens(request()) is None


# --- failures


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("401"), ModelAuthError),
        (Fault("403"), ModelAuthError),
        (Fault("402"), ModelQuotaError),
        (Fault("400", message="Your credit balance is too low to access the API"), ModelQuotaError),
        (Fault("404"), ModelNotFound),
        (Fault("413"), RequestTooLarge),
        (Fault("400", message="messages.0.foo: Extra inputs are not permitted"), ModelBadRequest),
        (Fault("400", message="Could not process image"), RequestTooLarge),
        (Fault("422"), ModelBadRequest),
        (Fault("429", retry_after=3), ModelRateLimited),
        (Fault("408"), ModelTimeout),
        (Fault("504"), ModelTimeout),
        (Fault("409"), ModelUnavailable),
        (Fault("500"), ModelUnavailable),
        (Fault("503"), ModelUnavailable),
        (Fault("html502"), ModelUnavailable),
        (Fault("529"), ModelOverloaded),
        (Fault("stream_error"), ModelOverloaded),
        (Fault("stream_error_tool"), ModelOverloaded),
        (Fault("stream_error", type="api_error", message="Internal"), ModelUnavailable),
        (Fault("stream_error", type="rate_limit_error", message="Slow down"), ModelRateLimited),
        (Fault("stream_error", type="brand_new_error", message="?"), ModelError),
        (Fault("drop"), ModelConnectionError),
        (Fault("drop_text"), ModelConnectionError),
        (Fault("drop_tool"), ModelConnectionError),
        (Fault("reset_text"), ModelConnectionError),
        (Fault("eof"), ModelConnectionError),
        (Fault("eof_tool"), ModelConnectionError),
        (Fault("garbage"), ModelConnectionError),
        (Fault("html200"), ModelConnectionError),
        (Fault("stop_null"), ModelConnectionError),
        (Fault("too_long"), ContextOverflow),
        (Fault("output_too_long"), OutputLimitTooHigh),
    ],
    ids=repr,
)
async def test_every_fault_is_the_right_error_after_one_request(
    server: AnthropicServer, model: AnthropicModel, fault: Fault, expected: type[ModelError]
) -> None:
    server.script(fault)
    error = await failure(model)
    assert type(error) is expected or (expected is ModelError and isinstance(error, expected))
    assert len(server.requests) == 1
    assert (await model.respond(request())).stop_reason == "end_turn"


async def test_no_piece_of_the_key_is_in_any_error(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
    async with (
        AnthropicServer(api_key=key) as server,
        contextlib.aclosing(model_for(server, clock)) as model,
    ):
        for status in ("400", "401", "403", "404", "429", "500", "529"):
            server.script(Fault(status, message=f"the key {key[12:-4]}… or {key} is bad"))
            text_of_error = repr(await failure(model))
            assert not any(key[i : i + 8] in text_of_error for i in range(len(key) - 7))
    assert "abcdefgh" not in caplog.text


async def test_a_server_of_others_finds_the_key_where_it_looks(clock: FakeClock) -> None:
    async with (
        AnthropicServer(bearer_only=True) as server,
        contextlib.aclosing(model_for(server, clock)) as model,
    ):
        assert await model.window_tokens()
        asked = (server.base_url, server.api_key, MODEL)
        assert (await asyncio.to_thread(probing.ask_model, *asked)).name == MODEL


async def test_a_wrong_key_is_refused_without_words_of_the_provider(
    server: AnthropicServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with contextlib.aclosing(model_for(server, clock, api_key="wrong-key-1234")) as model:
        error = await failure(model)
        assert await model.window_tokens() is None
    assert isinstance(error, ModelAuthError)
    assert "wrong-key" not in str(error) + caplog.text
    (line,) = (r for r in caplog.records if r.levelname == "WARNING")
    assert "check ANTHROPIC_API_KEY" in line.getMessage()


async def test_a_missing_key_needs_no_request(clock: FakeClock) -> None:
    model = AnthropicModel(MODEL, api_key=None, clock=clock)
    assert isinstance(await failure(model), ModelAuthError)


async def test_overflow_names_the_window(clock: FakeClock) -> None:
    async with (
        AnthropicServer(window=8000) as server,
        contextlib.aclosing(model_for(server, clock)) as model,
    ):
        error = await failure(model, request(user("x" * 60_000)))
    assert isinstance(error, ContextOverflow)
    assert error.limit_tokens == 8000


async def test_the_wait_that_the_provider_asks_for_is_read(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.script(Fault("429", retry_after=37))
    error = await failure(model)
    assert isinstance(error, ModelRateLimited)
    assert error.retry_after_seconds == 37


async def test_nobody_listens(clock: FakeClock) -> None:
    async with AnthropicServer() as server:
        url = server.base_url
    model = AnthropicModel(MODEL, api_key="k", base_url=url, clock=clock)
    async with contextlib.aclosing(model):
        assert isinstance(await failure(model), ModelConnectionError)


@contextlib.asynccontextmanager
async def stranger(body: str, content_type: str = "application/json") -> AsyncIterator[str]:
    """A server that answers everything with this; its address."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text=body, content_type=content_type)

    server = TestServer(web.Application())
    server.app.router.add_route("*", "/{any:.*}", answer)
    async with server:
        yield str(server.make_url("")).rstrip("/")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<html>sign in first</html>", "text/html"),
        ("[]", "application/json"),
        ("null", "application/json"),
        ("{", "application/json"),
        (
            '{"input_tokens": 1.5, "max_input_tokens": "many", "max_tokens": "some"}',
            "application/json",
        ),
        ('{"input_tokens": -5, "max_input_tokens": -5, "max_tokens": 0}', "application/json"),
    ],
)
async def test_a_size_that_can_not_be_read_is_none(
    clock: FakeClock, body: str, content_type: str
) -> None:
    async with stranger(body, content_type) as url:
        model = AnthropicModel(MODEL, api_key="k", base_url=url, clock=clock)
        async with contextlib.aclosing(model):
            assert await model.window_tokens() is None
            assert await model.count_tokens(request()) is None
            assert type(await failure(model)) is ModelConnectionError


def events(start: dict[str, Any], delta: Any = "hi") -> str:
    """A stream of an answer whose message begins with these fields."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 5, "output_tokens": 1}
    block = {"index": 0, "content_block": {"type": "text", "text": ""}}
    text_delta = {"index": 0, "delta": {"type": "text_delta", "text": delta}}
    end = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
    return "".join(
        f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
        for kind, fields in (
            ("message_start", {"message": {**message, "usage": usage, **start}}),
            ("content_block_start", block),
            ("content_block_delta", text_delta),
            ("content_block_stop", {"index": 0}),
            ("message_delta", end),
            ("message_stop", {}),
        )
    )


@pytest.mark.parametrize(
    "stream",
    [
        events({}, delta=5),
        events({}, delta=None),
        events({"content": None}),
        events({"usage": None}),
        events({"input_transformations": 5}),
    ],
)
async def test_a_stream_of_the_wrong_kinds_is_no_answer(clock: FakeClock, stream: str) -> None:
    async with stranger(stream, "text/event-stream") as url:
        model = AnthropicModel(MODEL, api_key="k", base_url=url, clock=clock)
        async with contextlib.aclosing(model):
            assert type(await failure(model)) is ModelConnectionError


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK's, about the server
async def test_a_usage_in_fractions_is_whole_tokens(clock: FakeClock) -> None:
    """The store's columns hold whole numbers only."""
    stream = events({"usage": {"input_tokens": 5.5, "output_tokens": 1}})
    async with stranger(stream, "text/event-stream") as url:
        model = AnthropicModel(MODEL, api_key="k", base_url=url, clock=clock)
        async with contextlib.aclosing(model):
            usage = (await model.respond(request())).usage
    assert usage is not None
    assert [type(n) for n in dataclasses.astuple(usage)[:4]] == [int] * 4


@pytest.mark.parametrize("fault", ["hang", "hang_text", "hang_tool"])
async def test_a_silent_server_is_given_up(
    server: AnthropicServer, clock: FakeClock, fault: str
) -> None:
    server.script(Fault(fault))
    async with contextlib.aclosing(model_for(server, clock, silence_seconds=0.2)) as model:
        assert isinstance(await failure(model), ModelTimeout)


async def test_an_answer_without_end_is_given_up(server: AnthropicServer, clock: FakeClock) -> None:
    server.script(Answer("word " * 400, chunk_delay=0.05, pieces=400))
    options = {"answer_deadline_seconds": 0.3}
    async with contextlib.aclosing(model_for(server, clock, **options)) as model:
        assert isinstance(await failure(model), ModelTimeout)


async def test_a_cancelled_request_lets_its_connection_go(
    server: AnthropicServer, clock: FakeClock
) -> None:
    server.script(Fault("hang"), "here")
    options = {"max_concurrent_requests": 1}
    async with contextlib.aclosing(model_for(server, clock, **options)) as model:
        asked = asyncio.ensure_future(model.respond(request()))
        assert await server.wait_for(1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert text_of((await model.respond(request())).message["content"]) == "here"
    assert await server.wait_idle()


async def test_no_more_requests_at_once_than_allowed(
    server: AnthropicServer, clock: FakeClock
) -> None:
    server.script(*[Answer("ok", first_delay=0.02)] * 12)
    options = {"max_concurrent_requests": 3}
    async with contextlib.aclosing(model_for(server, clock, **options)) as model:
        await asyncio.gather(*(model.respond(request()) for _ in range(12)))
    assert server.records.max_in_flight <= 3


async def test_closed_while_the_sdk_loads_stays_closed(
    server: AnthropicServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_for(server, clock)
    loading, may_load = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon_threadsafe(loading.set)
        assert may_load.wait(10)

    monkeypatch.setattr("agent.llm.anthropic.preload", slow)
    asked = asyncio.ensure_future(failure(model))
    await loading.wait()
    await model.aclose()
    may_load.set()
    assert type(await asked) is ModelConnectionError
    assert server.requests == []


async def test_loading_asks_nobody_and_is_done_once(
    server: AnthropicServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_for(server, clock)
    await model.load()
    assert server.requests == []
    monkeypatch.setattr("agent.llm.anthropic.preload", lambda: pytest.fail("loaded again"))
    await model.load()
    server.script("here")
    assert text_of((await model.respond(request())).message["content"]) == "here"
    await model.aclose()
    with pytest.raises(ModelConnectionError):
        await model.load()


async def test_a_rehearsal_that_fails_keeps_nobody_from_asking(
    server: AnthropicServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        import anthropic

        raise anthropic.AnthropicError("an answer of another kind was expected")

    monkeypatch.setattr("agent.llm.anthropic.rehearse", fails)
    server.script("here")
    async with contextlib.aclosing(model_for(server, clock)) as model:
        with pytest.raises(ModelError):
            await model.load()
        assert text_of((await model.respond(request())).message["content"]) == "here"


def test_after_a_rehearsal_the_sdk_knows_how_answers_are_read() -> None:
    code = (
        "import sys, agent.llm.loading as loading; loading.preload()\n"
        "from anthropic.types import Message, TextBlock, Usage\n"
        "kinds = (Message, TextBlock, Usage)\n"
        "before = any(kind.__pydantic_complete__ for kind in kinds)\n"
        "loading.rehearse()\n"
        "sys.exit(before or not all(kind.__pydantic_complete__ for kind in kinds))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_closed_is_closed_twice_over(server: AnthropicServer, clock: FakeClock) -> None:
    model = model_for(server, clock)
    await model.respond(request())
    await model.aclose()
    await model.aclose()
    assert isinstance(await failure(model), ModelConnectionError)


async def test_a_lone_surrogate_anywhere_can_be_sent(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    bad = "a\ud83d b"
    call: Message = {
        "role": "assistant",
        "content": bad,
        "tool_calls": [
            {"id": "c1", "function": {"name": "lookup", "arguments": '{"q": "\\ud83d"}'}}
        ],
    }
    await model.respond(request(user(bad), call, result("c1", bad), system=bad))
    assert server.rejected == []


# --- the retry policy above it


def retrying(models: Sequence[AnthropicModel], clock: FakeClock, **policy: Any) -> RetryingModel:
    return RetryingModel(models, clock=clock, random=lambda: 0.5, policy=RetryPolicy(**policy))


async def ask_through(
    model: RetryingModel, clock: FakeClock, shown: list[str]
) -> ModelResponse | ModelError:
    asked = asyncio.ensure_future(model.respond(request(), on_text=shown.append))
    while not asked.done():
        await asyncio.wait([asked], timeout=0.01)
        if clock.next_wake_seconds is not None:
            await clock.advance(clock.next_wake_seconds)
    error = asked.exception()
    assert error is None or isinstance(error, ModelError)
    return error if error is not None else asked.result()


@pytest.mark.parametrize(
    "fault", ["408", "409", "429", "500", "529", "stream_error", "drop_tool", "eof", "html502"]
)
async def test_what_heals_is_asked_again_and_shown_once(
    server: AnthropicServer, model: AnthropicModel, clock: FakeClock, fault: str
) -> None:
    server.script(Fault(fault), Fault(fault), "at last")
    shown: list[str] = []
    response = await ask_through(retrying([model], clock), clock, shown)
    assert isinstance(response, ModelResponse)
    assert (
        "".join(shown[len(shown) - shown[::-1].index("") :] if "" in shown else shown) == "at last"
    )
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", ["400", "401", "402", "403", "413", "too_long"])
async def test_what_does_not_heal_is_asked_once(
    server: AnthropicServer, model: AnthropicModel, clock: FakeClock, fault: str
) -> None:
    server.script(Fault(fault))
    assert isinstance(await ask_through(retrying([model], clock), clock, []), ModelError)
    assert len(server.requests) == 1


async def test_attempts_are_counted_once_not_multiplied_by_the_sdk(
    server: AnthropicServer, model: AnthropicModel, clock: FakeClock
) -> None:
    server.fault_next(Fault("429", retry_after=30), times=50)
    started = clock.monotonic()
    error = await ask_through(retrying([model], clock, attempts_per_model=3), clock, [])
    assert isinstance(error, ModelRateLimited)
    assert len(server.requests) == 3
    assert 60 <= clock.monotonic() - started <= 70


async def test_the_next_model_steps_in(server: AnthropicServer, clock: FakeClock) -> None:
    names = ("claude-gone-1", "claude-haiku-5-5")
    chain = [
        AnthropicModel(n, api_key=server.api_key, base_url=server.base_url, clock=clock)
        for n in names
    ]
    model = retrying(chain, clock)
    async with contextlib.aclosing(model):
        response = await ask_through(model, clock, [])
    assert isinstance(response, ModelResponse)
    assert response.model == "claude-haiku-5-5"
