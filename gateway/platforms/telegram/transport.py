"""Owns the SDK's transport with some changes, all on its documented extension point."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gateway.platforms.telegram.values import json_integer

if TYPE_CHECKING:
    from telegram.request import HTTPXRequest

    from gateway.platforms.telegram.client import TelegramSettings

_DEFAULT_FLOOD_SECONDS = 30.0


def transport(
    settings: TelegramSettings,
    *,
    connections: int,
    read_timeout_seconds: float,
    batches: list[Sequence[Any]] | None = None,
) -> HTTPXRequest:
    """One connection pool.

    Floods become an error with plain seconds (the SDK's own warns about itself when it is made),
    and an answer that is not from Telegram itself becomes a network error whatever its status.
    Of a message that was sent or edited the SDK reads the number only: the message is there,
    whatever else is said of it, and an error would send it again.
    With ``batches``, raw updates are put aside there before the SDK reads them: it parses a batch
    as a whole, so one update that it can not read would block the queue for ever.
    """
    from telegram.error import NetworkError, TelegramError  # noqa: PLC0415 - see TelegramClient
    from telegram.request import HTTPXRequest  # noqa: PLC0415 - see TelegramClient

    class Flood(TelegramError):
        def __init__(self, retry_after_seconds: float) -> None:
            super().__init__(f"flood control: retry after {retry_after_seconds:g} s")
            self.retry_after_seconds = retry_after_seconds

    class Transport(HTTPXRequest):
        async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
            code, payload = await super().do_request(*args, **kwargs)
            if code == 429:
                raise Flood(_flood_seconds(payload))
            body = _object(payload)
            if body is None:
                # A page of some proxy: its status says nothing about the token or the chat.
                raise NetworkError(f"HTTP status {code}, but no JSON")
            if batches is not None and code == 200:
                if not isinstance(body.get("result"), list):
                    raise NetworkError("the answer to a poll is no list")
                batches.append(body["result"])
                payload = b'{"ok":true,"result":[]}'
            elif code == 200 and type(number := _message_number(body)) is int:
                payload = json.dumps({"ok": True, "result": _bare_message(number)}).encode()
            return code, payload

    return Transport(
        connection_pool_size=connections,
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=read_timeout_seconds,
        write_timeout=settings.send_timeout_seconds,
        pool_timeout=settings.connect_timeout_seconds,
        httpx_kwargs={"verify": tls_context()},
    )


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """Made once: it takes tens of milliseconds, and every fresh pool would pay for it again."""
    import httpx  # noqa: PLC0415 - comes with the SDK

    return httpx.create_ssl_context()


def _object(payload: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(payload, parse_int=json_integer)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _message_number(body: dict[str, Any]) -> Any:
    result = body.get("result")
    return result.get("message_id") if isinstance(result, dict) else None


def _bare_message(number: int) -> dict[str, Any]:
    return {"message_id": number, "date": 0, "chat": {"id": 0, "type": "private"}}


def _flood_seconds(payload: bytes) -> float:
    body = _object(payload) or {}
    try:
        seconds = float(body["parameters"]["retry_after"])
    except (ValueError, TypeError, LookupError, OverflowError):
        return _DEFAULT_FLOOD_SECONDS
    return max(1.0, seconds)
