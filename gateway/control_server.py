"""Owns the daemon's end of the control socket: who may ask; an answer to whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import ConfigError, PosthouseError
from gateway.control import (
    ANSWER_SECONDS,
    MAX_LINE_BYTES,
    PIECE_BYTES,
    Handler,
    NoMessage,
    OtherSideGone,
    as_line,
    peer,
    read_line,
    send_line,
)
from gateway.tasks import spawn

log = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 1.0
"""How long clients may take at the end to read what they were told."""
REQUEST_SECONDS = 60.0
"""How long a client may take to say what it wants."""
ENDING = (
    "the gateway is ending, and has not finished this; look whether it was done, or ask again when "
    "it runs"
)
_FAULT = (
    "a fault inside the gateway ({error}); its log has the traceback (a service's: `posthouse "
    "service logs`){report}. It goes on, and everything else can be asked"
)


class ControlServer:
    """Listens in the home folder; only the same user (and root) can connect."""

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        *,
        crashes: Path | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """``crashes``: the folder that holds a report of each handler that has crashed."""
        self.path = path
        self._handlers = dict(handlers)
        self._crashes = crashes
        self._request_seconds = request_seconds
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

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
        self._server = await asyncio.start_unix_server(
            self._connected, sock=sock, limit=MAX_LINE_BYTES
        )

    async def close(self) -> None:
        """Stop listening, tell those who still wait, and let every client go."""
        if self._server is None:
            return
        self._server.close()
        for task in self._clients:
            task.cancel()
        await self._until_gone(LAST_WORDS_SECONDS)
        for writer in self._clients.values():
            writer.transport.abort()  # whoever reads nothing would hold it up for ever
        await self._until_gone(LAST_WORDS_SECONDS)
        await self._server.wait_closed()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def _until_gone(self, seconds: float) -> None:
        """Every client, or the time."""
        if self._clients:
            await asyncio.wait(set(self._clients), timeout=seconds)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not _is_ours(writer.get_extra_info("socket")):
            log.warning("control connection of another user refused")
            writer.close()
            return
        task = spawn(self._serve(reader, writer), name="control request")
        self._clients[task] = writer
        task.add_done_callback(self._clients.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from its request to the end of the connection."""
        try:
            await self._answer(reader, writer)
        except OtherSideGone as exc:
            log.info("control connection ended", extra={"reason": str(exc)})
        except NoMessage as exc:
            log.info("control connection ended", extra={"reason": str(exc)})
            await _excuse(reader, writer, f"this is no request: {exc}")
        except PosthouseError as exc:
            log.warning("control request not answered", extra={"reason": str(exc)})
            await _excuse(reader, writer, str(exc))
        except asyncio.CancelledError:
            # Not waited for: it may read nothing.
            writer.write(as_line({**_failure(ENDING), "ending": True}))
            raise
        except Exception as exc:  # the supervised border: a client must not end the daemon
            log.exception("control request failed")
            await _excuse(reader, writer, self._in_words(exc))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request_seconds):
                request = await read_line(reader)
        except TimeoutError as exc:
            raise NoMessage(f"its end has not come in {self._request_seconds:g} seconds") from exc
        if request is None:
            return
        handler = self._handlers.get(str(request.get("op")))
        if handler is None:
            await send_line(writer, {"error": f"unknown operation {request.get('op')!r}"})
        else:
            await handler(request, reader, writer)

    def _in_words(self, error: Exception) -> str:
        """Its own words may quote anybody's, so they stay in the log."""
        report = "" if self._crashes is None else f", {self._crashes} a report"
        return _FAULT.format(error=type(error).__name__, report=report)


def _failure(text: str) -> dict[str, Any]:
    return {"error": text, "failed": True}


async def _excuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> None:
    """Say it, and let who is still sending come to the end of it: a closed end would take it away.

    Never fails.
    """
    with contextlib.suppress(OSError):  # it has left, or says more than there is time for
        await send_line(writer, _failure(text))
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            while await reader.read(PIECE_BYTES):
                pass


def _is_ours(sock: socket.socket) -> bool:
    """Is the other side the same user, or the administrator?

    The file's rights say so as well, but `gateway.control_socket` may name any folder, and not
    every system asks for the rights of a socket.
    """
    told = peer(sock)
    if told is None:
        return True  # the file's rights have to do
    return told[1] in (0, os.geteuid())


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
