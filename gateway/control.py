"""Owns the control socket: how the command line talks to the running daemon (one JSON per line)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import stat
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, PosthouseError

log = logging.getLogger(__name__)

MAX_SOCKET_PATH_BYTES = 100
"""A socket's path may hold about 108 bytes."""
MAX_LINE_BYTES = 8 * 1024 * 1024
"""The console's longest line (`streams.MAX_LINE_BYTES`), each byte escaped as six."""
ANSWER_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0
"""How long clients may take at the end to read what they were told."""


class NotAnswering(PosthouseError):
    """A daemon runs and says nothing: it hangs, or is far too busy."""


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
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    async def start(self) -> None:
        """Listen. A socket that a dead daemon left is replaced, and nothing else.

        Raises:
            ConfigError: there can be no socket at this path, or it is not ours.
        """
        try:
            _clear(self.path)
            sock = _bound(self.path)
        except OSError as exc:
            raise ConfigError(
                [f"gateway.control_socket: {self.path} can not be used: {exc.strerror or exc}"]
            ) from exc
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """Stop listening and let every client go."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._until_gone(LAST_WORDS_SECONDS)
        for writer in list(self._writers):
            writer.transport.abort()  # whoever reads nothing would hold it up for ever
        await self._until_gone(LAST_WORDS_SECONDS)
        await self._server.wait_closed()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def _until_gone(self, seconds: float) -> None:
        """Every client, or the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_gone.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not _is_ours(writer.get_extra_info("socket")):
            log.warning("control connection of another user refused")
            writer.close()
            return
        self._writers.add(writer)
        self._all_gone.clear()
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
            if not self._writers:
                self._all_gone.set()
            writer.close()


def _is_ours(sock: socket.socket) -> bool:
    """Is the other side the same user, or the administrator?

    The file's rights say so as well, but `gateway.control_socket` may name any folder, and not
    every system asks for the rights of a socket.
    """
    try:
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (AttributeError, OSError):
        return True  # a system without it: the file's rights have to do
    _, user, _ = struct.unpack("3i", told)
    return user in (0, os.geteuid())


def _clear(path: Path) -> None:
    """Take away what a dead daemon left. The configuration may name any path, so look first."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError([f"gateway.control_socket: {path} is there already, and no socket"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_SECONDS)
        with contextlib.suppress(ConnectionRefusedError):
            sock.connect(str(path))
            raise ConfigError([f"gateway.control_socket: another process listens at {path}"])
    path.unlink()


def _bound(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Narrow before anybody can connect: whoever can, can chat as the console's user.
        previous = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(previous)
    except BaseException:
        sock.close()
        raise
    return sock


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    line = await reader.readline()
    return _object(line) if line.strip() else None


def _object(line: bytes) -> dict[str, Any]:
    """A message.

    Raises:
        ValueError: it is none.
    """
    try:
        value = json.loads(line)
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc
    if not isinstance(value, dict):
        raise ValueError("a message is one JSON object")
    return value


async def connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The other side of `ControlServer`, for `read_line` and `send_line`."""
    return await asyncio.open_unix_connection(str(path), limit=MAX_LINE_BYTES)


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message of the other side, or None at its end."""
    return await _read(reader)


async def send_line(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send one message."""
    writer.write(json.dumps(message, ensure_ascii=True).encode() + b"\n")
    await writer.drain()


class RemoteTerminal:
    """A `posthouse chat` at the other end: a terminal of the console (lines in, answers out)."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        in_turns: bool = False,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._in_turns = in_turns

    @property
    def in_turns(self) -> bool:
        """As the port: the other side reads a pipe."""
        return self._in_turns

    async def lines(self) -> AsyncIterator[str]:
        """What the other side types, until it says that there is no more, or is gone."""
        while (message := await _read(self._reader)) is not None:
            if message.get("end"):
                return
            yield str(message.get("text", ""))

    async def show(self, text: str) -> None:
        """Send an answer over."""
        await send_line(self._writer, {"text": text})


def ask(
    path: Path, request: Mapping[str, Any], *, seconds: float = ANSWER_SECONDS
) -> dict[str, Any] | None:
    """Ask the running daemon, for commands that need no event loop. None: none runs, or it ends.

    Raises:
        NotAnswering: it has not answered in time.
        PosthouseError: it belongs to another user, or is no gateway.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(seconds)
            sock.connect(str(path))
            sock.sendall(json.dumps(request).encode() + b"\n")
            with sock.makefile("rb") as stream:
                line = stream.readline(MAX_LINE_BYTES)
    except PermissionError as exc:
        raise PosthouseError(
            f"{path} belongs to another user; ask as that one, or as root"
        ) from exc
    except (TimeoutError, BlockingIOError) as exc:  # the latter: nobody takes up connections
        raise NotAnswering(
            "the gateway runs, and does not answer; its log says what it is at. If it stays so, "
            "end it and start it again"
        ) from exc
    except (FileNotFoundError, NotADirectoryError, ConnectionError):
        return None
    if not line.endswith(b"\n"):
        return None  # it ended while it answered
    try:
        return _object(line)
    except ValueError as exc:
        raise PosthouseError(f"what listens at {path} does not answer as posthouse does") from exc
