"""Owns running a shell command in a unit of its own, through that unit's socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from agent.tools.commands import (
    ENDING_SECONDS,
    STARTING_SECONDS,
    CommandFailed,
    Outcome,
    Request,
    outcome_of,
    read_all,
    request_line,
)

log = logging.getLogger(__name__)

UNREACHABLE = "commands can not be run right now: their service does not answer"


class SocketRunner:
    """Each command over a connection of its own (`agent.tools.command_door` is at its other end).

    The command lives as long as the connection: at a stop, and also if we die, it ends.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def run(self, request: Request) -> Outcome:
        """As the port says; the folder is named without its path, the unit knows where it lies."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError as exc:
            log.error("the unit for commands can not be reached", extra={"reason": str(exc)})
            raise CommandFailed(UNREACHABLE) from exc
        try:
            async with asyncio.timeout(request.seconds + STARTING_SECONDS):
                writer.write(request.folder.name.encode() + b"\n" + request_line(request))
                said = await read_all(reader, request.keep_bytes)
        except (TimeoutError, OSError) as exc:
            raise CommandFailed("it did not end in time, so it was ended") from exc
        finally:
            await _let_end(reader, writer)
        return outcome_of(said)


async def _let_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """No more words from us: the command ends, and with the last of it the other end closes."""
    try:
        with contextlib.suppress(OSError, TimeoutError):
            writer.write_eof()
            async with asyncio.timeout(ENDING_SECONDS):
                while await reader.read(65_536):
                    pass
    finally:
        writer.close()
