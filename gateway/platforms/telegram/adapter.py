"""Owns Telegram as a platform: its life, where a message goes, and what a chat may still take."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

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
    PlatformError,
    PlatformState,
    PlatformUnavailable,
    Report,
    SendError,
    SendFlood,
    SendRefused,
    SendUnavailable,
)
from gateway.platforms.telegram import render as rendering
from gateway.platforms.telegram.client import TelegramClient, TelegramSettings
from gateway.platforms.telegram.convert import PLATFORM, convert
from gateway.platforms.telegram.failures import BadMarkup, ChatMoved, NoSuchMessage
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.polling import PollLoop, PollTimes
from gateway.platforms.telegram.webhook import Webhook, hook_name

log = logging.getLogger(__name__)

_KEPT_CHATS = 10_000
_TYPING_SECONDS = 5.0


class TelegramPlatform:
    """`gateway.platforms.contract.Platform` on Telegram by polling.

    Telegram has no key that would make a second send harmless, so a repeat is marked as one.
    """

    def __init__(self, settings: TelegramSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client: TelegramClient | None = None
        self._closed = False
        self._bot_id: str | None = None
        self._moved: dict[str, str] = {}
        self._silent_until: dict[str, float] = {}
        self._last_sent: OrderedDict[str, str] = OrderedDict()

    @property
    def name(self) -> str:
        return PLATFORM

    @property
    def bot_id(self) -> str | None:
        return self._bot_id

    @property
    def dedupes_sends(self) -> bool:
        return False

    def render(self, text: str) -> list[PartDraft]:
        return rendering.render(text)

    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.STARTING, "")
        client = self._open()
        await client.renew_polling()
        me = await client.me(self._last_sent)
        self._bot_id = str(me.id)
        incoming = Incoming(
            lambda update: convert(update, me), self._bot_id, intake, report, self._clock
        )
        settings, clock = self._settings, self._clock
        if settings.webhook is not None:
            name = hook_name(settings.token.strip())
            await Webhook(settings.webhook, client.webhook, name, incoming, report, clock).run()
            return
        times = PollTimes(
            settings.poll_timeout_seconds,
            settings.poll_grace_seconds,
            settings.conflict_quiet_seconds,
        )
        await PollLoop(client, incoming, report, clock, times).run()

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        silent_seconds = self._silent_seconds(address.chat_id)
        if silent_seconds > 0:
            raise SendFlood(silent_seconds)
        reply_to = address.reply_to_message_id if part.n == 0 else None
        payload = part.payload
        if repeat:
            marked = rendering.mark_repeat(payload)
            if marked is None:  # no room in the message itself: the mark goes before it
                await self._deliver(address, {"text": rendering.REPEAT_MARK.strip()}, reply_to)
            else:
                payload = marked
        message_id = await self._deliver(address, payload, reply_to)
        self._last_sent[self._target(address)] = message_id
        self._last_sent.move_to_end(self._target(address))
        if len(self._last_sent) > _KEPT_CHATS:
            self._last_sent.popitem(last=False)
        return message_id

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        if attachment.size_bytes is not None and attachment.size_bytes > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        try:
            client = self._open()
        except PlatformError as exc:
            raise FetchUnavailable(texts.FILE_NOT_NOW) from exc
        return await client.fetch(attachment.ref, limit_bytes)

    async def typing(self, address: Address) -> None:
        if self._silent_seconds(address.chat_id) > 0:
            return
        try:
            async with asyncio.timeout(_TYPING_SECONDS):
                await self._sender().typing(self._target(address), address.thread_id)
        except SendFlood as exc:
            self._fall_silent(address.chat_id, exc.retry_after_seconds)
        except (SendError, ChatMoved, BadMarkup, NoSuchMessage, TimeoutError) as exc:
            log.debug("typing was not shown", extra={"error": str(exc)})

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- sending

    async def _deliver(
        self, address: Address, payload: Mapping[str, Any], reply_to: str | None
    ) -> str:
        """One message, with what can be left out left out if Telegram refuses it for that."""
        client = self._sender()
        text, entities, thread_id = (
            payload["text"],
            payload.get("entities") or [],
            address.thread_id,
        )
        for _ in range(4):
            target = self._target(address)
            if target != address.chat_id:
                # The numbers of messages and topics meant something in the old chat only.
                reply_to = thread_id = None
            try:
                return await client.send(target, thread_id, text, entities, reply_to)
            except ChatMoved as exc:
                log.info("chat moved", extra={"old": target, "new": exc.new_chat_id})
                self._moved[target] = exc.new_chat_id
            except BadMarkup as exc:
                log.warning("markup refused, sent as plain text", extra={"error": str(exc)})
                if not entities:
                    raise SendRefused(str(exc)) from exc
                entities = []
            except NoSuchMessage as exc:
                if reply_to is None:
                    raise SendRefused(str(exc)) from exc
                reply_to = None
            except SendFlood as exc:
                self._fall_silent(address.chat_id, exc.retry_after_seconds)
                raise
        raise SendRefused("refused in every form")

    def _target(self, address: Address) -> str:
        """The chat's id of today: a group that became a supergroup has a new one."""
        chat_id = address.chat_id
        for _ in range(3):
            chat_id = self._moved.get(chat_id, chat_id)
        return chat_id

    def _fall_silent(self, chat_id: str, seconds: float) -> None:
        self._silent_until[chat_id] = self._clock.monotonic() + seconds

    def _silent_seconds(self, chat_id: str) -> float:
        """How long nothing at all may be sent to this chat: every try would make it longer."""
        left = self._silent_until.get(chat_id, 0.0) - self._clock.monotonic()
        if left <= 0:
            self._silent_until.pop(chat_id, None)
        return left

    def _open(self) -> TelegramClient:
        if self._closed:
            raise PlatformUnavailable("the platform is closed")
        if self._client is None:
            self._client = TelegramClient(self._settings)
        return self._client

    def _sender(self) -> TelegramClient:
        try:
            return self._open()
        except PlatformError as exc:
            raise SendUnavailable(str(exc)) from exc
