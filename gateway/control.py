"""Owns the control socket: how the command line talks to the running daemon (one JSON per line)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MAX_SOCKET_PATH_BYTES = 100
"""A socket's path may hold about 108 bytes."""
MAX_LINE_BYTES = 4 * 1024 * 1024
ANSWER_SECONDS = 10.0

Handler = Callable[[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def socket_path(configured: str | None, home: Path, env: Mapping[str, str]) -> Path:
    """Where the socket is; the same answer for the daemon and for the command line.

    The home folder's, unless that path is too long for a socket: then a name made from it, in the
    runtime or the temporary folder.
    """
    path = Path(configured).expanduser() if configured else home / "control.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = env.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder) / f"posthouse-{os.getuid()}-{name}.sock"


class ControlServer:
    """Listens in the home folder; only the same user (and root) can connect."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self.path = path
        self._handlers = dict(handlers)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. A socket file left by a dead daemon is replaced (the home's lock is ours)."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Narrow before anybody can connect: whoever can, can chat as the console's user.
            previous = os.umask(0o177)
            try:
                sock.bind(str(self.path))
            finally:
                os.umask(previous)
        except BaseException:
            sock.close()
            raise
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Stop listening and let every client go."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            request = await _read(reader)
            if request is None:
                return
            handler = self._handlers.get(str(request.get("op")))
            if handler is None:
                await send_line(writer, {"error": f"unknown operation {request.get('op')!r}"})
            else:
                await handler(request, reader, writer)
        except (ConnectionError, ValueError) as exc:
            log.info("control connection ended", extra={"reason": str(exc)})
        except Exception:  # the supervised border: a client must not end the daemon
            log.exception("control request failed")
        finally:
            self._writers.discard(writer)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    line = await reader.readline()
    if not line.strip():
        return None
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("a request is one JSON object")
    return value


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message of the other side, or None at its end."""
    return await _read(reader)


async def send_line(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send one message."""
    writer.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
    await writer.drain()


class RemoteTerminal:
    """A `posthouse chat` at the other end: a terminal of the console (lines in, answers out)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def lines(self) -> AsyncIterator[str]:
        """What the other side types, until it says that there is no more, or is gone."""
        while (message := await _read(self._reader)) is not None:
            if message.get("end"):
                return
            yield str(message.get("text", ""))

    async def show(self, text: str) -> None:
        """Send an answer over."""
        await send_line(self._writer, {"text": text})


def ask(path: Path, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask the running daemon, for commands that need no event loop. None: no daemon answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect(str(path))
            sock.sendall(json.dumps(request).encode() + b"\n")
            with sock.makefile("rb") as stream:
                line = stream.readline(MAX_LINE_BYTES)
    except (FileNotFoundError, ConnectionError, TimeoutError):
        return None
    return dict(json.loads(line)) if line else None
