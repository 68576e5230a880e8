"""Owns reading another program's store: the `state.db` of Hermes Agent, as portable conversations.

Reads only; what a version of that program does not have (columns come and go) is left out. Its
tables: ``sessions`` (linked by ``parent_session_id``, ``end_reason='compression'``) and
``messages`` (in the order of their ids; ``active``, ``compacted``).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from agent.errors import ImportRefused
from agent.exchange.records import (
    LATEST_TIME,
    Portable,
    PortableMessage,
    PortableSession,
)
from agent.messages import Content, MessageKind, Role, ToolCall, clean_text
from agent.sessions import EndReason, session_key

MAGIC = b"SQLite format 3\x00"
_LIST_MARKS = ("\x00json:", "\x01json:")
"""Stand before content that is a JSON list."""
_SUMMARY_MARKS = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
_ROLES = tuple(role for role in get_args(Role) if role != "system")
_END_REASONS: Mapping[str, EndReason] = {
    "session_reset": "reset",
    "new_session": "reset",
    "idle": "idle",
    "daily": "daily",
}
_OURS = {"schema_migrations", "conversations", "facts"}
OWN = (
    "it is a database of posthouse's own, and none of Hermes Agent. `posthouse restore FILE` puts"
    " it in the place of this home's; to take single conversations over, `posthouse sessions export"
    " ID --output FILE` with POSTHOUSE_HOME set to the folder that it lies in, and import that"
)
"""Told whoever wants to import one."""
LOCAL_OWNER = "console:local"
"""Whom sessions of its command line belong to here."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A row of ``sessions``, with what is needed of it."""

    id: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return clean_text(value) if isinstance(value, str) else ""

    def time(self, name: str) -> float | None:
        return _time(self.values.get(name))


def read_hermes(path: Path) -> list[Portable]:
    """Every conversation that a `state.db` holds, oldest first.

    Raises:
        ImportRefused: The file is no such database, or can not be read.
    """
    try:
        with closing(sqlite3.connect(_uri(path), uri=True)) as db:
            db.row_factory = sqlite3.Row
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            return list(_conversations(db))
    except sqlite3.Error as exc:
        raise ImportRefused(f"the database can not be read: {exc}") from exc


def _uri(path: Path) -> str:
    """Reads only. A file that stands alone gets no log put beside it: nobody would take it away."""
    alone = not any(other.name.startswith(f"{path.name}-") for other in path.parent.iterdir())
    return f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if alone else "")


def _conversations(db: sqlite3.Connection) -> Iterator[Portable]:
    _check(db)
    found = [
        _Session(str(row["id"]), dict(row))
        for row in db.execute("SELECT * FROM sessions ORDER BY started_at, id")
    ]
    for chain in _chains(found):
        conversation = _Conversation(db, chain).portable()
        if conversation is not None:
            yield conversation


def _check(db: sqlite3.Connection) -> None:
    # Its tables are called the same, and would be taken in as conversations of nobody.
    tables = {row["name"] for row in db.execute("SELECT name FROM sqlite_schema")}
    if tables >= _OURS:
        raise ImportRefused(OWN)
    needed = {"sessions": {"id", "started_at"}, "messages": {"id", "session_id", "role", "content"}}
    for table, columns in needed.items():
        have = {row["name"] for row in db.execute(f"PRAGMA table_info({table})")}
        if missing := columns - have:
            raise ImportRefused(
                f"the database is no state.db of Hermes Agent: {table} has no "
                + ", ".join(sorted(missing))
            )


def _chains(found: Sequence[_Session]) -> Iterator[list[_Session]]:
    """The sessions that continue one another, root first.

    Of several children of a compressed parent the one that was itself compressed goes on, then a
    live one, then the youngest; the others begin conversations of their own.
    """
    by_id = {session.id: session for session in found}
    children: dict[str, list[_Session]] = {}
    for session in found:
        parent = by_id.get(session.text("parent_session_id"))
        if parent is not None and parent.values.get("end_reason") == "compression":
            children.setdefault(parent.id, []).append(session)
    heirs = {parent: max(born, key=_claim).id for parent, born in children.items()}
    continued = set(heirs.values())
    placed: set[str] = set()
    # First those that nobody continues; what a hand-made circle leaves over comes as it lies.
    for session in [*(s for s in found if s.id not in continued), *found]:
        chain: list[_Session] = []
        at: _Session | None = session
        while at is not None and at.id not in placed:
            placed.add(at.id)
            chain.append(at)
            at = by_id.get(heirs.get(at.id, ""))
        if chain:
            yield chain


def _claim(session: _Session) -> tuple[bool, bool, float, str]:
    return (
        session.values.get("end_reason") == "compression",
        session.values.get("ended_at") is None,
        session.time("started_at") or 0.0,
        session.id,
    )


class _Conversation:
    """One chain on its way: numbers its messages, finds the copies among them."""

    def __init__(self, db: sqlite3.Connection, chain: Sequence[_Session]) -> None:
        self._db = db
        self._chain = chain
        self._next = 1

    def portable(self) -> Portable | None:
        """None: nobody said anything in it."""
        filled: list[tuple[_Session, tuple[PortableMessage, ...]]] = []
        for source in self._chain:
            before = filled[-1][1] if filled else ()
            if messages := tuple(_as_copies(self._messages(source), before)):
                filled.append((source, messages))
        if not filled:
            return None
        successors = [*(source for source, _ in filled[1:]), None]
        sessions = [
            _session(source, following, messages)
            for (source, messages), following in zip(filled, successors, strict=True)
        ]
        root, tip = filled[0][0], filled[-1][0]
        platform, user = tip.text("source") or "cli", tip.text("user_id")
        name = hashlib.sha256(root.id.encode()).hexdigest()[:24]
        return Portable(
            conversation_id=f"c_hermes_{name}",
            owner=f"{platform}:{user}" if user else LOCAL_OWNER,
            session_key=session_key(
                platform, "", tip.text("chat_id"), tip.text("thread_id") or None, user or None
            ),
            created_at=root.time("started_at") or 0.0,
            sessions=tuple(sessions),
        )

    def _messages(self, source: _Session) -> Iterator[PortableMessage]:
        rows = self._db.execute(
            "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (source.id,)
        )
        for seq, row in enumerate(rows, start=1):
            values = dict(row)
            if values["role"] not in _ROLES:
                continue
            yield _message(self._next, seq, values, source.time("started_at") or 0.0)
            self._next += 1


def _session(
    source: _Session, following: _Session | None, messages: tuple[PortableMessage, ...]
) -> PortableSession:
    ended_at = source.time("ended_at")
    reason: EndReason | None = None
    if following is not None:
        ended_at = ended_at or following.time("started_at") or 0.0
        reason = "compression"
    elif ended_at is not None:
        reason = _END_REASONS.get(source.text("end_reason"))
        ended_at = ended_at if reason is not None else None  # a crash, an exit: it can go on
    return PortableSession(
        id=f"s_hermes_{hashlib.sha256(source.id.encode()).hexdigest()[:24]}",
        revision=0,
        source=source.text("source") or "cli",
        model=source.text("model"),
        model_config={"imported_from": source.id},
        system_prompt=source.text("system_prompt"),
        tools=(),
        title=source.text("title") or None,
        started_at=source.time("started_at") or 0.0,
        ended_at=ended_at,
        end_reason=reason,
        last_seq=max((message.seq for message in messages), default=0),
        anchor=None,
        compression={},
        manifest=None,
        messages=messages,
    )


def _message(number: int, seq: int, values: Mapping[str, Any], default: float) -> PortableMessage:
    role: Role = values["role"]
    content = _content(values["content"])
    calls = _calls(values.get("tool_calls"), number) if role == "assistant" else ()
    kind: MessageKind | None = None
    if isinstance(content, str) and content.startswith(_SUMMARY_MARKS) and not calls:
        kind = "summary"
    call_id = values.get("tool_call_id")
    tool_name = values.get("tool_name")
    is_tool = role == "tool"
    at = _time(values.get("timestamp"))
    return PortableMessage(
        number=number,
        seq=seq,
        active=bool(values.get("active", 1)),
        compacted=bool(values.get("compacted", 0)),
        created_at=default if at is None else at,
        role=role,
        content=content,
        tool_calls=calls,
        tool_call_id=clean_text(call_id) if is_tool and isinstance(call_id, str) else None,
        tool_name=clean_text(tool_name) if is_tool and isinstance(tool_name, str) else None,
        kind=kind,
    )


def _content(value: Any) -> Content:
    if value is None:
        return None
    text = clean_text(value if isinstance(value, str) else str(value))
    for mark in _LIST_MARKS:
        if text.startswith(mark):
            parts = _json(text[len(mark) :])
            if isinstance(parts, list) and all(map(_is_part, parts)):
                return parts
            return text[len(mark) :]
    return text


def _is_part(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _calls(value: Any, number: int) -> tuple[ToolCall, ...]:
    found = _json(value) if isinstance(value, str) else value
    calls: list[ToolCall] = []
    for at, call in enumerate(found if isinstance(found, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
        call_id = call.get("id") or call.get("call_id") or f"call_{number}_{at}"
        calls.append(
            {"id": str(call_id), "function": {"name": function["name"], "arguments": arguments}}
        )
    return tuple(calls)


def _as_copies(
    messages: Iterable[PortableMessage], before: Sequence[PortableMessage]
) -> Iterator[PortableMessage]:
    """The messages, those marked as copies that say again what the session before said.

    A child begins with a summary and the end of its parent; that program does not note which rows
    are copies. They come in their parent's order, and a shortened result keeps its call's id.
    """
    said = [message for message in before if message.kind != "summary"]
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, message in enumerate(said):
        places.setdefault(_words(message), []).append(place)
    at = 0
    for message in messages:
        same = places.get(_words(message), []) if message.kind is None else []
        nearest = bisect_left(same, at)
        if nearest == len(same):
            yield message
            continue
        original, at = said[same[nearest]], same[nearest] + 1
        changed = message.content != original.content
        yield replace(
            message,
            origin=original.origin or original.number,
            kind="stub" if changed else original.kind,
        )


def _words(message: PortableMessage) -> tuple[Any, ...]:
    """What makes two rows the same message."""
    if message.role == "tool":
        return ("tool", message.tool_call_id)
    calls = tuple((c["id"], c["function"]["name"]) for c in message.tool_calls)
    return (message.role, json.dumps(message.content, sort_keys=True), calls)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _time(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < LATEST_TIME else None
