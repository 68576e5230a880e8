"""Side tasks from worker threads: deadlines, shutdown, and the shape that plugins know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from agent.auxiliary_client import LoopSideModel, TaskSettings, call_llm, install
from agent.context_compressor import ContextCompressor
from agent.errors import ModelAuthError, ModelConnectionError, ModelOverloaded, ModelTimeout
from agent.llm.background import in_daemon_thread
from agent.ports import ModelResponse
from tests.fakes.scripted_model import ScriptedModel, answer
from tests.fakes.side_model import ScriptedSideModel

T = TypeVar("T")


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    install(None)
    yield
    install(None)


async def side(work: Callable[[], T]) -> T:
    return await in_daemon_thread(work, "test-side")


def complete(side_model: LoopSideModel, **options: Any) -> ModelResponse:
    options = {"system": "s", "prompt": "p", "max_tokens": 10, "timeout_seconds": 10.0} | options
    return side_model.complete(**options)


async def test_a_worker_thread_gets_its_answer() -> None:
    loop = await _loop()
    model = ScriptedModel("summary")
    response = await side(lambda: complete(LoopSideModel(model, loop)))
    assert response.message["content"] == "summary"


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_no_tools_no_marks_and_only_the_own_system_text() -> None:
    loop = await _loop()
    model = ScriptedModel("x")
    await side(lambda: complete(LoopSideModel(model, loop), system="[posthouse:summary] do"))
    body = model.bodies[0]
    assert model.requests[0].side_task
    assert "tools" not in body
    assert "cache_control" not in repr(body)
    assert body["system"] == [{"type": "text", "text": "[posthouse:summary] do"}]


async def test_the_main_model_keeps_its_fallbacks() -> None:
    loop = await _loop()
    model = ScriptedModel("x", "y", name="main")
    await side(lambda: complete(LoopSideModel(model, loop), model="main"))
    await side(lambda: complete(LoopSideModel(model, loop), model="small"))
    assert [r.model for r in model.requests] == [None, "small"]


async def test_errors_arrive_as_they_are() -> None:
    loop = await _loop()
    with pytest.raises(ModelOverloaded):
        await side(lambda: complete(LoopSideModel(ScriptedModel(ModelOverloaded("x")), loop)))


async def test_a_deadline_ends_the_request_too() -> None:
    loop = await _loop()
    model = ScriptedModel("x")
    model.gate = asyncio.Event()
    with pytest.raises(ModelTimeout):
        await side(lambda: complete(LoopSideModel(model, loop), timeout_seconds=0.05))
    model.gate.set()
    await asyncio.sleep(0)
    assert len(model.script) == 1


def test_a_loop_that_is_gone_is_no_connection() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(ModelConnectionError):
        complete(LoopSideModel(ScriptedModel("x"), loop))


def test_a_shutdown_in_the_middle_is_no_connection() -> None:
    loop = asyncio.new_event_loop()
    model = ScriptedModel("x")
    model.gate = asyncio.Event()
    asked = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        asked.set()
        try:
            complete(LoopSideModel(model, loop))
        except ModelConnectionError as exc:
            errors.append(exc)

    async def main() -> None:
        thread.start()
        while not model.requests:  # noqa: ASYNC110 - the request comes from another thread
            await asyncio.sleep(0.001)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)

    thread = threading.Thread(target=work, daemon=True)
    loop.run_until_complete(main())
    loop.close()
    thread.join(10)
    assert len(errors) == 1


async def test_waiting_for_the_loop_on_the_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="worker threads"):
        complete(LoopSideModel(ScriptedModel("x"), await _loop()))


# --- call_llm


async def test_plugins_get_the_shape_they_know() -> None:
    loop = await _loop()
    model = ScriptedModel("said", answer("cut", stop="max_tokens"))
    install(LoopSideModel(model, loop), tasks={"extraction": TaskSettings("small")})
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    answered = await side(lambda: call_llm("extraction", messages=messages, temperature=0.3))
    assert answered.choices[0].message.content == "said"
    assert answered.choices[0].finish_reason == "stop"
    assert (
        answered.usage.total_tokens
        == answered.usage.prompt_tokens + answered.usage.completion_tokens
    )
    assert model.requests[0].model == "small"
    assert model.requests[0].system == "Be brief."
    assert model.requests[0].messages[0]["content"] == "hi"
    assert "temperature" not in model.bodies[0]
    cut = await side(lambda: call_llm("unheard of", messages=messages, timeout=5, max_tokens=3))
    assert cut.choices[0].finish_reason == "length"
    assert model.requests[1].model is None
    assert model.requests[1].max_tokens == 3


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("stop_sequence", "stop"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause_turn"),
        ("None", "None"),
    ],
)
async def test_only_a_whole_answer_is_called_so(stop_reason: str, finish_reason: str) -> None:
    model = ScriptedModel(answer("I can not help with that.", stop=stop_reason))
    install(LoopSideModel(model, await _loop()))
    asked = [{"role": "user", "content": "x"}]
    found = await side(lambda: call_llm(messages=asked))
    assert found.choices[0].finish_reason == finish_reason


@pytest.mark.parametrize("stop_reason", ["refusal", "model_context_window_exceeded", "None"])
async def test_an_engine_without_a_side_model_takes_no_refusal_for_a_summary(
    stop_reason: str,
) -> None:
    model = ScriptedModel(*[answer("I can not help with that.", stop=stop_reason)] * 2)
    install(LoopSideModel(model, await _loop()))
    engine = ContextCompressor("main-model", config_context_length=20_000)
    said: list[dict[str, Any]] = [
        {"role": role, "content": f"{k} " + "words " * 300}
        for k in range(12)
        for role in ("user", "assistant")
    ]
    assert await side(lambda: engine.compress(said, current_tokens=16_000)) is said
    assert engine.last_attempt.failure == "unusable"


async def test_a_conversation_becomes_one_text() -> None:
    model = ScriptedModel("x")
    install(LoopSideModel(model, await _loop()))
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    await side(lambda: call_llm(messages=messages))
    assert (
        model.requests[0].messages[0]["content"]
        == "[USER]\none\n\n[ASSISTANT]\ntwo\n\n[USER]\nthree"
    )


def test_without_a_model_it_says_so() -> None:
    with pytest.raises(ModelAuthError, match="no model"):
        call_llm(messages=[{"role": "user", "content": "x"}])


SETTINGS = {
    "compression": TaskSettings("cheap", 30.0),
    "extraction": TaskSettings("small"),
    "lcm_summary": TaskSettings(timeout_seconds=7.0),
}


@pytest.mark.parametrize(
    ("task", "options", "model", "seconds"),
    [
        ("compression", {}, "cheap", 30.0),
        ("extraction", {}, "small", 30.0),
        ("lcm_summary", {}, "cheap", 7.0),
        ("unheard of", {}, "cheap", 30.0),
        (None, {}, "cheap", 30.0),
        ("extraction", {"model": "said", "timeout": 3}, "said", 3),
        ("lcm_summary", {"timeout": None, "model": ""}, "cheap", 7.0),
    ],
)
def test_settings_of_a_task(
    task: str | None, options: dict[str, Any], model: str, seconds: float
) -> None:
    asked = ScriptedSideModel("x")
    install(asked, tasks=SETTINGS)
    call_llm(task, messages=[{"role": "user", "content": "x"}], **options)
    assert (asked.asked[0].model, asked.asked[0].timeout_seconds) == (model, seconds)


def test_a_task_without_any_settings_has_the_main_model() -> None:
    asked = ScriptedSideModel("x")
    install(asked)
    call_llm("anything", messages=[{"role": "user", "content": "x"}])
    assert (asked.asked[0].model, asked.asked[0].timeout_seconds) == (None, 120.0)


def test_every_keyword_that_plugins_pass_is_taken() -> None:
    asked = ScriptedSideModel("said")
    install(asked)
    found = call_llm(
        task="compression",
        messages=[{"role": "user", "content": "x"}],
        provider="openrouter",
        model="m",
        base_url="http://127.0.0.1:1",
        api_key="k",
        main_runtime={"model": "other"},
        temperature=0.7,
        max_tokens=5,
        tools=[{"type": "function"}],
        timeout=1.5,
        extra_body={"a": 1},
        reasoning_config={"effort": "low"},
        api_mode="chat",
        stream=True,
        stream_options={"include_usage": True},
    )
    assert found.choices[0].message.content == "said"
    assert asked.asked[0].max_tokens == 5
