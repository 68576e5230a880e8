"""Owns requests to Discord past its SDK: those that it would hold back, repeat, or sign wrongly.

The SDK sleeps through rate limits and repeats by itself. What has three seconds, what is only an
ornament, and what must remember how long to wait, goes this way instead.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gateway import __version__
from gateway.platforms.contract import SendFlood, SendUnavailable, SendUnknown
from gateway.platforms.discord.out.parcels import Parcel
from gateway.platforms.discord.out.refusals import CLOUDFLARE_SECONDS, Refusal

if TYPE_CHECKING:
    import aiohttp

NAMES_KEPT_SECONDS = 600
IDLE_SECONDS = 75.0
"""How long a connection is kept open, so that the next interaction need not dial first."""


class Direct:
    """One connection pool; made when it is first used, closed with the platform."""

    def __init__(self, api_base: str, token: str) -> None:
        self._api_base = api_base.rstrip("/")
        self._token = token.strip()
        self._http: aiohttp.ClientSession | None = None
        self._closed = False

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        parcel: Parcel | None = None,
        *,
        signed: bool,
        timeout_seconds: float,
    ) -> Any:
        """One request, once; gives back the JSON of the answer (None: it has none).

        ``signed``: with the bot's token; interactions carry their right in the path.

        Raises:
            Refusal: 4xx, but 429.
            SendFlood: 429, with its time.
            SendUnavailable: it was certainly not taken.
            SendUnknown: it may have been taken.
        """
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        options: dict[str, Any] = {"headers": self._headers(signed)}
        if parcel is not None and parcel.files:
            form = aiohttp.FormData(quote_fields=False)
            for field in parcel.form(body, [io.BytesIO(file.data) for file in parcel.files]):
                form.add_field(**field)
            options["data"] = form
        elif body is not None:
            options["data"] = json.dumps(body).encode()
            options["headers"]["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._session().request(
                    method, f"{self._api_base}{path}", allow_redirects=False, **options
                ) as answer,
            ):
                return _read(answer, await answer.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise SendUnavailable(_shown(exc)) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            # Without its cause: that one knows the address, and the token in it.
            raise SendUnknown(_shown(exc)) from None

    async def close(self) -> None:
        """May be called twice."""
        self._closed = True
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _session(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        if self._closed:
            raise SendUnavailable("discord: the connection is closed")
        if self._http is None:
            self._http = aiohttp.ClientSession(
                # Without a limit of its own: what hangs must not be in the way of what has three
                # seconds. Who sends has limits. Names are remembered, for asking may take long.
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=IDLE_SECONDS, ttl_dns_cache=NAMES_KEPT_SECONDS
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http

    def _headers(self, signed: bool) -> dict[str, str]:
        headers = {"User-Agent": f"DiscordBot (posthouse, {__version__})"}
        if signed:
            headers["Authorization"] = f"Bot {self._token}"
        return headers


def _read(answer: aiohttp.ClientResponse, raw: bytes) -> Any:
    status = answer.status
    data: Any = None
    try:
        data = json.loads(raw) if raw else None
    except ValueError:
        if status < 300:
            raise SendUnknown(f"discord's answer ({status}) is no JSON") from None
    if 200 <= status < 300:
        return data
    fields: Mapping[str, Any] = data if isinstance(data, dict) else {}
    text = str(fields.get("message") or "")[:300]
    if status == 429:
        raise SendFlood(_pause(fields.get("retry_after"), answer.headers.get("Retry-After")))
    if status >= 500 or status == 408 or status < 400:
        raise SendUnknown(f"{status} {text}")
    code = fields.get("code")
    told = json.dumps(fields.get("errors"))[:300] if fields.get("errors") else ""
    raise Refusal(status, code if isinstance(code, int) else 0, f"{text} {told}".strip())


def _pause(*told: object) -> float:
    """The first that is a time; both are in seconds."""
    for value in told:
        try:
            seconds = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return CLOUDFLARE_SECONDS


def _shown(exc: BaseException) -> str:
    return f"discord: {type(exc).__name__}"
