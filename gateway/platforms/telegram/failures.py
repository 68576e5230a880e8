"""Owns what an error of the Telegram SDK means to us, and that none of them shows the token."""

from __future__ import annotations

import logging

from gateway import texts
from gateway.platforms.contract import (
    ChatGone,
    FetchError,
    FetchRefused,
    FetchUnavailable,
    SendFlood,
    SendRefused,
    SendUnavailable,
    SendUnknown,
)
from gateway.platforms.troubles import in_words

log = logging.getLogger(__name__)


class ChatMoved(Exception):
    """The group has become a supergroup."""

    def __init__(self, new_chat_id: str) -> None:
        super().__init__(new_chat_id)
        self.new_chat_id = new_chat_id


class BadMarkup(Exception):
    """The entities are refused; nothing was sent."""


class NoSuchMessage(Exception):
    """The message to answer is gone; nothing was sent."""


class NoSuchTopic(NoSuchMessage):
    """Its whole topic is gone; nothing was sent."""


class BadButtons(Exception):
    """The buttons are refused; nothing was sent."""


class NotModified(Exception):
    """The message says this already."""


class NoSuchMethod(SendUnavailable):
    """The server is older than this call."""


class Failures:
    """The failures of one bot's requests."""

    def __init__(self, token: str) -> None:
        self._token = token

    def sending(self, exc: Exception) -> Exception:
        """Of a request about a chat: a `SendError`, or one of those above."""
        from telegram import error  # noqa: PLC0415 - imported late

        text = self.clean(exc)
        flood_seconds = getattr(exc, "retry_after_seconds", None)
        if flood_seconds is not None:
            return SendFlood(flood_seconds)
        match exc:
            case error.ChatMigrated():
                return ChatMoved(str(exc.new_chat_id))
            case error.BadRequest():  # a NetworkError as well, so it has to be looked at first
                return _bad_request(text)
            case error.Forbidden():
                return ChatGone(text)
            case error.InvalidToken() if "not found" in text.lower():  # by its status alone
                return NoSuchMethod(text)
            case error.InvalidToken() | error.Conflict():
                return SendUnavailable(text)
            case error.NetworkError() if _never_left(exc):
                return SendUnavailable(text)
        if "entity too large" in text.lower():  # of HTTP
            return SendRefused(text)
        return SendUnknown(text)

    def fetching(self, exc: Exception) -> FetchError:
        """Of a question for a file."""
        from telegram import error  # noqa: PLC0415 - imported late

        reason = self.clean(exc).lower()
        log.info("file not found", extra={"platform": "telegram", "reason": reason})
        if not isinstance(exc, error.BadRequest) or "temporarily" in reason:
            return FetchUnavailable(texts.FILE_NOT_NOW)
        if "too big" in reason:
            return FetchRefused(texts.FILE_BEYOND_TELEGRAM)
        return FetchRefused(texts.FILE_GONE)

    def clean(self, exc: BaseException) -> str:
        """What it says, without the token."""
        return str(exc).replace(self._token, "[token]") or type(exc).__name__

    def trouble(self, exc: BaseException) -> str:
        """What it means to whoever has to heal it."""
        return in_words(self.clean(exc))

    def cause(self, exc: BaseException) -> BaseException | None:
        """The error to name as the cause, unless it (or what caused it) would show the token."""
        seen: BaseException | None = exc
        while seen is not None:
            if self._token in f"{seen!r} {seen}":
                return None
            seen = seen.__cause__ or seen.__context__
        return exc


_CLOSED = (
    "chat not found",
    "peer_id_invalid",
    "chat was deleted",
    "chat_write_forbidden",
    "chat_restricted",
    "have no rights to send a message",
    "not enough rights to send text messages",
    "need administrator rights in the channel chat",
)
"""What says that nothing at all is taken in this chat, though it is no 403."""


def _bad_request(text: str) -> Exception:
    lower = text.lower()
    if "not modified" in lower:
        return NotModified(text)
    if "button" in lower or "reply markup" in lower:
        return BadButtons(text)
    if "entit" in lower:  # can't parse entities; entity with a wrong url; …
        return BadMarkup(text)
    if "replied" in lower and "not found" in lower:
        return NoSuchMessage(text)
    if "thread not found" in lower or "topic_deleted" in lower or "topic_id_invalid" in lower:
        return NoSuchTopic(text)
    return ChatGone(text) if any(sign in lower for sign in _CLOSED) else SendRefused(text)


def _never_left(exc: BaseException) -> bool:
    """Did the request certainly not reach Telegram?"""
    import httpx  # noqa: PLC0415 - comes with the SDK

    cause = exc.__cause__
    if isinstance(cause, RuntimeError) and "not initialized" in str(cause):
        return True  # closed meanwhile
    return isinstance(
        cause,
        httpx.ConnectError
        | httpx.ConnectTimeout
        | httpx.PoolTimeout
        | httpx.ProxyError
        | httpx.UnsupportedProtocol
        | httpx.InvalidURL,
    )
