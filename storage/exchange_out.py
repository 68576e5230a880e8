"""Owns how a conversation leaves the store, in SQL: rows become numbers of a file."""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from agent.brought import without
from agent.exchange.records import (
    Portable,
    PortableAnchor,
    PortableList,
    PortableMessage,
    PortableSession,
)
from agent.exchange.references import (
    renamed_compression,
    renamed_content,
    renamed_manifest,
)
from agent.messages import Content, Row
from agent.sessions import Session
from storage import sessions
from storage.codec import ROW_COLUMNS, decode_row

NOBODY = 0
"""What a reference becomes whose row does not come along."""


def portable(db: sessions.Reader, session_id: str) -> Portable:
    """`agent.exchange.records.Outgoing.portable`.

    A branch stands on its own: what it copied from elsewhere counts as original here.
    """
    chain = sessions.lineage(db, session_id)
    conversation = sessions.conversation(db, chain[0].conversation_id)
    assert conversation is not None
    found = {session.id: _rows(db, session.id) for session in chain}
    numbers = _Numbers(row for rows in found.values() for row, _, _ in rows)
    return Portable(
        conversation.id,
        conversation.owner,
        conversation.session_key,
        conversation.created_at,
        tuple(_session(db, session, found[session.id], numbers) for session in chain),
    )


def _rows(db: sessions.Reader, session_id: str) -> list[tuple[Row, bool, bool]]:
    query = (
        f"SELECT active, compacted, {ROW_COLUMNS} FROM messages WHERE session_id = ? ORDER BY id"
    )
    return [
        (decode_row(row[2:]), bool(row[0]), bool(row[1]))
        for row in db.execute(query, (session_id,))
    ]


class _Numbers:
    """Row id → number in the file. A row that stays behind is stood for by its first copy."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._of: dict[int, int] = {}
        self._number: dict[int, int] = {}
        for number, row in enumerate(rows, start=1):
            self._of[row.id] = self._number[row.id] = number
            self._of.setdefault(row.root_id, number)
        self._ids = sorted(self._number)

    def of(self, row_id: int) -> int:
        return self._of.get(row_id, NOBODY)

    def newest_upto(self, row_id: int) -> int:
        """The last message that is no newer than this row, of whomever; numbers follow row ids."""
        return bisect_right(self._ids, row_id)

    def origin(self, row: Row) -> int | None:
        """Of a copy; None for an original, and for a copy that has become one."""
        if row.origin_id is None:
            return None
        number = self.of(row.origin_id)
        return number if number < self._number[row.id] else None


def _session(
    db: sessions.Reader,
    session: Session,
    rows: Sequence[tuple[Row, bool, bool]],
    numbers: _Numbers,
) -> PortableSession:
    (last_seq, compression) = db.execute(
        "SELECT last_seq, compression FROM sessions WHERE id = ?", (session.id,)
    ).fetchone()
    anchor = session.anchor
    through = numbers.of(anchor.through_row_id) if anchor is not None else NOBODY
    prefix = session.prefix
    return PortableSession(
        id=session.id,
        revision=session.revision,
        source=prefix.source,
        model=prefix.model,
        model_config=prefix.model_config,
        system_prompt=prefix.system_prompt,
        tools=tuple(dataclasses.asdict(tool) for tool in prefix.tools),
        title=session.title,
        started_at=session.started_at,
        ended_at=session.ended_at,
        end_reason=session.end_reason,
        last_seq=last_seq,
        anchor=PortableAnchor(anchor.prompt_tokens, anchor.output_tokens, through)
        if anchor is not None and through
        else None,
        compression=renamed_compression(json.loads(compression), numbers.of),
        manifest=renamed_manifest(session.manifest, numbers.of),
        messages=tuple(
            _message(row, active, compacted, numbers) for row, active, compacted in rows
        ),
        replaced=tuple(_replaced(db, session.id, numbers)),
    )


def _replaced(db: sessions.Reader, session_id: str, numbers: _Numbers) -> Iterator[PortableList]:
    query = (
        "SELECT revision, made_at, carried_row_id, row_ids FROM replaced_lists"
        " WHERE session_id = ? ORDER BY revision"
    )
    for revision, made_at, carried, row_ids in db.execute(query, (session_id,)):
        messages = tuple(numbers.of(row_id) for row_id in json.loads(row_ids))
        yield PortableList(revision, made_at, numbers.newest_upto(carried), messages)


def _message(row: Row, active: bool, compacted: bool, numbers: _Numbers) -> PortableMessage:
    message = row.message
    return PortableMessage(
        number=numbers.of(row.id),
        seq=row.seq,
        active=active,
        compacted=compacted,
        created_at=row.created_at,
        role=message["role"],
        content=renamed_content(message["content"], row.kind, numbers.of),
        wire_content=renamed_content(_sent(row), row.kind, numbers.of),
        tool_calls=tuple(message.get("tool_calls") or ()),
        tool_call_id=message.get("tool_call_id"),
        tool_name=message.get("name"),
        blocks=tuple(message.get("anthropic_content_blocks") or ()),
        kind=row.kind,
        origin=numbers.origin(row),
    )


def _sent(row: Row) -> Content:
    """As it was sent, without what only rode in it: memory goes its own ways."""
    bare = without(row.wire_content)
    if bare is row.wire_content:
        return bare
    return None if bare == row.message["content"] else bare
