"""Owns the Bot API connection; only this and what it imports knows the SDK (imported late)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway import texts
from gateway.platforms.contract import (
    FetchRefused,
    FetchUnavailable,
    PlatformConfigError,
    PlatformError,
    PlatformUnavailable,
)
from gateway.platforms.telegram import operator_text
from gateway.platforms.telegram.convert import ALLOWED_UPDATES, Me
from gateway.platforms.telegram.failures import Failures
from gateway.platforms.telegram.files import FileServer
from gateway.platforms.telegram.out.calls import MessageCalls
from gateway.platforms.telegram.polling import PollConflict, PollFailed
from gateway.platforms.telegram.transport import transport
from gateway.platforms.telegram.webhook import WebhookSettings
from gateway.platforms.telegram.webhook_calls import WebhookCalls
from gateway.platforms.troubles import in_words
from gateway.tasks import spawn

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2.0
_TOKEN_FORM = re.compile(r"[^\s/?#%]+")
"""Only what would break the address; whether the token is right, the server says."""


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """Of one bot. Base URLs end right before the token."""

    token: str = field(repr=False)
    base_url: str = "https://api.telegram.org/bot"
    base_file_url: str = "https://api.telegram.org/file/bot"
    poll_timeout_seconds: int = 20
    poll_grace_seconds: float = 15.0
    """Beyond the poll's own timeout; a poll that takes longer is stuck."""
    conflict_quiet_seconds: float = 60.0
    """Without a conflict for so long, nobody else polls any more."""
    webhook: WebhookSettings | None = None
    """None: polling."""
    connect_timeout_seconds: float = 7.0
    """For a connection, and once more for its handshake: twice this fits into the poll's grace,
    because a handshake that is cancelled from outside leaves its socket open."""
    send_timeout_seconds: float = 20.0
    """Waiting for an answer to a request."""
    fetch_timeout_seconds: float = 60.0
    """For a whole file; Telegram gives at most 20 MB."""


class TelegramClient:
    """The bot's requests; whatever the SDK raises becomes an error of ours, without the token."""

    def __init__(self, settings: TelegramSettings) -> None:
        token = settings.token.strip()
        if not _TOKEN_FORM.fullmatch(token):
            raise PlatformConfigError("telegram: no usable token; set TELEGRAM_BOT_TOKEN")
        # Imported here: the SDK takes half a second that other commands need not pay.
        from telegram import Bot  # noqa: PLC0415

        # These loggers print addresses, which hold the token.
        for name in ("httpx", "httpcore", "telegram"):
            logger = logging.getLogger(name)
            logger.setLevel(max(logging.WARNING, logger.level))
        self._failures = Failures(token)
        self._poll_timeout_seconds = settings.poll_timeout_seconds
        self._request_seconds = settings.connect_timeout_seconds + 2 * settings.send_timeout_seconds
        self._batches: list[Sequence[Any]] = []
        self._polling = transport(
            settings,
            connections=1,
            # The SDK adds the poll's own timeout to this.
            read_timeout_seconds=settings.poll_grace_seconds,
            batches=self._batches,
        )
        self._sending = transport(
            settings, connections=64, read_timeout_seconds=settings.send_timeout_seconds
        )
        self._bot = Bot(
            token,
            base_url=settings.base_url,
            base_file_url=settings.base_file_url,
            request=self._sending,
            get_updates_request=self._polling,
        )
        self.webhook = WebhookCalls(self._bot, self._failures)
        self.messages = MessageCalls(self._bot, self._failures, self._request_seconds)
        self._fetch_seconds = settings.fetch_timeout_seconds
        self._file_base = f"{settings.base_file_url}{token}"
        self._files = FileServer(
            self._file_base,
            connect_seconds=settings.connect_timeout_seconds,
            silence_seconds=settings.send_timeout_seconds,
        )

    async def renew_polling(self) -> None:
        """A fresh connection pool: a cancelled or stuck poll may have left the old one unusable."""
        # What can not even be closed is left behind: from its first step on it is not used again.
        closing = spawn(self._polling.shutdown(), name="old telegram connections")
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
        await self._polling.initialize()

    async def close(self) -> None:
        """May be called twice."""
        await self._polling.shutdown()
        await self._sending.shutdown()
        await self._files.close()

    # --- receiving

    async def me(self, last_sent: Mapping[str, str]) -> Me:
        """Who the bot is; this is where a wrong token shows.

        Raises:
            PlatformConfigError: the token is refused.
            PlatformUnavailable: no usable answer.
        """
        from telegram.error import InvalidToken, TelegramError  # noqa: PLC0415 - see __init__

        try:
            async with asyncio.timeout(self._request_seconds):
                user = await self._bot.get_me()
        except InvalidToken:
            raise PlatformConfigError(
                "telegram refuses the token; get one from @BotFather and set TELEGRAM_BOT_TOKEN "
                "(or telegram.base_url is wrong)"
            ) from None
        except TelegramError as exc:
            raise PlatformUnavailable(
                f"telegram: {self._failures.trouble(exc)}",
                retry_after_seconds=getattr(exc, "retry_after_seconds", 0.0),
            ) from self._failures.cause(exc)
        except TimeoutError as exc:
            raise PlatformUnavailable(f"telegram: {in_words('no complete answer')}") from exc
        return Me(user.id, user.username or "", last_sent)

    async def updates(self, offset: int | None, *, wait: bool) -> Sequence[Any]:
        """One poll (`polling.Source`)."""
        from telegram.error import (  # noqa: PLC0415 - see __init__
            Conflict,
            InvalidToken,
            TelegramError,
        )

        self._batches.clear()
        try:
            await self._bot.get_updates(
                offset=offset,
                timeout=self._poll_timeout_seconds if wait else 0,
                allowed_updates=list(ALLOWED_UPDATES),
            )
        except Conflict as exc:
            if "webhook" in str(exc).lower():
                await self._drop_webhook()
                raise PollConflict(
                    operator_text.WEBHOOK_REMOVED, healed=True
                ) from self._failures.cause(exc)
            raise PollConflict(operator_text.SECOND_POLLER) from self._failures.cause(exc)
        except InvalidToken:
            # May be a passing fault of a proxy: a new start asks who we are, and decides.
            raise PlatformUnavailable("telegram refused the token during a poll") from None
        except TelegramError as exc:
            asked_seconds = getattr(exc, "retry_after_seconds", 0.0)
            raise PollFailed(self._failures.trouble(exc), asked_seconds) from self._failures.cause(
                exc
            )
        return self._batches.pop() if self._batches else []

    async def _drop_webhook(self) -> None:
        """Polling is what the configuration asks for; a webhook of before stands in its way."""
        log.warning("a webhook was set for this bot; removed, because polling is configured")
        try:
            await self.webhook.remove()
        except PlatformError as exc:
            log.warning("the webhook could not be removed", extra={"error": str(exc)})

    # --- files

    async def fetch(self, file_id: str, limit_bytes: int) -> bytes:
        """A file that somebody sent.

        Raises:
            FetchError: the matching class.
        """
        try:
            async with asyncio.timeout(self._fetch_seconds):
                path, size_bytes = await self._find_file(file_id)
                if size_bytes is not None and size_bytes > limit_bytes:
                    raise FetchRefused(texts.file_too_large(limit_bytes))
                return await self._files.load(path, limit_bytes, size_bytes)
        except TimeoutError:
            raise FetchUnavailable(texts.FILE_TOO_SLOW) from None

    async def _find_file(self, file_id: str) -> tuple[str, int | None]:
        """Where the file lies now (for an hour at least), and how large it is."""
        from telegram.error import TelegramError  # noqa: PLC0415 - see __init__

        try:
            file = await self._bot.get_file(file_id)
        except TelegramError as exc:
            raise self._failures.fetching(exc) from self._failures.cause(exc)
        except Exception as exc:  # the SDK could not read the answer
            log.exception("telegram answered something strange about a file")
            raise FetchUnavailable(texts.FILE_NOT_NOW) from self._failures.cause(exc)
        # The SDK has put the base in front, unless there is such a file on this machine.
        base, address = f"{self._file_base}/", str(file.file_path or "")
        if not address.startswith(base):
            raise FetchRefused(texts.FILE_ODD_PLACE)
        size = file.file_size
        return address[len(base) :], size if isinstance(size, int) and size >= 0 else None
