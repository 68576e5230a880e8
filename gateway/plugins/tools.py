"""Owns plugins' tools as tools of ours: checked once at the start, run on threads of plugins."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agent.errors import ToolError
from agent.keywords import accepted
from agent.messages import ToolSchema, clean_text
from agent.ports import ToolContext, ToolResult
from gateway.plugins.calling import (
    Callee,
    CallFailed,
    PluginCalls,
    Raised,
    Step,
    StillHangs,
    TookTooLong,
)
from gateway.plugins.collected import PluginTool
from gateway.plugins.schemas import usable_parameters
from gateway.plugins.whereabouts import Places

log = logging.getLogger(__name__)

SECONDS = 120.0
"""For one call."""
CHECK_SECONDS = 3.0
"""For the question whether a tool can work."""
ALL_CHECKS_SECONDS = 10.0
MAX_RESULT_CHARS = 1_000_000
"""Kept of a result; what the model is sent is capped by the registry."""
MAX_TOOLS = 128
MAX_DESCRIPTION_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class ReadyTools:
    """What the model is offered, and a line for each tool that it is not."""

    tools: tuple[ForeignTool, ...] = ()
    overriding: frozenset[str] = frozenset()
    """Names of tools of ours whose place is taken."""
    left_out: tuple[str, ...] = ()


class OwnTools(Protocol):
    """Who knows what a plugin registered once more, for the instance of one conversation."""

    def tools_of(self, conversation_id: str) -> Sequence[PluginTool]:
        """Those that are this conversation's alone."""
        ...


class ForeignTool:
    """`agent.ports.PatientTool` by a plugin."""

    deadline_seconds = None
    """It keeps to `SECONDS` itself, by the gateway's clock."""

    def __init__(
        self,
        given: PluginTool,
        schema: ToolSchema,
        calls: PluginCalls,
        places: Places,
        own: OwnTools | None = None,
    ) -> None:
        self._own = own
        self._given = given
        self._schema = schema
        self._calls = calls
        self._places = places
        self._callee = Callee(given.plugin, f"tool {given.name}")

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        where = await self._places.of(context.conversation_id)
        offered = {
            "task_id": context.conversation_id,
            "session_id": where.session_id,
            "conversation_id": where.session_key,
            "turn_id": context.turn_id,
        }
        handler = self._given.handler
        for own in self._own.tools_of(context.conversation_id) if self._own else ():
            if own.name == self._given.name:
                handler = own.handler

        def call() -> Any:
            return handler(copy.deepcopy(dict(arguments)), **accepted(handler, offered))

        name = self._given.name
        try:
            result: ToolResult = await self._calls.one(
                self._callee, call, SECONDS, then=result_of, within=where.bound
            )
        except StillHangs:
            raise ToolError(f"{name} hangs and can not be used now; go on without it") from None
        except TookTooLong:
            raise ToolError(f"{name} took longer than {SECONDS:g} s") from None
        except CallFailed as exc:
            why = f" ({exc})" if str(exc) else ""
            raise ToolError(f"{name} failed{why}") from None
        return result


def result_of(given: Any) -> ToolResult:
    """What a handler gave, as the model reads it. Runs on the plugin's thread: it may be anything.

    Text stays as it is, also where it is JSON; all else becomes JSON.
    """
    if isinstance(given, str):
        text = str(given)
    elif given is None:
        text = ""
    else:
        text = json.dumps(given, ensure_ascii=False, default=str)
    if len(text) > MAX_RESULT_CHARS:
        left_out = len(text) - MAX_RESULT_CHARS
        return ToolResult(f"{text[:MAX_RESULT_CHARS]}\n[{left_out} characters more were let go]")
    return ToolResult(text, is_error=_is_error(text))


def _is_error(text: str) -> bool:
    """The usual way of plugins to say that it did not work: an object that holds an ``error``."""
    if not text.startswith("{") or '"error"' not in text or len(text) > 100_000:
        return False
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(isinstance(values, dict) and values.get("error") and set(values) <= _OF_ERRORS)


_OF_ERRORS = {"error", "success", "ok", "details", "code", "hint"}


async def ready_tools(
    given: Sequence[PluginTool],
    calls: PluginCalls,
    places: Places,
    env: Mapping[str, str],
    own: OwnTools | None = None,
) -> ReadyTools:
    """Ask each once whether it can work. Which tools there are stays so until the next start."""
    ready: list[ForeignTool] = []
    overriding: set[str] = set()
    left_out: list[str] = []
    for tool, (why, schema) in zip(given, await _looked_at(given, calls, env), strict=True):
        if not why and len(ready) >= MAX_TOOLS:
            why = f"there are {MAX_TOOLS} tools of plugins already"
        if why or schema is None:
            left_out.append(f"plugin {tool.plugin}: tool {tool.name} is not offered: {why}")
            log.warning(
                "tool of a plugin is not offered",
                extra={"plugin": tool.plugin, "tool": tool.name, "reason": why},
            )
            continue
        ready.append(ForeignTool(tool, schema, calls, places, own))
        if tool.override:
            overriding.add(tool.name)
    return ReadyTools(tuple(ready), frozenset(overriding), tuple(left_out))


async def _looked_at(
    tools: Sequence[PluginTool], calls: PluginCalls, env: Mapping[str, str]
) -> list[tuple[str, ToolSchema | None]]:
    """For each: (why it can not be offered, what the model is told of it). All on one thread."""
    steps = [
        Step(Callee(tool.plugin, f"check of tool {tool.name}"), partial(_checked, tool, env))
        for tool in tools
    ]
    answers = {
        id(step): answer
        for step, answer in await calls.each(steps, CHECK_SECONDS, ALL_CHECKS_SECONDS)
    }
    found: list[tuple[str, ToolSchema | None]] = []
    for step in steps:
        answer = answers.get(id(step))
        if answer is None:
            found.append((f"{step.callee.what} took longer than {CHECK_SECONDS:g} s", None))
        else:
            found.append((str(answer), None) if isinstance(answer, Raised) else answer)
    return found


def _checked(tool: PluginTool, env: Mapping[str, str]) -> tuple[str, ToolSchema | None]:
    """On the plugin's thread."""
    unset = [name for name in tool.requires_env if not env.get(name, "").strip()]
    if unset:
        return f"environment variables are not set: {', '.join(unset)}", None
    schema = schema_of(tool)
    if schema is None:
        return "its schema is no JSON schema of an object", None
    if tool.check is not None and not tool.check():
        return "its own check says that it can not work now", None
    return "", schema


def schema_of(tool: PluginTool) -> ToolSchema | None:
    """A copy that the plugin can not change any more; None: it can not be used.

    A prefix that changed by itself would never be read from a cache.
    """
    parameters = usable_parameters(tool.schema.get("parameters"))
    if parameters is None:
        return None
    described = str(tool.schema.get("description") or tool.name)
    return ToolSchema(tool.name, clean_text(described)[:MAX_DESCRIPTION_CHARS], parameters)
