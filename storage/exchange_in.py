"""Owns how a conversation of a file comes into the store, in SQL: its numbers become rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from agent.errors import ImportRefused
from agent.exchange.records import (
    Portable,
    PortableMessage,
    PortableSession,
    TakenIn,
)
from agent.exchange.references import (
    Rename,
    renamed_compression,
    renamed_content,
    renamed_manifest,
)
from agent.messages import Draft, Message
from storage import sessions
from storage.codec import clean, dump_json, encode
from storage.database import Transaction
from storage.exchange_out import NOBODY
from storage.faultpoint import faultpoint
from storage.places import key_of_today, today_in
from storage.rows import taken_back, unindex
from storage.segment import indexable_text, segmented
from storage.titles import taken_in

_HANDED_ON = ("compression", "switch", "uncompress")


def take_in(tx: Transaction, portables: Sequence[Portable]) -> list[TakenIn]:
    """`agent.exchange.records.Incoming.take_in`."""
    return [_take_in(tx, portable) for portable in portables]


def _check(portable: Portable) -> None:
    """What the store holds of every conversation."""
    condensed = False
    for session, following in zip(portable.sessions, [*portable.sessions[1:], None], strict=True):
        handed_on = session.ended_at is not None and session.end_reason in _HANDED_ON
        if handed_on and following is None:
            raise ImportRefused(f"the session {session.id} was continued by one that is missing")
        if not handed_on and following is not None:
            raise ImportRefused(
                f"the session {session.id} is followed by another, but has not ended"
            )
        if following is not None and not following.messages:
            raise ImportRefused(f"the session {following.id} continues another, but is empty")
        condensed = condensed or bool(session.replaced)
        if session.end_reason == "uncompress" and not condensed:
            raise ImportRefused(f"the session {session.id} undoes a compression that is missing")
        condensed = condensed or session.end_reason == "compression"


def _take_in(tx: Transaction, portable: Portable) -> TakenIn:
    _check(portable)
    if sessions.conversation(tx, portable.conversation_id) is not None:
        raise ImportRefused(f"the conversation {portable.conversation_id} is here already")
    tip = portable.sessions[-1]
    tx.execute(
        "INSERT INTO conversations (id, owner, session_key, tip_session_id, created_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            portable.conversation_id,
            clean(portable.owner),
            # Of today: a chat may have moved since the file was written.
            key_of_today(clean(portable.session_key), today_in(tx)),
            tip.id,
            portable.created_at,
        ),
    )
    faultpoint("take_in.conversation")
    ids: dict[int, int] = {}
    parent: str | None = None
    for session in portable.sessions:
        _insert_session(tx, session, portable.conversation_id, parent)
        faultpoint("take_in.session")
        for message in session.messages:
            ids[message.number] = _insert_message(tx, session.id, message, ids)
            faultpoint("take_in.message")
        _finish_session(tx, session, ids)
        faultpoint("take_in.finished_session")
        parent = session.id
    # An original whose copy was taken back later on came in as if it could be found.
    gone = taken_back(tx, [session.id for session in portable.sessions])
    unindex(tx, portable.conversation_id, gone)
    return TakenIn(portable.conversation_id, tip.id, len(portable.sessions), len(ids))


def _insert_session(
    tx: Transaction,
    session: PortableSession,
    conversation_id: str,
    parent: str | None,
) -> None:
    try:
        tx.execute(
            "INSERT INTO sessions (id, conversation_id, parent_session_id, link, revision,"
            " last_seq, source, model, title, started_at, ended_at, end_reason, compression,"
            " model_config, system_prompt, tools)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session.id,
                conversation_id,
                parent,
                "continuation" if parent is not None else None,
                session.revision,
                session.last_seq,
                clean(session.source),
                clean(session.model),
                taken_in(session.title),
                session.started_at,
                session.ended_at,
                session.end_reason,
                "{}",
                dump_json(session.model_config),
                clean(session.system_prompt),
                dump_json(list(session.tools)),
            ),
        )
    except sqlite3.IntegrityError as exc:
        raise ImportRefused(f"the session {session.id} is here already") from exc


def _insert_message(
    tx: Transaction, session_id: str, message: PortableMessage, ids: dict[int, int]
) -> int:
    rename = _renaming(ids)
    draft = Draft(
        _as_message(message, rename),
        renamed_content(message.wire_content, message.kind, rename),
        message.kind,
        None if message.origin is None else ids[message.origin],
    )
    columns, said, wire = encode(draft)
    sent = said if wire is None else cast(Message, {**said, "content": wire})
    try:
        row_id = tx.execute(
            "INSERT INTO messages (session_id, seq, active, compacted, created_at, tokens, role,"
            " content, content_is_json, wire_content, wire_is_json, tool_calls, tool_call_id,"
            " tool_name, raw_blocks, kind, origin_id)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session_id,
                message.seq,
                message.active,
                message.compacted,
                message.created_at,
                tx.estimate(sent),
                *columns,
            ),
        ).lastrowid
    except sqlite3.IntegrityError as exc:
        raise ImportRefused(f"message {message.number} has the place of another one") from exc
    assert row_id is not None
    text = indexable_text(said, draft.kind, draft.origin_id)
    if text is not None and (message.active or message.compacted):
        tx.index(row_id, segmented(text))
    return row_id


def _as_message(message: PortableMessage, rename: Rename) -> Message:
    fields: dict[str, Any] = {
        "role": message.role,
        "content": renamed_content(message.content, message.kind, rename),
        "tool_calls": list(message.tool_calls) or None,
        "tool_call_id": message.tool_call_id,
        "name": message.tool_name,
        "anthropic_content_blocks": list(message.blocks) or None,
    }
    return cast(
        Message, {k: v for k, v in fields.items() if v is not None or k in ("role", "content")}
    )


def _finish_session(tx: Transaction, session: PortableSession, ids: dict[int, int]) -> None:
    """What names rows, now that they have ids."""
    anchor = session.anchor
    # Only in its own list a measurement means something.
    in_list = {message.number for message in session.messages if message.active}
    through = ids[anchor.through] if anchor is not None and anchor.through in in_list else None
    rename = _renaming(ids)
    manifest = renamed_manifest(session.manifest, rename)
    known = anchor is not None and through is not None
    tx.execute(
        "UPDATE sessions SET message_count ="
        " (SELECT count(*) FROM messages WHERE session_id = ?1 AND active = 1),"
        " last_seq = max(last_seq,"
        "  (SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = ?1)),"
        " anchor_prompt_tokens = ?2, anchor_output_tokens = ?3, anchor_row_id = ?4, manifest = ?5,"
        " compression = ?6"
        " WHERE id = ?1",
        (
            session.id,
            anchor.prompt_tokens if known and anchor is not None else None,
            anchor.output_tokens if known and anchor is not None else None,
            through,
            None if manifest is None else dump_json(manifest),
            dump_json(renamed_compression(session.compression, rename)),
        ),
    )
    tx.executemany(
        "INSERT INTO replaced_lists (session_id, revision, carried_row_id, made_at, row_ids)"
        " VALUES (?, ?, ?, ?, ?)",
        [
            (session.id, one.revision, rename(one.carried), one.made_at,
             dump_json([rename(number) for number in one.messages]))
            for one in session.replaced
        ],
    )  # fmt: skip


def _renaming(ids: dict[int, int]) -> Rename:
    return lambda number: ids.get(number, NOBODY)
