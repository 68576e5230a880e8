"""Owns looking at what the in-memory store holds: search, windows, listings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.messages import Row
from agent.sessions import Conversation, Hit, SearchScope, SessionInfo
from storage.codec import clean
from storage.memory_records import Segment, own
from storage.memory_tables import MemoryTables
from storage.search.question import read_question
from storage.search.ranking import Candidate, best_first, rarity_among
from storage.search.snippet import snippet
from storage.segment import folded, indexable_text


class MemoryArchive:
    """Reads only."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def search(
        self, query: str, scope: SearchScope, *, limit: int = 10, before_id: int | None = None
    ) -> list[Hit]:
        question = read_question(clean(query))
        if limit <= 0 or not question.text:
            return []
        said = {row.id: row for row in sorted(self._originals(scope), key=lambda row: row.id)}
        bound = math.inf if before_id is None else before_id
        candidates = {
            i: c
            for i, row in said.items()
            if i < bound or row.message["role"] == "tool"
            if (c := _candidate(row)) is not None
        }
        found = [
            replace(c, match=1.0)
            for c in candidates.values()
            for text in [folded(c.text)]
            if any(term.is_in(text) for term in question.needles)
        ]
        lines = self._lines(said.values())

        def near(best: Sequence[Candidate]) -> dict[int, list[tuple[int, Candidate]]]:
            return {
                c.message_id: [
                    (offset, candidates[line[at + offset]])
                    for line, at in [lines.get(c.message_id, ([], 0))]
                    for offset in (-1, 1, 2)
                    if 0 <= at + offset < len(line) and line[at + offset] in candidates
                ]
                for c in best
            }

        rarity = rarity_among(question, [c.text for c in found])
        return [
            Hit(
                r.candidate.message_id,
                r.candidate.session_id,
                r.candidate.role,
                snippet(r.candidate.text, r.held),
                r.score,
                r.candidate.created_at,
                r.newer_id,
            )
            for r in best_first(question, found, rarity, near, limit)
        ]

    def _lines(self, rows: Iterable[Row]) -> dict[int, tuple[list[int], int]]:
        """Each row's conversation as the ids of what was said in it, and its place there."""
        lines: dict[str, list[int]] = {}
        places: dict[int, tuple[list[int], int]] = {}
        for row in rows:
            if row.message["content"] is None:
                continue
            line = lines.setdefault(
                self._tables.segments[row.session_id].session.conversation_id, []
            )
            places[row.id] = (line, len(line))
            line.append(row.id)
        return places

    def _originals(self, scope: SearchScope) -> Iterable[Row]:
        reach = self._reach(scope)
        for session_id, upto in reach.items():
            segment = self._tables.segments[session_id]
            taken_back = self._tables.taken_back(segment.session.conversation_id)
            for row in [*segment.rows, *segment.replaced]:
                if (
                    row.id <= upto
                    and row.origin_id is None
                    and row.kind is None
                    and row.id not in taken_back
                ):
                    yield row

    def _reach(self, scope: SearchScope) -> dict[str, float]:
        """Session → the newest message of it that may be seen."""
        reach: dict[str, float] = {}
        for session_id, segment in self._tables.segments.items():
            conversation = self._tables.conversations[segment.session.conversation_id]
            if scope.conversation_id not in (None, conversation.id):
                continue
            shared = conversation.session_key.endswith(",null]")
            if scope.owner is not None and (scope.owner != conversation.owner or shared):
                continue
            reach[session_id] = math.inf
        for session_id in list(reach):
            self._add_line_of_fork(session_id, reach)
        return reach

    def _add_line_of_fork(self, session_id: str, reach: dict[str, float]) -> None:
        """What a fork was forked from, up to that moment."""
        upto = math.inf
        session = self._tables.segments[session_id].session
        while session.parent_session_id is not None:
            if session.link == "branch":
                segment = self._tables.segments[session.id]
                upto = min(upto, segment.carried_row_id)
            session = self._tables.segments[session.parent_session_id].session
            reach[session.id] = max(reach.get(session.id, 0), upto)

    def in_scope(self, scope: SearchScope, message_id: int) -> bool:
        return any(
            row.id == message_id and row.id <= upto
            for session_id, upto in self._reach(scope).items()
            for segment in [self._tables.segments[session_id]]
            for row in [*segment.rows, *segment.replaced]
        )

    def result_of_call(self, scope: SearchScope, call_id: str) -> Row | None:
        found = [r for r in self._originals(scope) if r.message.get("tool_call_id") == call_id]
        return own([max(found, key=lambda row: row.id)])[0] if found else None

    def window(self, message_id: int, *, before: int = 5, after: int = 5) -> list[Row]:
        for segment in self._tables.segments.values():
            everything = [*segment.rows, *segment.replaced, *segment.taken_back]
            if all(row.id != message_id for row in everything):
                continue
            taken_back = self._tables.taken_back(segment.session.conversation_id)
            rows = sorted(
                (row for row in everything if row.root_id not in taken_back),
                key=lambda row: row.id,
            )
            middle = [row for row in rows if row.id == message_id]
            if not middle:
                continue
            originals = [row for row in rows if row.origin_id is None and row.kind is None]
            earlier = [row for row in originals if row.id < message_id]
            later = [row for row in originals if row.id > message_id]
            return own(
                [
                    *earlier[max(0, len(earlier) - max(0, before)) :],
                    *middle,
                    *later[: max(0, after)],
                ]
            )
        return []

    def conversation_of_message(self, message_id: int) -> Conversation | None:
        for session_id, segment in self._tables.segments.items():
            if any(row.id == message_id for row in self.all_rows(session_id)):
                return self._tables.conversations[segment.session.conversation_id]
        return None

    def list_sessions(
        self, *, conversation_id: str | None = None, limit: int = 50
    ) -> list[SessionInfo]:
        found = [
            self._info(segment)
            for segment in reversed(self._tables.segments.values())
            if conversation_id in (None, segment.session.conversation_id)
        ]
        return found[: max(0, limit)]

    def session_ids(self, beginning: str, *, limit: int = 10) -> list[str]:
        found = sorted(i for i in self._tables.segments if i.startswith(beginning))
        return found[: max(0, limit)]

    def session_infos(self, session_ids: Sequence[str]) -> list[SessionInfo]:
        segments = self._tables.segments
        return [self._info(segments[i]) for i in session_ids if i in segments]

    def _info(self, segment: Segment) -> SessionInfo:
        session = segment.session
        return SessionInfo(
            id=session.id,
            conversation_id=session.conversation_id,
            parent_session_id=session.parent_session_id,
            link=session.link,
            source=session.prefix.source,
            model=session.prefix.model,
            title=session.title,
            started_at=session.started_at,
            ended_at=session.ended_at,
            end_reason=session.end_reason,
            message_count=session.message_count,
            tokens=sum(row.tokens for row in segment.rows),
        )

    def all_rows(self, session_id: str) -> list[Row]:
        segment = self._tables.segments.get(session_id)
        if segment is None:
            return []
        everything = [*segment.rows, *segment.replaced, *segment.taken_back]
        return own(sorted(everything, key=lambda row: row.id))


def _candidate(row: Row) -> Candidate | None:
    text = indexable_text(row.message, row.kind, row.origin_id)
    if text is None:
        return None
    return Candidate(row.id, row.session_id, row.message["role"], row.created_at, text)
