"""Owns the hooks around a call of a tool: may it run, what is told of it, what the model reads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.messages import ToolCall
from agent.ports import Clock, ToolContext, ToolResult
from gateway.plugins.hook_names import POST_TOOL_CALL, PRE_TOOL_CALL, TRANSFORM_TOOL_RESULT
from gateway.plugins.hooks import HookDispatch, Occasion
from gateway.plugins.tools import MAX_RESULT_CHARS
from gateway.plugins.whereabouts import Places

SECONDS, ALL_SECONDS = 3.0, 5.0
MAX_REASON_CHARS = 1_000
_MANY = 500
NO_REASON = "a plugin does not allow this call"


class ToolHooks:
    """`agent.tools.registry.CallWatcher` for hooks of plugins.

    A hook that raises, hangs or comes too late forbids nothing: see ADR 54.
    """

    def __init__(self, hooks: HookDispatch, places: Places, clock: Clock) -> None:
        self._hooks = hooks
        self._places = places
        self._clock = clock
        self._begun: dict[tuple[str, str], float] = {}

    async def before(
        self, call: ToolCall, arguments: Mapping[str, Any], context: ToolContext
    ) -> str:
        if self._hooks.has(POST_TOOL_CALL, TRANSFORM_TOOL_RESULT):
            if len(self._begun) >= _MANY:  # of calls that were stopped
                self._begun.clear()
            self._begun[context.turn_id, call["id"]] = self._clock.monotonic()
        if not self._hooks.has(PRE_TOOL_CALL):
            return ""
        occasion = await self._occasion(PRE_TOOL_CALL, call, arguments, context)
        given = await self._hooks.call([occasion], SECONDS, ALL_SECONDS)
        for _, answer in given:
            if type(answer) is dict and answer.get("action") == "block":
                reason = answer.get("message")
                self._begun.pop((context.turn_id, call["id"]), None)
                return reason[:MAX_REASON_CHARS] if type(reason) is str and reason else NO_REASON
        return ""

    async def after(
        self,
        call: ToolCall,
        arguments: Mapping[str, Any],
        context: ToolContext,
        result: ToolResult,
    ) -> ToolResult:
        if not self._hooks.has(POST_TOOL_CALL, TRANSFORM_TOOL_RESULT):
            return result
        now = self._clock.monotonic()
        begun = self._begun.pop((context.turn_id, call["id"]), now)
        more = {"result": result.text, "duration_ms": round((now - begun) * 1000)}
        occasions = [
            await self._occasion(name, call, arguments, context, more)
            for name in (POST_TOOL_CALL, TRANSFORM_TOOL_RESULT)
        ]
        given = await self._hooks.call(occasions, SECONDS, ALL_SECONDS)
        for name, answer in given:
            if name == TRANSFORM_TOOL_RESULT and type(answer) is str:
                return replace(result, text=answer[:MAX_RESULT_CHARS])
        return result

    async def _occasion(
        self,
        name: str,
        call: ToolCall,
        arguments: Mapping[str, Any],
        context: ToolContext,
        more: Mapping[str, Any] | None = None,
    ) -> Occasion:
        where = await self._places.of(context.conversation_id)
        payload = {
            "tool_name": call["function"]["name"],
            "args": copy.deepcopy(dict(arguments)),
            "tool_call_id": call["id"],
            "task_id": context.conversation_id,
            "session_id": where.session_id,
            "turn_id": context.turn_id,
            "conversation_id": where.session_key,
            **(more or {}),
        }
        return Occasion(name, payload, where)
