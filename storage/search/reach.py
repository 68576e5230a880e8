"""Owns what a search may see: a conversation's own line or a person's all, and until when."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from agent.sessions import SearchScope

_LINE = """
    WITH RECURSIVE line (id, upto, size) AS (
        SELECT s.id, NULL, s.last_seq FROM sessions s WHERE {seed}
        UNION
        SELECT p.id, CASE WHEN s.link = 'branch' THEN
            min(coalesce(line.upto, s.carried_row_id), s.carried_row_id) ELSE line.upto END,
            p.last_seq
        FROM line
        JOIN sessions s ON s.id = line.id
        JOIN sessions p ON p.id = s.parent_session_id
        WHERE s.link = 'branch' OR line.upto IS NOT NULL
    )
    SELECT id, max(coalesce(upto, 9e18)), size FROM line GROUP BY id
"""
"""A fork's line goes on in the conversation it was forked from, up to that moment."""

# A conversation that a whole group shares is nobody's own: its key names no user.
_OF_OWNER = (
    "s.conversation_id IN (SELECT id FROM conversations"
    " WHERE owner = ? AND session_key NOT LIKE '%,null]')"
)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a search may see. Ask `sees`; the SQL only narrows."""

    upto: dict[str, float] | None
    """Session → the newest message of it; None: everything."""
    size: int
    """About so many messages; 0 for everything."""
    before_id: int | None = None
    """From this message on only results of tools count; None: all do."""

    def sees(self, session_id: str, message_id: int) -> bool:
        """May this message be shown?"""
        return self.upto is None or message_id <= self.upto.get(session_id, 0)

    def counts(self, message_id: int, role: str) -> bool:
        """Is this none of what was said by the question and to it?"""
        return self.before_id is None or message_id < self.before_id or role == "tool"

    @property
    def session_ids(self) -> str:
        """As JSON, for ``json_each``."""
        return json.dumps(list(self.upto or ()))


def reach_of(db: sqlite3.Connection, scope: SearchScope, before_id: int | None = None) -> Reach:
    """The sessions that a scope covers; a cycle made by hand ends like any other line."""
    conditions = {"s.conversation_id = ?": scope.conversation_id, _OF_OWNER: scope.owner}
    used = {sql: value for sql, value in conditions.items() if value is not None}
    if not used:
        return Reach(None, 0, before_id)
    found = db.execute(_LINE.format(seed=" AND ".join(used)), tuple(used.values())).fetchall()
    return Reach({row[0]: row[1] for row in found}, sum(row[2] for row in found), before_id)
