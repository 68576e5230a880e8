"""Telegram by webhook: the real SDK and real posts over loopback, with strangers at the door."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from agent.clock import SystemClock
from agent.errors import StoreUnavailable
from gateway.platforms.contract import PlatformConfigError, PlatformState, PlatformUnavailable
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramSettings
from gateway.platforms.telegram.convert import ALLOWED_UPDATES
from gateway.platforms.telegram.webhook import WebhookSettings, hook_name
from gateway.platforms.telegram.webhook_door import SECRET_HEADER, DoorSettings
from tests.fakes.intake import RecordingIntake, Reports
from tests.fakes.ports import free_port
from tests.fakes.telegram_server import TOKEN, USER, Fault, TelegramServer

SECRET = "the-secret_of-this-test"


def said(number: int, text: str = "", chat: int = USER) -> dict[str, Any]:
    return {
        "update_id": number,
        "message": {
            "message_id": number,
            "date": 1,
            "chat": {"id": chat, "type": "private"},
            "from": {"id": chat, "is_bot": False, "first_name": "A"},
            "text": text or f"m{number}",
        },
    }


class Scene:
    """A platform behind its door, and what was handed in."""

    def __init__(self, server: TelegramServer, **changes: Any) -> None:
        self.server = server
        self.intake = RecordingIntake()
        self.reports = Reports()
        self.port = free_port()
        self.door: dict[str, Any] = {"port": self.port}
        self.hook: dict[str, Any] = {
            "url": f"http://127.0.0.1:{self.port}/telegram/",
            "secret": SECRET,
            "check_seconds": 0.1,
            "again_seconds": 0.3,
            **changes,
        }

    @property
    def path(self) -> str:
        return f"{self.hook['url'].rstrip('/')}/{hook_name(TOKEN)}"

    def platform(self, *, polling: bool = False) -> TelegramPlatform:
        hook = WebhookSettings(door=DoorSettings(**self.door), **self.hook)
        return TelegramPlatform(
            TelegramSettings(
                TOKEN,
                base_url=self.server.base_url,
                base_file_url=self.server.base_file_url,
                poll_timeout_seconds=1,
                poll_grace_seconds=2.0,
                send_timeout_seconds=2.0,
                webhook=None if polling else hook,
            ),
            SystemClock(),
        )

    @contextlib.asynccontextmanager
    async def running(self, *, polling: bool = False) -> AsyncIterator[asyncio.Task[None]]:
        platform = self.platform(polling=polling)
        task = asyncio.create_task(platform.run(self.intake, self.reports))
        try:
            await self.reports.wait(PlatformState.RUNNING)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await platform.close()
            self.reports = Reports()

    async def post(
        self,
        body: Any,
        *,
        secret: str | None = SECRET,
        path: str | None = None,
        method: str = "POST",
        **headers: str,
    ) -> int:
        sent = {"Content-Type": "application/json", **headers}
        if secret is not None:
            sent[SECRET_HEADER] = secret
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, path or self.path, data=data, headers=sent) as answer,
        ):
            assert await answer.read() == b""
            return answer.status

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def head(self, length: int) -> bytes:
        path = self.path.split(str(self.port), 1)[1]
        return (
            f"POST {path} HTTP/1.1\r\nHost: x\r\n{SECRET_HEADER}: {SECRET}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as running:
        yield running


# --- what Telegram posts ------------------------------------------------------------------------


async def test_updates_are_taken_in_order_and_only_when_they_are_stored(
    server: TelegramServer,
) -> None:
    scene = Scene(server)
    scene.intake.gate = asyncio.Event()
    async with scene.running():
        updates = [server.private_text(f"m{i}") for i in range(5)]
        await scene.intake.until(lambda: scene.intake.events)
        assert len(server.updates.pending) == 5, "nothing is taken before it is stored"
        scene.intake.gate.set()
        await server.wait_confirmed(updates[-1]["update_id"])
    assert scene.intake.texts == [f"m{i}" for i in range(5)]
    (asked,) = server.calls_of("setWebhook")
    assert asked.params["url"] == scene.path
    assert asked.params["secret_token"] == SECRET
    assert json.loads(asked.params["allowed_updates"]) == list(ALLOWED_UPDATES)
    assert asked.params.get("drop_pending_updates", "false") == "false"
    assert TOKEN.split(":")[1] not in asked.params["url"]


async def test_the_store_is_down_the_update_comes_again_and_is_stored_once(
    server: TelegramServer,
) -> None:
    scene = Scene(server)
    async with scene.running():
        scene.intake.failures = 3
        server.private_text("kept")
        assert await scene.reports.wait(PlatformState.DEGRADED) == "the store is not available"
        await scene.intake.wait_messages(1)
        await scene.reports.wait(PlatformState.RUNNING)
        server.private_text("next")
        await scene.intake.wait_messages(2)
    assert scene.intake.texts == ["kept", "next"]
    assert scene.intake.doubles == []
    assert server.webhook.attempts == 5


async def test_a_delivery_that_comes_twice_keeps_its_number(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        update = server.private_text("once")
        await server.wait_confirmed(update["update_id"])
        server.redeliver(update)
        await scene.intake.until(lambda: scene.intake.doubles)
    assert scene.intake.texts == ["once"]
    assert scene.intake.doubles[0].update_id == str(update["update_id"])


async def test_a_chat_whose_store_is_slow_holds_up_no_other(server: TelegramServer) -> None:
    scene = Scene(server)
    slow = asyncio.Event()
    receive = scene.intake.receive

    async def gated(message: Any, cursor: Any = None) -> None:
        if message.chat_id == "1":
            await slow.wait()
        await receive(message, cursor)

    scene.intake.receive = gated  # type: ignore[method-assign]
    async with scene.running():
        held = asyncio.create_task(scene.post(said(1, chat=1)))
        after = asyncio.create_task(scene.post(said(2, chat=1)))
        for n in range(3, 30):
            assert await scene.post(said(n, chat=n)) == 200
        assert not held.done()
        assert not after.done()
        slow.set()
        assert [await held, await after] == [200, 200]
    assert len(scene.intake.messages) == 29


async def test_a_store_that_hangs_is_answered_for(server: TelegramServer) -> None:
    scene = Scene(server)
    scene.door["answer_seconds"] = 0.1
    async with scene.running():
        scene.intake.gate = asyncio.Event()
        assert await scene.post(said(1)) == 503
        scene.intake.gate = None
        assert await scene.post(said(1)) == 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{not json", "no JSON"),
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 200_000, "no JSON"),
        (b'{"update_id": ' + b"7" * 10_000 + b', "message": 3}', "unreadable"),
        (b'{"update_id": 5, "message": {"chat": "nonsense"}}', "unreadable"),
        (b'{"update_id": 5, "message": {"text": "' + b"x" * 300_000 + b'"}}', "too large"),
    ],
    ids=["half", "empty", "bytes", "deep", "number", "shape", "large"],
)
async def test_what_can_be_no_update_is_kept_and_does_not_come_again(
    server: TelegramServer, body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(server)
    scene.door["most_bytes"] = 250_000
    async with scene.running():
        scene.intake.failures = 1
        assert await scene.post(body) == 503, "not even kept yet"
        assert await scene.post(body) == 200
        assert await scene.post(said(9)) == 200
    ((_, raw, why),) = scene.intake.quarantined
    assert reason in why
    assert len(raw) <= 100_000
    assert scene.intake.texts == ["m9"]
    assert "xxxx" not in caplog.text


async def test_any_other_value_is_set_aside(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        for body in (b"null", b"3", b'"text"', b"[]", b"{}", b"[[]]", b'{"update_id": "x"}'):
            assert await scene.post(body) == 200
        assert await scene.post(said(9, "half a pair: \ud83d")) == 200
        assert await scene.post(said(10)) == 200
    assert "m10" in scene.intake.texts


async def test_what_breaks_the_intake_blocks_nobody(server: TelegramServer) -> None:
    scene = Scene(server)
    scene.intake.refuse = lambda m: ValueError("bug") if m.text == "bad" else None
    async with scene.running():
        server.private_text("bad")
        server.private_text("good")
        await scene.intake.wait_messages(1)
    assert scene.intake.texts == ["good"]
    assert len(scene.intake.quarantined) == 1


# --- who else comes -----------------------------------------------------------------------------


async def test_strangers_get_a_bare_status_and_no_line_in_the_log(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gateway")
    scene = Scene(server, check_seconds=30.0)
    root = f"http://127.0.0.1:{scene.port}"
    async with scene.running():
        before = len(caplog.records)
        assert await scene.post(said(1), secret=None) == 401
        assert await scene.post(said(1), secret="") == 401
        assert await scene.post(said(1), secret=SECRET + "x") == 401
        assert await scene.post(said(1), secret="geheim-ü-\u20ac") == 401
        for path in ("/", "/telegram", "/telegram/", f"/telegram/{hook_name('other:token')}"):
            assert await scene.post(said(1), path=root + path) == 404
        assert await scene.post(b"x" * 1_000_000, secret="wrong") == 401
        reader, writer = await scene.connect()
        writer.write(b"\x16\x03\x01 rubbish \x00\xff\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
        assert len(caplog.records) == before, [r.getMessage() for r in caplog.records[before:]]
        assert await scene.post(said(2), path=f"{root}/{hook_name(TOKEN)}") == 200, (
            "a proxy may cut its own part of the path off"
        )
    assert scene.intake.texts == ["m2"]
    assert scene.intake.quarantined == []


async def test_two_secrets_are_none(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        reader, writer = await scene.connect()
        head = scene.head(2).replace(b"Host: x", f"Host: x\r\n{SECRET_HEADER}: other".encode())
        writer.write(head + b"{}")
        assert b" 401 " in await reader.readline()
        writer.close()


async def test_other_methods_and_other_contents_are_refused(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            assert await scene.post(said(1), method=method) == 405
        assert await scene.post(said(1), **{"Content-Type": "text/plain"}) == 415
        assert await scene.post(b"\x1f\x8b", **{"Content-Encoding": "gzip"}) == 415
    assert scene.intake.messages == []


async def test_who_sends_slowly_holds_up_nobody_and_not_for_ever(server: TelegramServer) -> None:
    scene = Scene(server)
    scene.door.update(body_seconds=0.3, idle_seconds=0.5, most_connections=8, most_at_once=3)
    async with scene.running():
        halves = [await scene.connect() for _ in range(20)]  # more than there is room for
        for _, writer in halves:
            writer.write(b"POST /telegram/x HTTP/1.1\r\nHo")
        slow_reader, slow = await scene.connect()
        slow.write(scene.head(100) + b"{")
        assert await scene.post(said(1)) == 200, "in between"
        assert b" 408 " in await slow_reader.readline(), "its time is over"
        for reader, writer in halves:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 10) == b"", "cut off without a word"
            writer.close()
        slow.close()
        assert await scene.post(said(2)) == 200
    assert scene.intake.texts == ["m1", "m2"]


# --- coming and going ---------------------------------------------------------------------------


async def test_a_restart_while_updates_wait(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        server.private_text("before")
        await scene.intake.wait_messages(1)
        scene.intake.gate = asyncio.Event()
        server.private_text("cut off")
        await scene.intake.until(lambda: "waiting cut off" in scene.intake.events)
    scene.intake.gate = None
    server.private_text("while it was down")
    async with scene.running():
        await scene.intake.wait_messages(3)
    assert scene.intake.texts == ["before", "cut off", "while it was down"]
    assert scene.intake.doubles == []


async def test_from_polling_to_webhook_and_back_nothing_is_lost_or_doubled(
    server: TelegramServer,
) -> None:
    scene = Scene(server)
    expected = []
    for n in range(6):
        server.private_text(f"down {n}")
        async with scene.running(polling=n % 2 == 0):
            server.private_text(f"up {n}")
            expected += [f"down {n}", f"up {n}"]
            await scene.intake.wait_messages(len(expected))
            last = server.updates.next_id - 1
            await server.wait_confirmed(last)
    assert scene.intake.texts == expected
    assert scene.intake.doubles == []
    assert all(
        call.params.get("drop_pending_updates", "false") == "false"
        for call in [*server.calls_of("setWebhook"), *server.calls_of("deleteWebhook")]
    )


async def test_a_secret_is_made_where_none_is_given(server: TelegramServer) -> None:
    scene = Scene(server, secret=None)
    async with scene.running():
        server.private_text("one")
        await scene.intake.wait_messages(1)
    async with scene.running():
        server.private_text("two")
        await scene.intake.wait_messages(2)
    first, second = [call.params["secret_token"] for call in server.calls_of("setWebhook")]
    assert first != second
    assert min(len(first), len(second)) >= 32


# --- troubles -----------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_said(server: TelegramServer) -> None:
    scene = Scene(server)
    with socket.socket() as other:
        other.bind(("127.0.0.1", scene.port))
        other.listen()
        platform = scene.platform()
        with pytest.raises(PlatformUnavailable, match=f"{scene.port} can not be opened"):
            await platform.run(scene.intake, scene.reports)
        await platform.close()
    assert server.calls_of("setWebhook") == []
    async with scene.running():
        pass


async def test_an_address_that_telegram_refuses_is_the_operators_business(
    server: TelegramServer,
) -> None:
    scene = Scene(server)
    platform = scene.platform()
    text = "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"
    server.fault(Fault.error(400, text, "setWebhook"))
    with pytest.raises(PlatformConfigError, match="only on ports"):
        await platform.run(scene.intake, scene.reports)
    text = "Bad Request: bad webhook: Failed to resolve host: Name or service not known"
    server.fault(Fault.error(400, text, "setWebhook"))
    with pytest.raises(PlatformUnavailable, match="resolve"):
        await platform.run(scene.intake, scene.reports)
    await platform.close()


async def test_another_program_that_takes_the_updates_is_seen_and_put_right(
    server: TelegramServer,
) -> None:
    scene = Scene(server)
    async with scene.running():
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.base_url}{TOKEN}/deleteWebhook"),
        ):
            pass
        reason = await scene.reports.wait(PlatformState.DEGRADED)
        assert "another" in reason
        await scene.reports.wait(PlatformState.RUNNING)
        server.private_text("still here")
        await scene.intake.wait_messages(1)


async def test_deliveries_that_fail_are_seen_and_begin_again_when_they_can(
    server: TelegramServer,
) -> None:
    server.webhook.retry_seconds = 3600.0  # Telegram waits longer and longer
    scene = Scene(server)
    scene.door["port"] = free_port()  # the reverse proxy leads nowhere
    async with scene.running():
        server.private_text("waits")
        reason = await scene.reports.wait(PlatformState.DEGRADED)
        assert "an update waits" in reason
        assert "Connection refused" in reason

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", scene.door["port"])
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

        async with await asyncio.start_server(forward, "127.0.0.1", scene.port):
            await scene.intake.wait_messages(1)
            await scene.reports.wait(PlatformState.RUNNING)
    assert scene.intake.texts == ["waits"]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_telegram_is_away_and_what_it_still_posts_is_taken(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        server.fault(Fault.html(502, "getWebhookInfo", times=None))
        reason = await scene.reports.wait(PlatformState.DEGRADED)
        assert "502" in reason
        server.private_text("taken all the same")
        await scene.intake.wait_messages(1)
        server.faults.clear()
        await scene.reports.wait(PlatformState.RUNNING)


async def test_a_token_revoked_in_webhook_mode(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running() as task:
        server.token_valid = False
        with pytest.raises(PlatformUnavailable, match="token"):
            await task
    platform = scene.platform()
    with pytest.raises(PlatformConfigError, match="TELEGRAM_BOT_TOKEN"):
        await platform.run(scene.intake, scene.reports)
    await platform.close()


async def test_the_way_out_is_short_although_a_post_is_under_way(server: TelegramServer) -> None:
    scene = Scene(server)
    async with scene.running():
        scene.intake.refuse = lambda m: StoreUnavailable("later")
        scene.intake.gate = asyncio.Event()
        held = asyncio.create_task(scene.post(said(1)))
        await scene.intake.until(lambda: scene.intake.events)
    # Whatever it got, it was no 200: Telegram comes again.
    outcome = (await asyncio.gather(held, return_exceptions=True))[0]
    assert outcome != 200
    assert scene.intake.messages == []
