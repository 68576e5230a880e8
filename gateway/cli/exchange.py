"""Owns `posthouse sessions export` and `posthouse sessions import`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path

from agent.counting import counted
from agent.errors import PosthouseError
from agent.exchange.files import files_of
from agent.exchange.jsonl import write_lines
from agent.exchange.markdown import write_markdown
from agent.exchange.records import Portable, PortableFile, TakenIn
from gateway.cli import exits
from gateway.cli.output import NOTHING_YET, out, plain
from gateway.cli.sessions import find_session
from gateway.cli.settings import Settings
from gateway.config.environment import Home, environment, find_home
from gateway.exchange import send_file
from gateway.home_lock import claimed
from gateway.terminal_text import harmless

_LOOKED_AT_BYTES = 64
_OWNER = re.compile(r"[a-z]+:[A-Za-z0-9_.-]{1,64}")


def run(arguments: argparse.Namespace) -> int:
    """One of the two."""
    home = find_home(environment())
    if arguments.action == "export":
        return _export(arguments, home)
    taken = _import(arguments, home)
    if arguments.json:
        out(json.dumps([asdict(item) for item in taken]))
    else:
        out(_told(taken))
    return exits.OK


# --- out ----------------------------------------------------------------------------------------


def _export(arguments: argparse.Namespace, home: Home) -> int:
    if not home.database.exists():
        raise PosthouseError(NOTHING_YET.format(home=home.path))
    if arguments.output is not None and not arguments.force:
        _refuse_to_replace(Path(arguments.output))
    Settings(None, home, environment()).tell()
    portable = asyncio.run(_read(home, arguments.id))
    if arguments.format == "jsonl":
        pieces = write_lines([portable], _files(home, portable))
    else:
        pieces = write_markdown(portable)
    if arguments.output is None:
        _print(pieces)
    else:
        write_file(Path(arguments.output), pieces)
        out(f"written: {plain(arguments.output)}")
    return exits.OK


def _refuse_to_replace(path: Path) -> None:
    """An export may be all that is left of a conversation that has been forgotten here."""
    if path.is_file():
        raise PosthouseError(
            f"{plain(str(path))} is there already; name another file, or say --force to replace it"
        )


async def _read(home: Home, session_id: str) -> Portable:
    # Inside, so that the parser stays instant; the store brings the database driver.
    from gateway.wiring.beside import archive  # noqa: PLC0415

    async with archive(home) as store:
        return await store.portable(await find_session(store, session_id))


def _files(home: Home, portable: Portable) -> Iterator[PortableFile]:
    """One by one: together they may be more than memory holds."""
    from gateway.wiring.exchange import exported_file  # noqa: PLC0415 - as above

    for name in files_of(portable):
        file = asyncio.run(exported_file(home, name, portable.owner))
        if file.data is None:
            sys.stderr.write(f"the attachment {name} is gone; the export says so\n")
        yield file


def _print(pieces: Iterable[str]) -> None:
    """As bytes: a terminal's encoding must not change a file. Onto a terminal, as harmless text."""
    shown = harmless if sys.stdout.isatty() else str
    for piece in pieces:
        sys.stdout.buffer.write(shown(piece).encode())
    sys.stdout.buffer.flush()


def write_file(path: Path, pieces: Iterable[str]) -> None:
    """Whole or not at all, and for its owner only: conversations are private."""
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        raise PosthouseError(f"{path} is there already, and no file")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as exc:
        raise PosthouseError(f"{path} can not be written: {exc.strerror or exc}") from exc


# --- in -----------------------------------------------------------------------------------------


def _import(arguments: argparse.Namespace, home: Home) -> Sequence[TakenIn]:
    if arguments.owner is not None and _OWNER.fullmatch(arguments.owner) is None:
        raise PosthouseError("--owner wants a platform and an id, as in telegram:123456")
    env = environment()
    settings = Settings(arguments.config, home, env)
    settings.tell()
    path = Path(arguments.file)
    try:
        with path.open("rb") as file:
            _refuse_other(path, file)
            socket = settings.listening()
            taken = None
            if socket is not None:
                taken = asyncio.run(send_file(socket, file, arguments.owner))
    except OSError as exc:
        raise PosthouseError(f"{path} can not be read: {exc.strerror or exc}") from exc
    if taken is not None:
        return taken
    from gateway.wiring.exchange import take_in_file  # noqa: PLC0415 - as above

    with claimed(home.path, home.lock):
        return asyncio.run(take_in_file(home, path, arguments.owner))


def _refuse_other(path: Path, file: BufferedReader) -> None:
    """Name a file that is neither of the two, before anything is done with it."""
    start = file.peek(_LOOKED_AT_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start and not start.startswith((b"{", b"SQLite format 3\0")):
        raise PosthouseError(
            f"{plain(str(path))} is no posthouse export and no state.db of Hermes Agent "
            "(line 1 is no JSON)"
        )


def _told(taken: Sequence[TakenIn]) -> str:
    if not taken:
        return "the file holds no conversations"
    messages = sum(item.messages for item in taken)
    lines = [
        f"{item.conversation_id}: {counted(item.sessions, 'session')}, "
        f"{counted(item.messages, 'message')}; "
        f"its newest session is {item.tip_session_id}"
        for item in taken
    ]
    what = f"{counted(len(taken), 'conversation')} with {counted(messages, 'message')}"
    lines.append(f"{what} taken in; /sessions shows them to their owner")
    return "\n".join(lines)
