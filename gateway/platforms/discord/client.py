"""Owns the connection to Discord: the only place that knows discord.py (imported when built)."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gateway import texts
from gateway.platforms.contract import (
    FetchRefused,
    FetchUnavailable,
    PlatformConfigError,
    PlatformError,
    PlatformUnavailable,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.discord.channels import ChannelGone, HistoryUnavailable
from gateway.platforms.discord.convert import Facts
from gateway.platforms.discord.files import Cdn, Expired, FileRef, address_in
from gateway.platforms.discord.reading import read_message

if TYPE_CHECKING:
    import discord

log = logging.getLogger(__name__)
T = TypeVar("T")

PUBLIC_API_BASE = "https://discord.com/api/v10"
_CLOSE_SECONDS = 5.0
_LOGIN_SECONDS = 60.0
_CLOUDFLARE_SECONDS = 60.0
_SEARCHED_MESSAGES = 300
_TOKEN_HINT = (
    "discord refuses the token; reset it in the developer portal and set DISCORD_BOT_TOKEN"
)
_INTENT_HINT = (
    "discord refuses the Message Content intent; switch it on for the bot in the developer portal "
    "(Bot, Privileged Gateway Intents)"
)
_UNKNOWN_MESSAGE, _INVALID_FORM = 10008, 50035


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """Of one bot."""

    token: str = field(repr=False)
    api_base: str = PUBLIC_API_BASE
    gateway_url: str | None = None
    """None: asked from the API."""
    patience_seconds: float = 120.0
    """How long the SDK may try to reconnect by itself before a new start is better."""
    send_timeout_seconds: float = 90.0
    """The SDK's own retries and waits for rate limits included."""
    file_timeout_seconds: float = 120.0
    guild_ready_seconds: float = 2.0
    heartbeat_timeout_seconds: float = 60.0
    reidentify_pause_seconds: float = 5.0


class Events(Protocol):
    """What the connection tells, in order; none of these waits."""

    def identifying(self) -> None:
        """A new session begins: what came before it is not replayed."""
        ...

    def ready(self) -> None:
        """The new session is complete."""
        ...

    def resumed(self) -> None:
        """The old session goes on; Discord replays what was missed."""
        ...

    def disconnected(self) -> None:
        """No connection; the SDK tries again."""
        ...

    def message(self, facts: Facts) -> None:
        """A message came in."""
        ...


class NoSuchReference(Exception):
    """The message to answer is gone; nothing was sent."""


class DiscordClient:
    """One login; whatever the SDK raises becomes an error of ours."""

    def __init__(self, settings: DiscordSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        self._sdk = _sdk()
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._parents: dict[int, tuple[bool, int | None]] = {}
        self._roles: dict[tuple[int, int], frozenset[int]] = {}
        self._logged_in = False
        self._cdn = Cdn(settings.api_base, timeout_seconds=settings.file_timeout_seconds)
        self._bot = self._build()

    @property
    def user_id(self) -> int:
        """Of the bot; known after the login."""
        user = self._bot.user
        assert user is not None
        return user.id

    def _build(self) -> discord.Client:
        import discord  # noqa: PLC0415 - see _sdk, which has loaded it

        events, up, down, roles = self._events, self._up, self._down, self._roles
        pause_seconds = self._settings.reidentify_pause_seconds

        class Gateway(discord.Client):
            async def before_identify_hook(
                self, shard_id: int | None, *, initial: bool = False
            ) -> None:
                events.identifying()
                if not initial:  # Discord takes one of these in five seconds
                    await asyncio.sleep(pause_seconds)

            async def on_ready(self) -> None:
                roles.clear()
                down.clear()
                up.set()
                events.ready()

            async def on_resumed(self) -> None:
                down.clear()
                up.set()
                events.resumed()

            async def on_disconnect(self) -> None:
                up.clear()
                down.set()
                events.disconnected()

            async def on_message(self, message: discord.Message) -> None:
                events.message(read_message(message))

        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = True
        intents.message_content = True
        return Gateway(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
            # The smallest that the SDK takes: a longer ban is not slept through inside a send.
            max_ratelimit_timeout=30.0,
            guild_ready_timeout=self._settings.guild_ready_seconds,
            heartbeat_timeout=self._settings.heartbeat_timeout_seconds,
        )

    # --- life

    async def login(self) -> None:
        """Check the token and find the gateway.

        Raises:
            PlatformConfigError: the token is refused.
            PlatformUnavailable: no usable answer.
        """
        token = self._settings.token.strip()
        if not token:
            raise PlatformConfigError("discord: no token; set DISCORD_BOT_TOKEN")
        self._point_at(self._settings.gateway_url)
        async with self._mapped_start(), asyncio.timeout(_LOGIN_SECONDS):
            await self._bot.login(token)
            if self._settings.gateway_url is None:
                shards, url, limit = await self._bot.http.get_bot_gateway()
                if int(limit.get("remaining", 1)) < 1:
                    # One more start would make Discord reset the token.
                    seconds = int(limit.get("reset_after", 0)) / 1000
                    raise PlatformUnavailable(f"no starts left today; again in {seconds:.0f} s")
                if shards > 1:
                    log.warning("discord asks for shards", extra={"shards": shards})
                self._point_at(url)
        self._logged_in = True

    def _point_at(self, gateway_url: str | None) -> None:
        """Both addresses are process-wide in the SDK; a plain client never asks for its gateway."""
        import yarl  # noqa: PLC0415 - comes with the SDK

        discord = self._sdk
        discord.http.Route.BASE = self._settings.api_base.rstrip("/")
        if gateway_url is not None:
            discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(gateway_url)

    async def receive(self) -> None:
        """Stay connected; the SDK resumes and reconnects by itself, within our patience.

        Raises:
            PlatformConfigError: an intent or the token is refused.
            PlatformUnavailable: the connection is lost for too long, or for good.
        """
        connecting = asyncio.ensure_future(self._connect())
        try:
            while not connecting.done():
                await self._first(connecting, self._up, self._settings.patience_seconds)
                if not connecting.done() and not self._up.is_set():
                    seconds = self._settings.patience_seconds
                    raise PlatformUnavailable(f"discord: no connection for {seconds:g} s")
                await self._first(connecting, self._down, None)
            await connecting
            raise PlatformUnavailable("discord closed the connection")
        finally:
            connecting.cancel()
            await asyncio.wait({connecting})
            await self._close_socket()

    async def _connect(self) -> None:
        async with self._mapped_start():
            await self._bot.connect()

    async def _first(
        self, task: asyncio.Future[None], event: asyncio.Event, timeout_seconds: float | None
    ) -> None:
        waiting = asyncio.ensure_future(event.wait())
        both: set[asyncio.Future[Any]] = {task, waiting}
        try:
            await asyncio.wait(both, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _close_socket(self) -> None:
        """Only the gateway's: answers can still be sent until `close`."""
        socket = self._bot.ws
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if socket is not None and socket.open:
                    await socket.close(code=1000)
        except (TimeoutError, OSError, RuntimeError):
            log.debug("the gateway did not close in time")

    async def close(self) -> None:
        """May be called twice."""
        self._logged_in = False
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._bot.close()
        except TimeoutError:
            log.debug("discord did not close in time")
            await self._bot.http.close()

    @asynccontextmanager
    async def _mapped_start(self) -> AsyncGenerator[None, None]:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        discord = self._sdk
        try:
            yield
        except discord.LoginFailure as exc:
            raise PlatformConfigError(_TOKEN_HINT) from exc
        except discord.PrivilegedIntentsRequired as exc:
            raise PlatformConfigError(_INTENT_HINT) from exc
        except discord.ConnectionClosed as exc:
            raise _closed(exc.code) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise PlatformUnavailable(f"discord: {_shown(exc)}") from exc

    # --- reading

    async def history(self, channel_id: int, after: int) -> AsyncGenerator[Facts, None]:
        """`channels.Source.history`."""
        discord = self._sdk
        async with self._mapped_history():
            channel: Any = self._bot.get_channel(channel_id)
            if channel is None:
                channel = await self._bot.fetch_channel(channel_id)
            if not isinstance(channel, discord.abc.Messageable):
                raise ChannelGone("it holds no messages")
            pages = channel.history(limit=None, after=discord.Object(id=after), oldest_first=True)
            async for message in pages:
                yield read_message(message)

    async def complete(self, facts: Facts) -> Facts:
        """`channels.Source.complete`."""
        if not facts.place_known:
            is_thread, parent_id = await self._place(facts.channel_id)
            facts = replace(facts, is_thread=is_thread, parent_id=parent_id, place_known=True)
        if facts.role_ids is None:
            facts = replace(facts, role_ids=await self._member_roles(facts))
        return facts

    async def _place(self, channel_id: int) -> tuple[bool, int | None]:
        known = self._parents.get(channel_id)
        if known is None:
            try:
                async with self._mapped_history():
                    channel = await self._bot.fetch_channel(channel_id)
            except ChannelGone:
                return False, None
            is_thread = isinstance(channel, self._sdk.Thread)
            known = (is_thread, channel.parent_id if is_thread else None)  # type: ignore[union-attr]
            self._parents[channel_id] = known
        return known

    async def _member_roles(self, facts: Facts) -> frozenset[int]:
        """Messages of the history do not tell their author's roles."""
        if facts.guild_id is None:
            return frozenset()
        key = (facts.guild_id, facts.author_id)
        if key not in self._roles:
            guild = self._bot.get_guild(facts.guild_id)
            if guild is None:
                return frozenset()
            try:
                async with self._mapped_history():
                    member = await guild.fetch_member(facts.author_id)
            except ChannelGone:  # no member any more
                return frozenset()
            self._roles[key] = frozenset(role.id for role in member.roles)
        return self._roles[key]

    @asynccontextmanager
    async def _mapped_history(self) -> AsyncGenerator[None, None]:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        discord = self._sdk
        try:
            yield
        except (discord.Forbidden, discord.NotFound, discord.InvalidData) as exc:
            raise ChannelGone(_shown(exc)) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise HistoryUnavailable(_shown(exc)) from exc

    # --- files

    async def fetch(self, ref: FileRef, limit_bytes: int) -> bytes:
        """The bytes of a file, by its last known address or, if that has expired, by a new one.

        Raises:
            FetchError: the matching class.
        """
        try:
            return await self._cdn.load(ref.url, limit_bytes)
        except Expired:
            address = await self._fresh_address(ref)
        try:
            return await self._cdn.load(address, limit_bytes)
        except Expired:
            raise FetchRefused(texts.FILE_GONE) from None

    async def _fresh_address(self, ref: FileRef) -> str:
        if not self._logged_in:
            raise FetchUnavailable(texts.FILE_NOT_NOW)
        try:
            async with asyncio.timeout(self._settings.send_timeout_seconds), self._mapped_history():
                message = await self._bot.http.get_message(ref.channel_id, ref.message_id)
        except (HistoryUnavailable, TimeoutError):
            raise FetchUnavailable(texts.FILE_NOT_NOW) from None
        except ChannelGone:
            raise FetchRefused(texts.FILE_GONE) from None
        address = address_in(message, ref.attachment_id)
        if address is None:
            raise FetchRefused(texts.FILE_GONE)
        return address

    # --- sending

    async def send(self, channel_id: int, content: str, nonce: str, reply_to: int | None) -> str:
        """Send one message and give back its id; Discord shows a nonce once, for some minutes.

        Raises:
            SendError: the matching class.
            NoSuchReference: it would be accepted without the reference.
        """
        discord = self._sdk
        reference: Any = None
        if reply_to is not None:
            reference = discord.MessageReference(
                message_id=reply_to, channel_id=channel_id, fail_if_not_exists=False
            )

        async def call() -> str:
            channel = self._bot.get_partial_messageable(channel_id)
            message = await channel.send(
                content,
                nonce=nonce,  # the SDK adds enforce_nonce to it
                reference=reference,
                allowed_mentions=discord.AllowedMentions.none(),
            )
            return str(message.id)

        return await self._mapped_send(call)

    async def find_own(
        self, channel_id: int, content: str, nonce: str, reply_to: int | None, *, first: bool
    ) -> str | None:
        """The message that an earlier send of this part made, if it is there.

        Recognised by its nonce; the history does not always tell it, so otherwise by its content
        together with the message that it answers (a further part: that it lies behind it).

        Raises:
            SendError: nothing could be read.
        """

        async def call() -> str | None:
            discord = self._sdk
            channel = self._bot.get_partial_messageable(channel_id)
            if reply_to is None:
                found = channel.history(limit=100)
            else:
                after = discord.Object(id=reply_to)
                found = channel.history(limit=_SEARCHED_MESSAGES, after=after, oldest_first=True)
            async for message in found:
                if message.author.id != self.user_id:
                    continue
                if message.nonce is not None:
                    if str(message.nonce) == nonce:
                        return str(message.id)
                    continue
                if message.content != content or reply_to is None:
                    continue
                answered = message.reference.message_id if message.reference else None
                if answered == (reply_to if first else None):
                    return str(message.id)
            return None

        return await self._mapped_send(call)

    async def typing(self, channel_id: int) -> None:
        """Show the typing sign; raises as `send` does."""

        async def call() -> None:
            await self._bot.get_partial_messageable(channel_id).typing()

        await self._mapped_send(call)

    async def _mapped_send(self, call: Callable[[], Awaitable[T]]) -> T:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        if not self._logged_in:
            raise SendUnavailable("discord: not logged in")
        discord = self._sdk
        try:
            async with asyncio.timeout(self._settings.send_timeout_seconds):
                return await call()
        except discord.RateLimited as exc:
            raise SendFlood(exc.retry_after) from exc
        except discord.HTTPException as exc:
            raise _send_error(exc) from exc
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise SendUnavailable(_shown(exc)) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise SendUnknown(_shown(exc)) from exc
        except RuntimeError as exc:
            if "closed" not in str(exc).lower():
                raise
            raise SendUnavailable("discord: the connection is closed") from exc


def _send_error(exc: discord.HTTPException) -> Exception:
    text = _shown(exc)
    reference = exc.code == _UNKNOWN_MESSAGE or (
        exc.code == _INVALID_FORM and "message_reference" in exc.text.lower()
    )
    if reference:
        return NoSuchReference(text)
    if exc.status == 429:  # without the proof of coming from Discord itself
        return SendFlood(_CLOUDFLARE_SECONDS)
    if exc.status == 401:
        return SendUnavailable(text)
    if exc.status >= 500 or exc.status == 408:
        return SendUnknown(text)
    return SendRefused(text)


def _closed(code: int) -> PlatformError:
    """What a close code of the gateway means."""
    if code == 4004:
        return PlatformConfigError(_TOKEN_HINT)
    if code == 4014:
        return PlatformConfigError(_INTENT_HINT)
    if 4010 <= code <= 4013:
        return PlatformConfigError(f"discord refuses this kind of connection (code {code})")
    return PlatformUnavailable(f"discord closed the connection (code {code})")


def _shown(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}"[:300]


def _sdk() -> Any:
    """The SDK: half a second and 40 MB that other commands need not pay."""
    with warnings.catch_warnings():
        # Its voice half imports audioop, which warns on Python 3.11 and 3.12.
        warnings.simplefilter("ignore", DeprecationWarning)
        import discord  # noqa: PLC0415
        import discord.gateway  # noqa: PLC0415
        import discord.http  # noqa: PLC0415
    # No voice here, so no advice about its libraries.
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    logger = logging.getLogger("discord")
    logger.setLevel(max(logging.WARNING, logger.level))
    return discord
