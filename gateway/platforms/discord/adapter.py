"""Owns Discord as a platform: its life, where a message goes, how a repeat stays one message."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from agent.ports import Clock
from gateway import texts
from gateway.platforms.contract import (
    Address,
    Attachment,
    FetchRefused,
    FetchUnavailable,
    Intake,
    OutboxPart,
    PartDraft,
    PlatformState,
    Report,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
)
from gateway.platforms.discord import render as rendering
from gateway.platforms.discord.channels import ChannelFeed
from gateway.platforms.discord.client import DiscordClient, DiscordSettings, NoSuchReference
from gateway.platforms.discord.convert import PLATFORM, Facts, convert
from gateway.platforms.discord.files import parse_ref

log = logging.getLogger(__name__)

_KEPT_CHANNELS = 10_000
_TYPING_SECONDS = 5.0


class DiscordPlatform:
    """`gateway.platforms.contract.Platform` on Discord.

    ``nonce_scope`` names the database whose parts are sent (see `render.nonce`).
    """

    def __init__(self, settings: DiscordSettings, clock: Clock, *, nonce_scope: str) -> None:
        self._settings = settings
        self._clock = clock
        self._nonce_scope = nonce_scope
        self._client: DiscordClient | None = None
        self._closed = False
        self._bot_id: str | None = None
        self._silent_until: dict[int, float] = {}
        self._last_sent: OrderedDict[str, str] = OrderedDict()

    @property
    def name(self) -> str:
        return PLATFORM

    @property
    def bot_id(self) -> str | None:
        return self._bot_id

    @property
    def dedupes_sends(self) -> bool:
        return True

    def render(self, text: str) -> list[PartDraft]:
        return rendering.render(text)

    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.STARTING, "")
        session = _Session(report)
        client = DiscordClient(self._settings, session)
        try:
            await client.login()
        except BaseException:
            await client.close()
            raise
        await self._adopt(client)
        bot_id = client.user_id
        self._bot_id = str(bot_id)
        session.feed = ChannelFeed(
            client,
            lambda facts: convert(facts, bot_id, self._last_sent),
            self._bot_id,
            intake,
            report,
            self._clock,
        )
        try:
            await client.receive()
        finally:
            await session.feed.stop()

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        channel_id = _channel_of(address)
        self._check_silence(channel_id)
        client = self._sender()
        content = part.payload["content"]
        nonce = rendering.nonce(self._nonce_scope, part.id)
        reply_to = None
        if address.reply_to_message_id is not None:
            reply_to = int(address.reply_to_message_id)
        try:
            found = None
            if repeat:
                # Discord forgets a nonce after some minutes, so its own memory is not enough.
                found = await client.find_own(
                    channel_id, content, nonce, reply_to, first=part.n == 0
                )
            message_id = found or await _send(
                client, channel_id, content, nonce, reply_to if part.n == 0 else None
            )
        except SendFlood as exc:
            self._fall_silent(channel_id, exc.retry_after_seconds)
            raise
        self._last_sent[str(channel_id)] = message_id
        self._last_sent.move_to_end(str(channel_id))
        if len(self._last_sent) > _KEPT_CHANNELS:
            self._last_sent.popitem(last=False)
        return message_id

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        ref = parse_ref(attachment.ref)
        if attachment.size_bytes is not None and attachment.size_bytes > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        if self._client is None:
            raise FetchUnavailable(texts.FILE_NOT_NOW)
        return await self._client.fetch(ref, limit_bytes)

    async def typing(self, address: Address) -> None:
        try:
            channel_id = _channel_of(address)
            self._check_silence(channel_id)
            async with asyncio.timeout(_TYPING_SECONDS):
                await self._sender().typing(channel_id)
        except (SendError, NoSuchReference, TimeoutError) as exc:
            log.debug("typing was not shown", extra={"error": str(exc)})

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _adopt(self, client: DiscordClient) -> None:
        """From here on answers go out through this login; the one of before is let go."""
        before, self._client = self._client, client
        if before is not None:
            await before.close()
        if self._closed:
            await self.close()

    def _sender(self) -> DiscordClient:
        if self._client is None:
            raise SendUnavailable("discord: not logged in")
        return self._client

    def _fall_silent(self, channel_id: int, seconds: float) -> None:
        self._silent_until[channel_id] = self._clock.monotonic() + seconds

    def _check_silence(self, channel_id: int) -> None:
        left = self._silent_until.get(channel_id, 0.0) - self._clock.monotonic()
        if left > 0:
            raise SendFlood(left)
        self._silent_until.pop(channel_id, None)


class _Session:
    """Tells the feed and the supervisor what the connection does (`client.Events`)."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.feed: ChannelFeed | None = None

    def identifying(self) -> None:
        if self.feed is not None:
            self.feed.hold()

    def ready(self) -> None:
        self._report(PlatformState.RUNNING, "")
        if self.feed is not None:
            self.feed.release()

    def resumed(self) -> None:
        self._report(PlatformState.RUNNING, "")

    def disconnected(self) -> None:
        self._report(PlatformState.DEGRADED, "disconnected; trying again")

    def message(self, facts: Facts) -> None:
        if self.feed is not None:
            self.feed.live(facts)


def _channel_of(address: Address) -> int:
    """A thread is a channel of its own to Discord."""
    number = address.thread_id or address.chat_id
    if not number.isdecimal():
        raise SendRefused(f"{number!r} is no channel")
    return int(number)


async def _send(
    client: DiscordClient, channel_id: int, content: str, nonce: str, reply_to: int | None
) -> str:
    try:
        return await client.send(channel_id, content, nonce, reply_to)
    except NoSuchReference as exc:
        if reply_to is None:
            raise SendRefused(str(exc)) from exc
    # What it answers is gone; the answer itself still counts.
    try:
        return await client.send(channel_id, content, nonce, None)
    except NoSuchReference as exc:
        raise SendRefused(str(exc)) from exc
