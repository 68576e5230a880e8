"""Owns the journal's own protocol: a record with its fields, by datagram or as a sealed file."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import logging
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from gateway.logs.lines import PRIORITY, LineFormatter
from gateway.logs.redaction import Redactor
from gateway.logs.streaming import StreamLines, number_of

SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "posthouse"
_SHORT = {"session_id": "SESSION", "conversation_id": "CONVERSATION", "turn_id": "TURN"}
# Names to which the journal or its readers give a meaning of their own.
_TAKEN = re.compile(
    r"MESSAGE|MESSAGE_ID|PRIORITY|CODE_.*|ERRNO|INVOCATION_ID|SYSLOG_.*|TID|UNIT|USER_.*|LOGGER"
)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class JournalLines(StreamLines):
    """To the journal with fields; while it takes nothing, as lines on standard error."""

    def __init__(self, stream: TextIO | None, redact: Redactor, path: Path = SOCKET) -> None:
        super().__init__(stream)
        self._path = str(path)
        self._lines = LineFormatter("journal", redact)
        self.setFormatter(self._lines)
        self._socket: socket.socket | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not self._send(datagram(_entry(record, self._lines))):
                self.write(self._lines.format(record))
        except Exception:  # noqa: BLE001 - as above it
            self.handleError(record)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        super().close()

    def _send(self, data: bytes) -> bool:
        """False: it was not taken."""
        try:
            if self._socket is None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket = made
            return self._sent(self._socket, data)
        except OSError:
            return False

    def _sent(self, sock: socket.socket, data: bytes) -> bool:
        try:
            sock.sendto(data, socket.MSG_DONTWAIT, self._path)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            with _sealed(data) as number:
                handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [number]))]
                sock.sendmsg([b""], handed, socket.MSG_DONTWAIT, self._path)
        return True


def is_journal(env: Mapping[str, str], stream: TextIO | None) -> bool:
    """Is standard error the journal's? The variable is handed on to those whose is not."""
    told, number = env.get("JOURNAL_STREAM", ""), number_of(stream)
    if not told or number is None:
        return bool(told)
    try:
        found = os.fstat(number)
    except OSError:
        return False
    return told == f"{found.st_dev}:{found.st_ino}"


def datagram(fields: Iterable[tuple[str, str]]) -> bytes:
    """As the journal reads it: a value with line ends has its length before it."""
    parts: list[bytes] = []
    for name, text in fields:
        value = text.encode("utf-8", "backslashreplace")
        if b"\n" in value:
            parts += [name.encode(), b"\n", struct.pack("<Q", len(value)), value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


def field_name(name: str) -> str:
    """As the journal takes it, and nothing that means something else there."""
    made = _SHORT.get(name) or re.sub(r"[^A-Z0-9_]", "_", name.upper()).lstrip("_")[:60]
    return f"X_{made[:58]}" if not made[:1].isalpha() or _TAKEN.fullmatch(made) else made


def _entry(record: logging.LogRecord, lines: LineFormatter) -> Iterator[tuple[str, str]]:
    yield "MESSAGE", f"{record.name}: {lines.text(record)}"
    yield "PRIORITY", str(PRIORITY.get(record.levelname, 6))
    yield "SYSLOG_IDENTIFIER", IDENTIFIER
    yield "LOGGER", record.name
    yield "CODE_FILE", record.pathname
    yield "CODE_LINE", str(record.lineno)
    yield "CODE_FUNC", str(record.funcName)
    for name, text in lines.fields(record).items():
        yield field_name(name), text


@contextlib.contextmanager
def _sealed(data: bytes) -> Iterator[int]:
    number = os.memfd_create("posthouse-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(number, data)
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, _SEALS)
        yield number
    finally:
        os.close(number)
