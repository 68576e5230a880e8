"""Owns the control API: scripting and inspecting a server that runs as a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from tests.fakes.anthropic_server.records import RequestRecord
from tests.fakes.anthropic_server.responders import MODES
from tests.fakes.anthropic_server.script import item_from_json, items_from_json, match_from_json
from tests.fakes.anthropic_server.server import AnthropicServer
from tests.fakes.anthropic_server.units import Json

SETTINGS = (
    "window",
    "max_output",
    "min_cacheable",
    "overflow",
    "thinking",
    "binding",
    "token_scale",
    "mode",
    "summary_tokens",
    "chunk_delay",
    "first_delay",
    "pieces",
    "compaction",
)


def add_control(server: AnthropicServer) -> None:
    """Add `/_control/...` to a server that has not started."""
    control = _Control(server)
    router = server.app.router
    router.add_post("/_control/script", control.script)
    router.add_post("/_control/when", control.when)
    router.add_post("/_control/config", control.config)
    router.add_post("/_control/clear", control.clear)
    router.add_post("/_control/reset", control.reset)
    router.add_post("/_control/release", control.release)
    router.add_post("/_control/advance", control.advance)
    router.add_get("/_control/requests", control.requests)
    router.add_get("/_control/rejected", control.rejected)
    router.add_get("/_control/warnings", control.warnings)
    router.add_get("/_control/stats", control.stats)
    router.add_get("/_control/wait", control.wait)


def set_settings(server: AnthropicServer, values: Json) -> None:
    """Change settings of a running server; unknown names are refused."""
    for name, value in values.items():
        if name == "api_keys":
            server.api_keys = set(value)
        elif name not in SETTINGS:
            raise ValueError(f"unknown setting {name!r}")
        elif name == "mode" and value not in MODES:
            raise ValueError(f"unknown mode {value!r}")
        else:
            setattr(server.settings, name, value)


class _Control:
    def __init__(self, server: AnthropicServer) -> None:
        self._server = server

    async def _body(self, request: web.Request) -> Json:
        body = await request.json() if request.can_read_body else {}
        if not isinstance(body, dict):
            raise web.HTTPBadRequest(reason="an object is expected")
        return body

    def _apply(self, change: Callable[[], object]) -> web.Response:
        try:
            change()
        except (ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(self._server.stats())

    async def script(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        summary = body.get("queue", "main") == "summary"
        add = self._server.script_summary if summary else self._server.script
        return self._apply(lambda: add(*items_from_json(body.get("items", []))))

    async def when(self, request: web.Request) -> web.Response:
        body = await self._body(request)

        def change() -> None:
            match = match_from_json(body.get("match", {}))
            self._server.when(match, item_from_json(body["do"]), body.get("times", 1))

        return self._apply(change)

    async def config(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        return self._apply(lambda: set_settings(self._server, body))

    async def clear(self, request: web.Request) -> web.Response:
        return self._apply(self._server.clear_script)

    async def reset(self, request: web.Request) -> web.Response:
        return self._apply(self._server.reset)

    async def release(self, request: web.Request) -> web.Response:
        return self._apply(self._server.release)

    async def advance(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        return self._apply(lambda: self._server.advance(float(body["seconds"])))

    async def requests(self, request: web.Request) -> web.Response:
        query = request.query
        found: Iterable[RequestRecord] = self._server.requests
        if query.get("others") == "1":
            found = self._server.other_requests
        since = int(query.get("since", "0"))
        found = [r for r in found if r.number > since]
        if "verdict" in query:
            found = [r for r in found if r.verdict == query["verdict"]]
        if "summary" in query:
            found = [r for r in found if r.summary == (query["summary"] in ("1", "true"))]
        limit = int(query.get("limit", "0"))
        return _listing(found[-limit:] if limit else found)

    async def rejected(self, request: web.Request) -> web.Response:
        return _listing(self._server.rejected)

    async def warnings(self, request: web.Request) -> web.Response:
        rows = [{"number": n, "rule": r, "message": m} for n, r, m in self._server.warnings]
        return web.json_response({"warnings": rows})

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response(self._server.stats())

    async def wait(self, request: web.Request) -> web.Response:
        query = request.query
        timeout = float(query.get("timeout", "10"))
        waits: list[Any] = []
        if "requests" in query:
            waits.append(self._server.wait_for(int(query["requests"]), timeout))
        if query.get("idle") == "1":
            waits.append(self._server.wait_idle(timeout))
        reached = [await w for w in waits]
        return web.json_response({"reached": all(reached), **self._server.stats()})


def _listing(records: Iterable[RequestRecord]) -> web.Response:
    return web.json_response({"requests": [record.to_json() for record in records]})
