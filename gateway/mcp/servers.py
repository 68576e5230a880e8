"""Owns all MCP servers of the daemon: their tasks, what is known of them, their tools' places."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agent.llm.background import in_daemon_thread
from agent.ports import Clock
from agent.tools.mcp.connecting import connect
from agent.tools.mcp.nouns import Connector, HttpWay, Listing, ServerSettings, StdioWay
from agent.tools.mcp.offers import as_record, from_record
from agent.tools.mcp.results import Teller
from agent.tools.mcp.tool import McpTool
from agent.tools.registry import ToolRegistry
from gateway.mcp.keeper import ServerKeeper, ServerState
from gateway.tasks import TaskOwner
from gateway.windows.remembered import RememberedFacts

log = logging.getLogger(__name__)

NAMED = 5
"""Of what is left out, in one remark."""


class McpServers:
    """The servers, from the start of the daemon to its end.

    The last known list of each is kept on disk: after a start conversations have the tools that
    they had before, without waiting for a server, and with the same prefix.
    """

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        tools: ToolRegistry,
        teller: Teller,
        facts: RememberedFacts,
        clock: Clock,
        *,
        remarks: Sequence[str] = (),
        connector: Connector = connect,
    ) -> None:
        """``remarks``: what the configuration has that can not work, a line each."""
        self._tools = tools
        self._teller = teller
        self._facts = facts
        self._remarks = tuple(remarks)
        self._tasks = TaskOwner(clock)
        self._writing = asyncio.Lock()
        self._left_out: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, int] = {}
        """How many tools of each may be called."""
        self._keepers = {
            server.name: ServerKeeper(
                server, connector, clock, on_listing=partial(self._take, server)
            )
            for server in servers
        }
        known = facts.read()
        for server in servers:
            self._show(server, _remembered(server, known.get(server.name)))

    async def start(self) -> None:
        """Begin to reach them; waits for none."""
        gone = [name for name in self._facts.read() if name not in self._keepers]
        if gone:
            await self._remember(dict.fromkeys(gone))
        for name, keeper in self._keepers.items():
            self._tasks.spawn(keeper.run(), name=f"mcp server {name}")

    async def close(self) -> None:
        """End them all, and what was started for them."""
        await self._tasks.cancel(5.0)

    # what is known

    def summary(self) -> str:
        """Of each how it is, in one line; "": there are none."""
        return "; ".join(f"{name}: {self._words(k)}" for name, k in self._keepers.items())

    def _words(self, keeper: ServerKeeper) -> str:
        status = keeper.status
        if status.state is ServerState.RUNNING:
            many = self._shown.get(keeper.server.name, 0)
            return f"running ({many} tool{'' if many == 1 else 's'})"
        return f"{status.state.value} ({status.reason})" if status.reason else status.state.value

    def troubles(self) -> list[str]:
        """What an operator should know, a line each."""
        lines = list(self._remarks)
        for name, keeper in self._keepers.items():
            status = keeper.status
            if status.state in (ServerState.RETRYING, ServerState.FAILED):
                lines.append(f"MCP server {name} is not there: {status.reason}")
            left_out = self._left_out.get(name, ())
            if left_out:
                more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
                lines.append(f"MCP server {name}: left out {'; '.join(left_out[:NAMED])}{more}")
        return lines

    # what they offer

    def _show(self, server: ServerSettings, found: Listing) -> None:
        """Put its tools where conversations get theirs from."""
        offers = [o for o in found.offers if server.only is None or o.tool in server.only]
        keeper = self._keepers[server.name]
        tools = [McpTool(server, offer, keeper, self._teller) for offer in offers]
        refused = set(self._tools.replace(f"mcp:{server.name}", tools))
        self._shown[server.name] = len(offers) - len(refused)
        self._left_out[server.name] = (
            *found.left_out,
            *(f"{name!r}: another tool has its name" for name in sorted(refused)),
        )

    async def _take(self, server: ServerSettings, found: Listing) -> None:
        """What a server says that it offers."""
        self._show(server, found)
        missing = _unknown(server, {offer.tool for offer in found.offers})
        self._left_out[server.name] += tuple(missing)
        if self._left_out[server.name]:
            log.warning(
                "mcp tools left out",
                extra={"server": server.name, "tools": list(self._left_out[server.name][:NAMED])},
            )
        record = {"way": _fingerprint(server), "tools": as_record(found)}
        await self._remember({server.name: record})

    async def _remember(self, changes: Mapping[str, Any]) -> None:
        async with self._writing:
            await in_daemon_thread(partial(self._facts.update, changes), "mcp-remember")


def _unknown(server: ServerSettings, offered: set[str]) -> list[str]:
    """Names in the configuration that the server does not know."""
    named: dict[str, Sequence[str]] = {"tools": sorted(server.only or ())}
    if isinstance(server.approve, frozenset):
        named["approve"] = sorted(server.approve)
    return [
        f"{name!r}: named under {key}, but the server has no such tool"
        for key, names in named.items()
        for name in names
        if name not in offered
    ]


def _remembered(server: ServerSettings, record: Any) -> Listing:
    if not isinstance(record, Mapping) or record.get("way") != _fingerprint(server):
        return Listing()
    return from_record(server.name, record.get("tools"))


def _fingerprint(server: ServerSettings) -> str:
    """Of the way to a server: what another one at its name has offered says nothing about it."""
    match server.way:
        case StdioWay(command=command):
            way = "\n".join(command)
        case HttpWay(url=url):
            way = url
    return hashlib.sha256(way.encode("utf-8", "surrogatepass")).hexdigest()[:16]
