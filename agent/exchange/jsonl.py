"""Owns the JSONL form of a conversation: one object a line, a head, a tail that proves it whole.

The same conversation always gives the same bytes. `docs/export-format.md` describes the form.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, NoReturn, TypeGuard, cast, get_args

from agent.errors import ImportRefused
from agent.exchange.files import file_object, read_file_object
from agent.exchange.records import (
    LATEST_TIME,
    MAX_MESSAGES,
    Portable,
    PortableAnchor,
    PortableFile,
    PortableList,
    PortableMessage,
    PortableSession,
)
from agent.messages import Content, MessageKind, Role
from agent.sessions import CompressionState, EndReason, is_session_key

FORMAT = 2
"""That of a file with pictures and documents; without, it is still the first one."""
_WITHOUT_FILES = 1
MAX_LINE_CHARS = 64 * 1024 * 1024
MAX_DEPTH = 200
"""Of lists and objects in one another; what takes them in again goes one call deeper for each."""
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROLES = get_args(Role)
_KINDS = get_args(MessageKind)
_END_REASONS = get_args(EndReason)
_MAX_NUMBER = 2**53

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
        yield line(
            {
                "type": "conversation",
                "id": portable.conversation_id,
                "owner": portable.owner,
                "session_key": portable.session_key,
                "created_at": portable.created_at,
            }
        )
        for session in portable.sessions:
            yield line(_session(session))
            for message in session.messages:
                yield line(_message(message))
    yield _dump({"type": "end", **counts, "sha256": digest.hexdigest()}) + "\n"


def _dump(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate in a provider's block
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def _session(session: PortableSession) -> dict[str, Any]:
    anchor = session.anchor
    return {
        "type": "session",
        "id": session.id,
        "revision": session.revision,
        "source": session.source,
        "model": session.model,
        "model_config": session.model_config,
        "system_prompt": session.system_prompt,
        "tools": list(session.tools),
        "title": session.title,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "last_seq": session.last_seq,
        "anchor": [anchor.prompt_tokens, anchor.output_tokens, anchor.through] if anchor else None,
        "compression": session.compression,
        "manifest": session.manifest,
        "replaced": [
            [one.revision, one.made_at, one.carried, list(one.messages)] for one in session.replaced
        ],
    }


def _message(message: PortableMessage) -> dict[str, Any]:
    """Without what is as it mostly is: files are read by people too."""
    value: dict[str, Any] = {
        "type": "message",
        "n": message.number,
        "seq": message.seq,
        "at": message.created_at,
        "role": message.role,
        "content": message.content,
    }
    optional = {
        "wire_content": message.wire_content,
        "tool_calls": list(message.tool_calls) or None,
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "blocks": list(message.blocks) or None,
        "kind": message.kind,
        "origin": message.origin,
    }
    value.update({key: item for key, item in optional.items() if item is not None})
    if not message.active:
        value["left_list"] = "compacted" if message.compacted else "undone"
    return value


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
            if value.get("type") == "end":
                self._end(value)
                continue
            self._digest.update(text.rstrip("\r\n").encode("utf-8", "surrogatepass") + b"\n")
            self._take(value)
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
                self._messages.append(self._read_message(value))
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
        if self._conversation is None:
            return
        if not self._sessions:
            self._refuse("follows a conversation without a session")
        value = self._conversation
        self._done.append(
            Portable(
                conversation_id=self._id(value, "id"),
                owner=self._text(value, "owner"),
                session_key=self._session_key(value),
                created_at=self._time(value, "created_at"),
                sessions=tuple(self._sessions),
            )
        )
        self._conversation, self._sessions = None, []

    def _close_session(self) -> None:
        if self._session is not None:
            self._sessions.append(self._read_session(self._session))
        self._session, self._messages = None, []

    def _read_session(self, value: dict[str, Any]) -> PortableSession:
        reason = value.get("end_reason")
        if reason is not None and reason not in _END_REASONS:
            self._refuse(f"belongs to a session with the unknown end_reason {reason!r:.40}")
        ended_at = None if value.get("ended_at") is None else self._time(value, "ended_at")
        if reason is not None and ended_at is None:
            self._refuse("belongs to a session with an end_reason and no end")
        title = value.get("title")
        return PortableSession(
            id=self._id(value, "id"),
            revision=self._count(value, "revision"),
            source=self._text(value, "source"),
            model=self._text(value, "model"),
            model_config=self._map(value, "model_config"),
            system_prompt=self._text(value, "system_prompt"),
            tools=tuple(self._tools(value)),
            title=None if title is None else self._text(value, "title"),
            started_at=self._time(value, "started_at"),
            ended_at=ended_at,
            end_reason=reason,
            last_seq=self._count(value, "last_seq"),
            anchor=self._anchor(value),
            compression=self._compression(value),
            manifest=None if value.get("manifest") is None else self._map(value, "manifest"),
            messages=tuple(self._messages),
            replaced=tuple(self._replaced(value)),
        )

    def _anchor(self, value: dict[str, Any]) -> PortableAnchor | None:
        anchor = value.get("anchor")
        if anchor is None:
            return None
        if not (isinstance(anchor, list) and len(anchor) == 3 and all(map(_is_count, anchor))):
            self._refuse("belongs to a session with a broken anchor")
        return PortableAnchor(*anchor)

    def _replaced(self, value: dict[str, Any]) -> Iterator[PortableList]:
        own = {message.number for message in self._messages}
        last = -1
        lists = value.get("replaced", [])
        for one in lists if isinstance(lists, list) else [None]:
            match one:
                case [revision, float() | int() as made_at, carried, [*numbers]] if (
                    all(map(_is_count, (revision, carried, *numbers)))
                    and last < revision
                    and 0 <= made_at < LATEST_TIME
                    and carried < self._next_message
                    and own.issuperset(numbers)
                    and len(set(numbers)) == len(numbers)
                ):
                    last = revision
                    yield PortableList(revision, float(made_at), carried, tuple(numbers))
                case _:
                    self._refuse("belongs to a session with a broken replaced list")

    def _compression(self, value: dict[str, Any]) -> dict[str, Any]:
        """What compaction remembers; fields of another version are taken along unread."""
        found = self._map(value, "compression")
        for field in fields(CompressionState):
            expected = (int, float) if isinstance(field.default, float) else type(field.default)
            if field.name in found and not isinstance(found[field.name], expected):
                self._refuse(f"belongs to a session whose compression.{field.name} is broken")
        return found

    def _tools(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        tools = value.get("tools")
        if not isinstance(tools, list):
            self._refuse("belongs to a session without tools")
        for tool in tools:
            if not (
                isinstance(tool, dict)
                and tool.keys() == {"name", "description", "parameters"}
                and isinstance(tool["name"], str)
                and isinstance(tool["description"], str)
                and isinstance(tool["parameters"], dict)
            ):
                self._refuse("belongs to a session with a broken tool")
        return tools

    def _read_message(self, value: dict[str, Any]) -> PortableMessage:
        number = self._count(value, "n")
        if number != self._next_message:
            self._refuse(f"is message {number} where {self._next_message} was due")
        self._next_message += 1
        role, kind, origin = value.get("role"), value.get("kind"), value.get("origin")
        if role not in _ROLES:
            self._refuse(f"has the unknown role {role!r:.40}")
        if kind is not None and kind not in _KINDS:
            self._refuse(f"has the unknown kind {kind!r:.40}")
        if origin is not None and not (_is_count(origin) and 0 < origin < number):
            self._refuse("has an origin that does not stand before it")
        if origin is not None:
            if origin in self._copies:
                self._refuse("has an origin that is a copy itself")
            self._copies.add(number)
        left = value.get("left_list")
        if left not in (None, "compacted", "undone"):
            self._refuse("left the list in an unknown way")
        return PortableMessage(
            number=number,
            seq=self._count(value, "seq"),
            active=left is None,
            compacted=left == "compacted",
            created_at=self._time(value, "at"),
            role=cast(Role, role),
            content=self._content(value.get("content")),
            wire_content=self._content(value.get("wire_content")),
            tool_calls=tuple(self._calls(value)),
            tool_call_id=self._optional_text(value, "tool_call_id"),
            tool_name=self._optional_text(value, "tool_name"),
            blocks=tuple(self._blocks(value)),
            kind=kind,
            origin=origin,
        )

    def _content(self, content: Any) -> Content:
        if content is None or isinstance(content, str):
            return content
        if isinstance(content, list) and all(map(_is_part, content)):
            return content
        self._refuse("has content of an unknown shape")

    def _calls(self, value: dict[str, Any]) -> list[Any]:
        calls = value.get("tool_calls", [])
        if not isinstance(calls, list):
            self._refuse("has tool_calls of an unknown shape")
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not (
                isinstance(function, dict)
                and isinstance(call.get("id"), str)
                and isinstance(function.get("name"), str)
                and isinstance(function.get("arguments"), str)
            ):
                self._refuse("has a broken tool call")
        return calls

    def _blocks(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        blocks = value.get("blocks", [])
        if not isinstance(blocks, list) or not all(map(_is_part, blocks)):
            self._refuse("has blocks of an unknown shape")
        return blocks

    # --- fields

    def _id(self, value: dict[str, Any], name: str) -> str:
        found = value.get(name)
        if not isinstance(found, str) or _ID.fullmatch(found) is None:
            self._refuse(f"belongs to something whose {name} is no id of ours")
        return found

    def _session_key(self, value: dict[str, Any]) -> str:
        found = self._text(value, "session_key")
        if not is_session_key(found):
            self._refuse("follows a conversation whose session_key is none of ours")
        return found

    def _text(self, value: dict[str, Any], name: str) -> str:
        found = value.get(name)
        if not isinstance(found, str):
            self._refuse(f"needs the text {name}")
        return found

    def _optional_text(self, value: dict[str, Any], name: str) -> str | None:
        return None if value.get(name) is None else self._text(value, name)

    def _map(self, value: dict[str, Any], name: str) -> dict[str, Any]:
        found = value.get(name)
        if not isinstance(found, dict):
            self._refuse(f"needs the object {name}")
        return found

    def _count(self, value: dict[str, Any], name: str) -> int:
        found = value.get(name)
        if not _is_count(found):
            self._refuse(f"needs the whole number {name}")
        return found

    def _time(self, value: dict[str, Any], name: str) -> float:
        found = value.get(name)
        if isinstance(found, bool) or not isinstance(found, int | float):
            self._refuse(f"needs the time {name}")
        if not 0 <= found < LATEST_TIME:
            self._refuse(f"has a {name} that is no time")
        return float(found)

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


def _is_part(value: object) -> bool:
    """Does it say what it is? What that holds is looked at where it is used."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER
