"""Owns most of `agent.lineages.Lineages` in SQL: fork, rename, resume, undo a compression.

Plain functions over a transaction (or, for reads, a connection); `storage.store` runs them.
"""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from collections.abc import Sequence

from agent.errors import SessionEnded, SessionNotFound
from agent.lineages import (
    ConversationInfo,
    UncompressRequest,
    UsageTotals,
)
from agent.messages import Keep, Row
from agent.sessions import ChangeResult, Session
from agent.titles import given_name, split_number
from storage import changes, rows, sessions, turns
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.places import key_of_today, today_in
from storage.repair import plan_repair
from storage.titles import clean_title, unique_title
from storage.undoing import (
    OPENING_CHARS,
    Backwards,
    woven,
)

_INFO = (
    "SELECT c.id, c.owner, c.session_key, c.tip_session_id, tip.title, c.created_at,"
    " newest.created_at,"
    " (SELECT count(*) FROM sessions s JOIN messages m ON m.session_id = s.id"
    "  WHERE s.conversation_id = c.id AND m.kind IS NULL AND (m.active = 1 OR m.compacted = 1)"
    # What a fork took along was said in it as well, as far as it goes.
    "  AND (m.origin_id IS NULL OR (s.link = 'branch' AND m.id <= s.carried_row_id))),"
    " (SELECT count(*) FROM sessions s WHERE s.conversation_id = c.id),"
    " EXISTS (SELECT 1 FROM routes r"
    "  WHERE r.session_key = c.session_key AND r.conversation_id = c.id)"
    " FROM conversations c JOIN sessions tip ON tip.id = c.tip_session_id"
    # The end of the list, by place: finding it does not grow with the list.
    " LEFT JOIN messages newest ON newest.id = (SELECT m.id FROM messages m"
    "  WHERE m.session_id = tip.id AND m.active = 1 ORDER BY m.seq DESC LIMIT 1)"
)
# By the original's id: a copy is not news, and clocks jump.
_NEWEST_FIRST = " ORDER BY coalesce(newest.origin_id, newest.id) DESC, c.rowid DESC LIMIT ?"


# --- undo a compression -------------------------------------------------------------------------


def uncompressed(db: sessions.Reader, session_id: str) -> tuple[Row, ...]:
    return tuple(_before_compression(db, sessions.tip(db, session_id)))


def _before_compression(db: sessions.Reader, tip: Session) -> list[Row]:
    """Back from the tip to the newest compression that is not undone; empty: there is none."""
    backwards = Backwards()
    since: list[tuple[str, int]] = []
    session: Session | None = tip
    while session is not None and all(session.id != seen for seen, _ in since):
        for carried, row_ids in _replaced_lists(db, session.id):
            if backwards.is_boundary("compression"):
                base = rows.by_ids(db, session.id, row_ids)
                return _woven(db, base, session.id, [*since, (session.id, carried)])
        since.append((session.id, sessions.carried_row_id(db, session.id)))
        parent = sessions.continued(db, session)
        if parent is not None and backwards.is_boundary(parent.end_reason):
            return _woven(db, rows.active_rows(db, parent.id), parent.id, since)
        session = parent
    return []


def _replaced_lists(db: sessions.Reader, session_id: str) -> list[tuple[int, str]]:
    query = (
        "SELECT carried_row_id, row_ids FROM replaced_lists WHERE session_id = ?"
        " ORDER BY revision DESC"
    )
    return db.execute(query, (session_id,)).fetchall()


def _woven(
    db: sessions.Reader, base: list[Row], base_id: str, since: Sequence[tuple[str, int]]
) -> list[Row]:
    """``since``: sessions, newest first, each with the row behind which its own messages begin."""
    news = [row for each, after in reversed(since) for row in rows.said_since(db, each, after)]
    return woven(base, news, rows.taken_back(db, [base_id, *(each for each, _ in since)]))


def uncompress(tx: Transaction, request: UncompressRequest) -> ChangeResult:
    tip = sessions.tip_of_conversation(tx, request.conversation_id)
    refused = ChangeResult(False, tip)
    if tip.id != request.tip_id:
        return refused
    active = rows.active_rows(tx, tip.id)
    if active or request.covered_row_id:
        seen = changes.covered_count(
            tip, tip, request.expected_revision, request.covered_row_id, active
        )
        if seen is None:
            return refused
    elif tip.ended_at is not None or tip.revision != request.expected_revision:
        return refused  # an undo has emptied the list
    whole = _before_compression(tx, tip)
    if not whole:
        return refused
    child_id = changes.continue_in_child(
        tx,
        tip,
        "uncompress",
        [Keep(row.id) for row in whole],
        {row.id: row for row in whole},
        request.compression,
    )
    return ChangeResult(True, sessions.session(tx, child_id))


# --- fork ---------------------------------------------------------------------------------------


def branch(tx: Transaction, session_id: str, session_key: str, owner: str) -> Session:
    session_key = key_of_today(session_key, today_in(tx))
    parent = sessions.session(tx, session_id)
    tip = sessions.tip_of_conversation(tx, parent.conversation_id)
    active = rows.active_rows(tx, parent.id)
    if tip.id != parent.id or not active:
        raise SessionEnded(session_id)
    # What a running turn has not answered yet is answered by stand-ins, in the fork only.
    repair = plan_repair(active)
    entries = repair.entries if repair is not None else [Keep(row.id) for row in active]
    title = parent.title and unique_title(parent.title, _titles(tx, owner))
    fork = sessions.new_conversation(
        tx,
        session_key,
        owner,
        parent.prefix,
        forked_from=parent.id,
        title=title,
        compression=parent.compression,
    )
    changes.fill(tx, fork.id, entries, {row.id: row for row in active})
    return sessions.session(tx, fork.id)


# --- names and listings -------------------------------------------------------------------------


def set_title(tx: Transaction, conversation_id: str, title: str | None) -> Session:
    tip = sessions.tip_of_conversation(tx, conversation_id)
    title = clean_title(title)
    if title is not None:
        owner = sessions.owner_of(tx, conversation_id)
        title = unique_title(title, _titles(tx, owner, but_of=conversation_id))
    tx.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, tip.id))
    return sessions.session(tx, tip.id)


def _titles(tx: Transaction, owner: str, *, but_of: str = "") -> list[str]:
    """What an owner's conversations are called now."""
    query = (
        "SELECT s.title FROM conversations c JOIN sessions s ON s.id = c.tip_session_id"
        " WHERE c.owner = ? AND c.id <> ? AND s.title IS NOT NULL"
    )
    return [row[0] for row in tx.execute(query, (owner, but_of))]


def conversations_of(db: sessions.Reader, owner: str, *, limit: int = 20) -> list[ConversationInfo]:
    return _infos(db, "c.owner = ?", owner, limit)


def conversations_at(
    db: sessions.Reader, session_key: str, *, limit: int = 20
) -> list[ConversationInfo]:
    return _infos(db, "c.session_key = ?", key_of_today(session_key, today_in(db)), limit)


def _infos(db: sessions.Reader, where: str, value: str, limit: int) -> list[ConversationInfo]:
    query = f"{_INFO} WHERE {where} {_NEWEST_FIRST}"
    found = db.execute(query, (value, max(0, limit))).fetchall()
    return [
        ConversationInfo(
            id=conversation_id,
            owner=owner,
            session_key=session_key,
            tip_session_id=tip_id,
            title=title,
            name=_name(db, conversation_id, title),
            started_at=started_at,
            last_message_at=newest_at,
            message_count=messages,
            session_count=segments,
            routed=bool(routed),
            opening=_opening(db, conversation_id),
        )
        for conversation_id, owner, session_key, tip_id, title, started_at, newest_at, messages,
        segments, routed in found
    ]  # fmt: skip


def _name(db: sessions.Reader, conversation_id: str, title: str | None) -> str | None:
    """The title without a number that only continuations have given it."""
    if title is None or split_number(title) == (title, 1):
        return title
    query = "SELECT title FROM sessions WHERE conversation_id = ? ORDER BY serial"
    return given_name(row[0] for row in db.execute(query, (conversation_id,)))


def openings(db: sessions.Reader, conversation_ids: tuple[str, ...]) -> dict[str, str]:
    found = {one: _opening(db, one) for one in dict.fromkeys(conversation_ids)}
    return {one: opening for one, opening in found.items() if opening}


def _opening(db: sessions.Reader, conversation_id: str) -> str:
    """The first thing that a person said in it, still in the list or replaced since."""
    first = (
        "SELECT id, content, content_is_json FROM messages WHERE session_id ="
        "  (SELECT id FROM sessions WHERE conversation_id = ? ORDER BY serial LIMIT 1)"
        " AND active = ? AND role = 'user' AND kind IS NULL AND (active = 1 OR compacted = 1)"
        " ORDER BY seq LIMIT 1"
    )
    found = [db.execute(first, (conversation_id, active)).fetchone() for active in (1, 0)]
    said = min((row for row in found if row is not None), default=None)
    return "" if said is None else rows.said_text(*said[1:])[:OPENING_CHARS]


def usage_totals(db: sessions.Reader, conversation_id: str) -> UsageTotals:
    query = (
        "SELECT count(*), coalesce(sum(r.input_tokens), 0), coalesce(sum(r.output_tokens), 0),"
        " coalesce(sum(r.cache_read_tokens), 0), coalesce(sum(r.cache_write_tokens), 0)"
        " FROM sessions s JOIN requests r ON r.session_serial = s.serial"
        " WHERE s.conversation_id = ? AND r.purpose = 'turn'"
    )
    misses = (
        "SELECT r.cache_miss, count(*) FROM sessions s JOIN requests r"
        " ON r.session_serial = s.serial WHERE s.conversation_id = ? AND r.purpose = 'turn'"
        " AND r.cache_miss <> ''"
        " GROUP BY r.cache_miss ORDER BY count(*) DESC, r.cache_miss"
    )
    requests, took, gave, read, written = db.execute(query, (conversation_id,)).fetchone()
    missed = dict(db.execute(misses, (conversation_id,)).fetchall())
    return UsageTotals(requests, took, gave, read, written, missed)


# --- come back ----------------------------------------------------------------------------------


def resume(tx: Transaction, session_key: str, conversation_id: str) -> Session:
    session_key = key_of_today(session_key, today_in(tx))
    conversation = sessions.conversation(tx, conversation_id)
    if conversation is None:
        raise SessionNotFound(conversation_id)
    turns.require_rest(tx, conversation_id, but_of_key=session_key)
    tip = turns.healed_tip(tx, conversation)
    if tip.ended_at is not None:
        sessions.reopen(tx, tip.id)
    faultpoint("resume.reopened")
    tx.execute(
        "DELETE FROM routes WHERE conversation_id = ? AND session_key <> ?",
        (conversation_id, session_key),
    )
    faultpoint("resume.left_old_key")
    tx.execute(
        "UPDATE conversations SET session_key = ? WHERE id = ?", (session_key, conversation_id)
    )
    faultpoint("resume.lives_here")
    sessions.lead(tx, session_key, conversation_id)
    faultpoint("resume.led")
    return sessions.session(tx, tip.id)
