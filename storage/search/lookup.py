"""Owns the road of a search in SQL: terms counted, candidates by bm25, read, weighed, in order."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from agent.messages import Message
from agent.sessions import Hit, SearchScope
from storage.codec import clean
from storage.database import is_damage, is_index_damage
from storage.rows import SEARCHED, TAKEN_BACK
from storage.search import index, soundness
from storage.search.damage import OUTDATED, Damage, OnDamage, scanning
from storage.search.question import Question, Term, read_question
from storage.search.ranking import (
    Candidate,
    Near,
    Ranked,
    best_first,
    rarity_among,
    rarity_of,
)
from storage.search.reach import Reach, reach_of
from storage.search.snippet import snippet
from storage.segment import indexable_text

_log = logging.getLogger(__name__)

CANDIDATES = 64
"""Messages that are read and weighed; more costs milliseconds and finds next to nothing."""
_NEIGHBOURS_WITHIN = 64
"""How far off, in row ids, a neighbour is looked for: others talk in between."""
_TERMS_ASKED = 24
_COMMON_SHARE = 10
_COMMON_AT_LEAST = 400
"""A term that more than a tenth of all rows (and so many) hold does not choose candidates, if
there are rarer ones."""
_SET_LIMIT = 20_000
_SET_SHARE = 4
"""A scope is given to the index as a set of its messages, unless that set is larger than this, or
so many times as large as what can match: then each match is asked for its session."""

_COLUMNS = "id, session_id, role, created_at, content, content_is_json, tool_calls, tool_name"


def search_and_tell(
    db: sqlite3.Connection, query: str, scope: SearchScope, limit: int, before_id: int | None = None
) -> tuple[list[Hit], Damage | None]:
    """As `search`, and why the index was no help, for whoever makes it anew."""
    met: list[Damage] = []

    def note(reason: str, *, in_pages: bool = False) -> None:
        met.append(Damage(reason, in_pages))

    return search(db, query, scope, limit, before_id, note), met[0] if met else None


def search(
    db: sqlite3.Connection,
    query: str,
    scope: SearchScope,
    limit: int,
    before_id: int | None = None,
    on_damage: OnDamage = scanning,
) -> list[Hit]:
    """`agent.archive_ports.Archive.search`; ``on_damage`` is told why the index was no help."""
    question = read_question(clean(query))
    if limit <= 0 or not question.text:
        return []
    reach = reach_of(db, scope, before_id)
    matches, rarities = find_candidates(db, question, reach, on_damage)
    found = read_candidates(db, matches, reach) if matches else []
    if not found:
        return []
    if rarities is None:
        rarities = rarity_among(question, [c.text for c in found])
    ranked = best_first(question, found, rarities, lambda best: _near(db, best, reach), limit)
    return [_hit(r) for r in ranked]


def _hit(ranked: Ranked) -> Hit:
    c = ranked.candidate
    shown = snippet(c.text, ranked.held)
    return Hit(
        c.message_id, c.session_id, c.role, shown, ranked.score, c.created_at, ranked.newer_id
    )


# --- candidates ---------------------------------------------------------------------------------


def find_candidates(
    db: sqlite3.Connection,
    question: Question,
    reach: Reach,
    on_damage: OnDamage = scanning,
) -> tuple[dict[int, float], dict[str, float] | None]:
    """Message ids with their bm25 (higher is better), and how rare each needle is."""
    state = index.state(db)
    if not state.usable:
        on_damage(OUTDATED)
    if not question.terms or not state.usable:
        return _by_scan(db, question, reach), None
    try:
        counts, total = _counts(db, question.terms)
        chosen = _chosen(question.terms, counts, total)
        found = _by_index(db, chosen, _most_matches(chosen, counts, total), reach)
        if not found and not soundness.finds_itself(db):
            on_damage(soundness.LOST)
            return _by_scan(db, question, reach), None
    except sqlite3.DatabaseError as exc:
        if is_index_damage(exc) or is_damage(exc):
            on_damage(str(exc), in_pages=not is_index_damage(exc))
        else:
            _log.error("search index failed, scanning instead", extra={"error": repr(exc)})
        return _by_scan(db, question, reach), None
    if state.missing_upto:
        found = {**_by_scan(db, question, reach, upto=state.missing_upto), **found}
    return found, {t.needle: rarity_of(counts[t.match], total) for t in question.terms}


def _counts(db: sqlite3.Connection, terms: Iterable[Term]) -> tuple[dict[str, int], int]:
    """In how many rows each term stands (counted up to what makes it common), of how many."""
    (total,) = db.execute("SELECT coalesce(max(id), 0) FROM message_index_docsize").fetchone()
    enough = _common_from(total)
    query = (
        "SELECT count(*) FROM"
        f" (SELECT rowid FROM message_index WHERE message_index MATCH ? LIMIT {enough})"
    )
    return {t.match: db.execute(query, (t.match,)).fetchone()[0] for t in terms}, total


def _common_from(total: int) -> int:
    return max(_COMMON_AT_LEAST, total // _COMMON_SHARE)


def _chosen(terms: Sequence[Term], counts: dict[str, int], total: int) -> Sequence[Term]:
    """What the index is asked for: the rarest terms."""
    enough = _common_from(total)
    known = sorted((t for t in terms if counts[t.match]), key=lambda t: counts[t.match])
    rare = [t for t in known if counts[t.match] < enough]
    return (rare or known or terms)[:_TERMS_ASKED]


def _most_matches(chosen: Sequence[Term], counts: dict[str, int], total: int) -> int:
    """How many rows hold one of these, at most."""
    found = [counts[t.match] for t in chosen]
    return total if max(found) >= _common_from(total) else sum(found)


def _by_index(
    db: sqlite3.Connection, chosen: Sequence[Term], most: int, reach: Reach
) -> dict[int, float]:
    match = " OR ".join(t.match for t in chosen)
    if reach.upto is None:
        inside = ""
    elif reach.size <= min(_SET_LIMIT, most * _SET_SHARE):
        # The plus keeps SQLite from asking the index once for each message of the scope.
        inside = (
            " AND +rowid IN (SELECT m.id FROM messages m WHERE m.session_id IN"
            " (SELECT value FROM json_each(?)))"
        )
    else:
        inside = (
            " AND (SELECT m.session_id FROM messages m WHERE m.id = message_index.rowid) IN"
            " (SELECT value FROM json_each(?))"
        )
    parameters: list[Any] = [match, reach.session_ids] if inside else [match]
    if reach.before_id is not None:
        # Here and not only when they are read: a long turn would fill the places of others.
        inside += (
            " AND (+rowid < ? OR +rowid IN"
            " (SELECT m.id FROM messages m WHERE m.id >= ? AND m.role = 'tool'))"
        )
        parameters += [reach.before_id] * 2
    found = db.execute(
        "SELECT rowid, -rank FROM message_index WHERE message_index MATCH ?"
        f"{inside} ORDER BY rank LIMIT {CANDIDATES}",
        parameters,
    )
    return dict(found.fetchall())


def _by_scan(
    db: sqlite3.Connection, question: Question, reach: Reach, *, upto: int | None = None
) -> dict[int, float]:
    """Without the index: newest first, every one as good as the other."""
    patterns = [f"%{_escaped(term.needle)}%" for term in question.needles]
    one = "content LIKE ? ESCAPE '\\' OR tool_calls LIKE ? ESCAPE '\\'"
    conditions = [SEARCHED, f"({' OR '.join([one] * len(patterns))})"]
    parameters: list[Any] = [pattern for pattern in patterns for _ in range(2)]
    if reach.upto is not None:
        conditions.append("session_id IN (SELECT value FROM json_each(?))")
        parameters.append(reach.session_ids)
    if reach.before_id is not None:
        conditions.append("(id < ? OR role = 'tool')")
        parameters.append(reach.before_id)
    if upto is not None:
        conditions.append("id <= ?")
        parameters.append(upto)
    found = db.execute(
        f"SELECT id, 1.0 FROM messages WHERE {' AND '.join(conditions)}"
        f" ORDER BY id DESC LIMIT {CANDIDATES}",
        parameters,
    )
    return dict(found.fetchall())


def _escaped(needle: str) -> str:
    return needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


# --- reading ------------------------------------------------------------------------------------


def read_candidates(
    db: sqlite3.Connection, matches: dict[int, float], reach: Reach
) -> list[Candidate]:
    """These messages (one at least) that may be seen, oldest first, with their bm25."""
    ids = tuple(matches)
    marks = ", ".join("?" * len(ids))
    found = db.execute(
        f"SELECT {_COLUMNS} FROM messages WHERE id IN ({marks}) AND {SEARCHED}"
        f" AND NOT {TAKEN_BACK} ORDER BY id",
        ids,
    )
    candidates = (_candidate(row, matches[row[0]]) for row in found if reach.counts(row[0], row[2]))
    return [c for c in candidates if c is not None and reach.sees(c.session_id, c.message_id)]


def _candidate(columns: tuple[Any, ...], match: float = 0.0) -> Candidate | None:
    message_id, session_id, role, created_at, content, is_json, calls, tool_name = columns
    message: Message = {"role": role, "content": json.loads(content) if is_json else content}
    if calls is not None:
        message["tool_calls"] = json.loads(calls)
    if tool_name is not None:
        message["name"] = tool_name
    text = indexable_text(message, None, None)
    if text is None:
        return None
    return Candidate(message_id, session_id, role, created_at, text, match)


def _near(db: sqlite3.Connection, candidates: Sequence[Candidate], reach: Reach) -> Near:
    """What stands right before and behind each, across the border of a compression too."""
    ids = json.dumps([c.message_id for c in candidates])
    places = db.execute(_NEIGHBOURS, (ids,)).fetchall()
    known = {c.message_id: c for c in candidates}
    wanted = {i for _, *beside in places for i in beside if i is not None} - known.keys()
    if wanted:
        known.update(
            (c.message_id, c) for c in read_candidates(db, dict.fromkeys(wanted, 0.0), reach)
        )
    return {
        at: [(offset, known[i]) for offset, i in zip((-1, 1, 2), beside, strict=True) if i in known]
        for at, *beside in places
    }


_BESIDE = (
    "SELECT n.id FROM messages n CROSS JOIN sessions ns ON ns.id = n.session_id"
    " WHERE n.id {side} AND ns.conversation_id = s.conversation_id AND n.origin_id IS NULL"
    " AND n.kind IS NULL AND n.content IS NOT NULL ORDER BY n.id {order} LIMIT 1"
)
_BEFORE = _BESIDE.format(side=f"BETWEEN m.id - {_NEIGHBOURS_WITHIN} AND m.id - 1", order="DESC")
_BEHIND = _BESIDE.format(side=f"BETWEEN m.id + 1 AND m.id + {_NEIGHBOURS_WITHIN}", order="")
_NEIGHBOURS = (
    f"SELECT m.id, ({_BEFORE}), ({_BEHIND}), ({_BEHIND} OFFSET 1)"
    " FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value"
    " JOIN sessions s ON s.id = m.session_id"
)
