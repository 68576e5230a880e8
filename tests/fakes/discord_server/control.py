"""Driving a server from another process: `/_control` over HTTP, and its client."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.fakes.discord_server.errors import ApiError

if TYPE_CHECKING:
    from tests.fakes.discord_server.server import DiscordServer

# Helpers of DiscordServer that may be called from outside; entities are given as ids.
METHODS = frozenset(
    {
        "add_user",
        "add_guild",
        "add_role",
        "add_member",
        "add_channel",
        "add_thread",
        "archive",
        "open_dm",
        "block_dm",
        "deny",
        "allow",
        "remove_channel",
        "kick_bot",
        "user_says",
        "user_dms",
        "user_pastes",
        "user_edits",
        "unfurl",
        "user_deletes",
        "redeliver",
        "user_reacts",
        "user_types",
        "webhook_says",
        "system_message",
        "slash",
        "click",
        "dispatch",
        "fault",
        "clear_faults",
        "kill_sockets",
        "reconnect",
        "invalidate_session",
        "forget_sessions",
        "make_zombies",
        "refuse_gateway",
        "set_token",
        "set_privileged",
        "sent_in",
        "visible",
        "texts",
        "bot_texts",
        "commands",
        "calls_to",
        "stats",
        "wait_sent",
        "wait_connected",
    }
)


def control_routes(server: DiscordServer) -> list[web.RouteDef]:
    """`POST /_control/<helper>` with keyword arguments, and views to GET."""

    async def call(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in METHODS:
            return _answer({"error": f"no helper {name!r}"}, 404)
        text = await request.text()
        try:
            return _answer(await invoke(server, name, json.loads(text) if text else {}))
        except TimeoutError:
            return _answer({"error": "timeout"}, 408)
        except (ApiError, LookupError, TypeError, ValueError) as error:
            return _answer({"error": f"{type(error).__name__}: {error}"}, 400)

    async def sent(_request: web.Request) -> web.Response:
        return _answer(server.sent)

    async def calls(_request: web.Request) -> web.Response:
        return _answer(server.calls)

    async def received(_request: web.Request) -> web.Response:
        return _answer(server.received)

    async def stats(_request: web.Request) -> web.Response:
        return _answer(server.stats())

    return [
        web.get("/_control/sent", sent),
        web.get("/_control/calls", calls),
        web.get("/_control/received", received),
        web.get("/_control/stats", stats),
        web.post("/_control/{name}", call),
    ]


async def invoke(server: DiscordServer, name: str, arguments: dict[str, Any]) -> Any:
    """Call a helper by name; positional ones may be given under `args`."""
    positional = arguments.pop("args", [])
    result = getattr(server, name)(*positional, **arguments)
    return await result if inspect.isawaitable(result) else result


def plain(value: Any) -> Any:
    """The JSON form of a result: entities become objects of their fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return {name: plain(one) for name, one in fields.items()}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return value


def _answer(value: Any, status: int = 200) -> web.Response:
    return web.json_response(plain(value), status=status)


class ControlError(Exception):
    """The control API refused a call."""


class DiscordControl:
    """Calls the helpers of a server that runs in another process; answers are plain JSON."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> DiscordControl:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        """`await control.call("user_says", channel_id, user_id, "hello", mention_bot=True)`."""
        return await self._request("POST", name, {"args": args, **options})

    async def sent(self) -> Any:
        return await self._request("GET", "sent")

    async def calls(self) -> Any:
        return await self._request("GET", "calls")

    async def stats(self) -> Any:
        return await self._request("GET", "stats")

    async def _request(self, method: str, name: str, body: Any = None) -> Any:
        assert self._session is not None
        url = f"{self.base_url}/_control/{name}"
        async with self._session.request(method, url, json=body) as response:
            answer = await response.json()
            if response.status == 408:
                raise TimeoutError(name)
            if response.status != 200:
                raise ControlError(answer["error"])
            return answer
