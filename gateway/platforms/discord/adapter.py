"""Owns Discord as a platform: its life, where a message goes, how a repeat stays one message."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from functools import partial

from agent.attachments import Attachments
from agent.messages import is_blank
from agent.ports import Clock
from agent.remembered import Remembered
from gateway import texts
from gateway.commands.menu import MenuEntry
from gateway.delivery.splitting import DISCORD_LIMIT
from gateway.platforms.contract import (
    Address,
    Attachment,
    ChatGone,
    FetchRefused,
    FetchUnavailable,
    Intake,
    OutboxDraft,
    OutboxPart,
    PartDraft,
    PlatformState,
    PreviewBounds,
    PreviewKind,
    Report,
    SendError,
    SendFlood,
    SendUnavailable,
)
from gateway.platforms.discord.channels import ChannelFeed
from gateway.platforms.discord.client import DiscordClient
from gateway.platforms.discord.convert import PLATFORM, convert
from gateway.platforms.discord.files import Cdn, Expired, FileRef, Withheld, parse_ref
from gateway.platforms.discord.handing import HandIn
from gateway.platforms.discord.health import Health
from gateway.platforms.discord.native.hooks import Hooks
from gateway.platforms.discord.native.menu import Publishing
from gateway.platforms.discord.native.pressing import Presses
from gateway.platforms.discord.out.buttons import Buttons
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.outgoing import Outgoing, channel_of, number_of
from gateway.platforms.discord.out.parcels import MOST_BYTES, Packing
from gateway.platforms.discord.out.planning import plan
from gateway.platforms.discord.out.previews import Previews
from gateway.platforms.discord.out.refusals import NoSuchReference
from gateway.platforms.discord.session import Session
from gateway.platforms.discord.settings import DiscordSettings
from gateway.platforms.discord.source import ChannelGone, HistoryUnavailable
from gateway.platforms.discord.starts import SessionStarts
from gateway.platforms.discord.wire import WireEvent

log = logging.getLogger(__name__)

_KEPT_CHANNELS = 10_000
_TYPING_SECONDS = 5.0
_ROLES_SECONDS = 5.0


class DiscordPlatform:
    """`gateway.platforms.contract.Platform` on Discord.

    ``nonce_scope``: the database whose parts are sent (see `render.nonce`). ``attachments``: files
    that go out with answers. ``menu``: published once per bot and change (``remembered``).
    """

    def __init__(
        self,
        settings: DiscordSettings,
        clock: Clock,
        *,
        nonce_scope: str,
        attachments: Attachments | None = None,
        menu: tuple[MenuEntry, ...] = (),
        remembered: Remembered | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._nonce_scope = nonce_scope
        self._menu = menu
        self._direct = Direct(settings.api_base, settings.token)
        self._hooks = Hooks(self._direct)
        self._previews = Previews(self._direct, nonce_scope)
        self._buttons = Buttons(self._direct)
        self._packing = Packing(attachments)
        self._publishing = Publishing(menu, remembered, clock)
        self._client: DiscordClient | None = None
        self._cdn: Cdn | None = None
        self._closed = False
        self._bot_id: str | None = None
        self._left: dict[int, int] = {}
        """What the feed of the connection before had not got done."""
        self._withheld: set[WireEvent] = set()
        self._starts = SessionStarts(clock, spacing_seconds=settings.reidentify_pause_seconds)
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
        return True

    def render(self, draft: OutboxDraft) -> list[PartDraft]:
        return plan(draft)

    async def run(self, intake: Intake, report: Report) -> None:
        report(PlatformState.STARTING, "")
        health = Health(report, self._clock, remark=lambda: self._publishing.trouble)
        session = Session(health, self._publish)
        client = DiscordClient(self._settings, session, self._clock, self._withheld, self._starts)
        try:
            await client.login()
        except BaseException:
            await client.close()
            raise
        await self._adopt(client)
        bot_id = client.user_id
        if self._bot_id != str(bot_id):
            self._left = {}
        self._bot_id = str(bot_id)
        said = partial(convert, bot_id=bot_id, last_sent=self._last_sent)
        session.presses = presses = Presses(
            self._hooks, self._menu, said, intake, session.health.store, self._clock
        )
        hand_in = HandIn(
            client.asking,
            said,
            self._bot_id,
            intake,
            session.health.store,
            self._clock,
        )
        session.feed = feed = ChannelFeed(client.asking, hand_in, self._clock, self._left)
        try:
            await client.receive()
        finally:
            await presses.stop()
            await feed.stop()
            self._left = feed.unfinished()

    def _publish(self) -> None:
        application_id = None if self._client is None else self._client.application_id
        if application_id is not None:
            self._publishing.ready(self._direct, application_id)

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        self._check_bot(address)
        channel_id, client = channel_of(address), self._sender()
        paid_for = client.asking.upload_limit_bytes(channel_id) or 0
        outgoing = Outgoing(
            client.sending,
            self._hooks,
            self._packing,
            min(max(self._settings.upload_limit_bytes, paid_for), MOST_BYTES),
            self._nonce_scope,
        )
        sent = await outgoing.send(address, part, repeat=repeat)
        if not sent.quiet:
            self._remember_last(channel_id, sent.message_id)
        return sent.message_id

    def _remember_last(self, channel_id: int, message_id: str) -> None:
        self._last_sent[str(channel_id)] = message_id
        self._last_sent.move_to_end(str(channel_id))
        if len(self._last_sent) > _KEPT_CHANNELS:
            self._last_sent.popitem(last=False)

    def preview_kind(self, address: Address) -> PreviewKind:
        return "message"

    def preview_bounds(self, address: Address) -> PreviewBounds:
        return PreviewBounds(limit=DISCORD_LIMIT, calls=5, seconds=5.0)

    async def preview(
        self, address: Address, text: str, message_id: str | None, draft_id: int
    ) -> str | None:
        self._check_bot(address)
        self._sender()
        channel_id, shown = channel_of(address), number_of(message_id)
        if shown is None:
            if is_blank(text):
                return None
            reply_to = number_of(address.reply_to_message_id)
            return await self._previews.begin(channel_id, text, draft_id, reply_to)
        if is_blank(text):
            await self._previews.remove(channel_id, shown)
            return None
        await self._previews.change(channel_id, shown, text)
        return message_id

    async def take_buttons(self, address: Address, message_id: str) -> None:
        self._check_bot(address)
        self._sender()
        if (message := number_of(message_id)) is not None:
            await self._buttons.take(channel_of(address), message)

    async def fetch(self, attachment: Attachment, limit_bytes: int) -> bytes:
        ref = parse_ref(attachment.ref)
        if attachment.size_bytes is not None and attachment.size_bytes > limit_bytes:
            raise FetchRefused(texts.file_too_large(limit_bytes))
        if self._cdn is None:
            settings = self._settings
            self._cdn = Cdn(settings.api_base, timeout_seconds=settings.file_timeout_seconds)
        try:
            return await self._cdn.load(ref.url, limit_bytes)
        except Expired:
            address = await self._fresh_address(ref)
        try:
            return await self._cdn.load(address, limit_bytes)
        except Withheld:  # at an address that is a moment old: that says nothing of the file
            log.warning("discord's file server refuses to hand out a file (403)")
            raise FetchUnavailable(texts.FILE_WITHHELD) from None
        except Expired:
            raise FetchRefused(texts.FILE_GONE) from None

    async def _fresh_address(self, ref: FileRef) -> str:
        if self._client is None or not self._client.is_open:
            raise FetchUnavailable(texts.FILE_NOT_NOW)
        try:
            address = await self._client.asking.file_address(ref)
        except HistoryUnavailable:
            raise FetchUnavailable(texts.FILE_NOT_NOW) from None
        except ChannelGone:
            address = None
        if address is None:
            raise FetchRefused(texts.FILE_GONE)
        return address

    async def roles_of(self, address: Address, user_id: str) -> frozenset[str] | None:
        """`contract.KnowsRoles.roles_of`."""
        user, client = number_of(user_id), self._client
        if user is None or client is None or address.bot_id != self._bot_id:
            return None
        try:
            async with asyncio.timeout(_ROLES_SECONDS):
                return await client.asking.roles_of(channel_of(address), user)
        except ChannelGone as exc:
            raise ChatGone(str(exc)) from None
        except (HistoryUnavailable, SendError, TimeoutError) as exc:
            log.debug("roles are not known", extra={"error": str(exc)})
            return None

    async def typing(self, address: Address) -> None:
        if self._is_foreign(address):
            return
        try:
            async with asyncio.timeout(_TYPING_SECONDS):
                await self._sender().sending.typing(channel_of(address))
        except SendFlood:
            raise
        except (SendError, NoSuchReference, TimeoutError) as exc:
            log.debug("typing was not shown", extra={"error": str(exc)})

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        await self._publishing.stop()
        if client is not None:
            await client.close()
        await self._direct.close()

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

    def _check_bot(self, address: Address) -> None:
        if self._is_foreign(address):
            # Not refused: it is owed, and with the token of before it can still be paid.
            raise SendUnavailable("owed by another bot; it waits for that bot's token")

    def _is_foreign(self, address: Address) -> bool:
        """Was this asked of another bot than the one that is logged in?"""
        bot_id = address.bot_id
        if self._bot_id is None or bot_id == self._bot_id:
            return False
        if bot_id not in self._foreign:
            self._foreign.add(bot_id)
            log.warning("answers are owed by another bot", extra={"bot_id": bot_id})
        return True
