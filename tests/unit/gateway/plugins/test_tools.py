"""Plugins' tools: as the model sees them, as they are run, what comes of odd ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from agent.errors import StoreError
from agent.messages import ToolCall, text_of
from agent.ports import ToolContext
from agent.sessions import Conversation
from agent.tools.registry import ToolRegistry
from gateway.plugins.calling import PluginCalls
from gateway.plugins.collected import PluginTool
from gateway.plugins.hooks import HookDispatch
from gateway.plugins.manager import PluginManager
from gateway.plugins.tool_hooks import ToolHooks
from gateway.plugins.tools import MAX_RESULT_CHARS, ReadyTools, ready_tools
from gateway.plugins.whereabouts import Places, Whereabouts
from gateway.session_context import get_session_env
from tests.fakes.clock import FakeClock

CONTEXT = ToolContext("conv_1", "telegram:7", True, "turn_1")
SCHEMA = {
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def tool(handler: Any = lambda args: "", **more: Any) -> PluginTool:
    return PluginTool(
        **{"name": "weather", "schema": SCHEMA, "plugin": "plug", **more}, handler=handler
    )


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls = PluginCalls(self.clock)
        self.places = Places()
        self.places.note(Whereabouts("conv_1", "sess_1", "key_1"))

    async def ready(self, *tools: PluginTool, env: Mapping[str, str] | None = None) -> ReadyTools:
        return await ready_tools(tools, self.calls, self.places, env or {})

    async def said(self, given: PluginTool, **arguments: Any) -> str:
        registry = ToolRegistry((await self.ready(given)).tools)
        return await run(registry, **arguments)


async def run(registry: ToolRegistry, **arguments: Any) -> str:
    call: ToolCall = {
        "id": "c1",
        "function": {"name": "weather", "arguments": json.dumps(arguments)},
    }
    return text_of((await registry.run(call, CONTEXT)).message["content"])


async def test_a_handler_gets_its_arguments_and_the_keywords_that_it_takes() -> None:
    seen: list[Any] = []

    def plain(args: dict[str, Any]) -> str:
        seen.append((args, threading.current_thread() is threading.main_thread()))
        return '{"degrees": 20}'

    def full(args: dict[str, Any], task_id: str, **more: Any) -> str:
        lane = get_session_env("HERMES_SESSION_KEY")
        return f"{task_id} {more['conversation_id']} {more['session_id']} {lane}"

    async def later(args: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"city": args["city"], "key": get_session_env("HERMES_SESSION_KEY")}

    rig = Rig()
    assert await rig.said(tool(plain), city="Ulm") == '{"degrees": 20}'
    assert seen == [({"city": "Ulm"}, False)]
    assert await rig.said(tool(full), city="Ulm") == "conv_1 key_1 sess_1 key_1"
    assert await rig.said(tool(later), city="Ulm") == ('{"city": "Ulm", "key": "key_1"}')


async def test_where_a_resumed_turn_runs_is_looked_up() -> None:
    key = '["telegram","1","7",null,"7"]'

    async def look_up(conversation_id: str) -> Conversation | None:
        if asked:
            raise StoreError("asked twice")
        asked.append(conversation_id)
        return Conversation(conversation_id, "telegram:7", key, "sess_9", 0.0)

    def where(args: dict[str, Any], session_id: str) -> list[str]:
        platform = get_session_env("HERMES_SESSION_PLATFORM")
        return [session_id, get_session_env("HERMES_SESSION_KEY"), platform]

    asked: list[str] = []
    rig = Rig()
    rig.places = Places(look_up)
    for _ in range(2):
        said = await rig.said(tool(where), city="Ulm")
        assert json.loads(said) == ["sess_9", key, "telegram"]
    assert (await rig.places.of("conv_2")) == Whereabouts("conv_2")  # and nothing fails


async def test_arguments_are_checked_before_its_code_runs() -> None:
    said = await Rig().said(tool(lambda args: 1 / 0), city=3)
    assert "'city' must be of type string" in said


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "(no output)"),
        (None, "(no output)"),
        ('{"error": "no such city"}', '[error] {"error": "no such city"}'),
        ('{"error": "", "degrees": 1}', '{"error": "", "degrees": 1}'),
        ('{"error": "half", "degrees": 1}', '{"error": "half", "degrees": 1}'),
        ([1, {2}], '[1, "{2}"]'),
    ],
)
async def test_results_of_any_kind(given: Any, expected: str) -> None:
    assert await Rig().said(tool(lambda args: given)) == expected


async def test_a_huge_result_is_cut_before_it_is_stored() -> None:
    said = await Rig().said(tool(lambda args: "x" * (MAX_RESULT_CHARS + 5)))
    assert said.endswith("[5 characters more were let go]")


async def test_whatever_it_raises_the_model_is_told() -> None:
    def leaves(args: Any) -> None:
        raise SystemExit

    class Odd:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    rig = Rig()
    assert "weather failed" in await rig.said(tool(leaves))
    assert "weather failed" in await rig.said(tool(lambda args: Odd()))


async def test_one_that_hangs_is_given_up_and_then_not_called() -> None:
    rig, free, count = Rig(), threading.Event(), list[int]()

    def hangs(args: Any) -> None:
        count.append(1)
        free.wait()

    registry = ToolRegistry((await rig.ready(tool(hangs))).tools)
    for _ in range(2):
        task = asyncio.create_task(run(registry))
        while not task.done():
            await asyncio.sleep(0.001)
            await rig.clock.advance(30)
        assert "took longer than 120 s" in task.result()
    assert "hangs and can not be used now" in await run(registry)
    assert len(count) == 2
    free.set()


async def test_schemas_are_ours_from_then_on() -> None:
    schema: dict[str, Any] = json.loads(json.dumps(SCHEMA))
    (ready,) = (await Rig().ready(tool(schema=schema))).tools
    schema["parameters"]["properties"]["more"] = {}
    assert ready.schema.parameters["properties"] == {"city": {"type": "string"}}
    assert ready.schema.description == "The weather."


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "array"},
        {"properties": []},
        {"properties": {"a": 1}},
        {"required": "a"},
        {"properties": {"a": {"x": object()}}},
        {"properties": {"a": {"description": "x" * 40_000}}},
    ],
)
async def test_a_schema_that_can_not_be_sent_is_left_out(parameters: Any) -> None:
    ready = await Rig().ready(tool(schema={"name": "weather", "parameters": parameters}))
    assert ready.tools == ()
    assert ready.left_out == (
        "plugin plug: tool weather is not offered: its schema is no JSON schema of an object",
    )


async def test_what_a_tool_needs_is_asked_once() -> None:
    rig = Rig()
    ready = await rig.ready(
        tool(name="a", requires_env=("A_KEY",)),
        tool(name="b", check=lambda: False),
        tool(name="c", check=lambda: 1 / 0),
        tool(name="d", check=lambda: True, requires_env=("HAVE",)),
        env={"HAVE": "x", "A_KEY": " "},
    )
    assert [t.schema.name for t in ready.tools] == ["d"]
    assert [line.partition("offered: ")[2] for line in ready.left_out] == [
        "environment variables are not set: A_KEY",
        "its own check says that it can not work now",
        "check of tool c raised ZeroDivisionError",
    ]


async def test_a_check_that_hangs_leaves_out_its_tool_only() -> None:
    rig, free = Rig(), threading.Event()
    task = asyncio.create_task(rig.ready(tool(name="a", check=free.wait), tool(name="b")))
    while not task.done():
        await asyncio.sleep(0.001)
        await rig.clock.advance(1)
    assert [t.schema.name for t in task.result().tools] == ["b"]
    free.set()


async def test_in_a_conversation_with_its_own_instance_that_one_is_called() -> None:
    class Own:
        def tools_of(self, conversation_id: str) -> list[PluginTool]:
            return [tool(lambda args: "own")] if conversation_id == "conv_1" else []

    rig = Rig()
    shared = tool(lambda args: "shared")
    ready = await ready_tools([shared], rig.calls, rig.places, {}, Own())
    registry = ToolRegistry(ready.tools)
    assert await run(registry) == "own"
    (foreign,) = ready.tools
    other = ToolContext("conv_2", "telegram:7", True, "turn_1")
    assert (await foreign.run({}, other)).text == "shared"


async def test_one_that_may_takes_the_place_of_ours() -> None:
    assert (await Rig().ready(tool(override=True))).overriding == {"weather"}


# --- hooks around a call


async def hooked(rig: Rig, handler: Any = lambda args: "sunny", **hooks: Any) -> ToolRegistry:
    manager = PluginManager()
    for name, hook in hooks.items():
        manager.hooks[name] = [hook]
    registry = ToolRegistry((await rig.ready(tool(handler))).tools)
    registry.watched_by(ToolHooks(HookDispatch(manager, rig.calls), rig.places, rig.clock))
    return registry


async def test_a_hook_may_forbid_a_call() -> None:
    ran: list[int] = []
    registry = await hooked(
        Rig(),
        lambda args: ran.append(1),
        pre_tool_call=lambda tool_name, args, session_id: (
            {"action": "block", "message": f"no {tool_name} for {args['city']} in {session_id}"}
        ),
    )
    assert "no weather for Ulm in sess_1" in await run(registry, city="Ulm")
    assert ran == []


async def test_hooks_are_told_of_a_result_and_may_change_it() -> None:
    seen: list[Any] = []
    registry = await hooked(
        Rig(),
        post_tool_call=lambda tool_name, result, tool_call_id, duration_ms: seen.append(
            (tool_name, result, tool_call_id, duration_ms)
        ),
        transform_tool_result=lambda result: result.upper(),
    )
    assert await run(registry, city="Ulm") == "SUNNY"
    assert seen == [("weather", "sunny", "c1", 0)]


async def test_hooks_that_fail_change_nothing() -> None:
    registry = await hooked(
        Rig(),
        pre_tool_call=lambda **given: given["args"].update(city=3) or 1 / 0,
        transform_tool_result=lambda **given: 7,
    )
    assert await run(registry, city="Ulm") == "sunny"
