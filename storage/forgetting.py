"""Owns `agent.forgetting.Forgetting` in SQL: from the stored wish to the last row."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from agent.forgetting import ForgetRequest, Holdings
from agent.mail import Address, OutboxDraft, OutboxItem
from storage import forgetting_lists as lists
from storage import forgetting_rest as rest
from storage import inbox, outbox, sessions
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint
from storage.search import index

_MARK = "forgetting "
"""In front of a person, among the facts."""
_DONE = "forgotten "
"""The same, for as long as the database is kept: a backup of before still holds them."""
_PLACES = (
    "SELECT DISTINCT session_key FROM conversations WHERE session_key <> '' AND id IN"
    " (SELECT value FROM json_each(?1)) UNION SELECT session_key FROM turns WHERE owner = ?2"
    " AND state IN ('running', 'interrupted', 'crashed') ORDER BY 1"
)


def holdings(db: sessions.Reader, owner: str) -> Holdings:
    owner = clean(owner)
    return _holdings(db, owner, lists.find(db, owner))


def _holdings(db: sessions.Reader, owner: str, found: lists.Found) -> Holdings:
    notes, files, jobs, mail = rest.counts(db, owner)
    ids = (*found.own, *sorted(found.choice.first))
    places = db.execute(_PLACES, (json.dumps(ids), owner)).fetchall()
    return Holdings(
        messages=found.own_rows + len(found.choice.originals),
        conversations=len(found.own),
        shared=len(found.choice.shared),
        notes=notes,
        files=files,
        jobs=jobs,
        mail=mail,
        keys=tuple(row[0] for row in places),
        conversation_ids=ids,
    )


def begin_forgetting(
    tx: Transaction, owner: str, *, inbox_id: int | None = None, answer_to: Address | None = None
) -> ForgetRequest:
    owner = clean(owner)
    if inbox_id is not None:
        inbox.answer_inbox(tx, (inbox_id,), ())
    known = _mark(tx, owner)
    if known is not None:
        return known
    (newest,) = tx.execute("SELECT coalesce(max(id), 0) FROM inbox").fetchone()
    request = ForgetRequest(owner, newest if inbox_id is None else inbox_id, answer_to)
    _put(tx, request)
    faultpoint("begin_forgetting.marked")
    return request


def forgetting(db: sessions.Reader) -> list[ForgetRequest]:
    query = "SELECT value FROM facts WHERE name GLOB ? ORDER BY name"
    return [ForgetRequest.loaded(row[0]) for row in db.execute(query, (f"{_MARK}*",))]


def sessions_of(db: sessions.Reader, conversation_ids: Sequence[str]) -> tuple[str, ...]:
    query = (
        "SELECT id FROM sessions WHERE conversation_id IN (SELECT value FROM json_each(?))"
        " ORDER BY id"
    )
    return tuple(row[0] for row in db.execute(query, (json.dumps(list(conversation_ids)),)))


def erase(tx: Transaction, owner: str) -> ForgetRequest:
    owner = clean(owner)
    request = _mark(tx, owner)
    if request is None:
        raise LookupError(f"nobody asked to forget {owner}")
    if request.erased is not None:
        return request
    found = lists.find(tx, owner)
    erased = _holdings(tx, owner, found)
    rest.clear_outbox(tx, owner, found.own)
    choice = found.choice
    for conversation_id in choice.shared:
        rest.clear_title(tx, owner, conversation_id)
    lists.silence(tx, choice.row_ids)
    lists.uncover(tx, choice.rides)
    for conversation_id, first in choice.first.items():
        lists.go_on_behind(tx, conversation_id, first, choice.row_ids | choice.rides)
    for conversation_id in found.own:
        lists.empty_out(tx, conversation_id)
    rest.end_turns(tx, owner)
    rest.clear_inbox(tx, owner, request.upto_inbox_id)
    file_names = rest.clear_things(tx, owner)
    # Its segments hold the words of what was taken out of it: it is made anew from nothing.
    index.begin_rebuild(tx)
    request = request.gone(erased, file_names)
    _put(tx, request)
    faultpoint("erase.marked")
    return request


def finish_forgetting(
    tx: Transaction, owner: str, owed: Sequence[OutboxDraft] = ()
) -> tuple[OutboxItem, ...]:
    struck = tx.execute("DELETE FROM facts WHERE name = ?", (_MARK + clean(owner),))
    if struck.rowcount:
        _put_done(tx, clean(owner), tx.now)
    faultpoint("finish_forgetting.struck")
    return outbox.owe_all(tx, owed, None, None) if struck.rowcount else ()


# --- over a restore -------------------------------------------------------------------------------


def forgotten(db: sessions.Reader) -> dict[str, float]:
    """Who was forgotten, and when; whoever is being forgotten now, as the last of all."""
    query = "SELECT name, value FROM facts WHERE name GLOB ?"
    done = {
        name.removeprefix(_DONE): float(value) for name, value in db.execute(query, (f"{_DONE}*",))
    }
    return done | {request.owner: math.inf for request in forgetting(db)}


def would_come_back(db: sessions.Reader, since: Mapping[str, float]) -> list[str]:
    """Of those, whoever a copy still holds: it was made before they were forgotten."""
    known = forgotten(db)
    return [
        owner
        for owner, at in sorted(since.items())
        if known.get(owner, -math.inf) < at and _holds(db, owner)
    ]


def _holds(db: sessions.Reader, owner: str) -> bool:
    try:
        return not holdings(db, owner).nothing
    except sqlite3.Error:  # a form of long ago: one wish too many erases nothing
        return True


def wish_again(db: sessions.Reader, owners: Iterable[str]) -> None:
    """In a copy that nobody has open: the first start forgets them, before it takes a message."""
    (newest,) = db.execute("SELECT coalesce(max(id), 0) FROM inbox").fetchone()
    for owner in owners:
        _put(db, ForgetRequest(owner, newest))


def carry_forgotten(db: sessions.Reader, since: Mapping[str, float]) -> None:
    """In a copy: who was forgotten by the store that it takes the place of."""
    for owner, at in since.items():
        if math.isfinite(at):
            _put_done(db, owner, at)


def _put_done(db: sessions.Reader, owner: str, at: float) -> None:
    db.execute(
        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (_DONE + owner, repr(at))
    )


# --- the wish, as it is stored --------------------------------------------------------------------


def _mark(tx: Transaction, owner: str) -> ForgetRequest | None:
    found = tx.execute("SELECT value FROM facts WHERE name = ?", (_MARK + owner,)).fetchone()
    return None if found is None else ForgetRequest.loaded(found[0])


def _put(tx: sessions.Reader, request: ForgetRequest) -> None:
    tx.execute(
        "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
        (_MARK + request.owner, request.dumped()),
    )
