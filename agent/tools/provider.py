"""Owns the tools of a memory provider: each call goes to its conversation's own instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.memory.provider_companion import ProviderCompanion
from agent.messages import ToolSchema
from agent.ports import Tool, ToolContext, ToolResult

SOURCE = "memory provider"
"""Of the registry of tools."""


class ProviderTool:
    """One of them (`agent.ports.Tool`)."""

    def __init__(self, schema: ToolSchema, memory: ProviderCompanion) -> None:
        self._schema = schema
        self._memory = memory

    @property
    def schema(self) -> ToolSchema:
        return self._schema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        name, conversation_id = self._schema.name, context.conversation_id
        return ToolResult(await self._memory.call_tool(conversation_id, name, arguments))


def provider_tools(schemas: Sequence[ToolSchema], memory: ProviderCompanion) -> list[Tool]:
    """All of them."""
    return [ProviderTool(schema, memory) for schema in schemas]
