"""Owns telling what kind of file brings conversations, and reading it whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from agent.errors import ImportRefused
from agent.exchange.jsonl import MAX_LINE_CHARS, read_files, read_lines
from agent.exchange.records import Portable, PortableFile
from storage.hermes import MAGIC, read_hermes

MAX_FILE_BYTES = 2 * 1024**3


def read_portables(path: Path, owner: str | None = None) -> list[Portable]:
    """The conversations of a JSONL export, or of a Hermes Agent's `state.db`.

    Args:
        path: The file.
        owner: Whom all of them shall belong to, as ``platform:user id``; None: as the file says.

    Raises:
        ImportRefused: It is neither, or not whole; the text says where.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ImportRefused(f"the file has {size} bytes, and at most {MAX_FILE_BYTES} are read")
        with path.open("rb") as file:
            is_database = file.read(len(MAGIC)) == MAGIC
        if is_database:
            found = read_hermes(path)
        else:
            with path.open(encoding="utf-8", newline="\n") as file_of_lines:
                found = read_lines(_lines(file_of_lines))
    except UnicodeDecodeError as exc:
        raise ImportRefused("the file is no text in UTF-8") from exc
    except OSError as exc:
        raise ImportRefused(f"the file can not be read: {exc.strerror or exc}") from exc
    return found if owner is None else [replace(portable, owner=owner) for portable in found]


def read_portable_files(path: Path) -> Iterator[PortableFile]:
    """The pictures and documents of a file that `read_portables` has found whole, one by one.

    Raises:
        ImportRefused: It has changed since.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return  # its pictures are in its messages
        with path.open(encoding="utf-8", newline="\n") as file_of_lines:
            yield from read_files(_lines(file_of_lines))
    except (OSError, ValueError) as exc:
        raise ImportRefused("the file changed while it was read") from exc


def _lines(file: TextIO) -> Iterator[str]:
    """Its lines; of one that is too long no more than shows it, whatever the rest would take."""
    return iter(partial(file.readline, MAX_LINE_CHARS + 1), "")
