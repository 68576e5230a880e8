"""Owns Telegram as a platform: its life, where a message goes, and what a chat may still take."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway import texts
from gateway.delivery.splitting import TELEGRAM_LIMIT
from gateway.platforms.contract import (
    Address,
    Attachment,
    FetchRefused,
    FetchUnavailable,
    Intake,
    OutboxDraft,
    OutboxPart,
    PartDraft,
    PlatformError,
    PlatformState,
    PlatformUnavailable,
    PreviewBounds,
    PreviewKind,
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
_GROUP = re.compile(r"-[0-9]{1,16}")
_TYPING_SECONDS = 5.0


class TelegramPlatform:
    """`gateway.platforms.contract.Platform` on Telegram, by polling or by webhook.

    Telegram has no key that would make a second send harmless, so a repeat is marked as one.
    """

    def __init__(self, settings: TelegramSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client: TelegramClient | None = None
        self._closed = False
        self._bot_id = _id_in(settings.token)
        self._intake: Intake | None = None
        self._moved: dict[str, str] = {}
        self._untold: dict[str, str] = {}
        """Moves that the intake has not been told of."""
        self._foreign: set[str] = set()
        """Bots of before, for which answers are still owed; each is logged once."""
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

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        return rendering.render(draft.text)

    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.STARTING, "")
        client = self._open()
        await client.renew_polling()
        me = await client.me(self._last_sent)
        self._bot_id = str(me.id)
        self._intake = intake
        await self._load_moves(intake, self._bot_id)
        incoming = Incoming(
            lambda update: convert(update, me), self._bot_id, intake, report, self._clock
        )
        await incoming.remember()
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
        if self._is_foreign(address):
            # Not refused: it is owed, and with the token of before it can still be paid.
            raise SendUnavailable("owed by another bot; it waits for that bot's token")
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

    def preview_kind(self, address: Address) -> PreviewKind:
        return "none"

    def preview_bounds(self, address: Address) -> PreviewBounds:
        if address.chat_id.startswith("-"):  # groups and channels
            return PreviewBounds(limit=TELEGRAM_LIMIT, calls=20, seconds=60.0)
        return PreviewBounds(limit=TELEGRAM_LIMIT, calls=20, seconds=20.0)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        return None

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        if attachment.size_bytes is not None and attachment.size_bytes > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        try:
            client = self._open()
        except PlatformError as exc:
            raise FetchUnavailable(texts.FILE_NOT_NOW) from exc
        return await client.fetch(attachment.ref, limit_bytes)

    async def typing(self, address: Address) -> None:
        if self._is_foreign(address):
            return
        try:
            async with asyncio.timeout(_TYPING_SECONDS):
                await self._sender().typing(self._target(address), address.thread_id)
        except SendFlood:
            raise
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
                await self._follow(target, exc.new_chat_id)
            except BadMarkup as exc:
                log.warning("markup refused, sent as plain text", extra={"error": str(exc)})
                if not entities:
                    raise SendRefused(str(exc)) from exc
                entities = []
            except NoSuchMessage as exc:
                if reply_to is None:
                    raise SendRefused(str(exc)) from exc
                reply_to = None
        raise SendRefused("refused in every form")

    def _target(self, address: Address) -> str:
        """The chat's id of today: a group that became a supergroup has a new one."""
        chat_id = address.chat_id
        for _ in range(3):
            chat_id = self._moved.get(chat_id, chat_id)
        return chat_id

    # --- chats that moved

    async def _follow(self, old_chat_id: str, new_chat_id: str) -> None:
        """Told by a send; the notices in the chats may come later, or never."""
        if old_chat_id == new_chat_id or not _GROUP.fullmatch(new_chat_id):
            raise SendRefused("the chat is said to have moved to where no chat can be")
        log.info("chat moved", extra={"old": old_chat_id, "new": new_chat_id})
        self._moved[old_chat_id] = self._untold[old_chat_id] = new_chat_id
        await self._tell_moves()

    async def _load_moves(self, intake: Intake, bot_id: str) -> None:
        await self._tell_moves()
        try:
            self._moved.update(await intake.moved_chats(PLATFORM, bot_id))
        except StoreUnavailable:
            # Each is learned again by the first send.
            log.warning("moved chats not known", extra={"platform": PLATFORM})

    async def _tell_moves(self) -> None:
        """All else that leads to the chat has to follow; what can not be told now is told later."""
        if self._intake is None or self._bot_id is None:
            return
        for old, new in list(self._untold.items()):
            try:
                await self._intake.moved(PLATFORM, self._bot_id, old, new)
            except StoreUnavailable:
                log.warning("a move could not be stored", extra={"platform": PLATFORM})
                return
            self._untold.pop(old, None)

    # --- whose it is

    def _is_foreign(self, address: Address) -> bool:
        """Is this of another bot? The same chat may exist for both, and it is not its answer."""
        foreign = self._bot_id is not None and address.bot_id != self._bot_id
        if foreign and address.bot_id not in self._foreign:
            self._foreign.add(address.bot_id)
            log.warning(
                "answers are owed by another bot; they wait for its token",
                extra={"platform": PLATFORM, "bot_id": address.bot_id},
            )
        return foreign

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


def _id_in(token: str) -> str | None:
    """A token begins with its bot's id: it is known before anything has been asked."""
    digits = token.strip().partition(":")[0]
    return digits if digits.isascii() and digits.isdecimal() else None
