"""Owns the HTTP client for servers elsewhere: bounds on what they may answer, and their status."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from agent.tools.mcp.nouns import HttpWay
from agent.tools.mcp.trouble import Trouble

MAX_BODY_BYTES = 8_000_000
"""One answer, or one event of a stream."""
CONNECT_SECONDS = 15.0
READ_SECONDS = 300.0
"""Of silence in a stream; how long a call may take is said elsewhere."""


class TooMuch(httpx2.StreamError):
    """More than anybody wants to read."""


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._inner:
            total += len(piece)
            if total > MAX_BODY_BYTES:
                raise TooMuch(f"an answer of more than {MAX_BODY_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncBaseTransport):
    def __init__(self, trouble: Trouble) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._trouble = trouble

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.status_code >= 400:
            self._trouble.http_status = response.status_code
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # Nobody asked for it, and a few bytes may unpack into any number.
            await response.aclose()
            raise httpx2.RemoteProtocolError("a compressed answer", request=request)
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return response  # goes on for ever; each event has its bound
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


def http_client(way: HttpWay, trouble: Trouble) -> httpx2.AsyncClient:
    """For one connection; to be closed by whoever asked for it."""
    return httpx2.AsyncClient(
        headers={**way.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
        transport=_Bounded(trouble),
        trust_env=False,  # no passwords from a .netrc
    )
