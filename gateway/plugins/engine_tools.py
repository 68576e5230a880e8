"""Owns the tools that a context engine brings: each call goes to its conversation's own engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.compaction.host.session import SessionCompactor
from agent.errors import EngineError, ToolError
from agent.messages import ToolSchema
from agent.ports import Tool, ToolContext, ToolResult
from gateway.turns.compactors import CompactorCache

SOURCE = "context engine"


class EngineTool:
    """One of them (`agent.ports.Tool`)."""

    def __init__(self, schema: ToolSchema, compactors: CompactorCache) -> None:
        self._schema = schema
        self._compactors = compactors

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        name, live = self._schema.name, context.messages
        async with self._compactors.using(context.conversation_id) as compactor:
            foreign = compactor.foreign if isinstance(compactor, SessionCompactor) else None
            if foreign is None:
                raise ToolError(f"{name} is not available in this conversation; go on without it")
            messages = live() if live is not None else ()
            try:
                return ToolResult(await foreign.extras.run_tool(name, arguments, messages))
            except EngineError as exc:
                raise ToolError(str(exc)) from exc


def engine_tools(schemas: Sequence[ToolSchema], compactors: CompactorCache) -> list[Tool]:
    """All of them."""
    return [EngineTool(schema, compactors) for schema in schemas]
