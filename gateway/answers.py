"""Owns what the command line is answered through the control socket, operation by operation."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from gateway import __version__
from gateway.control import Handler, RemoteTerminal, send_line
from gateway.daemon_parts import Parts
from gateway.exchange import ImportDesk
from gateway.forgetting.office import ForgettingOffice
from gateway.logs import redacted
from gateway.monitoring.readiness import Readiness


class Answers:
    """Of one daemon; ``started``: is its start over, and its end not begun?"""

    def __init__(self, parts: Parts, started: Callable[[], bool]) -> None:
        self._parts = parts
        self._started = started

    def handlers(self) -> dict[str, Handler]:
        """By operation."""
        parts = self._parts
        handlers: dict[str, Handler] = {"status": self._answer_status, "chat": self._serve_chat}
        if parts.take_in is not None:
            desk = ImportDesk(parts.home, parts.take_in)
            desk.tidy()
            handlers["import"] = desk.serve
        if parts.reloads is not None:
            handlers["reload"] = self._answer_reload
        if parts.pairing is not None:
            handlers["pair"] = parts.pairing.serve
        if parts.jobs is not None:
            handlers["jobs"] = parts.jobs.serve
        if parts.forgetting is not None:
            handlers["forget"] = ForgettingOffice(parts.forgetting).serve
        if parts.overview is not None:
            handlers["top"] = self._answer_top
        if parts.plugin_rows is not None:
            handlers["plugins"] = self._answer_plugins
        if parts.look_at_index is not None:
            handlers["index"] = self._answer_index
        return handlers

    def status(self) -> dict[str, Any]:
        """What ``posthouse status`` prints, but for what the store has to be asked for."""
        how = self.readiness()
        return {
            "home": str(self._parts.home),
            "version": __version__,
            "ready": how.ready,
            "state": how.state,
            "reasons": list(map(redacted, how.reasons)),
            "platforms": {
                name: {"state": s.state.value, "reason": redacted(s.reason)}
                for name, s in self._parts.supervisor.status.items()
            },
            "details": {name: redacted(text) for name, text in self._details().items()},
        }

    def _details(self) -> dict[str, str]:
        details = dict(self._parts.details())
        if self._parts.http is not None:
            details["http"] = self._parts.http.where()
        if self._parts.reloads is not None:
            details = {**self._parts.reloads.details(), **details}
        trouble = self._parts.store.trouble()
        return details if trouble is None else {"STORE TAKES NOTHING": trouble, **details}

    def readiness(self) -> Readiness:
        """Can anybody be served?"""
        if self._parts.overview is None:
            return Readiness(self._started(), "ready" if self._started() else "starting")
        return self._parts.overview.readiness(started=self._started())

    async def _answer_status(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        overview = self._parts.overview
        numbers = await overview.status() if overview is not None else {}
        await send_line(writer, {**self.status(), **numbers})

    async def _answer_top(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self._parts.overview is not None
        status = self.status()
        status.pop("details")
        await send_line(writer, {**status, **await self._parts.overview.top()})

    async def _answer_reload(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self._parts.reloads is not None
        await send_line(writer, dataclasses.asdict(await self._parts.reloads.reload()))

    async def _answer_plugins(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        found = self._parts.plugin_rows() if self._parts.plugin_rows is not None else []
        await send_line(writer, {"plugins": found})

    async def _answer_index(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self._parts.look_at_index is not None
        await send_line(writer, {"index": await self._parts.look_at_index()})

    async def _serve_chat(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._parts.console.attach(
            RemoteTerminal(reader, writer, in_turns=bool(request.get("in_turns")))
        )
        await send_line(writer, {"done": True})
