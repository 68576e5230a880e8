"""Owns a tool of an MCP server as one of ours: a person is asked first where that is the rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from agent.approvals import Proposal, require_approval
from agent.errors import ToolError
from agent.ports import ToolContext, ToolResult
from agent.tools.mcp.nouns import Answer, Offer, ServerSettings
from agent.tools.mcp.results import Teller

MAX_ASKED_CHARS = 20_000
"""Of arguments that a person should read before they say yes."""


class Reach(Protocol):
    """The way to a server, whether it is there or not."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of its tools.

        Raises:
            ToolError: the text says why there is no answer.
            asyncio.CancelledError: the user said stop; the server is told.
        """
        ...


def must_ask(server: ServerSettings, offer: Offer) -> bool:
    """Does a call of this tool need a person's word?"""
    match server.approve:
        case "always":
            return True
        case "never":
            return False
        case "writes":
            return not offer.read_only
        case names:
            return offer.tool in names


def proposal(server: ServerSettings, offer: Offer, arguments: Mapping[str, Any]) -> Proposal:
    """What a person is asked about (pure)."""
    text = json.dumps(arguments, ensure_ascii=False, indent=1)
    if len(text) > MAX_ASKED_CHARS:
        raise ToolError(
            f"the arguments have {len(text)} characters, and nobody could read them before saying "
            f"yes; at most {MAX_ASKED_CHARS} are taken"
        )
    says = [
        "it may destroy things" if offer.destructive and not offer.read_only else "",
        "it only reads" if offer.read_only else "",
        "it reaches out to others" if offer.open_world else "",
    ]
    said = "; ".join(part for part in says if part)
    shown = [("The tool", offer.tool), ("With", text)]
    if said:
        shown.append(("What its server says of it", said))
    return Proposal(offer.schema.name, f"use a tool of the server {server.name}", tuple(shown))


class McpTool:
    """One tool of one server (`agent.ports.PatientTool`)."""

    deadline_seconds = None
    """It waits for a person; calls have a limit of their own."""

    def __init__(self, server: ServerSettings, offer: Offer, reach: Reach, teller: Teller) -> None:
        self.schema = offer.schema
        self._server = server
        self._offer = offer
        self._reach = reach
        self._teller = teller

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        allowed = ""
        if must_ask(self._server, self._offer):
            asked = proposal(self._server, self._offer, arguments)
            allowed = await require_approval(context.approver, asked)
        answer = await self._reach.call(self._offer.tool, arguments)
        return await self._teller.tell(answer, context.owner, remark=allowed)
