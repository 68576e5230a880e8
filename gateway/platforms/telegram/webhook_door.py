"""Owns the HTTP endpoint that Telegram posts updates to, and who may come in there.

It stands behind a reverse proxy, but trusts nothing of what comes through it: whoever does not know
the path and the secret gets a bare status, before anything that he sends is read, and no line in
the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import StoreUnavailable
from agent.llm.background import in_daemon_thread
from agent.ports import Clock
from gateway.loopback import is_loopback
from gateway.platforms.contract import PlatformUnavailable
from gateway.tasks import spawn, wait_all

if TYPE_CHECKING:  # only where webhook mode is on
    from aiohttp import web

log = logging.getLogger(__name__)

_NOBODY = logging.getLogger(f"{__name__}.strangers")
_NOBODY.setLevel(logging.CRITICAL + 1)
"""Whoever sends rubbish must not fill the log; what is ours to say is said here."""
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
KEEP_ALIVE_SECONDS = 60.0
CLOSE_SECONDS = 2.0
"""What requests that are being answered may still take at the end."""


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Where it listens, and what it takes."""

    host: str = "127.0.0.1"
    port: int = 8443
    """0: any that is free."""
    most_bytes: int = 4 * 1024 * 1024
    """Of one update; Telegram's own are far smaller."""
    body_seconds: float = 15.0
    """For a request's body, once its head is here."""
    answer_seconds: float = 25.0
    """For the store; Telegram itself gives up after a minute."""
    idle_seconds: float = 75.0
    """A connection on which nothing was asked for so long is closed."""
    most_connections: int = 100
    most_at_once: int = 40
    """Requests that are read or stored at the same time; further ones wait."""


@dataclass(frozen=True, slots=True)
class Key:
    """What only Telegram knows."""

    path: str = field(repr=False)
    """The last part of the address."""
    secret: str = field(repr=False)

    def opens(self, path: str, secrets: list[str]) -> int:
        """200: come in. 404: there is nothing here. 401: you do not know the secret."""
        if not _same(path.rsplit("/", 1)[-1], self.path):
            return 404
        return 200 if len(secrets) == 1 and _same(secrets[0], self.secret) else 401


@dataclass(frozen=True, slots=True)
class Parcel:
    """What was posted. Not ``whole``: it was too large, and this is how it begins."""

    body: bytes
    whole: bool


Take = Callable[[Parcel], Awaitable[None]]
"""When this returns, Telegram may forget what was posted.

Raises StoreUnavailable: it has to keep it.
"""


class WebhookDoor:
    """Listens while `open` is entered. ``delivered`` and ``refused`` only ever grow."""

    def __init__(self, settings: DoorSettings, key: Key, take: Take, clock: Clock) -> None:
        self._settings = settings
        self._key = key
        self._take = take
        self._clock = clock
        self._room = asyncio.Semaphore(settings.most_at_once)
        self._quiet_since: OrderedDict[Any, float] = OrderedDict()
        """By connection: those on which nothing is asked now, the longest quiet one first."""
        self._under_way: set[asyncio.Task[Any]] = set()
        self._library: Any = None
        self.port = settings.port
        self.delivered = 0
        self.refused = 0
        """Requests of strangers."""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen.

        Raises:
            PlatformUnavailable: the address can not be had.
        """
        self._library = web = await in_daemon_thread(_aiohttp_web, "webhook-import")
        server = web.Server(
            self._answer,
            access_log=None,
            logger=_NOBODY,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=0.0,
            auto_decompress=False,
        )
        listening = await self._listen(server)
        sweeping = spawn(self._sweep(), name="webhook connections")
        try:
            yield
        finally:
            sweeping.cancel()
            listening.close()
            await self._close(server)

    async def _close(self, server: web.Server) -> None:
        """Let what is being answered come to its end, for a moment; it comes again otherwise."""
        for connection in self._quiet_since:
            _cut(connection)
        self._quiet_since.clear()
        await wait_all(self._under_way, self._clock, CLOSE_SECONDS)
        for task in self._under_way:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await server.shutdown(CLOSE_SECONDS / 10)

    async def _listen(self, server: web.Server) -> asyncio.Server:
        host, port = self._settings.host, self._settings.port

        def protocol() -> asyncio.Protocol:
            self._make_room(server)
            made = server()
            self._quiet_since[made] = self._clock.monotonic()
            return made

        loop = asyncio.get_running_loop()
        try:
            listening = await loop.create_server(protocol, host, port, backlog=64)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise PlatformUnavailable(
                f"telegram webhook: {host}:{port} can not be opened ({reason}); see "
                "telegram.webhook.host and port"
            ) from error
        self.port = listening.sockets[0].getsockname()[1]
        log.info("telegram webhook", extra={"host": host, "port": self.port})
        if not is_loopback(host):
            log.warning(
                "the webhook's door can be reached from other machines, without TLS: let the "
                "reverse proxy reach it on 127.0.0.1 (telegram.webhook.host)",
                extra={"host": host},
            )
        return listening

    # --- connections

    def _make_room(self, server: web.Server) -> None:
        """For one more: the longest quiet one goes. Those that are being answered never do."""
        if len(server.connections) < self._settings.most_connections:
            return
        while self._quiet_since:
            one, _ = self._quiet_since.popitem(last=False)
            if _cut(one):
                return

    async def _sweep(self) -> None:
        """Who sends a head byte by byte, or nothing, does not hold a connection for ever."""
        while True:
            await self._clock.sleep(self._settings.idle_seconds / 5)
            too_old = self._clock.monotonic() - self._settings.idle_seconds
            for one in [one for one, since in self._quiet_since.items() if since <= too_old]:
                del self._quiet_since[one]  # and with it those that have gone by themselves
                _cut(one)

    # --- requests

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request. The order matters: a stranger learns nothing, and nothing of his is read."""
        status = self._key.opens(request.path, request.headers.getall(SECRET_HEADER, []))
        if status != 200:
            self.refused += 1
            return self._status(status, close=True)
        if request.method != "POST":
            return self._status(405, close=True, Allow="POST")
        encoded = request.headers.get("Content-Encoding", "identity") != "identity"
        if request.content_type != "application/json" or encoded:
            return self._status(415, close=True)
        connection, task = request.protocol, asyncio.current_task()
        assert task is not None
        self._quiet_since.pop(connection, None)
        self._under_way.add(task)
        try:
            async with self._room:
                return await self._let_in(request)
        finally:
            self._under_way.discard(task)
            self._quiet_since[connection] = self._clock.monotonic()

    async def _let_in(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                parcel = await self._read(request)
        except TimeoutError:
            return self._status(408, close=True)
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                await self._take(parcel)
        except (StoreUnavailable, TimeoutError):
            return self._status(503)  # Telegram keeps it and comes again
        except Exception:  # a supervised border: what we do not understand has to come again
            log.exception("webhook failed")
            return self._status(500)
        self.delivered += 1
        return self._status(200)

    async def _read(self, request: web.BaseRequest) -> Parcel:
        """The whole body is read, so that the answer finds its way; only its beginning is kept."""
        kept = bytearray()
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if len(kept) < self._settings.most_bytes:
                kept += chunk
        return Parcel(bytes(kept[: self._settings.most_bytes]), size <= self._settings.most_bytes)

    def _status(self, status: int, *, close: bool = False, **headers: str) -> web.Response:
        response: web.Response = self._library.Response(
            status=status, headers={"Server": "posthouse", **headers}
        )
        if close:
            response.force_close()
        return response


def _same(given: str, expected: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _cut(connection: Any) -> bool:
    """False: it was gone already."""
    if connection.transport is None:
        return False
    connection.transport.abort()
    return True


def _aiohttp_web() -> Any:
    from aiohttp import web  # noqa: PLC0415 - see above

    return web
