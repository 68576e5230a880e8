"""The loopback Bot API server itself: sockets, tokens, faults, and records of all calls."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.fakes.telegram_server.control import add_control
from tests.fakes.telegram_server.downloads import badly, open_file
from tests.fakes.telegram_server.faults import DOWNLOAD_KINDS, Fault, FaultBook
from tests.fakes.telegram_server.inbound import Inbound
from tests.fakes.telegram_server.methods import Methods
from tests.fakes.telegram_server.state import Call, SentMessage, State
from tests.fakes.telegram_server.updates import UpdateQueue
from tests.fakes.telegram_server.webhook import Webhook
from tests.fakes.telegram_server.wire import ApiError, Json, Params, read_params

TOKEN = "123456789:AAloopback-token-for-tests-only_000000"
_TOKEN_FORM = re.compile(r"\d{1,20}:[\w-]{3,}")
_HTML = "<html>\r\n<head><title>{0} {1}</title></head>\r\n<body>{0} {1}</body>\r\n</html>"


class TelegramServer(Inbound):
    """A Bot API for one bot on 127.0.0.1; see the package docstring for its use."""

    def __init__(
        self,
        token: str = TOKEN,
        *,
        username: str = "posthouse_test_bot",
        port: int = 0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        first_update_id: int = 1,
        webhook_retry_seconds: float = 0.05,
    ) -> None:
        self.token = token
        self.token_valid = True
        self.port = port
        self.state = State(token, username, clock, monotonic)
        self.updates = UpdateQueue(first_update_id, clock)
        self.webhook = Webhook(self.updates, webhook_retry_seconds)
        self.webhook.on_confirm = self._changed
        self.methods = Methods(self.state, self.updates, self.webhook)
        self.faults = FaultBook()
        self.connections = 0
        self._counts: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._released = asyncio.Event()
        self._news = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._running: set[asyncio.Task[Any]] = set()

    # --- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; the port stays the same over pauses."""
        app = web.Application(client_max_size=80 * 1024 * 1024)
        app.router.add_route("*", "/bot{token:[^/]+}/{method}", self._api)
        app.router.add_get("/file/bot{token:[^/]+}/{path:.+}", self._download)
        add_control(app, self)
        # A client that leaves takes its long poll with it; sends are shielded below.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await self.resume()

    async def stop(self) -> None:
        """Stop everything; whoever still hangs is let go without an answer."""
        await self.webhook.stop()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def pause(self) -> None:
        """Refuse connections and reset those there are, as a dead network does."""
        if self._runner is None:
            return
        if self._site is not None:
            await self._site.stop()
            self._site = None
        if self._runner.server is not None:
            for connection in list(self._runner.server.connections):
                if connection.transport is not None:
                    connection.transport.abort()

    async def resume(self) -> None:
        """Take connections again, on the port of before."""
        if self._runner is None or self._site is not None:
            return
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await self._site.start()
        server = self._site._server
        self.port = server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    @property
    def root(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What the bot library takes as base_url; the token is appended directly."""
        return f"{self.root}/bot"

    @property
    def base_file_url(self) -> str:
        """What the bot library takes as base_file_url."""
        return f"{self.root}/file/bot"

    # --- faults

    def fault(self, kind: str | Fault, method: str = "sendMessage", **fields: Any) -> Fault:
        """Script a fault: a ready rule, or kind, method pattern and fields of one."""
        return self.faults.add(kind if isinstance(kind, Fault) else Fault(kind, method, **fields))

    def release(self) -> None:
        """Let every hanging call go on now."""
        self._released.set()
        self._released = asyncio.Event()

    # --- records

    @property
    def sent(self) -> list[SentMessage]:
        """Every message accepted from the bot, in order; never cut."""
        return self.state.sent

    @property
    def calls(self) -> deque[Call]:
        """The last requests, right and wrong."""
        return self.state.calls

    def calls_of(self, method: str) -> list[Call]:
        """The recorded requests for one method."""
        return [call for call in self.calls if call.method.lower() == method.lower()]

    def visible(self, chat_id: int, thread_id: int | None = None) -> list[SentMessage]:
        """The bot's messages as the chat shows them now, after edits and deletions."""
        return self.state.visible(chat_id, thread_id)

    def visible_texts(self, chat_id: int, thread_id: int | None = None) -> list[str]:
        """The texts of `visible`."""
        return [message.text for message in self.visible(chat_id, thread_id)]

    def transcript(self, chat_id: int) -> list[tuple[str, str]]:
        """("user"|"bot", text) of all that stands in a chat now."""
        return [
            (
                "bot" if stored.sent is not None else "user",
                stored.message.get("text", stored.message.get("caption", "")),
            )
            for stored in self.state.chats[chat_id].messages.values()
            if not stored.deleted
        ]

    def stats(self) -> Json:
        """Counters, for assertions and for the control API."""
        return {
            "calls": dict(self._counts),
            "statuses": dict(self._statuses),
            "sent": len(self.sent),
            "pending": len(self.updates.pending),
            "delivered": self.updates.delivered,
            "confirmed": self.updates.confirmed_count,
            "next_update_id": self.updates.next_id,
            "polling": self.updates.polling,
            "running": len(self._running),
            "faults": len(self.faults.rules),
            "webhook": self.webhook.url,
            "webhook_attempts": self.webhook.attempts,
        }

    # --- waiting

    async def until(self, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait for something to become true; it is looked at after every event here."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self._news.wait()
        except TimeoutError:
            last = [f"{call.method}:{call.status}" for call in list(self.calls)[-8:]]
            raise AssertionError(f"not seen within {timeout} s; last calls {last}") from None

    async def wait_sent(
        self, count: int = 1, chat_id: int | None = None, timeout: float = 30.0
    ) -> list[SentMessage]:
        """Wait until that many messages were accepted (in one chat or in all)."""

        def found() -> list[SentMessage]:
            return [sent for sent in self.sent if chat_id is None or sent.chat_id == chat_id]

        await self.until(lambda: len(found()) >= count, timeout)
        return found()

    async def wait_confirmed(self, update_id: int, timeout: float = 30.0) -> None:
        """Wait until an offset (or a webhook answer) has confirmed this update."""
        await self.until(
            lambda: all(item["update_id"] != update_id for item in self.updates.pending), timeout
        )

    async def wait_polling(self, timeout: float = 30.0) -> None:
        """Wait until a long poll stands."""
        await self.until(lambda: self.updates.polling, timeout)

    def redeliver(self, update: Json | int) -> Json:
        """Deliver a confirmed update once more, with the same number."""
        again = self.updates.redeliver(update if isinstance(update, int) else update["update_id"])
        self._changed()
        return again

    def _changed(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # --- requests

    async def _api(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.ensure_future(self._call(request))
        self._running.add(task)
        task.add_done_callback(self._finished)
        if request.match_info["method"].lower() == "getupdates":
            return await task
        # What was accepted is carried out even if the client is gone.
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also when the client that would hear of it is gone

    async def _call(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        name = request.match_info["method"]
        try:
            params, wrong = await read_params(request), None
        except ApiError as error:
            params, wrong = Params(), error
        call = self._record(name, params)
        fault = self.faults.take(call.method, call.chat_id)
        call.fault = fault.kind if fault else None
        try:
            return await self._answer(request, params, call, fault, wrong)
        finally:
            self._statuses[str(call.status)] += 1
            self._changed()

    async def _answer(
        self,
        request: web.Request,
        params: Params,
        call: Call,
        fault: Fault | None,
        wrong: ApiError | None,
    ) -> web.StreamResponse:
        if fault is not None and not fault.after:
            spoiled = await self._spoil(request, fault, call)
            if spoiled is not None:
                return spoiled
        body = await self._run(params, call, wrong)
        if fault is not None and fault.after:
            self._changed()  # accepted, though the client will not hear of it soon
            spoiled = await self._spoil(request, fault, call)
            if spoiled is not None:
                return spoiled
        return web.json_response(body, status=call.status or 200)

    async def _run(self, params: Params, call: Call, wrong: ApiError | None) -> Json:
        try:
            if wrong is not None:
                raise wrong
            running = self.methods.run(call.method, params, call)
            self._changed()
            body = {"ok": True, "result": await running}
            call.status = 200
        except ApiError as error:
            body = error.body()
            call.status, call.description = error.code, error.description
        return body

    async def _spoil(
        self, request: web.Request, fault: Fault, call: Call
    ) -> web.StreamResponse | None:
        """The answer a fault gives in place of the true one, or None to go on."""
        error = fault.api_error()
        if error is not None:
            call.status, call.description = error.code, error.description
            return web.json_response(error.body(), status=error.code)
        if fault.kind == "html":
            call.status = fault.code
            page = _HTML.format(fault.code, "Bad Gateway")
            return web.Response(text=page, status=fault.code, content_type="text/html")
        if fault.kind == "odd":
            call.status = 200
            return web.Response(text=fault.text, content_type="application/json")
        if fault.kind == "garbage":
            call.status = 200
            return web.Response(text='{"ok":true,"result":{"mess', content_type="application/json")
        if fault.kind == "drop":
            return self._cut(request)
        await self._hang(fault.seconds)
        return None if fault.seconds is not None or request.transport else self._cut(request)

    def _cut(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _hang(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._released.wait()
        except TimeoutError:
            return

    def _check_token(self, request: web.Request) -> None:
        token = request.match_info["token"]
        if not _TOKEN_FORM.fullmatch(token):
            raise _as_http(ApiError(404, "Not Found"))
        if token != self.token or not self.token_valid:
            raise _as_http(ApiError(401, "Unauthorized"))

    def _record(self, name: str, params: Params) -> Call:
        call = Call(
            seq=next(self.state.seq),
            at=self.state.monotonic(),
            method=self.methods.names.get(name.lower(), name),
            params=dict(params.values),
            chat_id=params.chat_id(),
            files={key: upload.name for key, upload in params.files.items()},
        )
        self.state.calls.append(call)
        self._counts[call.method] += 1
        self._changed()
        return call

    async def _download(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        path = request.match_info["path"]
        call = self._record("downloadFile", Params({"path": path}))
        fault = self.faults.take("downloadFile", None)
        if fault is not None:
            call.fault = fault.kind
            if fault.kind not in DOWNLOAD_KINDS:
                spoiled = await self._spoil(request, fault, call)
                if spoiled is not None:
                    return spoiled
        found = open_file(self.state, path)
        if found is None:
            call.status = 404
            raise _as_http(ApiError(404, "Not Found"))
        call.status = 200
        if fault is not None and fault.kind in DOWNLOAD_KINDS:
            return await badly(request, fault, found.data)
        return web.Response(body=found.data, content_type="application/octet-stream")


def _as_http(error: ApiError) -> web.HTTPException:
    """An API error as the exception aiohttp turns into its answer."""
    kinds = {401: web.HTTPUnauthorized, 404: web.HTTPNotFound}
    return kinds[error.code](text=json.dumps(error.body()), content_type="application/json")
