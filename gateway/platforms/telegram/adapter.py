"""Owns Telegram as a platform: its life, where a message goes, and what a chat may still take."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import replace

from agent.attachments import Attachments
from agent.ports import Clock
from agent.remembered import Remembered
from gateway import texts
from gateway.commands.menu import MenuEntry
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
    SendUnavailable,
)
from gateway.platforms.telegram.client import TelegramClient, TelegramSettings
from gateway.platforms.telegram.convert import PLATFORM, convert
from gateway.platforms.telegram.failures import BadMarkup, ChatMoved, NoSuchMessage
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.native.menu import Menu, menus
from gateway.platforms.telegram.native.presses import Presses
from gateway.platforms.telegram.out.calls import MessageCalls
from gateway.platforms.telegram.out.enclosing import Enclosing
from gateway.platforms.telegram.out.moves import Moves
from gateway.platforms.telegram.out.outgoing import Outgoing
from gateway.platforms.telegram.out.planning import plan
from gateway.platforms.telegram.out.previews import Showing
from gateway.platforms.telegram.polling import PollLoop, PollTimes
from gateway.platforms.telegram.webhook import Webhook, hook_name

log = logging.getLogger(__name__)

_KEPT_CHATS = 10_000
_TYPING_SECONDS = 5.0


class TelegramPlatform:
    """`gateway.platforms.contract.Platform` on Telegram, by polling or by webhook.

    Telegram has no key that would make a second send harmless. What that means for each kind of
    call whose outcome is unknown:

    ==================== ==========================================================================
    message, file        sent again, marked as a possible repeat, in growing pauses (ADR 45)
    edit                 repeated as it is: the message says it once, however often it is told to
    draft                shown again at the next piece of text; it goes by itself
    buttons taken off    left: pressed once more they say that it is over
    press answered       left: the app stops waiting by itself; its command is a row already
    menu                 set again: it is the same then as well
    ==================== ==========================================================================
    """

    def __init__(
        self,
        settings: TelegramSettings,
        clock: Clock,
        *,
        attachments: Attachments | None = None,
        menu: Sequence[MenuEntry] = (),
        remembered: Remembered | None = None,
        admins: Collection[str] = (),
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._client: TelegramClient | None = None
        self._closed = False
        self._bot_id = _id_in(settings.token)
        # Telegram's menu has no hyphens.
        self._commands = frozenset(
            name.replace("-", "_") for entry in menu for name in (entry.name, *entry.aliases)
        )
        self._moves = Moves()
        self._outgoing = Outgoing(self._calls, self._moves, Enclosing(attachments, clock))
        self._showing = Showing(self._calls, self._outgoing)
        self._presses = Presses(self._calls, clock)
        self._menu = Menu(menus(menu, admins), self._calls, remembered, clock)
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
        return plan(draft)

    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.STARTING, "")
        client = self._open()
        await client.renew_polling()
        me = replace(await client.me(self._last_sent), commands=self._commands)
        self._bot_id = bot_id = str(me.id)
        await self._moves.load(intake, bot_id)

        def told(state: PlatformState, reason: str) -> None:
            report(state, reason)
            if state is PlatformState.RUNNING:
                self._menu.begin(bot_id)

        incoming = Incoming(
            lambda update: convert(update, me),
            bot_id,
            intake,
            told,
            self._clock,
            self._presses.answer,
        )
        await incoming.remember()
        settings, clock = self._settings, self._clock
        if settings.webhook is not None:
            name = hook_name(settings.token.strip())
            await Webhook(settings.webhook, client.webhook, name, incoming, told, clock).run()
            return
        times = PollTimes(
            settings.poll_timeout_seconds,
            settings.poll_grace_seconds,
            settings.conflict_quiet_seconds,
        )
        await PollLoop(client, incoming, told, clock, times).run()

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        if self._is_foreign(address):
            # Not refused: it is owed, and with the token of before it can still be paid.
            raise SendUnavailable("owed by another bot; it waits for that bot's token")
        message_id = await self._outgoing.send(address, part, repeat=repeat)
        chat_id = self._moves.today(address)
        self._last_sent[chat_id] = message_id
        self._last_sent.move_to_end(chat_id)
        if len(self._last_sent) > _KEPT_CHATS:
            self._last_sent.popitem(last=False)
        return message_id

    def preview_kind(self, address: Address) -> PreviewKind:
        return self._showing.kind(address)

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return self._showing.bounds(address)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        if self._is_foreign(address):
            raise SendUnavailable("the turn of another bot")
        return await self._showing.show(address, text, message_id, draft_id)

    async def take_buttons(self, address: Address, message_id: str) -> None:
        if self._is_foreign(address):
            raise SendUnavailable("a message of another bot")
        await self._outgoing.take_buttons(address, message_id)

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
                chat_id = self._moves.today(address)
                await self._calls().action(chat_id, address.thread_id, "typing")
        except SendFlood:
            raise
        except (SendError, ChatMoved, BadMarkup, NoSuchMessage, TimeoutError) as exc:
            log.debug("typing was not shown", extra={"error": str(exc)})

    async def close(self) -> None:
        self._closed = True
        await self._menu.close()
        await self._presses.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

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

    def _calls(self) -> MessageCalls:
        try:
            return self._open().messages
        except PlatformError as exc:
            raise SendUnavailable(str(exc)) from exc


def _id_in(token: str) -> str | None:
    """A token begins with its bot's id: it is known before anything has been asked."""
    digits = token.strip().partition(":")[0]
    return digits if digits.isascii() and digits.isdecimal() else None
