"""Owns the HTTP client for servers elsewhere: bounds on what they may answer, and their status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2

from agent.tools.mcp.nouns import HttpWay
from agent.tools.mcp.trouble import Trouble
from agent.tools.mcp.weight import LARGE_BYTES, lightened

MAX_BODY_BYTES = 8_000_000
"""One answer, or one event of a stream."""
MAX_LINES_A_SECOND = 3_000
"""Of a stream of events: three or four make one."""
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


class LightEvents(httpx2.AsyncByteStream):
    """A stream of events, each line of them without what nobody reads."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        loop = asyncio.get_running_loop()
        second, seen = loop.time(), 0
        async for piece in self._inner:
            start = len(held)
            held += piece
            if held.find(b"\n", start) < 0 and len(held) <= MAX_BODY_BYTES:
                continue
            if len(held) > MAX_BODY_BYTES:
                raise TooMuch(f"an event of more than {MAX_BODY_BYTES:,} bytes")
            *lines, rest = bytes(held).split(b"\n")
            held = bytearray(rest)
            for at in range(0, len(lines), MAX_LINES_A_SECOND):
                some = lines[at : at + MAX_LINES_A_SECOND]
                yield b"".join(_light_line(line) + b"\n" for line in some)
                seen += len(some)
                if seen >= MAX_LINES_A_SECOND:  # it has to wait: others need the loop as well
                    await asyncio.sleep(max(0.0, second + 1 - loop.time()))
                if loop.time() - second >= 1:
                    second, seen = loop.time(), 0
        yield bytes(held)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _light_line(line: bytes) -> bytes:
    name, colon, data = line.partition(b":")
    if len(line) <= LARGE_BYTES or name != b"data":
        return line
    light = lightened(data.strip())
    return name + colon + light if light is not None else b": too much"


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
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if kind.startswith("text/event-stream"):
            return _like(response, LightEvents(response.stream))
        bounded = _like(response, _BoundedStream(response.stream))
        if not kind.startswith("application/json"):
            return bounded
        try:
            body = await bounded.aread()
        except TooMuch as exc:
            raise httpx2.RemoteProtocolError(str(exc), request=request) from exc
        finally:
            await bounded.aclose()
        return _like(response, httpx2.ByteStream(lightened(body) or b""))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _like(response: httpx2.Response, stream: httpx2.AsyncByteStream) -> httpx2.Response:
    """The same with another body; how long that is shows by itself."""
    heads = [(k, v) for k, v in response.headers.multi_items() if k.lower() != "content-length"]
    return httpx2.Response(
        response.status_code, headers=heads, stream=stream, extensions=response.extensions
    )


def http_client(way: HttpWay, trouble: Trouble, *, call_seconds: float) -> httpx2.AsyncClient:
    """For one connection; to be closed by whoever asked for it. A call may be as long as said."""
    return httpx2.AsyncClient(
        headers={**way.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=max(READ_SECONDS, call_seconds + 5)),
        transport=_Bounded(trouble),
        trust_env=False,  # no passwords from a .netrc
    )
