"""What tests of the Discord platform against the loopback Discord share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from agent.clock import SystemClock
from agent.mail import Address, OutboxPart
from gateway.platforms.contract import PlatformError, PlatformState
from gateway.platforms.discord.adapter import DiscordPlatform
from gateway.platforms.discord.settings import DiscordSettings
from tests.fakes.discord_server import DiscordServer
from tests.fakes.intake import RecordingIntake, Reports

TOKEN = "discord-test-token"


class HurriedClock(SystemClock):
    """The real clock, but waiting takes no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.005)


def settings(server: DiscordServer, **changes: Any) -> DiscordSettings:
    values: dict[str, Any] = {
        "token": TOKEN,
        "api_base": server.api_base,
        "guild_ready_seconds": 0.05,
        "shortest_heartbeat_seconds": 0.1,
        "reidentify_pause_seconds": 0.05,
        "send_timeout_seconds": 10.0,
        **changes,
    }
    return DiscordSettings(**values)


def make(server: DiscordServer, **changes: Any) -> DiscordPlatform:
    return DiscordPlatform(settings(server, **changes), HurriedClock(), nonce_scope="db1")


@contextlib.asynccontextmanager
async def running(
    platform: DiscordPlatform, intake: RecordingIntake, *, ready: bool = True
) -> AsyncIterator[tuple[Reports, asyncio.Task[None]]]:
    reports = Reports()
    task = asyncio.create_task(platform.run(intake, reports))
    try:
        if ready:
            await reports.wait(PlatformState.RUNNING)
        yield reports, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PlatformError):
            await task


def part(
    text: str = "hello", *, n: int = 0, id_: int = 1, follows: str | None = None
) -> OutboxPart:
    return OutboxPart(id_, 1, n, "planned", {"content": text}, follows_message_id=follows)


def address(server: DiscordServer, channel: Any, reply: Any = None) -> Address:
    number = str(getattr(channel, "id", channel))
    answered = None if reply is None else str(reply.id)
    return Address("discord", str(server.bot.id), number, None, answered)
