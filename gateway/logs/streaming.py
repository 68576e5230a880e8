"""Owns the way of lines to standard error, which may be closed, full, or read by nobody."""

from __future__ import annotations

import logging
import os
import select
import time
from typing import TextIO

_PIECE_BYTES = 4096
"""What a pipe that says it can be written to takes without making us wait."""
PATIENCE_SECONDS = 0.2
"""How long a line may wait for a reader who was there a moment ago."""


class StreamLines(logging.Handler):
    """Writes lines; those that nobody takes are let go, and counted.

    The daemon answers people, and the log is for its operator: a terminal that was stopped or a
    pipe whose reader hangs must not hold the event loop.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self._number = number_of(stream)
        self._lost = 0
        self._cut = False
        """The last line was written in part."""

    @property
    def lost(self) -> int:
        """Lines since the last one that was taken."""
        return self._lost

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:  # noqa: BLE001 - the supervised border: a line must not end what it is of
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing is shown: the library would print the arguments, secrets and all."""
        self._lost += 1

    def write(self, line: str) -> None:
        """One line, or more of one record."""
        head = f"[{self._lost} lines of the log were lost]\n" if self._lost else ""
        if self._cut:
            head = "\n" + head
        data = f"{head}{line}\n"
        if self._number is None:
            if self._stream is None:
                return
            self._stream.write(data.encode("utf-8", "backslashreplace").decode())
            self._stream.flush()
            self._lost = 0
            return
        self._put(self._number, data.encode("utf-8", "backslashreplace"))

    def _put(self, number: int, data: bytes) -> None:
        until = time.monotonic() + (0.0 if self._lost else PATIENCE_SECONDS)
        done = 0
        try:
            while done < len(data):
                if not _is_writable(number, max(0.0, until - time.monotonic())):
                    break
                done += os.write(number, data[done : done + _PIECE_BYTES])
        except BlockingIOError:
            pass  # somebody has made it so; it comes to the same
        except OSError:
            self._lost += 1  # closed, or its disk is full
            return
        if done == len(data):
            self._lost, self._cut = 0, False
            return
        self._lost += 1
        self._cut = self._cut if done == 0 else True


def number_of(stream: TextIO | None) -> int | None:
    """The file's number; None: it has none (any more)."""
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError, AttributeError):
        return None


def _is_writable(number: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))
