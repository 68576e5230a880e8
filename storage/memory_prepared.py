"""Owns what is prepared, in memory, over the tables of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable

from agent.prepared import Prepared
from storage.memory_records import KeptList
from storage.memory_tables import MemoryTables
from storage.prepared_form import dump_payload, load_payload
from storage.repair import check_plan


class MemoryShelf:
    """The counterpart of `storage.prepared`."""

    def __init__(self, tables: MemoryTables, now: Callable[[], float]) -> None:
        self._tables = tables
        self._now = now

    def save(self, prepared: Prepared) -> bool:
        segment = self._tables.segment(prepared.session_id)
        covered = self._tables.covered(segment, prepared.revision, prepared.covered_row_id)
        if covered is None:
            return False
        seen = [row.id for row in segment.rows[:covered]]
        check_plan(prepared.entries, seen, later=len(segment.rows) - covered)
        self._tables.prepared[prepared.session_id] = KeptList(
            prepared.revision, prepared.covered_row_id, dump_payload(prepared), self._now()
        )
        return True

    def prepared(self, session_id: str) -> Prepared | None:
        found = self._tables.prepared.get(session_id)
        if found is None:
            return None
        return load_payload(
            session_id, found.revision, found.covered_row_id, found.payload, found.created_at
        )

    def discard(self, session_id: str) -> bool:
        return self._tables.prepared.pop(session_id, None) is not None

    def crowded(self, prompt_tokens: int, *, since: float, limit: int = 20) -> list[str]:
        found: list[tuple[int, str]] = []
        for conversation in self._tables.conversations.values():
            segment = self._tables.segments[conversation.tip_session_id]
            anchor = segment.session.anchor
            if anchor is None or segment.session.ended_at is not None:
                continue
            if anchor.prompt_tokens + anchor.output_tokens < prompt_tokens:
                continue
            if segment.session.id in self._tables.prepared:
                continue
            (row,) = (row for row in segment.rows if row.id == anchor.through_row_id)
            if row.created_at >= since:
                found.append((row.id, conversation.id))
        return [each for _, each in sorted(found, reverse=True)[: max(0, limit)]]
