"""Owns receiving by webhook: the address set at Telegram, what is posted there, and its health."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from urllib.parse import unquote, urlsplit

from agent.errors import StoreUnavailable
from agent.ports import Clock
from gateway.intake.keyed_locks import KeyedLocks
from gateway.platforms.contract import PlatformState, PlatformUnavailable, Report
from gateway.platforms.telegram import operator_text
from gateway.platforms.telegram.convert import PLATFORM, chat_of
from gateway.platforms.telegram.incoming import Incoming
from gateway.platforms.telegram.values import json_integer
from gateway.platforms.telegram.webhook_door import DoorSettings, Key, Parcel, WebhookDoor

log = logging.getLogger(__name__)

STORE_DOWN = "the store is not available"
LONGEST_WAIT_SECONDS = 120.0
"""For which Telegram may ask between two checks; it is a sign of life as well."""
AGAIN_SECONDS = 5.0
"""Until Telegram is asked again after a question without an answer: that it can be reached is what
owed answers wait for."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where Telegram reaches us, and where that arrives."""

    url: str
    """As Telegram sees it; the part that nobody guesses is put behind it."""
    secret: str | None = field(default=None, repr=False)
    """None: a new one with each start."""
    door: DoorSettings = field(default_factory=DoorSettings)
    max_connections: int = 20
    """So many posts Telegram may have under way; it never has two of one chat."""
    check_seconds: float = 20.0
    """How often Telegram is asked how it goes; two checks notice what goes wrong."""
    again_seconds: float = 60.0
    """How often the address is set anew while nothing arrives."""


@dataclass(frozen=True, slots=True)
class WebhookInfo:
    """What Telegram says of the webhook."""

    url: str
    pending: int
    last_error_at: float | None = None
    """By Telegram's clock; only ever compared with itself."""
    last_error: str = ""


class TokenRefused(PlatformUnavailable):
    """A new start has to find out whether it is really gone."""


class Hooks(Protocol):
    """The Bot API's calls about webhooks. Pending updates are never dropped by any of them."""

    async def set(self, url: str, secret: str, max_connections: int) -> None:
        """Have updates posted there.

        Raises:
            PlatformConfigError: Telegram does not take this address.
            PlatformUnavailable: no usable answer.
        """
        ...

    async def remove(self) -> None:
        """Have them posted nowhere.

        Raises:
            PlatformUnavailable: no usable answer.
        """
        ...

    async def info(self) -> WebhookInfo:
        """How it goes.

        Raises:
            TokenRefused: maybe for good.
            PlatformUnavailable: no usable answer.
        """
        ...


class Health(StrEnum):
    """What is to be made of what Telegram says."""

    WELL = "well"
    ELSEWHERE = "elsewhere"
    """Another address is set than ours, or none."""
    FAILING = "failing"
    """Updates wait, and do not arrive here."""


def judge(url: str, before: WebhookInfo | None, info: WebhookInfo, *, delivered: bool) -> Health:
    """How the webhook is. ``before``: as of the last check since it was set; None: there is none.

    ``delivered``: something has arrived since then. Errors of before count for nothing: they may be
    of the time in which we were not there.
    """
    if _address(info.url) != _address(url):
        return Health.ELSEWHERE
    if info.pending == 0 or delivered or before is None:
        return Health.WELL
    new_error = bool(info.last_error) and info.last_error_at != before.last_error_at
    if new_error or 0 < before.pending <= info.pending:
        return Health.FAILING
    return Health.WELL


def _address(url: str) -> tuple[str, ...]:
    """The same for every way of writing an address."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").encode("idna").decode()
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:  # it is no address; a name that IDNA does not know is only itself
        return (url.lower(),)
    return parts.scheme, host, str(port), unquote(parts.path)


def hook_name(token: str) -> str:
    """The part of the address that nobody guesses: always the same one for a token."""
    return hmac.new(token.encode(), b"posthouse webhook", hashlib.sha256).hexdigest()[:40]


class Webhook:
    """One bot's receiving by webhook; `run` until it is cancelled."""

    def __init__(
        self,
        settings: WebhookSettings,
        hooks: Hooks,
        name: str,
        incoming: Incoming,
        report: Report,
        clock: Clock,
    ) -> None:
        """``name``: see `hook_name`."""
        self._settings = settings
        self._hooks = hooks
        self._incoming = incoming
        self._report = report
        self._clock = clock
        self._secret = settings.secret or secrets.token_urlsafe(32)
        self._url = f"{settings.url.rstrip('/')}/{name}"
        self._order = KeyedLocks()
        self._store_down = False
        self._trouble = ""
        """What the last check found wrong at Telegram; "" : nothing."""
        self._before: WebhookInfo | None = None
        self._set_at = 0.0
        self._seen_delivered = self._seen_refused = 0
        self.door = WebhookDoor(settings.door, Key(name, self._secret), self.take, clock)

    async def run(self) -> None:
        """Listen, have Telegram post here, and look after it.

        Raises:
            PlatformConfigError: Telegram does not take our address.
            PlatformUnavailable: the port is taken, or Telegram can not be reached at the start.
        """
        async with self.door.open():
            await self._set()
            while True:
                await self._clock.sleep(await self._check())

    # --- what is posted

    async def take(self, parcel: Parcel) -> None:
        """As `webhook_door.Take`."""
        try:
            await self._store(parcel)
        except StoreUnavailable:
            self._store_down = True
            self._say(self._trouble)
            raise
        if self._store_down:
            self._store_down = False
            self._say(self._trouble)

    async def _store(self, parcel: Parcel) -> None:
        """What could be no update is kept, and taken: refused, it would come again for ever."""
        if not parcel.whole:
            await self._incoming.set_aside(_text(parcel.body), "too large")
            return
        try:
            update = json.loads(parcel.body, parse_int=json_integer)
        except (ValueError, RecursionError) as error:
            await self._incoming.set_aside(_text(parcel.body), f"no JSON: {type(error).__name__}")
            return
        async with self._order.hold(chat_of(update) or ""):
            await self._incoming.take(update)

    # --- how it goes

    async def _set(self) -> None:
        await self._hooks.set(self._url, self._secret, self._settings.max_connections)
        self._set_at, self._before = self._clock.monotonic(), None

    async def _check(self) -> float:
        """Ask how it goes; when to ask again."""
        delivered = self.door.delivered > self._seen_delivered
        self._seen_delivered = self.door.delivered
        self._tell_of_strangers()
        try:
            info = await self._hooks.info()
            health = judge(self._url, self._before, info, delivered=delivered)
            match health:
                case Health.WELL:
                    self._say("")
                case Health.ELSEWHERE:
                    self._say(operator_text.WEBHOOK_ELSEWHERE)
                    log.warning("another webhook was set; set again", extra={"platform": PLATFORM})
                    await self._set()
                    return self._settings.check_seconds
                case Health.FAILING:
                    await self._failing(info)
            self._before = info
        except TokenRefused:
            raise
        except PlatformUnavailable as error:  # what is posted here is taken all the same
            self._say(str(error))
            soon = min(self._settings.check_seconds, AGAIN_SECONDS)
            return max(soon, min(error.retry_after_seconds, LONGEST_WAIT_SECONDS))
        return self._settings.check_seconds

    def _say(self, trouble: str) -> None:
        """The worse of what is known: an update that is stored does not heal the address."""
        self._trouble = trouble
        reason = STORE_DOWN if self._store_down else trouble
        self._report(PlatformState.DEGRADED if reason else PlatformState.RUNNING, reason)

    async def _failing(self, info: WebhookInfo) -> None:
        reason = operator_text.webhook_failing(info.pending, info.last_error)
        self._say(reason)
        if self._clock.monotonic() - self._set_at < self._settings.again_seconds:
            return
        # Telegram waits longer after each failure; set anew it begins at once. Set to what it is
        # set to already, it would not even look.
        log.warning("webhook set again", extra={"platform": PLATFORM, "reason": reason})
        await self._hooks.remove()
        await self._set()
        self._before = info

    def _tell_of_strangers(self) -> None:
        new, self._seen_refused = self.door.refused - self._seen_refused, self.door.refused
        if new:
            log.info("strangers at the webhook", extra={"requests": new})


def _text(body: bytes) -> str:
    return body.decode("utf-8", "backslashreplace")
