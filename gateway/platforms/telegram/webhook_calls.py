"""Owns the Bot API's calls about webhooks; part of the client, which makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.platforms.contract import PlatformConfigError, PlatformUnavailable
from gateway.platforms.telegram.convert import ALLOWED_UPDATES
from gateway.platforms.telegram.failures import Failures
from gateway.platforms.telegram.webhook import TokenRefused, WebhookInfo

if TYPE_CHECKING:
    from telegram import Bot

log = logging.getLogger(__name__)
T = TypeVar("T")

CALL_SECONDS = 15.0
"""For one of them: between two signs of life there is room for one that hangs."""


class WebhookCalls:
    """`gateway.platforms.telegram.webhook.Hooks`."""

    def __init__(self, bot: Bot, failures: Failures) -> None:
        self._bot = bot
        self._failures = failures

    async def set(self, url: str, secret: str, max_connections: int) -> None:
        await self._call(
            lambda: self._bot.set_webhook(
                url,
                max_connections=max_connections,
                allowed_updates=list(ALLOWED_UPDATES),
                drop_pending_updates=False,
                secret_token=secret,
            )
        )

    async def remove(self) -> None:
        await self._call(lambda: self._bot.delete_webhook(drop_pending_updates=False))

    async def info(self) -> WebhookInfo:
        found = await self._call(self._bot.get_webhook_info)
        at = found.last_error_date
        return WebhookInfo(
            url=found.url,
            pending=found.pending_update_count,
            last_error_at=None if at is None else at.timestamp(),
            last_error=found.last_error_message or "",
        )

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        from telegram import error  # noqa: PLC0415 - imported late

        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await call()
        except error.BadRequest as exc:
            text = self._failures.clean(exc)
            if "resolve" in text.lower():  # its name service, or ours, may be better tomorrow
                raise PlatformUnavailable(f"telegram: {text}") from None
            raise PlatformConfigError(
                f"telegram refuses the webhook: {text}; see telegram.webhook.url"
            ) from None
        except error.InvalidToken:
            # May be a passing fault of a proxy: a new start asks who we are, and decides.
            raise TokenRefused("telegram refused the token") from None
        except error.TelegramError as exc:
            raise PlatformUnavailable(
                f"telegram: {self._failures.trouble(exc)}",
                retry_after_seconds=getattr(exc, "retry_after_seconds", 0.0),
            ) from None
        except TimeoutError:
            raise PlatformUnavailable("telegram: no complete answer in time") from None
        except Exception:  # the SDK could not read the answer
            log.exception("telegram answered something strange about the webhook")
            raise PlatformUnavailable("telegram answered something strange") from None
