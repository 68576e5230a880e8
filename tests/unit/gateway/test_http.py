"""The HTTP endpoint over real loopback connections: what it shows, to whom, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import pytest

from gateway.config.models import Config
from gateway.monitoring.http import MOST_CONNECTIONS, Facts, HttpFace, HttpSettings, is_allowed_host
from gateway.monitoring.readiness import Readiness

OPEN_SECONDS = 20.0


@dataclass
class Scene:
    """An endpoint that serves these facts."""

    settings: HttpSettings = field(default_factory=lambda: HttpSettings(port=0))
    ready: bool = True
    states: dict[str, str] = field(default_factory=lambda: {"telegram": "running"})
    reasons: tuple[str, ...] = ()
    refreshed: int = 0
    trouble: str | None = None
    metrics: str = "# HELP a Help.\n# TYPE a gauge\na 1\n"

    def __post_init__(self) -> None:
        self.face = HttpFace(self.settings)

    def facts(self) -> Facts:
        return Facts(
            lambda: Readiness(self.ready, "ready" if self.ready else "not ready", self.reasons),
            lambda: self.states,
            lambda: self.metrics,
            lambda: self.trouble,
            self.refresh,
        )

    async def refresh(self) -> None:
        self.refreshed += 1

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Its port, while it is open."""
        task = asyncio.ensure_future(self.face.serve(self.facts()))
        async with asyncio.timeout(OPEN_SECONDS):
            while not self.face.where().startswith("http"):
                assert not task.done(), self.face.where()
                await asyncio.sleep(0.01)
        try:
            yield int(self.face.where().rpartition(":")[2])
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: str


async def ask(
    port: int, path: str = "/healthz", *, method: str = "GET", host: str | None = "localhost"
) -> Reply:
    """One request, byte by byte, as no client library would let us say it."""
    hosts = "" if host is None else f"Host: {host}\r\n"
    return await raw(port, f"{method} {path} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")


async def raw(port: int, request: str) -> Reply:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.encode())
        answer = (await asyncio.wait_for(reader.read(), OPEN_SECONDS)).decode()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    return Reply(int(status.split(" ")[1]), headers, body)


async def test_the_three_pages() -> None:
    scene = Scene()
    async with scene.open() as port:
        assert (await ask(port, "/healthz")).body == "ok\n"
        readiness = await ask(port, "/readyz")
        assert readiness.status == 200
        assert json.loads(readiness.body) == {"ready": True, "platforms": {"telegram": "running"}}
        shown = await ask(port, "/metrics")
        assert shown.body == scene.metrics
        assert scene.refreshed == 1  # what the store says is asked anew, and only for the numbers
        assert shown.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        scene.ready = False
        scene.states = {"telegram": "retrying"}
        scene.reasons = ("telegram retrying for 90 s: no route",)
        readiness = await ask(port, "/readyz")
        assert (readiness.status, json.loads(readiness.body)) == (
            503,
            {"ready": False, "platforms": scene.states, "reasons": [scene.reasons[0]]},
        )
        assert (await ask(port, "/healthz")).status == 200
    assert scene.face.where() == "closed"


async def test_a_store_that_takes_nothing_is_no_health() -> None:
    scene = Scene(trouble="the disk is full")
    async with scene.open() as port:
        health, readiness = await ask(port, "/healthz"), await ask(port, "/readyz")
        assert (health.status, health.body) == (503, "store: the disk is full\n")
        assert readiness.status == 503
        assert json.loads(readiness.body) == {
            "ready": False, "platforms": {"telegram": "running"}, "store": "the disk is full",
        }  # fmt: skip
        scene.trouble = None
        assert (await ask(port, "/healthz")).status == (await ask(port, "/readyz")).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/metricsx", "//metrics", "/../metrics", "/%2e"]
)
async def test_nothing_else_is_there(path: str) -> None:
    async with Scene().open() as port:
        assert (await ask(port, path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
async def test_only_get(method: str) -> None:
    async with Scene().open() as port:
        reply = await ask(port, "/metrics", method=method)
        assert reply.status == 405
        assert reply.headers["allow"] == "GET"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", None, "127.0.0.1.evil.example"]
)
async def test_a_page_that_took_over_a_name_reads_nothing(host: str | None) -> None:
    scene = Scene(metrics="the secret figures")
    async with scene.open() as port:
        reply = await ask(port, "/metrics", host=host)
        assert reply.status in (400, 421)
        assert "secret" not in reply.body


async def test_two_names_at_once_are_none() -> None:
    async with Scene().open() as port:
        request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert (await raw(port, request + "Connection: close\r\n\r\n")).status in (400, 421)


async def test_what_is_no_http_is_refused_without_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene().open() as port:
        assert (await raw(port, "hello\r\n\r\n")).status == 400
        long = f"GET /{'x' * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await raw(port, long)).status in (400, 414)
        two = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
        assert (await raw(port, two)).status == 400
        assert (await ask(port)).status == 200
    # Whoever sends rubbish must not fill the log.
    assert [r.message for r in caplog.records if r.levelno > logging.INFO] == []


async def shut(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether nothing more comes, in whatever way the connection went."""
    try:
        return await asyncio.wait_for(reader.read(), OPEN_SECONDS) == b""
    except ConnectionError:
        return True


async def test_connections_are_bounded_and_the_oldest_goes() -> None:
    """Whoever opens too many loses the first of them, and keeps nobody else out."""
    async with Scene().open() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS)]
        for reader, writer in held[1:]:  # each of them is really there; the first says nothing
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
        assert (await ask(port)).status == 200
        assert await closed(held[0][0])
        reader, writer = held[1]
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
        await shut(writer for _, writer in held)


async def test_whoever_asks_and_never_reads_keeps_nobody_out() -> None:
    async with Scene(metrics="# HELP a A.\n" + "a 1\n" * 200_000).open() as port:
        held = []
        for _ in range(MOST_CONNECTIONS):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
            held.append(writer)
        for _ in range(3):
            assert (await ask(port)).status == 200
        await shut(held)


async def test_a_port_in_use_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        scene = Scene(HttpSettings(port=port))
        with caplog.at_level(logging.WARNING):
            await scene.face.serve(scene.facts())
        assert "runs on without it" in caplog.text
        caplog.clear()
        beside_a_chat = Scene(HttpSettings(port=port, is_needed=False))
        with caplog.at_level(logging.WARNING):
            await beside_a_chat.face.serve(beside_a_chat.facts())
    assert caplog.text == ""
    told = f"off: 127.0.0.1:{port} can not be opened (another program listens there)"
    assert scene.face.where() == beside_a_chat.face.where() == told


async def test_two_daemons_of_one_machine() -> None:
    """The second one runs on without; when the first has gone, the port is free at once."""
    first = Scene()
    async with first.open() as port:
        await ask(port)
        second = Scene(HttpSettings(port=port))
        await second.face.serve(second.facts())
        assert second.face.where().startswith("off")
    third = Scene(HttpSettings(port=port))
    async with third.open() as again:
        assert again == port


@pytest.mark.parametrize("host", ["no.such.host.invalid", "999.1.1.1", "a" * 300, "\udc80"])
async def test_a_host_that_can_not_be_is_a_warning(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(name: str, *_: object, **__: object) -> list[object]:
        name.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    scene = Scene(HttpSettings(host=host, port=0))
    await scene.face.serve(scene.facts())
    assert scene.face.where().startswith("off")


async def test_off_is_off() -> None:
    scene = Scene(HttpSettings(port=None))
    await scene.face.serve(scene.facts())
    assert scene.face.where() == "off"


async def test_facts_that_break_are_an_error_of_that_page_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()

    def broken() -> str:
        raise RuntimeError("a gauge broke")

    face = scene.face
    facts = Facts(lambda: Readiness(True, ""), dict, broken)
    scene.facts = lambda: facts  # type: ignore[method-assign]
    async with scene.open() as port:
        reply = await ask(port, "/metrics")
        assert reply.status == 500
        assert "a gauge broke" not in reply.body
        assert [r.message for r in caplog.records if r.exc_info] == ["a page failed"]
        assert (await ask(port)).status == 200
    assert face.where() == "closed"


LOCAL = HttpSettings()
PUBLIC = HttpSettings(host="0.0.0.0", allowed_hosts=("Metrics.example.org",))


@pytest.mark.parametrize(
    ("host", "settings", "allowed"),
    [
        ("localhost", LOCAL, True),
        ("LOCALHOST:8787", LOCAL, True),
        ("127.0.0.1:8787", LOCAL, True),
        ("127.9.9.9", LOCAL, True),
        ("[::1]:8787", LOCAL, True),
        ("::1", LOCAL, False),  # an address of six needs its brackets
        ("", HttpSettings(host=""), False),
        ("10.0.0.5:8787", LOCAL, False),
        ("example.org", LOCAL, False),
        ("localhost.example.org", LOCAL, False),
        ("localhost:8787@example.org", LOCAL, False),
        ("10.0.0.5:8787", PUBLIC, True),
        ("metrics.example.org:80", PUBLIC, True),
        ("other.example.org", PUBLIC, False),
        ("box.lan", HttpSettings(host="box.lan"), True),
        ("2130706433", LOCAL, False),
    ],
)
def test_by_which_names_it_may_be_called(host: str, settings: HttpSettings, allowed: bool) -> None:
    assert is_allowed_host([host], settings) is allowed


def test_no_port_in_the_configuration_means_off() -> None:
    http = Config.model_validate({"gateway": {"http": {"port": None}}}).gateway.http
    assert http.port is None
    assert Config().gateway.http.port == 8787
