"""Owns one MCP server's task: reached, listed, called, reached again when it is gone."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.errors import ToolError
from agent.ports import Clock
from agent.tools.mcp.nouns import (
    Answer,
    Connection,
    Connector,
    Listing,
    Refused,
    ServerFailed,
    ServerHopeless,
    ServerSettings,
)
from gateway.logs import Redactor
from gateway.pauses import backoff_seconds
from gateway.tasks import wait_all

log = logging.getLogger(__name__)

STARTING_SECONDS = 120.0
"""Until it has said what it offers; many are downloaded first."""
HEALTHY_SECONDS = 60.0
"""Having worked for so long, it begins with the shortest pause again."""
LONGEST_PAUSE_SECONDS = 300.0
RELIST_PAUSE_SECONDS = 30.0
"""From one look at a changed list to the next: each change costs the prompt cache."""
GATHER_SECONDS = 1.0
"""Changes mostly come in crowds."""
WAIT_SECONDS = 10.0
"""A call to a server that is just starting waits so long."""
AT_ONCE = 8
"""Calls to one server; others wait."""
SLOW_CALLS = 3
"""So many calls without an answer in a row, and it is started again."""


class ServerState(StrEnum):
    """How a server is."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"
    """It waits for the operator."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How a server is, and why."""

    state: ServerState
    reason: str = ""


class ServerKeeper:
    """One server (`agent.tools.mcp.tool.Reach`)."""

    def __init__(
        self,
        server: ServerSettings,
        connect: Connector,
        clock: Clock,
        *,
        on_listing: Callable[[Listing], Awaitable[None]],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``on_listing`` is told what the server offers, whenever it was asked."""
        self.server = server
        self._hidden = Redactor(server.secrets)
        self.status = ServerStatus(ServerState.STARTING)
        self._connect = connect
        self._clock = clock
        self._on_listing = on_listing
        self._jitter = jitter
        self._connection: Connection | None = None
        self._moved = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._slow_calls = 0
        self._unwell = asyncio.Event()

    async def run(self) -> None:
        """Until it needs the operator. Cancel to stop; its process is ended then."""
        failures = attempts = 0
        while True:
            began = self._clock.monotonic()
            try:
                reason = await self._once(legacy=attempts % 2 == 1)
            except ServerHopeless as exc:
                self._set(ServerState.FAILED, str(exc))
                return
            except ServerFailed as exc:
                reason = str(exc)
            except Exception as exc:  # a supervised border: it touches nobody else
                log.exception("mcp server crashed", extra={"server": self.server.name})
                reason = f"{type(exc).__name__}, see the log"
            # Some programs take the newer way to begin so badly that they end.
            attempts = 0 if self.status.state is ServerState.RUNNING else attempts + 1
            if self._clock.monotonic() - began >= HEALTHY_SECONDS:
                failures = 0
            pause = backoff_seconds(failures, self._jitter(), LONGEST_PAUSE_SECONDS)
            failures += 1
            self._set(ServerState.RETRYING, reason)
            await self._clock.sleep(pause)

    async def _once(self, *, legacy: bool) -> str:
        """Reach it and stay with it; why that is over."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(STARTING_SECONDS):
                    reaching = self._connect(self.server, legacy=legacy)
                    connection = await stack.enter_async_context(reaching)
                    found = await connection.listing()
            except TimeoutError as exc:
                raise ServerFailed(f"not there after {STARTING_SECONDS:.0f} s") from exc
            await self._on_listing(found)
            self._slow_calls = 0
            self._unwell.clear()
            self._connection = connection
            self._set(ServerState.RUNNING, "")
            try:
                return await self._attend(connection)
            finally:
                self._connection = None

    async def _attend(self, connection: Connection) -> str:
        watched = {
            asyncio.ensure_future(connection.lost.wait()): "the connection is gone",
            asyncio.ensure_future(self._unwell.wait()): f"{SLOW_CALLS} calls without an answer",
        }
        following = asyncio.ensure_future(self._follow(connection))
        try:
            done, _ = await asyncio.wait({*watched, following}, return_when=asyncio.FIRST_COMPLETED)
            if following in done:
                following.result()  # it never ends by itself
            if connection.lost.is_set():
                return connection.reason
            return next(why for task, why in watched.items() if task in done)
        finally:
            for task in (*watched, following):
                task.cancel()
            await asyncio.wait({*watched, following})

    async def _follow(self, connection: Connection) -> None:
        """Look again whenever it says that its list has changed."""
        while True:
            await connection.changed.wait()
            await self._clock.sleep(GATHER_SECONDS)
            connection.changed.clear()
            try:
                await self._on_listing(await connection.listing())
            except ServerFailed as exc:  # what was known of it stays
                log.warning(
                    "mcp server does not list its tools",
                    extra={"server": self.server.name, "reason": str(exc)},
                )
            await self._clock.sleep(RELIST_PAUSE_SECONDS)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """As `agent.tools.mcp.tool.Reach`."""
        name, seconds = self.server.name, self.server.timeout_seconds
        async with self._slots:
            connection = await self._reached()
            try:
                # The second limit is for a library that forgets the first.
                async with asyncio.timeout(seconds + 5):
                    answer = await connection.call(tool, arguments, seconds)
            except Refused as exc:
                self._slow_calls = 0
                raise ToolError(f"the server {name} refuses: {exc}") from exc
            except TimeoutError as exc:
                self._slow_calls += 1
                if self._slow_calls >= SLOW_CALLS:
                    self._unwell.set()
                raise ToolError(
                    f"the server {name} did not answer within {seconds:g} s; it was told to stop, "
                    "but what it has done by then is not known"
                ) from exc
            except ServerFailed as exc:
                raise ToolError(
                    f"there is no answer of the server {name}: {exc}. What it has done is not known"
                ) from exc
        self._slow_calls = 0
        return answer

    async def _reached(self) -> Connection:
        deadline = self._clock.monotonic() + WAIT_SECONDS
        while self._connection is None:
            left = deadline - self._clock.monotonic()
            if self.status.state is not ServerState.STARTING or left <= 0:
                raise ToolError(
                    f"the server {self.server.name} of this tool is not there right now "
                    f"({self.status.state.value}), so nothing was done; go on without it, or try "
                    "again later"
                )
            self._moved.clear()
            waiting = asyncio.ensure_future(self._moved.wait())
            try:
                await wait_all((waiting,), self._clock, left)
            finally:
                waiting.cancel()
        return self._connection

    def _set(self, state: ServerState, reason: str) -> None:
        before, self.status = self.status, ServerStatus(state, self._hidden(reason))
        self._moved.set()
        if before == self.status:
            return
        log.log(
            logging.INFO if state is ServerState.RUNNING else logging.WARNING,
            "mcp server state",
            extra={"server": self.server.name, "state": state.value, "reason": self.status.reason},
        )
