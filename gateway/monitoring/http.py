"""Owns the local HTTP endpoint: /healthz, /readyz and /metrics, for whoever watches this machine.

It only ever shows numbers and states: no words of anybody, no ids, no secrets, and nothing can be
changed through it. That it can not be opened (the port is taken by another daemon) is a warning;
the chats do not depend on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.llm.background import in_daemon_thread
from gateway.logs import redacted
from gateway.loopback import LOCAL_NAMES, address_of, is_loopback
from gateway.monitoring.exposition import CONTENT_TYPE
from gateway.monitoring.readiness import Readiness

if TYPE_CHECKING:  # over a tenth of a second and a dozen MB: only where it is switched on
    from aiohttp import web

log = logging.getLogger(__name__)

_NOBODY = logging.getLogger(f"{__name__}.strangers")
_NOBODY.setLevel(logging.CRITICAL + 1)
"""Whoever sends rubbish must not fill the log; what is ours to say is said here."""

MOST_CONNECTIONS = 32
"""The oldest goes when there are more: the daemon's files and memory are for its chats, and those
who hold a connection and say or read nothing must not keep the others out."""
KEEP_ALIVE_SECONDS = 20.0
CLOSE_SECONDS = 0.3
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where it listens."""

    host: str = "127.0.0.1"
    port: int | None = 8787
    """None: not at all. 0: any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that requests may call it by."""
    is_needed: bool = True
    """False: nobody watches this one, as beside a chat; that it is not there is no warning."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What it shows."""

    readiness: Callable[[], Readiness]
    platforms: Callable[[], dict[str, str]]
    """Name → state."""
    metrics: Callable[[], str]
    store_trouble: Callable[[], str | None] = lambda: None
    """Why nothing can be stored; None: it can."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Awaited before the metrics are read."""


class HttpFace:
    """The endpoint; `serve` runs until it is cancelled."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._where = "off" if settings.port is None else "not open yet"

    def where(self) -> str:
        """Its address, or why there is none."""
        return self._where

    async def serve(self, facts: Facts) -> None:
        """Open it, answer until cancelled, close it. Comes back at once where it can not open."""
        settings = self._settings
        if settings.port is None:
            return
        web = await in_daemon_thread(_aiohttp_web, "http-import")
        server = web.Server(
            _Pages(web, facts, settings).answer,
            access_log=None,
            logger=_NOBODY,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=0.0,
        )
        listening = await self._listen(settings.port, server)
        if listening is None:
            return
        try:
            await asyncio.Event().wait()
        finally:
            listening.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * CLOSE_SECONDS):
                    await server.shutdown(CLOSE_SECONDS)
            self._where = "closed"

    async def _listen(self, port: int, server: web.Server) -> asyncio.Server | None:
        host = self._settings.host
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            _make_room(server)
            return server()

        try:
            listening = await loop.create_server(protocol, host, port, backlog=16)
        except (OSError, OverflowError, UnicodeError) as error:
            self._where = f"off: {host}:{port} can not be opened ({_reason(error)})"
            log.log(
                logging.WARNING if self._settings.is_needed else logging.INFO,
                "the HTTP endpoint could not be opened; the gateway runs on without it",
                extra={"host": host, "port": port, "error": _reason(error)},
            )
            return None
        bound = listening.sockets[0].getsockname()[1]
        self._where = f"http://{_bracketed(host)}:{bound}"
        log.info("http", extra={"address": self._where})
        if not is_loopback(host):
            log.warning("the HTTP endpoint can be reached from other machines")
        return listening


def _make_room(server: web.Server) -> None:
    """For one more connection."""
    transports = [one.transport for one in server.connections]  # as they came
    held = [one for one in transports if one is not None and not one.is_closing()]
    for one in held[: max(0, len(held) + 1 - MOST_CONNECTIONS)]:
        one.abort()  # whoever reads nothing would hold up a polite close as well


class _Pages:
    """The three pages."""

    def __init__(self, library: Any, facts: Facts, settings: HttpSettings) -> None:
        self._web = library
        self._facts = facts
        self._settings = settings
        self._pages: dict[str, Callable[[], web.StreamResponse]] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/metrics": self._metrics,
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        try:
            return await self._answer(request)
        except Exception:  # the supervised border: the library's own words are not listened to
            log.exception("a page failed")
            return self._text("this failed; the log says why", 500)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The order matters: whoever is at the wrong door learns nothing else."""
        if not is_allowed_host(request.headers.getall("Host", []), self._settings):
            return self._text("this endpoint is not known by that name", 421)
        page = self._pages.get(request.path)
        if page is None:
            return self._text("there is /healthz, /readyz and /metrics", 404)
        if request.method != "GET":
            return self._text("only GET", 405, Allow="GET")
        if request.path == "/metrics" and self._facts.refresh is not None:
            await self._facts.refresh()
        return page()

    def _health(self) -> web.Response:
        trouble = self._facts.store_trouble()
        if trouble is not None:
            return self._text(f"store: {redacted(trouble)}", 503)
        return self._text("ok")  # the process is there, and its event loop came round to this

    def _readiness(self) -> web.Response:
        how, trouble = self._facts.readiness(), self._facts.store_trouble()
        ready = how.ready and trouble is None
        state: dict[str, Any] = {"ready": ready, "platforms": self._facts.platforms()}
        if trouble is not None:
            state["store"] = redacted(trouble)
        if how.reasons:
            state["reasons"] = list(map(redacted, how.reasons))
        body = json.dumps(state)
        return self._response(body, 200 if ready else 503, "application/json; charset=utf-8")

    def _metrics(self) -> web.Response:
        return self._response(self._facts.metrics(), 200, CONTENT_TYPE)

    def _text(self, text: str, status: int = 200, **headers: str) -> web.Response:
        return self._response(f"{text}\n", status, "text/plain; charset=utf-8", **headers)

    def _response(self, body: str, status: int, kind: str, **headers: str) -> web.Response:
        response: web.Response = self._web.Response(
            body=body.encode("utf-8", "replace"),
            status=status,
            headers={
                "Content-Type": kind,
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Server": "posthouse",
                **headers,
            },
        )
        return response


# --- who may ask --------------------------------------------------------------------------------


def is_allowed_host(hosts: Sequence[str], settings: HttpSettings) -> bool:
    """May a request that calls us by this name be answered?

    A web page that a browser on this machine shows can have its own name lead here (DNS rebinding)
    and would then read what it likes: so names count, and only ours do. Numeric addresses are not
    names; where we listen on loopback, only those of loopback are ours.
    """
    name = _name_of(hosts[0]) if len(hosts) == 1 else ""
    if not name:
        return False
    ours = {settings.host.lower(), *(host.lower() for host in settings.allowed_hosts)}
    if name in LOCAL_NAMES or name in ours:
        return True
    address = address_of(name)
    return address is not None and (address.is_loopback or not is_loopback(settings.host))


def _name_of(host: str) -> str:
    """A Host header without its port, in lower case; "": it is no host."""
    match = _HOST.fullmatch(host.strip().lower())
    return "" if match is None else match["address"] or match["name"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reason(error: Exception) -> str:
    """In words; asyncio's own name the address once more, as Python writes it."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return "another program listens there"
    if number is not None and number in errno.errorcode:
        return os.strerror(number).lower()
    return getattr(error, "strerror", None) or type(error).__name__


def _aiohttp_web() -> Any:
    from aiohttp import web  # noqa: PLC0415 - see above

    return web
