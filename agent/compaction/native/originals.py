"""Owns the way back from a provider's own summary to what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from agent.compaction.native.keepsake import is_keepsake
from agent.messages import Draft, Entry, Row, without_thinking
from agent.native_block import compaction_block
from agent.sessions import LoadedSession, Session

MAX_SESSIONS = 1000
"""Of one lineage that are walked through; nobody has so many."""


class Past(Protocol):
    """What is read of the store."""

    async def session(self, session_id: str) -> Session:
        """As `agent.store_ports.SessionStore.session`."""
        ...

    async def active_rows(self, session_id: str) -> list[Row]:
        """As `agent.archive_ports.Archive.active_rows`."""
        ...

    async def all_rows(self, session_id: str) -> list[Row]:
        """As `agent.archive_ports.Archive.all_rows`."""
        ...

    async def uncompressed(self, session_id: str) -> tuple[Row, ...]:
        """As `agent.lineages.Lineages.uncompressed`."""
        ...


def begins_with_block(rows: Sequence[Row]) -> bool:
    """Does a list begin with a provider's own summary?"""
    return bool(rows) and compaction_block(rows[0].message) is not None


async def with_originals(past: Past, loaded: LoadedSession) -> LoadedSession:
    """The list with the originals in the place of the provider's summary and of its keepsakes.

    The same list, if it does not begin with one. An older summary of ours stays in front, and so
    does the text of the provider's where its originals are gone.
    """
    if not begins_with_block(loaded.rows):
        return loaded
    own = [row for row in loaded.rows[1:] if not is_keepsake(row)]
    found, oldest = await _walk(past, loaded)
    if not found:
        found, oldest = await _undone(past, loaded, own)
    front = [oldest] if oldest is not None else []
    return replace(loaded, rows=(*front, *found, *own))


async def _walk(past: Past, loaded: LoadedSession) -> tuple[list[Row], Row | None]:
    """Back through the sessions: what each was split from, and had not taken over.

    Whatever a session took over is in its list, in whatever form, or was taken back there.
    """
    found: list[Row] = []
    oldest: Row | None = loaded.rows[0]
    session, known = loaded.session, set[int]()
    for _ in range(MAX_SESSIONS):
        rows = await past.all_rows(session.id)
        known.update(row.root_id for row in rows)
        if session.parent_session_id is None:
            break
        born = min((row.id for row in rows), default=0)
        session = await past.session(session.parent_session_id)
        # A fork's parent goes on: what was said there since is not part of this conversation.
        before = [row for row in await past.active_rows(session.id) if row.id < born]
        opens_with_block = begins_with_block(before)
        said = before[1:] if opens_with_block else before
        found[:0] = [row for row in said if row.root_id not in known and not is_keepsake(row)]
        if before and not opens_with_block:
            oldest = None
            break
        if opens_with_block:
            oldest = before[0]
    return found, oldest


async def _undone(
    past: Past, loaded: LoadedSession, own: Sequence[Row]
) -> tuple[list[Row], Row | None]:
    """Where the list was replaced within its session: one compression back."""
    rows = list(await past.uncompressed(loaded.session.id))
    known = {row.root_id for row in own}
    oldest: Row | None = None if rows else loaded.rows[0]
    if begins_with_block(rows):
        oldest = rows.pop(0)
    return [row for row in rows if row.root_id not in known and not is_keepsake(row)], oldest


def own_entries(
    entries: Sequence[Entry], loaded: LoadedSession, seen: Mapping[int, Row]
) -> tuple[Entry, ...]:
    """A plan over originals as one that the session can store: rows of others become copies.

    Args:
        entries: The plan.
        loaded: The session that it is for.
        seen: All rows that it was made from, by id.
    """
    mine = {row.id for row in loaded.rows}

    def own(entry: Entry) -> Entry:
        if isinstance(entry, Draft) or entry.row_id in mine:
            return entry
        row = seen[entry.row_id]
        return Draft(without_thinking(row.message), row.wire_content, row.kind, row.root_id)

    return tuple(map(own, entries))
