"""Owns how large a conversation's messages are: no text of them leaves the database."""

from __future__ import annotations

from agent.simulation.recording import RowSize
from storage import sessions
from storage.rows import taken_back

_SIZES = """
SELECT coalesce(origin_id, id), role, tokens, created_at,
    coalesce(content, '') <> '',
    (SELECT group_concat(length(coalesce(json_extract(value, '$.function.name'), ''))
        + length(coalesce(json_extract(value, '$.function.arguments'), '')))
     FROM json_each(tool_calls))
FROM messages
WHERE session_id = ? AND (active = 1 OR compacted = 1) AND (kind IS NULL OR kind = 'stub')
ORDER BY id
"""


def row_sizes(db: sessions.Reader, session_id: str) -> list[RowSize]:
    """`agent.simulation.recording.SizeReader.row_sizes`."""
    chain = [session.id for session in sessions.lineage(db, session_id)]
    seen = taken_back(db, chain)
    found: list[RowSize] = []
    for each in chain:
        for root_id, role, tokens, created_at, speaks, calls in db.execute(_SIZES, (each,)):
            if root_id in seen:  # a copy; a branch's copies are the first of their kind here
                continue
            seen.add(root_id)
            chars = tuple(map(int, calls.split(","))) if calls else ()
            found.append(RowSize(role, tokens, created_at, bool(speaks), chars))
    return found
