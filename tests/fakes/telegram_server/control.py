"""The control API under /_control: drives a server that runs as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.telegram_server.faults import Fault
from tests.fakes.telegram_server.wire import Json, words

if TYPE_CHECKING:
    from tests.fakes.telegram_server.server import TelegramServer

# Helpers of the server that may be called by name.
HELPERS = words(
    "private_text group_text command paste bot_text channel_post edit_message photo document "
    "voice album media forwarded callback press service reaction member_update block unblock kick "
    "migrate garbage raw "
    "message add_user add_private add_group add_channel add_topic set_member redeliver "
    "release"
)
Handler = Callable[[web.Request], Awaitable[web.Response]]


def add_control(app: web.Application, server: TelegramServer) -> None:
    """Put the control routes into the application."""
    control = _Control(server)
    for verb, path, handler in (
        ("POST", "inject", control.inject),
        ("POST", "update", control.update),
        ("POST", "fault", control.add_fault),
        ("GET", "faults", control.list_faults),
        ("DELETE", "faults", control.clear_faults),
        ("GET", "sent", control.sent),
        ("GET", "visible", control.visible),
        ("GET", "calls", control.calls),
        ("GET", "stats", control.stats),
        ("GET", "state", control.state),
        ("GET", "wait", control.wait),
        ("POST", "set", control.set),
        ("POST", "pause", control.pause),
    ):
        app.router.add_route(verb, f"/_control/{path}", _guarded(handler))


def _guarded(handler: Handler) -> Handler:
    async def run(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except (ValueError, TypeError, KeyError, AssertionError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)

    return run


def _number(request: web.Request, name: str, default: int | None = None) -> int | None:
    text = request.query.get(name)
    return default if text is None else int(text)


class _Control:
    """One handler per route."""

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self.pauses: set[asyncio.Task[None]] = set()

    async def inject(self, request: web.Request) -> web.Response:
        """{"helper": name, "args": {...}}; bytes come as {"base64": "..."}."""
        body = await request.json()
        name = body["helper"]
        if name not in HELPERS:
            raise ValueError(f"unknown helper {name!r}; one of {sorted(HELPERS)}")
        helper = getattr(self.server, name)
        arguments = {key: _native(value) for key, value in body.get("args", {}).items()}
        result = inspect.signature(helper).bind(**arguments)
        return web.json_response({"result": _jsonable(helper(*result.args, **result.kwargs))})

    async def update(self, request: web.Request) -> web.Response:
        """A raw update."""
        return web.json_response({"result": self.server.raw(await request.json())})

    async def add_fault(self, request: web.Request) -> web.Response:
        """A fault rule as JSON."""
        fault = self.server.fault(Fault.from_json(await request.json()))
        return web.json_response({"result": fault.to_json()})

    async def list_faults(self, request: web.Request) -> web.Response:
        """The rules still in force."""
        return web.json_response({"result": [f.to_json() for f in self.server.faults.rules]})

    async def clear_faults(self, request: web.Request) -> web.Response:
        """No more faults; hanging calls go on."""
        self.server.faults.clear()
        self.server.release()
        return web.json_response({"result": True})

    async def sent(self, request: web.Request) -> web.Response:
        """?chat_id=&since=SEQ"""
        chat_id, since = _number(request, "chat_id"), _number(request, "since", 0) or 0
        found = [
            asdict(message)
            for message in self.server.sent
            if message.seq > since and (chat_id is None or message.chat_id == chat_id)
        ]
        return web.json_response({"result": found})

    async def visible(self, request: web.Request) -> web.Response:
        """?chat_id=&thread_id="""
        chat_id = int(request.query["chat_id"])
        found = self.server.visible(chat_id, _number(request, "thread_id"))
        return web.json_response({"result": [asdict(message) for message in found]})

    async def calls(self, request: web.Request) -> web.Response:
        """?method=&since=SEQ"""
        method, since = request.query.get("method", ""), _number(request, "since", 0) or 0
        found = [
            asdict(call)
            for call in self.server.calls
            if call.seq > since and method.lower() in {"", call.method.lower()}
        ]
        return web.json_response({"result": found})

    async def stats(self, request: web.Request) -> web.Response:
        """The counters."""
        return web.json_response({"result": self.server.stats()})

    async def state(self, request: web.Request) -> web.Response:
        """Drafts, actions, commands, reactions, callback answers, pending updates."""
        state = self.server.state
        body: Json = {
            "pending": self.server.updates.pending,
            "drafts": list(state.draft_history),
            "actions": list(state.actions),
            "callback_answers": state.callback_answers,
            "commands": [
                {"scope": scope, "language_code": language, "commands": commands}
                for (scope, language), commands in state.commands.items()
            ],
            "reactions": [
                {"chat_id": chat, "message_id": message, "reaction": reaction}
                for (chat, message), reaction in state.reactions.items()
            ],
        }
        return web.json_response({"result": body})

    async def wait(self, request: web.Request) -> web.Response:
        """?sent=N&chat_id=&contains=TEXT | ?polling=1 | ?confirmed=ID, each with &timeout=S."""
        timeout = float(request.query.get("timeout", "5"))
        try:
            await self.server.until(self._condition(request), timeout)
        except AssertionError as error:
            return web.json_response({"error": str(error)}, status=408)
        return web.json_response({"result": True})

    def _condition(self, request: web.Request) -> Callable[[], object]:
        server, chat_id = self.server, _number(request, "chat_id")
        if "polling" in request.query:
            return lambda: server.updates.polling
        confirmed = _number(request, "confirmed")
        if confirmed is not None:
            return lambda: all(u["update_id"] != confirmed for u in server.updates.pending)
        count, contains = _number(request, "sent", 1) or 1, request.query.get("contains", "")

        def enough() -> bool:
            found = (
                message
                for message in server.sent
                if chat_id in (None, message.chat_id) and contains in message.text
            )
            return sum(1 for _ in found) >= count

        return enough

    async def set(self, request: web.Request) -> web.Response:
        """{"token_valid": bool} and {"next_update_id": N}."""
        body = await request.json()
        unknown = set(body) - {"token_valid", "next_update_id"}
        if unknown:
            raise ValueError(f"cannot set {sorted(unknown)}")
        self.server.token_valid = bool(body.get("token_valid", self.server.token_valid))
        if "next_update_id" in body:
            self.server.updates.renumber(int(body["next_update_id"]))
        return web.json_response({"result": True})

    async def pause(self, request: web.Request) -> web.Response:
        """{"seconds": S}: no connections for that long, control included."""
        seconds = float((await request.json())["seconds"])
        task = asyncio.create_task(self._pause(seconds))
        self.pauses.add(task)
        task.add_done_callback(self.pauses.discard)
        return web.json_response({"result": True})

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(0.05)  # lets the answer of the control call out first
        await self.server.pause()
        await asyncio.sleep(seconds)
        await self.server.resume()


def _native(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    if isinstance(value, list):
        return [_native(item) for item in value]
    if isinstance(value, dict) and value and all(key.lstrip("-").isdigit() for key in value):
        return {int(key): item for key, item in value.items()}  # topics: JSON has no int keys
    return value


def _jsonable(value: Any) -> Any:
    return value if isinstance(value, dict | list | None) else str(value)
