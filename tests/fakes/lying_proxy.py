"""A stretch of wire that goes bad: what stood when it did stays bad, what comes later is well."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal, Self

Lie = Literal["silence", "drip", "half", "reset", "rubbish"]


class LyingProxy:
    """Forwards 127.0.0.1:port to another port until `spoil` is called."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.connections = 0
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pair in list(self._pairs):
            pair.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def spoil(self, lie: Lie) -> int:
        """Every connection that stands goes bad now; how many."""
        for pair in self._pairs:
            pair.spoil(lie)
        return len(self._pairs)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        pair = _Pair(reader, writer, *there)
        self._pairs.add(pair)
        try:
            await pair.run()
        finally:
            self._pairs.discard(pair)


class _Pair:
    """One connection from end to end."""

    def __init__(
        self,
        client_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
        server_in: asyncio.StreamReader,
        server_out: asyncio.StreamWriter,
    ) -> None:
        self.client_in, self.client_out = client_in, client_out
        self.server_in, self.server_out = server_in, server_out
        self.lie: Lie | None = None
        self.spoiled = asyncio.Event()

    def spoil(self, lie: Lie) -> None:
        if self.lie is None:
            self.lie = lie
            self.spoiled.set()

    def abort(self) -> None:
        for writer in (self.client_out, self.server_out):
            writer.transport.abort()

    async def run(self) -> None:
        honest = [
            asyncio.ensure_future(self._copy(self.client_in, self.server_out)),
            asyncio.ensure_future(self._copy(self.server_in, self.client_out)),
        ]
        turning = asyncio.ensure_future(self.spoiled.wait())
        try:
            await asyncio.wait({*honest, turning}, return_when=asyncio.FIRST_COMPLETED)
            if self.lie is not None:
                for task in honest:
                    task.cancel()
                await asyncio.wait(honest)
                await self._tell(self.lie)
        finally:
            for task in (*honest, turning):
                task.cancel()
            self.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def _tell(self, lie: Lie) -> None:
        """What the client sees from now on, until it leaves."""
        with contextlib.suppress(ConnectionError):
            match lie:
                case "reset":
                    return
                case "rubbish":
                    self.client_out.write(b"\x00\xff not HTTP at all\r\n\r\n")
                case "half":
                    self.client_out.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                        b'Content-Length: 500\r\n\r\n{"ok":true,"result":[]}'
                    )
                case "drip":
                    self.client_out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
                    while not self.client_in.at_eof():
                        self.client_out.write(b" ")
                        await self.client_out.drain()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self.client_in.read(1024), 0.05)
                    return
                case "silence":
                    pass
            await self.client_in.read()
