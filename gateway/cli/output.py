"""Owns what commands print: text that a terminal can show, tables, JSON."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agent.errors import PosthouseError
from gateway.cli import exits
from gateway.terminal_text import harmless

NOTHING_YET = "nothing is stored yet in {home}; `posthouse run` begins it"

_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Turn the order of letters up to the end of a line: a title would show its row back to front."""
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), 127, *range(128, 160), *_TURNING))


def out(text: str) -> None:
    """Print to standard output; what it can not encode is replaced, never an error.

    Whatever is in the text, it steers no terminal.

    Raises:
        PosthouseError: there is no standard output, or it takes nothing more.
        BrokenPipeError: whoever read it has had enough.
    """
    if sys.stdout is None:
        raise PosthouseError("standard output is closed")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(harmless(text).encode(encoding, "replace").decode(encoding) + "\n")
        # Not left to the interpreter's end, where nobody can answer for a failure any more.
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise PosthouseError(f"standard output takes nothing: {exc.strerror}") from exc


def nothing_yet(home: Path, empty: object) -> int:
    """A listing before the first start: in words, or as scripts expect it; nothing is no failure.

    ``empty``: what a script gets; None: a person has asked.
    """
    words = NOTHING_YET.format(home=plain(str(home)))
    out(words if empty is None else json.dumps(empty))
    return exits.OK


def plain(text: str, limit: int | None = None) -> str:
    """One line without control characters, so that stored text can not steer a terminal."""
    line = " ".join(text.translate(_CONTROL).split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, padded with spaces."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
    return "\n".join(lines)


def when(timestamp: float | None) -> str:
    """Local time to the second; nothing for None."""
    if timestamp is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def terminal_width() -> int | None:
    """Columns of the terminal that is printed to; None: it is none."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if terminal else None
