"""The real platforms keep the contract: two over loopback servers, the console over streams."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.mail import Address, PartDraft
from agent.messages import is_blank
from gateway.delivery.splitting import utf16_len
from gateway.platforms.console.adapter import ConsolePlatform, StandardStreams
from gateway.platforms.contract import (
    PlatformState,
    PlatformUnavailable,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.discord.adapter import DiscordPlatform
from gateway.platforms.discord.settings import DiscordSettings
from gateway.platforms.telegram.adapter import TelegramPlatform
from gateway.platforms.telegram.client import TelegramSettings
from tests.contract.platform_suite import FarEnd, PlatformSuite
from tests.fakes.clock import FakeClock, SequentialIds
from tests.fakes.discord_server import DiscordServer, discord_py_at
from tests.fakes.intake import RecordingIntake, Reports
from tests.fakes.telegram_server import TOKEN, USER, Fault, TelegramServer


class LeapingClock(SystemClock):
    """Time flies: whoever looks again finds every flood over."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * 100_000.0


class _Telegram:
    def __init__(self, server: TelegramServer) -> None:
        self._server = server
        server.private_text("hi")
        self.address = Address("telegram", str(server.state.bot_id), str(USER))
        settings = TelegramSettings(
            TOKEN, server.base_url, server.base_file_url, send_timeout_seconds=0.5
        )
        self.platform = TelegramPlatform(settings, LeapingClock())

    def fits(self, part: PartDraft) -> bool:
        text, entities = part.payload["text"], part.payload["entities"]
        return not is_blank(text) and utf16_len(text) <= 4096 and len(entities) <= 100

    def shown(self) -> list[str]:
        return self._server.visible_texts(USER)

    def fail(self, kind: type[SendError], *, delivered: bool = False) -> None:
        faults = {
            SendUnavailable: Fault.error(401, "Unauthorized"),
            SendFlood: Fault.flood(37),
            SendRefused: Fault.error(403, "Forbidden: bot was blocked by the user"),
            SendUnknown: Fault.drop(after=delivered),
        }
        self._server.fault(faults[kind])


class TestTelegram(PlatformSuite):
    @pytest.fixture
    async def house(self) -> AsyncIterator[FarEnd]:
        async with TelegramServer() as server:
            house = _Telegram(server)
            yield house
            await house.platform.close()


class _Discord:
    def __init__(self, server: DiscordServer) -> None:
        self._server = server
        self._channel = server.add_channel(server.add_guild())
        self.address = Address("discord", str(server.bot.id), str(self._channel.id))
        settings = DiscordSettings(server.token, api_base=server.api_base, guild_ready_seconds=0.02)
        self.platform = DiscordPlatform(settings, LeapingClock(), nonce_scope="suite")

    def fits(self, part: PartDraft) -> bool:
        content = part.payload["content"]
        return not is_blank(content) and utf16_len(content) <= 2000

    def shown(self) -> list[str]:
        return self._server.bot_texts(self._channel)

    def fail(self, kind: type[SendError], *, delivered: bool = False) -> None:
        faults: dict[type[SendError], dict[str, Any]] = {
            SendUnavailable: {"kind": "error", "status": 401},
            SendFlood: {"kind": "429-cloudflare"},
            SendRefused: {"kind": "error", "status": 403, "code": 50013},
            SendUnknown: {"kind": "reset", "handled": delivered},
        }
        self._server.fault(method="POST", path="/channels/*/messages", **faults[kind])


class TestDiscord(PlatformSuite):
    @pytest.fixture
    async def house(self) -> AsyncIterator[FarEnd]:
        async with DiscordServer() as server:
            house = _Discord(server)
            with discord_py_at(server.api_base, server.gateway_url):
                reports = Reports()
                task = asyncio.create_task(house.platform.run(RecordingIntake(), reports))
                await reports.wait(PlatformState.RUNNING)
                yield house
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PlatformUnavailable):
                    await task
                await house.platform.close()


class _Sink:
    """An output that breaks when told to."""

    def __init__(self) -> None:
        self.taken = b""
        self.broken = 0

    def write(self, data: bytes, /) -> int:
        if self.broken:
            self.broken -= 1
            raise BrokenPipeError
        self.taken += data
        return len(data)


class _Console:
    def __init__(self) -> None:
        self._sink = _Sink()
        self.end = asyncio.Event()
        self.address = Address("console", "local", "local")
        self.platform = ConsolePlatform(
            clock=FakeClock(),
            ids=SequentialIds(),
            idle=self._wait,
            standard=StandardStreams(io.BytesIO(b"hi\n"), self._sink),
        )

    async def _wait(self) -> None:
        await self.end.wait()

    def fits(self, part: PartDraft) -> bool:
        return bool(part.payload["text"].strip())

    def shown(self) -> list[str]:
        # A marked repeat stands in one line with its mark.
        return self._sink.taken.decode().removesuffix("\n").split("\n")

    def fail(self, kind: type[SendError], *, delivered: bool = False) -> None:
        self._sink.broken = 1

    async def attach_again(self) -> None:
        self._again = asyncio.create_task(
            self.platform.attach(StandardStreams(io.BytesIO(), self._sink))
        )
        await asyncio.sleep(0)


class TestConsole(PlatformSuite):
    @pytest.fixture
    async def house(self) -> AsyncIterator[FarEnd]:
        house = _Console()
        intake = RecordingIntake()
        task = asyncio.create_task(house.platform.run(intake, Reports()))
        await intake.wait_messages(1)
        yield house
        house.end.set()
        await task

    @pytest.mark.parametrize("kind", [SendUnavailable])
    async def test_failures_have_their_class(self, house: FarEnd, kind: type[SendError]) -> None:
        # A terminal either takes an answer or is gone: it fails in no other way.
        assert isinstance(house, _Console)
        house.fail(kind)
        with pytest.raises(kind):
            await self._send(house, 1, "one")
        await house.attach_again()
        await self._send(house, 2, "two")
        assert house.shown() == ["two"]

    async def test_a_repeat_is_shown_once_or_marked(self, house: FarEnd) -> None:
        # Never unknown, but a crash may leave it in doubt.
        await self._send(house, 1, "one")
        await self._send(house, 1, "one", repeat=True)
        first, second = house.shown()
        assert first == "one"
        assert second != "one"
        assert second.endswith("one")
