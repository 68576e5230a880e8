"""Owns sessions and their chains in memory: who follows whom, changed lists, options, leases."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.errors import SessionNotFound
from agent.messages import Keep
from agent.sessions import (
    ChangeResult,
    CompressionState,
    EndReason,
    LastSaid,
    RewriteRequest,
    Session,
    SessionPrefix,
    SplitRequest,
)
from storage.memory_records import ReplacedList
from storage.memory_tables import MemoryTables
from storage.repair import check_plan


@dataclass(slots=True)
class _Lease:
    holder: str
    expires_at: float


class MemorySessions:
    """Over the tables; no method waits, so each is a transaction."""

    def __init__(self, tables: MemoryTables, now: Callable[[], float]) -> None:
        self._tables = tables
        self._now = now
        self._leases: dict[str, _Lease] = {}

    def start_conversation(
        self,
        session_key: str,
        owner: str,
        prefix: SessionPrefix,
        *,
        end_reason: EndReason = "reset",
    ) -> Session:
        old = self._tables.conversation_for_key(session_key)
        if old is not None:
            tip = self._tables.segments[old.tip_session_id]
            if tip.session.ended_at is None:
                tip.session = replace(tip.session, ended_at=self._now(), end_reason=end_reason)
            self._tables.prepared.pop(tip.session.id, None)
        return self._tables.new_conversation(session_key, owner, prefix).session

    def last_said(self, session_key: str) -> LastSaid | None:
        conversation = self._tables.conversation_for_key(session_key)
        if conversation is None:
            return None
        rows = self._tables.segments[conversation.tip_session_id].rows
        return (
            LastSaid(
                conversation.session_key,
                conversation.id,
                conversation.tip_session_id,
                conversation.owner,
                rows[-1].created_at,
            )
            if rows
            else None
        )

    def silent_since(
        self, before: float, *, after: float = 0.0, limit: int = 100
    ) -> list[LastSaid]:
        said = (self.last_said(key) for key in self._tables.routes)
        silent = [one for one in said if one is not None and after < one.at < before]
        return sorted(silent, key=lambda one: one.at)[:limit]

    def lineage(self, session_id: str) -> list[Session]:
        chain = [self._tables.segment(session_id).session]
        while chain[0].link == "continuation" and chain[0].parent_session_id is not None:
            chain.insert(0, self._tables.segments[chain[0].parent_session_id].session)
        while (child := self._child_of(chain[-1].id)) is not None:
            chain.append(child)
        return chain

    def _child_of(self, session_id: str) -> Session | None:
        for segment in self._tables.segments.values():
            session = segment.session
            if session.parent_session_id == session_id and session.link == "continuation":
                return session
        return None

    def split(self, request: SplitRequest) -> ChangeResult:
        tables = self._tables
        parent = tables.segment(request.parent_id)
        tip = tables.tip_of(request.conversation_id)
        covered = tables.covered(parent, request.expected_revision, request.covered_row_id)
        if covered is None or tip is not parent:
            return ChangeResult(False, tip.session)
        later = parent.rows[covered:]
        check_plan(request.entries, [row.id for row in parent.rows[:covered]], later=len(later))
        child = tables.continue_in_child(
            parent,
            request.end_reason,
            [*request.entries, *(Keep(row.id) for row in later)],
            {row.id: row for row in parent.rows},
            request.compression,
            prefix=request.prefix,
            manifest=request.manifest,
        )
        if request.lease_holder is not None:
            self.release_lease(request.conversation_id, request.lease_holder)
        return ChangeResult(True, child.session)

    def rewrite(self, request: RewriteRequest) -> ChangeResult:
        target = self._tables.segment(request.session_id)
        covered = self._tables.covered(target, request.expected_revision, request.covered_row_id)
        if covered is None:
            tip = self._tables.tip_of(target.session.conversation_id)
            return ChangeResult(False, tip.session)
        later = target.rows[covered:]
        if request.at_rest and (later or self._tables.at_work(target.session.conversation_id)):
            return ChangeResult(False, target.session)
        check_plan(request.entries, [row.id for row in target.rows[:covered]], later=len(later))
        before = tuple(row.id for row in target.rows)
        self._tables.replace_list(target, [*request.entries, *(Keep(row.id) for row in later)])
        if request.compression is not None:
            if request.compression.count > target.session.compression.count:
                remembered = ReplacedList(before, self._tables.newest_row_id, self._now())
                target.replaced_lists.append(remembered)
            target.session = replace(target.session, compression=request.compression)
        if request.manifest is not None:
            target.session = replace(target.session, manifest=copy.deepcopy(request.manifest))
        return ChangeResult(True, target.session)

    def set_compression(self, session_id: str, state: CompressionState) -> None:
        segment = self._tables.segments.get(session_id)
        if segment is not None and segment.session.ended_at is None:
            segment.session = replace(segment.session, compression=state)

    def set_option(self, session_id: str, name: str, value: str | None) -> bool:
        segment = self._tables.segment(session_id)
        prefix = segment.session.prefix
        if segment.session.ended_at is not None:
            return False
        options = {**prefix.model_config, name: value}
        if value is None:
            del options[name]
        prefix = replace(prefix, model_config=options)
        segment.session = replace(segment.session, prefix=prefix)
        return True

    def acquire_lease(self, conversation_id: str, holder: str, ttl_seconds: float) -> bool:
        if conversation_id not in self._tables.conversations:
            raise SessionNotFound(conversation_id)
        now = self._now()
        lease = self._leases.get(conversation_id)
        foreign = None if lease is None or lease.holder == holder else lease
        if foreign is not None and now < foreign.expires_at <= now + ttl_seconds:
            return False
        self._leases[conversation_id] = _Lease(holder, now + ttl_seconds)
        return True

    def release_lease(self, conversation_id: str, holder: str) -> None:
        lease = self._leases.get(conversation_id)
        if lease is not None and lease.holder == holder:
            del self._leases[conversation_id]

    def drop_leases(self) -> None:
        """Whoever held one is gone with its process."""
        self._leases.clear()
