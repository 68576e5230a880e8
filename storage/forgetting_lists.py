"""Owns a person's messages on their way out, in SQL: chosen, made tombstones, lists made valid."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from agent.brought import OPENING, anew
from agent.forgetting import ERASED_SUMMARY, TOMBSTONE, tombstone_of
from agent.messages import Draft, Keep, Message, without_thinking
from storage import changes, rows, sessions
from storage.codec import ROW_COLUMNS, decode_row, dump_json, encode
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.forgotten import Begun, Choice, Known, choose
from storage.segment import UNINDEXED_TOOLS

_OWN = (
    "SELECT c.id FROM conversations c WHERE c.owner = ?1 AND (c.session_key NOT LIKE '%,null]'"
    # A group's in which nobody else has said a word, and which was not forked from one.
    " OR NOT EXISTS (SELECT 1 FROM turns t WHERE t.conversation_id = c.id AND t.owner <> ?1)"
    " AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.conversation_id = c.id"
    "  AND s.link = 'branch')) ORDER BY c.rowid"
)
_TURNS = (
    "SELECT conversation_id, user_row_id, owner FROM turns WHERE conversation_id IN"
    " (SELECT conversation_id FROM turns WHERE owner = ?)"
)
_FORKS = (
    "WITH RECURSIVE reached (id) AS (SELECT value FROM json_each(?) UNION"
    " SELECT f.conversation_id FROM reached r JOIN sessions p ON p.conversation_id = r.id"
    " JOIN sessions f ON f.parent_session_id = p.id AND f.link = 'branch')"
    " SELECT id FROM reached ORDER BY id"
)
_ROWS = (
    "SELECT m.id, m.kind, m.origin_id, m.session_id, m.id <= s.carried_row_id, m.tool_name,"
    " instr(coalesce(m.wire_content, ''), ?2) > 0"
    " FROM sessions s JOIN messages m ON m.session_id = s.id WHERE s.conversation_id = ?1"
)
_AROUND = (
    "SELECT id FROM conversations WHERE session_key <> '' AND session_key IN"
    " (SELECT place FROM notes WHERE owner = ?1 UNION SELECT session_key FROM conversations"
    "  WHERE id IN (SELECT value FROM json_each(?2))) ORDER BY rowid"
)
_IN = "(SELECT value FROM json_each(?))"
_SILENCE = (
    "UPDATE messages SET content = CASE WHEN content IS NULL THEN NULL"
    " WHEN kind IN ('summary', 'micro') THEN ?2 ELSE ?3 END, content_is_json = 0,"
    " wire_content = NULL, wire_is_json = 0, raw_blocks = NULL,"
    " tool_name = CASE WHEN tool_call_id IS NULL THEN NULL ELSE tool_name END,"
    " tokens = CASE WHEN kind IN ('summary', 'micro') THEN ?4 ELSE ?5 END"
    " WHERE id IN (SELECT value FROM json_each(?1)) AND tool_calls IS NULL"
)
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a person has a part in."""

    own: tuple[str, ...]
    """Conversations that are theirs alone."""
    own_rows: int
    """What was said in them."""
    choice: Choice


def find(db: sessions.Reader, owner: str) -> Found:
    """Where anything of this person stands."""
    own = tuple(row[0] for row in db.execute(_OWN, (owner,)))
    turns = [Begun(*row) for row in db.execute(_TURNS, (owner,)) if row[0] not in own]
    touched = json.dumps(sorted({turn.conversation_id for turn in turns}))
    around = {row[0] for row in db.execute(_AROUND, (owner, touched))}
    reached = [row[0] for row in db.execute(_FORKS, (touched,))]
    forked = [row[0] for row in db.execute(_FORKS, (json.dumps(own),)) if row[0] not in own]
    every = sorted({*reached, *forked, *around} - set(own))
    known = [row for each in every for row in _known(db, each, covers=each in around)]
    count = (
        "SELECT count(*) FROM messages m JOIN sessions s ON s.id = m.session_id"
        f" WHERE s.conversation_id IN {_IN} AND m.origin_id IS NULL AND m.kind IS NULL"
    )
    (own_rows,) = db.execute(count, (json.dumps(own),)).fetchone()
    theirs = _rows_of(db, own) if forked else ()
    return Found(own, int(own_rows), choose(owner, turns, known, theirs))


def _rows_of(db: sessions.Reader, conversation_ids: Sequence[str]) -> set[int]:
    query = (
        "SELECT m.id FROM sessions s JOIN messages m ON m.session_id = s.id"
        f" WHERE s.conversation_id IN {_IN}"
    )
    return {row[0] for row in db.execute(query, (json.dumps(conversation_ids),))}


def _known(db: sessions.Reader, conversation_id: str, *, covers: bool) -> Iterator[Known]:
    replaced = _made_inside(db, conversation_id)
    found = db.execute(_ROWS, (conversation_id, OPENING))
    for row_id, kind, origin_id, session_id, carried, tool, rides in found:
        inside = any(low < row_id <= high for low, high in replaced.get(session_id, ()))
        made = origin_id is None and (bool(carried) or inside or tool in UNINDEXED_TOOLS)
        yield Known(row_id, conversation_id, kind, origin_id, made, covers and bool(rides))


def _made_inside(db: sessions.Reader, conversation_id: str) -> dict[str, list[tuple[int, int]]]:
    """By session: between which rows those lie that a compression inside it has made."""
    query = (
        "SELECT r.session_id, (SELECT max(value) FROM json_each(r.row_ids)), r.carried_row_id"
        " FROM replaced_lists r JOIN sessions s ON s.id = r.session_id WHERE s.conversation_id = ?"
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for session_id, low, high in db.execute(query, (conversation_id,)):
        found.setdefault(session_id, []).append((low or 0, high))
    return found


# --- tombstones ---------------------------------------------------------------------------------


def silence(tx: Transaction, row_ids: Iterable[int]) -> None:
    """Leave nothing of these rows but their places, roles and pairs."""
    tokens = (
        tx.estimate({"role": "user", "content": ERASED_SUMMARY}),
        tx.estimate({"role": "user", "content": TOMBSTONE}),
    )
    for some in _chunks(sorted(row_ids)):
        ids = json.dumps(some)
        tx.execute(_SILENCE, (ids, ERASED_SUMMARY, TOMBSTONE, *tokens))
        calling = f"SELECT {ROW_COLUMNS} FROM messages WHERE id IN {_IN} AND tool_calls IS NOT NULL"
        for row in map(decode_row, tx.execute(calling, (ids,)).fetchall()):
            stands = tombstone_of(row.message, row.kind)
            tx.execute(
                "UPDATE messages SET content = ?, content_is_json = 0, wire_content = NULL,"
                " wire_is_json = 0, raw_blocks = NULL, tool_calls = ?, tokens = ? WHERE id = ?",
                (stands["content"], dump_json(stands["tool_calls"]), tx.estimate(stands), row.id),
            )
        faultpoint("erase.silenced")


def uncover(tx: Transaction, row_ids: Iterable[int]) -> None:
    """Take off what rode in messages of others: notes of the place, memories.

    Whose a note was can not be told any more. Those that are left are shown again.
    """
    for some in _chunks(sorted(row_ids)):
        query = f"SELECT {ROW_COLUMNS} FROM messages WHERE id IN {_IN}"
        for row in map(decode_row, tx.execute(query, (json.dumps(some),)).fetchall()):
            bare = anew(Draft(row.message, row.wire_content), "")
            columns, message, wire = encode(bare)
            sent = message if wire is None else cast(Message, {**message, "content": wire})
            tx.execute(
                "UPDATE messages SET wire_content = ?, wire_is_json = ?, tokens = ? WHERE id = ?",
                (*columns[3:5], tx.estimate(sent), row.id),
            )
        faultpoint("erase.uncovered")


def _chunks(row_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(row_ids), _AT_ONCE):
        yield row_ids[start : start + _AT_ONCE]


# --- conversations ------------------------------------------------------------------------------


def empty_out(tx: Transaction, conversation_id: str) -> None:
    """Make one's own conversation a shell that is nobody's and that nothing leads to."""
    silence(tx, _rows_of(tx, (conversation_id,)))
    tip = sessions.tip_of_conversation(tx, conversation_id)
    changes.new_revision(tx, tip.id, message_count=tip.message_count, places=0)
    _clear_sessions(tx, conversation_id, 0)
    tx.execute(
        "UPDATE sessions SET title = NULL, compression = '{}' WHERE conversation_id = ?",
        (conversation_id,),
    )
    tx.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = 'reset' WHERE id = ? AND ended_at IS NULL",
        (tx.now, tip.id),
    )
    tx.execute("DELETE FROM leases WHERE conversation_id = ?", (conversation_id,))
    tx.execute("DELETE FROM routes WHERE conversation_id = ?", (conversation_id,))
    tx.execute(
        "UPDATE conversations SET owner = '', session_key = '' WHERE id = ?", (conversation_id,)
    )
    faultpoint("erase.emptied")


def go_on_behind(tx: Transaction, conversation_id: str, first: int, gone: Collection[int]) -> None:
    """Let a conversation of several go on: what was measured and made of the old list is void."""
    _clear_sessions(tx, conversation_id, first)
    tip = sessions.tip_of_conversation(tx, conversation_id)
    active = rows.active_rows(tx, tip.id)
    changed = [n for n, row in enumerate(active) if row.id in gone]
    if not changed:
        return
    if tip.ended_at is None:
        changes.continue_in_child(
            tx,
            tip,
            "switch",
            [Keep(row.id) for row in active],
            {row.id: row for row in active},
            tip.compression,
        )
    else:  # whoever resumes it finds a list that a provider takes
        for row in active[changed[0] :]:
            if rows.has_thinking(row):
                blocks = without_thinking(row.message).get("anthropic_content_blocks")
                tx.execute(
                    "UPDATE messages SET raw_blocks = ? WHERE id = ?",
                    (dump_json(blocks) if blocks else None, row.id),
                )
        changes.new_revision(tx, tip.id, message_count=tip.message_count, places=0)
    faultpoint("erase.went_on")


def _clear_sessions(tx: Transaction, conversation_id: str, first: int) -> None:
    """From the session of this row on."""
    query = "SELECT s.serial FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id = ?"
    since = tx.execute(query, (first,)).fetchone()
    of_it = "conversation_id = ? AND serial >= ?"
    place = (conversation_id, since[0] if since else 0)
    tx.execute(
        "UPDATE sessions SET manifest = NULL, anchor_prompt_tokens = NULL,"
        f" anchor_output_tokens = NULL, anchor_row_id = NULL WHERE {of_it}",
        place,
    )
    tx.execute(
        f"DELETE FROM prepared WHERE session_id IN (SELECT id FROM sessions WHERE {of_it})", place
    )
    faultpoint("erase.cleared_sessions")
