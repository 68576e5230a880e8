"""Owns one login to Discord and its life: from the token to the last reconnect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agent.ports import Clock
from gateway.platforms.contract import (
    PlatformConfigError,
    PlatformError,
    PlatformUnavailable,
)
from gateway.platforms.discord.asking import Asking, shown
from gateway.platforms.discord.closings import INTENT_HINT, TOKEN_HINT, closed
from gateway.platforms.discord.events import Events
from gateway.platforms.discord.health import Lines
from gateway.platforms.discord.out.direct import Direct
from gateway.platforms.discord.out.sending import Sending
from gateway.platforms.discord.reading import read_or_not
from gateway.platforms.discord.sdk import build_bot, load_sdk
from gateway.platforms.discord.settings import DiscordSettings
from gateway.platforms.discord.starts import SessionStarts
from gateway.platforms.discord.wire import Wire, WireEvent
from gateway.platforms.troubles import in_words

if TYPE_CHECKING:
    import discord

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
_CANCEL_AGAIN_SECONDS = 0.2
_LOGIN_SECONDS = 60.0


class DiscordClient:
    """One login; whatever the SDK raises becomes an error of ours.

    ``withheld``: events that the SDK could not read in this process; they outlive a login.
    ``starts``: of this bot's sessions, over all its logins.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        events: Events,
        clock: Clock,
        withheld: set[WireEvent],
        starts: SessionStarts,
    ) -> None:
        self._settings = settings
        self._starts = starts
        self._events = events
        self._clock = clock
        self._withheld = withheld
        self._sdk = load_sdk()
        self._lines = Lines(events.identifying, events.ready, self._tell_connection)
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._logged_in = False
        self._direct = Direct(settings.api_base, settings.token)
        self._use(self._build(shards=1), shards=1)

    def _use(self, bot: discord.Client, shards: int) -> None:
        timeout_seconds = self._settings.send_timeout_seconds
        self._bot = bot
        self._lines.expect(shards)
        self.asking = Asking(bot, self._sdk, self._clock, timeout_seconds=timeout_seconds)
        self.sending = Sending(
            bot,
            self._sdk,
            direct=self._direct,
            is_open=lambda: self._logged_in,
            timeout_seconds=timeout_seconds,
        )
        self._wire = Wire(
            bot.http.ws_connect,
            self,
            self._clock,
            shortest_heartbeat_seconds=self._settings.shortest_heartbeat_seconds,
            withheld=self._withheld,
        )
        bot.http.ws_connect = self._wire.connect  # type: ignore[method-assign, assignment]

    @property
    def is_open(self) -> bool:
        """Between login and close."""
        return self._logged_in

    @property
    def user_id(self) -> int:
        """Of the bot; known after the login."""
        user = self._bot.user
        assert user is not None
        return user.id

    @property
    def application_id(self) -> int | None:
        """Of the bot, known after the login: the menu belongs to it."""
        return self._bot.application_id

    def _build(self, shards: int) -> discord.Client:
        settings = self._settings
        return build_bot(
            self._lines,
            shards=shards,
            turn=lambda shard_id, initial: self._starts.turn(shard_id, initial=initial),
            guild_ready_seconds=settings.guild_ready_seconds,
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
        )

    # --- what the wire and the SDK tell

    def message_event(self, name: str, payload: object) -> None:
        """`wire.WireEvents.message_event`."""
        if name == "MESSAGE_UPDATE" and not _is_edit(payload):
            return
        self._events.message(read_or_not(payload, is_edit=name == "MESSAGE_UPDATE"))

    def interaction(self, payload: object) -> None:
        """`wire.WireEvents.interaction`."""
        self._events.interaction(payload)

    def session_begun(self, shard_id: int) -> None:
        """`wire.WireEvents.session_begun`."""
        self._lines.begun(shard_id)
        self._starts.begun(shard_id)

    def alive(self) -> None:
        """`wire.WireEvents.alive`."""
        self._events.alive()

    def _tell_connection(self, up: bool) -> None:
        (self._up.set if up else self._up.clear)()
        (self._down.clear if up else self._down.set)()
        self._events.connection(up)

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
                remaining = int(limit.get("remaining", 1000))
                seconds = int(limit.get("reset_after", 0)) / 1000
                if remaining < 1:
                    # One more start would make Discord reset the token.
                    raise PlatformUnavailable(
                        f"no starts left today; again in {seconds:.0f} s",
                        retry_after_seconds=seconds,
                    )
                self._starts.left(remaining, seconds)
                self._point_at(url)
                if int(shards) > 1:
                    await self._shard(token, int(shards))
        self._logged_in = True

    async def _shard(self, token: str, shards: int) -> None:
        log.info("discord asks for shards", extra={"shards": shards})
        await self._bot.close()
        self._use(self._build(shards), shards)
        await self._bot.login(token)

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
            while not connecting.done():
                # More than once: the SDK's `asyncio.wait_for` swallows one that comes in the moment
                # in which it has got its connection (up to Python 3.11).
                connecting.cancel()
                await asyncio.wait({connecting}, timeout=_CANCEL_AGAIN_SECONDS)
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
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if isinstance(self._bot, self._sdk.AutoShardedClient):
                    for shard in self._bot.shards.values():
                        await shard.disconnect()
                elif self._bot.ws is not None:  # also one that is closed: its heartbeat ends here
                    await self._bot.ws.close(code=1000)
            await self._wire.leave()
        except (TimeoutError, OSError, RuntimeError):
            log.debug("the gateway did not close in time")

    async def close(self) -> None:
        """May be called twice."""
        self._logged_in = False
        await self._direct.close()
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
        except PlatformError:
            raise
        except discord.LoginFailure as exc:
            raise PlatformConfigError(TOKEN_HINT) from exc
        except discord.PrivilegedIntentsRequired as exc:
            raise PlatformConfigError(INTENT_HINT) from exc
        except discord.ConnectionClosed as exc:
            raise closed(exc.code) from exc
        except discord.RateLimited as exc:
            raise PlatformUnavailable(
                f"discord: {shown(exc)}", retry_after_seconds=exc.retry_after
            ) from exc
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise PlatformUnavailable(f"discord: {in_words(shown(exc))}") from exc
        except Exception as exc:  # the SDK got something that it can not read
            unconnected: Any = self._bot.ws
            if self._logged_in and unconnected is None and self._wire.passed_last is None:
                # It looks at its connection of before, and there was none yet.
                raise PlatformUnavailable(f"discord: no connection ({self._wire.trouble})") from exc
            self._withhold(exc)
            raise PlatformUnavailable(f"discord: it says strange things ({shown(exc)})") from exc

    def _withhold(self, exc: Exception) -> None:
        """What broke the SDK does not reach it again; without READY there is no session at all."""
        event = self._wire.passed_last
        log.error("discord.py broke", extra={"event": event.name if event else None}, exc_info=exc)
        if event is not None and event.name != "READY":
            self._withheld.add(event)


def _is_edit(payload: object) -> bool:
    """A change by its author; Discord says updates for link previews and pins in the same way."""
    return (
        isinstance(payload, dict)
        and payload.get("edited_timestamp") is not None
        and "author" in payload
        and "content" in payload
    )
