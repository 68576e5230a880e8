"""Owns, in SQL, when something was last said where: for conversations that end by themselves."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from collections.abc import Sequence

from agent.sessions import LastSaid
from storage.places import key_of_today, today_in
from storage.sessions import Reader

_LAST = (
    "SELECT created_at FROM messages WHERE session_id = c.tip_session_id AND active = 1"
    " ORDER BY seq DESC LIMIT 1"
)
_SAID = (
    f"SELECT r.session_key, c.id, c.tip_session_id, c.owner, ({_LAST}) AS last_at FROM routes r"
    " JOIN conversations c ON c.id = r.conversation_id"
)


def last_said(db: Reader, session_key: str) -> LastSaid | None:
    key = key_of_today(session_key, today_in(db))
    row = db.execute(f"{_SAID} WHERE r.session_key = ?", (key,)).fetchone()
    return None if row is None or row[4] is None else LastSaid(*row)


def silent_since(
    db: Reader, before: float, *, after: float = 0.0, limit: int = 100
) -> Sequence[LastSaid]:
    query = f"{_SAID} WHERE last_at < ? AND last_at > ? ORDER BY last_at LIMIT ?"
    return [LastSaid(*row) for row in db.execute(query, (before, after, limit)).fetchall()]
