"""Owns the JSONL form of a conversation: one object a line, a head, a tail that proves it whole.

The same conversation always gives the same bytes. `docs/export-format.md` describes the form.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from agent.errors import ImportRefused
from agent.exchange.fields import BrokenObject
from agent.exchange.files import file_object, read_file_object
from agent.exchange.objects import (
    conversation_object,
    message_object,
    read_conversation,
    read_message,
    read_session,
    session_object,
)
from agent.exchange.records import (
    MAX_MESSAGES,
    Portable,
    PortableFile,
    PortableMessage,
    PortableSession,
)

FORMAT = 2
"""That of a file with pictures and documents; without, it is still the first one."""
_WITHOUT_FILES = 1
MAX_LINE_CHARS = 64 * 1024 * 1024
MAX_DEPTH = 200
"""Of lists and objects in one another; what takes them in again goes one call deeper for each."""

# --- writing ------------------------------------------------------------------------------------


def write_lines(portables: Iterable[Portable], files: Iterable[PortableFile] = ()) -> Iterator[str]:
    """The lines of a file, each with its line end. ``files`` are asked for one by one."""
    digest = hashlib.sha256()
    counts = {"conversations": 0, "messages": 0}

    def line(value: dict[str, Any]) -> str:
        text = _dump(value) + "\n"
        digest.update(text.encode())
        return text

    waiting = iter(files)
    file = next(waiting, None)
    yield line({"posthouse_export": _WITHOUT_FILES if file is None else FORMAT})
    while file is not None:
        counts["files"] = counts.get("files", 0) + 1
        yield line(file_object(file))
        file = next(waiting, None)
    for portable in portables:
        counts["conversations"] += 1
        counts["messages"] += portable.message_count
        yield line(conversation_object(portable))
        for session in portable.sessions:
            yield line(session_object(session))
            for message in session.messages:
                yield line(message_object(message))
    yield _dump({"type": "end", **counts, "sha256": digest.hexdigest()}) + "\n"


def _dump(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate in a provider's block
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


# --- reading ------------------------------------------------------------------------------------


def read_files(lines: Iterable[str]) -> Iterator[PortableFile]:
    """The pictures and documents of a file that `read_lines` has found whole, one by one."""
    for number, text in enumerate(lines):
        value = json.loads(text)
        if value.get("type") == "file":
            yield read_file_object(value)
        elif number > 0:
            return


def read_lines(lines: Iterable[str]) -> list[Portable]:
    """The conversations of a file; its pictures and documents are looked through, not kept.

    Raises:
        ImportRefused: It is none of ours, from a newer version, cut off, or not as it was written;
            the text names the line.
    """
    return _Reading().all(lines)


class _Reading:
    """One file, line by line."""

    def __init__(self) -> None:
        self._number = 0
        self._digest = hashlib.sha256()
        self._done: list[Portable] = []
        self._conversation: dict[str, Any] | None = None
        self._sessions: list[PortableSession] = []
        self._messages: list[PortableMessage] = []
        self._session: dict[str, Any] | None = None
        self._next_message = 1
        self._copies: set[int] = set()
        self._total = 0
        self._files = 0
        self._format = FORMAT
        self._ended = False

    def all(self, lines: Iterable[str]) -> list[Portable]:
        for text in lines:
            self._number += 1
            if len(text) > MAX_LINE_CHARS:
                self._refuse("is too long")
            if not text.strip():
                continue
            value = self._object(text)
            if self._ended:
                self._refuse("stands behind the end")
            is_end = value.get("type") == "end"
            if not is_end:
                self._digest.update(text.rstrip("\r\n").encode("utf-8", "surrogatepass") + b"\n")
            try:
                (self._end if is_end else self._take)(value)
            except BrokenObject as exc:
                self._refuse(str(exc))
        if self._number == 0:
            raise ImportRefused("the file is empty")
        if not self._ended:
            raise ImportRefused(
                f"the file is cut off: it stops at line {self._number} without its end line"
            )
        return self._done

    def _object(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text, parse_constant=self._refuse_number, parse_float=self._finite)
        except (ValueError, RecursionError) as exc:
            self._refuse(f"is no JSON ({type(exc).__name__})")
        if not isinstance(value, dict):
            self._refuse("is no JSON object")
        if _is_deeper(value, MAX_DEPTH):
            self._refuse(f"has more than {MAX_DEPTH} lists and objects in one another")
        return value

    def _finite(self, digits: str) -> float:
        found = float(digits)
        return found if math.isfinite(found) else self._refuse_number(digits)

    def _refuse_number(self, name: str) -> NoReturn:
        self._refuse(f"holds the number {name:.40}")

    def _take(self, value: dict[str, Any]) -> None:
        if self._number == 1 or "posthouse_export" in value:
            self._head(value)
            return
        match value.get("type"):
            case "conversation":
                self._close_conversation()
                self._conversation = value
                self._next_message = 1
                self._copies.clear()
            case "session":
                self._close_session()
                if self._conversation is None:
                    self._refuse("is a session before any conversation")
                self._session = value
            case "message":
                if self._session is None:
                    self._refuse("is a message before any session")
                message = read_message(value, self._next_message, self._copies)
                self._messages.append(message)
                self._next_message += 1
                if message.origin is not None:
                    self._copies.add(message.number)
                self._total += 1
                if self._total > MAX_MESSAGES:
                    self._refuse(f"is message number {self._total}; a file may hold {MAX_MESSAGES}")
            case "file" if self._format >= FORMAT:
                self._file(value)
            case other:
                self._refuse(f"has the unknown type {other!r:.40}")

    def _head(self, value: dict[str, Any]) -> None:
        version = value.get("posthouse_export")
        if self._number != 1 or not isinstance(version, int) or isinstance(version, bool):
            self._refuse("is not the head of a posthouse export")
        if version not in (_WITHOUT_FILES, FORMAT):
            raise ImportRefused(
                f"the file has format {version}, this program reads {_WITHOUT_FILES} to {FORMAT}: "
                "install the newer program"
            )
        self._format = version

    def _file(self, value: dict[str, Any]) -> None:
        if self._conversation is not None:
            self._refuse("is a file behind a conversation")
        try:
            read_file_object(value)
        except ValueError as exc:
            self._refuse(str(exc))
        self._files += 1

    def _end(self, value: dict[str, Any]) -> None:
        self._close_conversation()
        counts = (len(self._done), self._total)
        if (value.get("conversations"), value.get("messages")) != counts:
            self._refuse("counts other conversations or messages than the file holds")
        if value.get("files", 0) != self._files:
            self._refuse("counts other files than there are")
        if value.get("sha256") != self._digest.hexdigest():
            self._refuse("does not fit: the file was changed after it was written")
        self._ended = True

    def _close_conversation(self) -> None:
        self._close_session()
        if self._conversation is not None:
            self._done.append(read_conversation(self._conversation, self._sessions))
        self._conversation, self._sessions = None, []

    def _close_session(self) -> None:
        if self._session is not None:
            session = read_session(self._session, self._messages, self._next_message)
            self._sessions.append(session)
        self._session, self._messages = None, []

    def _refuse(self, what: str) -> NoReturn:
        raise ImportRefused(f"line {self._number} {what}")


def _is_deeper(value: object, depth: int) -> bool:
    """Does it hold so many lists and objects in one another, or more?"""
    boxes: list[Any] = [value]
    for _ in range(depth):
        inside = (i for box in boxes for i in (box.values() if isinstance(box, dict) else box))
        boxes = [item for item in inside if isinstance(item, dict | list)]
        if not boxes:
            return False
    return True
