"""Liveness with the real SDK: servers that hang, drip, reset and lie, and troubles that pass.

The times are scaled down (they are settings); what the scenes took is logged, not judged. The rule
itself (a minute, ten seconds) is shown with a clock of our own in the unit tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent.clock import SystemClock
from gateway.platforms.contract import PlatformState
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramClient, TelegramSettings
from gateway.platforms.telegram.polling import PollFailed
from gateway.platforms.troubles import in_words
from gateway.supervisor import Supervisor
from tests.fakes.intake import RecordingIntake
from tests.fakes.lying_proxy import Lie, LyingProxy
from tests.fakes.telegram_server import TOKEN, Fault, TelegramServer

log = logging.getLogger(__name__)


class HurriedClock(SystemClock):
    """The real clock, but pauses take no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds / 1000, 0.01))


def platform_at(port: int, clock: SystemClock | None = None, **changes: Any) -> TelegramPlatform:
    values: dict[str, Any] = {
        "token": TOKEN,
        "base_url": f"http://127.0.0.1:{port}/bot",
        "base_file_url": f"http://127.0.0.1:{port}/file/bot",
        "poll_timeout_seconds": 1,
        "poll_grace_seconds": 0.5,
        "connect_timeout_seconds": 0.3,
        "send_timeout_seconds": 0.3,
        "conflict_quiet_seconds": 1.5,
        **changes,
    }
    return TelegramPlatform(TelegramSettings(**values), clock or SystemClock())


class Passed(logging.Handler):
    """Every trouble that a supervisor has logged: it may be over before anybody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "platform state":
            self.states.append(vars(record)["state"])


class Watched:
    """Platforms under a supervisor, and when each state began."""

    def __init__(self, *platforms: TelegramPlatform, clock: SystemClock | None = None) -> None:
        self.intake = RecordingIntake()
        self.platforms = platforms
        self.supervisor = Supervisor(platforms, self.intake, clock or SystemClock())
        self.passed = Passed()

    async def __aenter__(self) -> Watched:
        logging.getLogger("gateway.supervisor").addHandler(self.passed)
        self.task = asyncio.create_task(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for platform in self.platforms:
            await platform.close()
        logging.getLogger("gateway.supervisor").removeHandler(self.passed)

    @property
    def state(self) -> PlatformState:
        return self.supervisor.status["telegram"].state

    @property
    def reason(self) -> str:
        return self.supervisor.status["telegram"].reason

    async def until(self, condition: Callable[[], object], timeout: float = 30.0) -> float:
        """How long it took."""
        began = time.monotonic()
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110 - the clients under test tell nobody
                await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def be(self, state: PlatformState) -> float:
        return await self.until(lambda: self.state is state)


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running:
        yield running


# --- a connection that stood and went bad -------------------------------------------------------


@pytest.mark.parametrize("lie", ["silence", "drip", "half", "reset", "rubbish"])
async def test_a_poll_on_a_wire_that_went_bad(server: TelegramServer, lie: Lie) -> None:
    async with LyingProxy(server.port) as proxy, Watched(platform_at(proxy.port)) as watched:
        await watched.be(PlatformState.RUNNING)
        await server.wait_polling()
        assert proxy.spoil(lie) >= 1
        server.private_text("is anybody there?")
        noticed = await watched.until(lambda: PlatformState.DEGRADED.value in watched.passed.states)
        recovered = await watched.be(PlatformState.RUNNING)
        await watched.intake.wait_messages(1)
    assert watched.intake.texts == ["is anybody there?"]
    log.info("%s: noticed after %.2f s, recovered after %.2f s", lie, noticed, recovered)


async def test_the_only_connection_is_taken(server: TelegramServer) -> None:
    """A poll that nobody waits for any more holds the pool: a fresh one is made."""
    client = TelegramClient(
        TelegramSettings(
            TOKEN,
            base_url=server.base_url,
            poll_timeout_seconds=30,
            connect_timeout_seconds=0.2,
        )
    )
    left_behind = asyncio.ensure_future(client.updates(None, wait=True))
    await server.wait_polling()
    with pytest.raises(PollFailed, match="Pool timeout"):
        await client.updates(None, wait=False)
    await client.renew_polling()
    server.private_text("x")
    assert len(await client.updates(None, wait=False)) == 1
    left_behind.cancel()
    await asyncio.gather(left_behind, return_exceptions=True)
    await client.close()


# --- connections that never come about ----------------------------------------------------------


@contextlib.asynccontextmanager
async def deaf_port() -> AsyncIterator[int]:
    """Connections are neither taken nor refused."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fill = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(("127.0.0.1", port))
            fill.append(one)
        await asyncio.sleep(0.05)
        yield port
        for one in fill:
            one.close()


@contextlib.asynccontextmanager
async def port_that(answers: bytes | None) -> AsyncIterator[int]:
    """Takes every connection and says this to everything, or nothing at all."""

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while await reader.read(65536):
                if answers is not None:
                    writer.write(answers)
                    await writer.drain()
                    break
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


PORTAL = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 27\r\nConnection: close\r\n\r\n"
    b"<html>Please sign in</html>"
)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("deaf", "no answer in time"),
        ("silent", "no answer in time"),
        ("tls", "no answer in time"),
        ("closed", "no connection"),
        ("portal", "wants a sign-in"),
    ],
)
async def test_what_is_wrong_at_the_start_is_said_and_tried_for_ever(kind: str, words: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if kind == "deaf":
            port = await stack.enter_async_context(deaf_port())
        elif kind == "closed":
            unused = stack.enter_context(socket.socket())
            unused.bind(("127.0.0.1", 0))  # held, but nobody listens
            port = unused.getsockname()[1]
        else:
            answer = PORTAL if kind == "portal" else None
            port = await stack.enter_async_context(port_that(answer))
        scheme = "https" if kind == "tls" else "http"
        clock = HurriedClock()
        platform = platform_at(port, base_url=f"{scheme}://127.0.0.1:{port}/bot")
        watched = await stack.enter_async_context(Watched(platform, clock=clock))
        await watched.be(PlatformState.RETRYING)
        assert words in watched.reason
        await asyncio.sleep(0.5)
        assert watched.state is PlatformState.RETRYING, "the reason stays readable meanwhile"
        assert not watched.task.done()
        assert not watched.supervisor.hopeless
        # Left between two tries: a handshake that is cancelled leaves its socket open in the SDK.
        await watched.until(lambda: watched.supervisor.vitals()["telegram"].resting)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("httpx.ConnectError: [Errno -2] Name or service not known", "DNS"),
        ("httpx.ConnectError: [Errno -3] Temporary failure in name resolution", "DNS"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid "
         "(_ssl.c:1006)", "clock"),
        ("certificate verify failed: certificate has expired", "clock"),
        ("certificate verify failed: self-signed certificate", "not trusted"),
        ("ClientConnectorError: Cannot connect to host 127.0.0.1:9 ssl:default [Connect call "
         "failed ('127.0.0.1', 9)]", "is the network up?"),
        ("HTTP status 502, but no JSON", "in trouble"),
        ("HTTP status 200, but no JSON", "sign-in"),
        ("Bad Gateway", "in trouble"),
        ("something new", "something new"),
    ],
)  # fmt: skip
def test_troubles_in_words(error: str, words: str) -> None:
    said = in_words(error)
    assert words in said
    assert error in said, "the words themselves stay"


# --- troubles that pass -------------------------------------------------------------------------


async def test_the_network_is_down_at_boot(server: TelegramServer) -> None:
    await server.pause()
    async with Watched(platform_at(server.port), clock=HurriedClock()) as watched:
        await watched.be(PlatformState.RETRYING)
        assert "is the network up?" in watched.reason
        await asyncio.wait_for(watched.supervisor.wait_settled(), 30)
        await server.resume()
        server.private_text("sent while it was down")
        took = await watched.be(PlatformState.RUNNING)
        await watched.intake.wait_messages(1)
    log.info("network back: running after %.2f s", took)


@pytest.mark.parametrize("code", [502, 200])
async def test_an_hour_of_error_pages(server: TelegramServer, code: int) -> None:
    """A dead front server, a captive portal: degraded, then tried again and again; then healed."""
    clock = HurriedClock()
    async with Watched(platform_at(server.port, clock), clock=clock) as watched:
        await watched.be(PlatformState.RUNNING)
        server.fault(Fault.html(code, "*", times=None))
        await watched.until(lambda: watched.state is not PlatformState.RUNNING)
        await watched.be(PlatformState.RETRYING)
        # With a minute between two tries at most, so many of them are an hour.
        counted = len(server.calls_of("getMe"))
        await watched.until(lambda: len(server.calls_of("getMe")) >= counted + 60)
        assert watched.state is PlatformState.RETRYING
        assert ("in trouble" if code == 502 else "sign-in") in watched.reason
        server.faults.clear()
        server.private_text("after an hour")
        await watched.be(PlatformState.RUNNING)
        await watched.intake.wait_messages(1)
    assert watched.intake.texts == ["after an hour"]


async def test_two_programs_with_one_token(server: TelegramServer) -> None:
    """Both say so for as long as both are there; what comes in is taken by one of the two."""
    async with Watched(platform_at(server.port)) as ours:
        await ours.be(PlatformState.RUNNING)
        async with Watched(platform_at(server.port)) as other:
            await ours.until(lambda: "another program" in ours.reason)
            await other.until(lambda: "another program" in other.reason)
            for n in range(10):
                server.private_text(f"m{n}")
                await asyncio.sleep(0.1)
                assert "another program" in ours.reason or "another program" in other.reason
            await ours.until(lambda: len({*ours.intake.texts, *other.intake.texts}) == 10)
        await ours.be(PlatformState.RUNNING)
        assert ours.task.done() is False


async def test_a_token_that_is_revoked_and_one_that_was_never_right(
    server: TelegramServer,
) -> None:
    clock = HurriedClock()
    async with Watched(platform_at(server.port, clock), clock=clock) as watched:
        await watched.be(PlatformState.RUNNING)
        server.token_valid = False
        await watched.be(PlatformState.RETRYING)
        server.token_valid = True  # an incident
        await watched.be(PlatformState.RUNNING)
        server.token_valid = False
        await watched.be(PlatformState.FAILED_CONFIG)
        assert "TELEGRAM_BOT_TOKEN" in watched.reason
        assert watched.supervisor.hopeless
        await asyncio.wait_for(watched.task, 30)
    async with Watched(platform_at(server.port, token="1:never-right")) as watched:
        await watched.be(PlatformState.FAILED_CONFIG)
        calls = len(server.calls)
        await asyncio.sleep(0.1)
        assert len(server.calls) == calls, "asked once"


async def test_one_broken_token_does_not_stop_the_other(server: TelegramServer) -> None:
    class Other(TelegramPlatform):
        name = "other"  # type: ignore[assignment]

    well = platform_at(server.port)
    settings = TelegramSettings("1:never-right", base_url=server.base_url)
    async with Watched(Other(settings, SystemClock()), well) as watched:
        await watched.be(PlatformState.RUNNING)
        await watched.until(
            lambda: watched.supervisor.status["other"].state is PlatformState.FAILED_CONFIG
        )
        server.private_text("hello")
        await watched.intake.wait_messages(1)
        assert watched.supervisor.failed
        assert not watched.supervisor.hopeless


async def test_two_hundred_failed_connections_leak_nothing(server: TelegramServer) -> None:
    clock = HurriedClock()
    async with Watched(platform_at(server.port, clock), clock=clock) as watched:
        await watched.be(PlatformState.RUNNING)
        before = len(os.listdir("/proc/self/fd"))
        server.fault(Fault.drop("*", times=None))
        counted = len(server.calls)
        await watched.until(lambda: len(server.calls) >= counted + 200)
        during = len(os.listdir("/proc/self/fd"))
        server.faults.clear()
        await watched.be(PlatformState.RUNNING)
        after = len(os.listdir("/proc/self/fd"))
    log.info("fds: %d before, %d after 200 failures, %d healed", before, during, after)
    assert abs(during - before) <= 5
    assert abs(after - before) <= 5
