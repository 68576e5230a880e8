"""Owns what is more than an append, in SQL: split, rewrite, and the repair of a loaded list."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from agent.messages import Draft, Entry, Keep, Row
from agent.sessions import (
    ChangeResult,
    CompressionState,
    EndReason,
    LoadedSession,
    RewriteRequest,
    Session,
    SessionPrefix,
    SplitRequest,
)
from storage import leases, rows, sessions
from storage.codec import dump_json
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.repair import check_plan, plan_repair, repaired_in_memory
from storage.titles import next_title

_log = logging.getLogger(__name__)


# --- split --------------------------------------------------------------------------------------


def split(tx: Transaction, request: SplitRequest) -> ChangeResult:
    parent = sessions.session(tx, request.parent_id)
    tip = sessions.tip_of_conversation(tx, request.conversation_id)
    active = rows.active_rows(tx, parent.id)
    covered = covered_count(parent, tip, request.expected_revision, request.covered_row_id, active)
    if covered is None:
        return ChangeResult(False, tip)
    later = active[covered:]
    check_plan(request.entries, [row.id for row in active[:covered]], later=len(later))
    entries = [*request.entries, *(Keep(row.id) for row in later)]
    child_id = continue_in_child(
        tx,
        parent,
        request.end_reason,
        entries,
        {row.id: row for row in active},
        request.compression,
        prefix=request.prefix,
        manifest=request.manifest,
    )
    if request.lease_holder is not None:
        leases.release_lease(tx, parent.conversation_id, request.lease_holder)
        faultpoint("split.dropped_lease")
    return ChangeResult(True, sessions.session(tx, child_id))


def continue_in_child(
    tx: Transaction,
    parent: Session,
    end_reason: EndReason,
    entries: Sequence[Entry],
    known: Mapping[int, Row],
    compression: CompressionState,
    *,
    prefix: SessionPrefix | None = None,
    manifest: dict[str, Any] | None = None,
) -> str:
    """Close a live tip for this reason and go on in a child that holds these entries.

    ``known``: the rows that the entries keep, by id; they may be of any session.
    """
    child_id = tx.new_id("s")
    # Numbers count compressions: what was refrozen or undone keeps its name.
    title = _numbered_title(tx, parent) if end_reason == "compression" else parent.title
    tx.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?",
        (tx.now, end_reason, parent.id),
    )
    faultpoint("split.closed_parent")
    sessions.insert_session(
        tx,
        child_id,
        parent.conversation_id,
        prefix or parent.prefix,
        parent_id=parent.id,
        link="continuation",
        title=title,
        compression=compression,
        manifest=manifest,
    )
    faultpoint("split.made_child")
    fill(tx, child_id, entries, known)
    sessions.move_tip(tx, parent.conversation_id, child_id)
    faultpoint("split.moved_tip")
    _discard_prepared(tx, parent.id)
    faultpoint("split.discarded_prepared")
    return child_id


def covered_count(
    target: Session, tip: Session, revision: int, covered_row_id: int, active: Sequence[Row]
) -> int | None:
    """How many rows the plan has seen; None if something moved since it was made."""
    if target.id != tip.id or target.ended_at is not None or target.revision != revision:
        return None
    for index, row in enumerate(active):
        if row.id == covered_row_id:
            return index + 1
    return None


def _numbered_title(tx: Transaction, parent: Session) -> str | None:
    if parent.title is None:
        return None
    return next_title(parent.title, sessions.titles_of(tx, parent.conversation_id))


def fill(
    tx: Transaction, child_id: str, entries: Sequence[Entry], known: Mapping[int, Row]
) -> None:
    """Put the list of a session that was just made."""
    for seq, entry in enumerate(entries, start=1):
        if isinstance(entry, Keep):
            row = known[entry.row_id]
            rows.copy(tx, child_id, seq, row, with_thinking=entry.with_thinking)
        else:
            rows.insert(tx, child_id, seq, entry)
        if seq == 1:
            faultpoint("split.copied_first_message")
    faultpoint("split.copied_messages")
    tx.execute(
        "UPDATE sessions SET message_count = ?1, last_seq = ?1, carried_row_id = ?2 WHERE id = ?3",
        (len(entries), rows.newest_id(tx), child_id),
    )
    faultpoint("split.counted_messages")


def _discard_prepared(tx: Transaction, session_id: str) -> None:
    tx.execute("DELETE FROM prepared WHERE session_id = ?", (session_id,))


# --- rewrite ------------------------------------------------------------------------------------


def rewrite(tx: Transaction, request: RewriteRequest) -> ChangeResult:
    target = sessions.session(tx, request.session_id)
    tip = sessions.tip_of_conversation(tx, target.conversation_id)
    active = rows.active_rows(tx, target.id)
    covered = covered_count(target, tip, request.expected_revision, request.covered_row_id, active)
    if covered is None:
        return ChangeResult(False, tip)
    later = active[covered:]
    if request.at_rest and (later or _at_work(tx, target.conversation_id, None)):
        return ChangeResult(False, tip)
    check_plan(request.entries, [row.id for row in active[:covered]], later=len(later))
    entries = [*request.entries, *(Keep(row.id) for row in later)]
    _replace_list(tx, target.id, active, entries)
    if request.compression is not None:
        if request.compression.count > target.compression.count:
            _remember_replaced(tx, target, active)
        sessions.set_compression(tx, target.id, request.compression)
        faultpoint("rewrite.compression")
    if request.manifest is not None:
        tx.execute(
            "UPDATE sessions SET manifest = ? WHERE id = ?",
            (dump_json(request.manifest), target.id),
        )
        faultpoint("rewrite.manifest")
    return ChangeResult(True, sessions.session(tx, target.id))


def _remember_replaced(tx: Transaction, target: Session, active: Sequence[Row]) -> None:
    """A compression inside the session: what it replaced can be had back."""
    tx.execute(
        "INSERT INTO replaced_lists (session_id, revision, carried_row_id, made_at, row_ids)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            target.id, target.revision + 1, rows.newest_id(tx), tx.now,
            dump_json([r.id for r in active]),
        ),
    )  # fmt: skip
    faultpoint("rewrite.remembered")


def _replace_list(
    tx: Transaction, session_id: str, active: Sequence[Row], entries: Sequence[Entry]
) -> None:
    """Make the session's list these entries, as a new revision.

    Rows in front of the first change stay as they are. Behind it, every row gets a fresh place
    (seqs only rise, so no two rows ever share one), and one with thinking is replaced by a copy
    without: it was bound to the prefix that has just changed (unless its entry knows better).
    """
    unchanged = 0
    for entry, row in zip(entries, active, strict=False):
        if not (isinstance(entry, Keep) and entry.row_id == row.id):
            break
        unchanged += 1
    known = {row.id: row for row in active}
    behind = entries[unchanged:]
    moved = [
        e.row_id
        for e in behind
        if isinstance(e, Keep) and (e.with_thinking or not rows.has_thinking(known[e.row_id]))
    ]
    staying = {row.id for row in active[:unchanged]}.union(moved)
    rows.retire(tx, [row.id for row in active if row.id not in staying])
    faultpoint("rewrite.retired")

    (last_seq,) = tx.execute("SELECT last_seq FROM sessions WHERE id = ?", (session_id,)).fetchone()
    for seq, entry in enumerate(behind, start=last_seq + 1):
        if isinstance(entry, Draft):
            rows.insert(tx, session_id, seq, entry)
        elif entry.row_id in staying:
            tx.execute("UPDATE messages SET seq = ? WHERE id = ?", (seq, entry.row_id))
        else:
            rows.copy(tx, session_id, seq, known[entry.row_id])
        faultpoint("rewrite.placed")
    new_revision(tx, session_id, message_count=len(entries), places=len(behind))


def new_revision(tx: Transaction, session_id: str, *, message_count: int, places: int) -> None:
    """The list has become another one: what was measured or prepared for the old one is void.

    ``places``: how many seqs were given out for it.
    """
    tx.execute(
        "UPDATE sessions SET revision = revision + 1, message_count = ?, last_seq = last_seq + ?,"
        " anchor_prompt_tokens = NULL, anchor_output_tokens = NULL, anchor_row_id = NULL"
        " WHERE id = ?",
        (message_count, places, session_id),
    )
    faultpoint("rewrite.revision")
    _discard_prepared(tx, session_id)
    faultpoint("rewrite.discarded_prepared")


# --- load and repair ----------------------------------------------------------------------------


def load(db: sessions.Reader, session_id: str, turn_id: str | None) -> tuple[LoadedSession, bool]:
    """The session as stored, and whether it has to be repaired by a write (`load_repaired`)."""
    session = sessions.session(db, session_id)
    found = rows.active_rows(db, session_id)
    repair = plan_repair(found)
    if repair is None:
        return LoadedSession(session, tuple(found)), False
    if session.ended_at is not None or _at_work(db, session.conversation_id, turn_id):
        return LoadedSession(session, repaired_in_memory(found, repair)), False
    return LoadedSession(session, tuple(found)), True


def _at_work(db: sessions.Reader, conversation_id: str, turn_id: str | None) -> bool:
    """Is a turn running here that is not the one that asks? What looks broken is its work."""
    query = (
        # Named twice: the index of open turns is only used by a query that says so itself.
        "SELECT 1 FROM turns WHERE state IN ('running', 'interrupted', 'crashed')"
        " AND state = 'running'"
        " AND conversation_id = ? AND id IS NOT ? LIMIT 1"
    )
    return db.execute(query, (conversation_id, turn_id)).fetchone() is not None


def load_repaired(tx: Transaction, session_id: str, turn_id: str | None) -> LoadedSession:
    """Load inside a write; what had to be repaired is stored."""
    loaded, broken = load(tx, session_id, turn_id)
    if not broken:
        return loaded
    repair = plan_repair(loaded.rows)
    if repair is None:
        return loaded
    _log.warning(
        "repaired a session",
        extra={"session_id": session_id, "rows": len(loaded.rows), "append": repair.is_append},
    )
    if repair.is_append:
        append_rows(tx, session_id, repair.stubs)
    else:
        _replace_list(tx, session_id, loaded.rows, repair.entries)
    return load(tx, session_id, turn_id)[0]


def append_rows(tx: Transaction, session_id: str, drafts: Sequence[Draft]) -> list[Row]:
    """Put messages at the end of the list."""
    (last_seq,) = tx.execute("SELECT last_seq FROM sessions WHERE id = ?", (session_id,)).fetchone()
    stored = []
    for seq, draft in enumerate(drafts, start=last_seq + 1):
        stored.append(rows.insert(tx, session_id, seq, draft))
        faultpoint("append.message")
    tx.execute(
        "UPDATE sessions SET message_count = message_count + ?1, last_seq = last_seq + ?1"
        " WHERE id = ?2",
        (len(drafts), session_id),
    )
    faultpoint("append.counted")
    return stored
