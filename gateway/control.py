"""Owns the control socket's words and its client: one JSON object per line, there and back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import PosthouseError

MAX_SOCKET_PATH_BYTES = 100
"""A socket's path may hold about 108 bytes."""
MAX_LINE_BYTES = 8 * 1024 * 1024
"""The console's longest line (`streams.MAX_LINE_BYTES`), each byte escaped as six."""
PIECE_BYTES = 64 * 1024
ANSWER_SECONDS = 10.0


class NotAnswering(PosthouseError):
    """A daemon runs and says nothing: it hangs, or is far too busy."""


class RequestFailed(PosthouseError):
    """A daemon runs and says that it could not: by a fault of its own, or because it ends."""


class OtherSideGone(ConnectionError):
    """Whoever was talked to has left."""


class NoMessage(PosthouseError):
    """What came is no message: no JSON object on one line of its own."""


Handler = Callable[[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def socket_path(configured: str | None, home: Path, env: Mapping[str, str]) -> Path:
    """Where the daemon puts its socket, and where it is looked for if it has left no note.

    The home folder's, unless that path is too long for a socket: then a name made from it, in the
    runtime or the temporary folder.
    """
    path = Path(configured).expanduser() if configured else home / "control.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = env.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder) / f"posthouse-{os.getuid()}-{name}.sock"


def _object(line: bytes) -> dict[str, Any]:
    """A message.

    Raises:
        NoMessage: it is none.
    """
    try:
        value = json.loads(line)
    except RecursionError as exc:
        raise NoMessage("it is nested too deep") from exc
    except ValueError as exc:
        raise NoMessage("it is not JSON, or it was cut off") from exc
    if not isinstance(value, dict):
        raise NoMessage("a message is one JSON object")
    return value


async def connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The other side of `ControlServer`, for `read_line` and `send_line`."""
    return await asyncio.open_unix_connection(str(path), limit=MAX_LINE_BYTES)


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message of the other side, or None at its end.

    Raises:
        NoMessage: something else came.
        OtherSideGone: the connection broke.
    """
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as exc:
        line = exc.partial
    except asyncio.LimitOverrunError as exc:
        # Who still writes would never come to hear what is wrong.
        while (piece := await reader.read(PIECE_BYTES)) and b"\n" not in piece:
            pass
        raise NoMessage(f"it is too long (more than {MAX_LINE_BYTES:,} bytes)") from exc
    except ConnectionError as exc:
        raise OtherSideGone(str(exc)) from exc
    return _object(line) if line.strip() else None


async def send_line(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send one message.

    Raises:
        OtherSideGone: nobody is there to read it.
    """
    writer.write(as_line(message))
    try:
        await writer.drain()
    except ConnectionError as exc:
        raise OtherSideGone(str(exc)) from exc


def as_line(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message, ensure_ascii=True).encode() + b"\n"


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
        while (message := await read_line(self._reader)) is not None:
            if message.get("end"):
                return
            yield str(message.get("text", ""))

    async def show(self, text: str) -> None:
        """Send an answer over."""
        await send_line(self._writer, {"text": text})


@dataclass(frozen=True, slots=True)
class Listener:
    """Who has to be at the other end of a socket."""

    process: int
    user: int

    def is_at(self, sock: socket.socket) -> bool:
        """False also where the system does not tell."""
        return peer(sock) == (self.process, self.user)


def peer(sock: socket.socket) -> tuple[int, int] | None:
    """Process and user at the other end of a connection; None: this system does not tell."""
    try:
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (AttributeError, OSError):
        return None
    process, user, _ = struct.unpack("3i", told)
    return process, user


def ask(
    path: Path,
    request: Mapping[str, Any],
    *,
    seconds: float = ANSWER_SECONDS,
    listener: Listener | None = None,
) -> dict[str, Any] | None:
    """Ask the running daemon, for commands that need no event loop. None: none runs, or it ends.

    ``listener``: who it has to be; anybody else is told nothing, and is none.

    Raises:
        NotAnswering: it has not answered in time.
        RequestFailed: it says that it could not.
        PosthouseError: it belongs to another user, or is no gateway.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(seconds)
            sock.connect(str(path))
            if listener is not None and not listener.is_at(sock):
                return None
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
        answer = _object(line)
    except NoMessage as exc:
        raise PosthouseError(f"what listens at {path} does not answer as posthouse does") from exc
    if answer.get("failed"):
        raise RequestFailed(str(answer.get("error")))
    return answer
