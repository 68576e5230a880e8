"""Owns taking a file of conversations in through the control socket: chunks out, chunks in.

The daemon is the only writer of its store, and may not be allowed to read where the file lies; so
the command line sends the file over.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import ImportRefused, PosthouseError
from gateway.control import OtherSideGone, connect, read_line, send_line

if TYPE_CHECKING:
    from agent.exchange.records import TakenIn

CHUNK_BYTES = 1024 * 1024
SILENCE_SECONDS = 60.0
"""A client that says nothing for so long is gone."""

_PREFIX, _SUFFIX = ".import-", ".part"

TakeIn = Callable[[Path, str | None], Awaitable[Sequence["TakenIn"]]]
"""Reads a file and stores what it holds, for this owner or for those that it names."""


class ImportDesk:
    """The daemon's side: keeps the file aside until it is whole, then hands it on."""

    def __init__(self, folder: Path, take_in: TakeIn) -> None:
        self._folder = folder
        self._take_in = take_in

    def tidy(self) -> None:
        """Take away what a daemon that was killed had set aside; the home is this process's own."""
        for left in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            left.unlink(missing_ok=True)

    async def serve(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one ``import``: ``{"taken": […]}`` or ``{"error": …}``."""
        try:
            taken = await self._taken(request.get("owner"), reader)
        except OtherSideGone:
            raise
        except OSError as exc:  # a full disk, most likely
            await send_line(writer, {"error": f"the file can not be kept: {exc.strerror or exc}"})
        except PosthouseError as exc:
            await send_line(writer, {"error": str(exc)})
        else:
            await send_line(writer, {"taken": [asdict(item) for item in taken]})

    async def _taken(self, owner: object, reader: asyncio.StreamReader) -> Sequence[TakenIn]:
        descriptor, name = tempfile.mkstemp(_SUFFIX, _PREFIX, self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                await _receive(reader, file)
            return await self._take_in(Path(name), owner if isinstance(owner, str) else None)
        finally:
            os.unlink(name)


async def _receive(reader: asyncio.StreamReader, file: BinaryIO) -> None:
    while True:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await read_line(reader)
            if message is None:
                raise ImportRefused("the file did not arrive whole")
            if message.get("end"):
                return
            file.write(base64.b64decode(str(message.get("chunk", "")), validate=True))
        except (TimeoutError, binascii.Error) as exc:
            raise ImportRefused("the file did not arrive whole") from exc


async def send_file(socket: Path, file: BinaryIO, owner: str | None) -> list[TakenIn] | None:
    """Send a file to the running daemon and give back what it took in; None: no daemon answers.

    Raises:
        ImportRefused: The daemon does not take it; nothing was changed.
    """
    try:
        reader, writer = await connect(socket)
    except (FileNotFoundError, NotADirectoryError, ConnectionError):
        return None
    except PermissionError as exc:
        raise PosthouseError(f"{socket} belongs to another user; import as that one") from exc
    # Beside the sending: who takes no more has said why, and a broken connection takes that away.
    answering = asyncio.ensure_future(read_line(reader))
    try:
        _refuse_half(Path(file.name))
        await send_line(writer, {"op": "import", "owner": owner})
        while not answering.done() and (chunk := file.read(CHUNK_BYTES)):
            await send_line(writer, {"chunk": base64.b64encode(chunk).decode()})
        if not answering.done():
            await send_line(writer, {"end": True})
        answer = await answering
    except OtherSideGone:
        told = answering.done() and answering.exception() is None
        answer = answering.result() if told else None
    finally:
        answering.cancel()
        writer.close()
    if answer is None:
        raise ImportRefused("the gateway went away; look at `posthouse sessions list`")
    if "taken" not in answer:
        raise ImportRefused(str(answer.get("error")))
    from agent.exchange.records import TakenIn  # noqa: PLC0415 - only for who imports

    return [TakenIn(**item) for item in answer["taken"]]


def _refuse_half(path: Path) -> None:
    """Of a database that is being written to, only the file itself would arrive."""
    path = path.resolve()  # the log lies beside the file, not beside a link to it
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise ImportRefused(
            f"{log} holds what is not in the database yet: end the program that writes there, "
            "or import while the gateway is down"
        )
