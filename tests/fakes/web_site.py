"""A site on loopback that answers with exactly the bytes it is told to, friendly or not."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Say = Callable[[bytes], Awaitable[None]]
Page = bytes | Callable[[Say], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came."""

    line: str
    headers: dict[str, str]
    """By names in small letters."""


def page(
    body: bytes = b"",
    content_type: str | None = "text/html; charset=utf-8",
    *,
    status: str = "200 OK",
    length: int | None = None,
    **headers: str,
) -> bytes:
    """A whole answer; ``length``: what it says of itself, true or not."""
    lines = [f"HTTP/1.1 {status}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def moved(to: str, status: str = "302 Found") -> bytes:
    return page(b"elsewhere", status=status, Location=to)


def packed(body: bytes, content_type: str = "text/plain") -> bytes:
    return page(gzip.compress(body), content_type, Content_Encoding="gzip")


@dataclass
class WebSite:
    """Pages by path; the rest is 404. Takes nothing but GET, and nothing that gives us away."""

    port: int = 0
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    hung_up: int = 0
    """Answers whose reader went away before their end."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [one.line.split()[1] for one in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *rest = head.split("\r\n")
            pairs = [one.split(":", 1) for one in rest if one]
            self.asked.append(Asked(line, {n.lower(): v.strip() for n, v in pairs}))
            method, path, version = line.split(" ")
            assert (method, version) == ("GET", "HTTP/1.1"), line
            found = self.pages.get(path.partition("?")[0], page(b"no", status="404 Not Found"))

            async def say(data: bytes) -> None:
                writer.write(data)
                await writer.drain()

            if isinstance(found, bytes):
                await say(found)
            else:
                await found(say)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up += 1
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def open_site() -> AsyncIterator[WebSite]:
    """A site that is up; what it still says at the end is cut off."""
    site = WebSite()
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await site.serve(reader, writer)
        finally:
            running.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
