"""Owns the ledger of requests in SQL (`agent.ledger`): what every answer of a model took.

Plain functions over a transaction (or, for reads, a connection); `storage.store` runs them.
"""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from agent.ledger import BESIDE_TURNS, LedgerLine, LedgerScope, RequestEntry
from agent.ports import Usage
from storage import sessions
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint

_ENTER = (
    "INSERT INTO requests (session_serial, owner, at, purpose, model, input_tokens, output_tokens,"
    " cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, cache_miss)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Whoever made the request: in a shared conversation that is the person whose turn runs. The states
# are named twice: the index of open turns is only used by a query that says so itself.
_CHARGED = (
    "SELECT tip.serial, coalesce((SELECT t.owner FROM turns t"
    "  WHERE t.state IN ('running', 'interrupted', 'crashed')"
    "  AND t.conversation_id = c.id AND t.state = 'running' AND NOT ?2 LIMIT 1),"
    " c.owner) FROM conversations c JOIN sessions tip ON tip.id = c.tip_session_id WHERE c.id = ?1"
)
_SUMS = (
    "SELECT r.owner, r.purpose, r.model, r.cache_miss, count(*), sum(r.input_tokens),"
    " sum(r.output_tokens), sum(r.cache_read_tokens), sum(r.cache_write_tokens),"
    " sum(r.cache_write_1h_tokens)"
)
_GROUPED = " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
_IN_TIME = "r.at >= ?1 AND r.at < ?2"
# From one owner to the next: the index has no order by time alone, and needs none.
_OWNERS = (
    "WITH RECURSIVE owners (owner) AS ("
    "  SELECT min(owner) FROM requests UNION ALL"
    "  SELECT (SELECT min(n.owner) FROM requests n WHERE n.owner > owners.owner) FROM owners"
    "  WHERE owners.owner IS NOT NULL"
    ") "
)


def enter_answer(tx: Transaction, session_serial: int, owner: str, usage: Usage) -> None:
    """An answer that becomes a message, in the transaction of that message."""
    tx.execute(
        _ENTER,
        (
            session_serial, owner, tx.now, "turn", clean(usage.model), usage.input_tokens,
            usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
            usage.cache_write_1h_tokens, clean(usage.cache_miss),
        ),
    )  # fmt: skip


def enter_request(tx: Transaction, entry: RequestEntry) -> None:
    serial, charged = None, ""
    if entry.conversation_id is not None:
        beside = entry.purpose in BESIDE_TURNS
        found = tx.execute(_CHARGED, (clean(entry.conversation_id), beside)).fetchone()
        serial, charged = found or (None, "")
    tx.execute(
        _ENTER,
        (
            serial, charged if entry.owner is None else clean(entry.owner), tx.now, entry.purpose,
            clean(entry.model), entry.input_tokens, entry.output_tokens, entry.cache_read_tokens,
            entry.cache_write_tokens, entry.cache_write_1h_tokens, clean(entry.cache_miss),
        ),
    )  # fmt: skip
    faultpoint("enter_request.entered")


def ledger_lines(db: sessions.Reader, scope: LedgerScope) -> list[LedgerLine]:
    owner = None if scope.owner is None else clean(scope.owner)
    times: tuple[object, ...] = (scope.since, scope.until)
    if scope.conversation_id is not None:
        query = (
            f"{_SUMS} FROM sessions s JOIN requests r ON r.session_serial = s.serial"
            f" WHERE s.conversation_id = ?3 AND {_IN_TIME} AND (?4 IS NULL OR r.owner = ?4)"
        )
        parameters = (*times, clean(scope.conversation_id), owner)
    elif owner is not None:
        query = f"{_SUMS} FROM requests r WHERE r.owner = ?3 AND {_IN_TIME}"
        parameters = (*times, owner)
    else:
        query = (
            f"{_OWNERS}{_SUMS} FROM owners o CROSS JOIN requests r ON r.owner = o.owner"
            f" WHERE {_IN_TIME}"
        )
        parameters = times
    return [LedgerLine(*row) for row in db.execute(query + _GROUPED, parameters)]


def compressions(db: sessions.Reader, scope: LedgerScope) -> int:
    whose = ""
    parameters: list[float | str] = [scope.since, scope.until]
    if scope.owner is not None:
        parameters.append(clean(scope.owner))
        whose += f" AND c.owner = ?{len(parameters)}"
    if scope.conversation_id is not None:
        parameters.append(clean(scope.conversation_id))
        whose += f" AND c.id = ?{len(parameters)}"
    query = (
        "SELECT (SELECT count(*) FROM conversations c JOIN sessions s ON s.conversation_id = c.id"
        "  WHERE s.end_reason = 'compression' AND s.ended_at >= ?1 AND s.ended_at < ?2{whose})"
        " + (SELECT count(*) FROM conversations c JOIN sessions s ON s.conversation_id = c.id"
        "  JOIN replaced_lists l ON l.session_id = s.id"
        "  WHERE l.made_at >= ?1 AND l.made_at < ?2{whose})"
    ).replace("{whose}", whose)
    (count,) = db.execute(query, parameters).fetchone()
    return int(count)


def first_time(tx: Transaction, owner: str, mark: str) -> bool:
    changed = tx.execute(
        "INSERT INTO told_of_money (owner, mark) VALUES (?, ?)"
        " ON CONFLICT (owner) DO UPDATE SET mark = excluded.mark WHERE mark <> excluded.mark",
        (clean(owner), clean(mark)),
    )
    faultpoint("first_time.marked")
    return changed.rowcount == 1
