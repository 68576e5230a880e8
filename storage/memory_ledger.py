"""Owns the ledger of requests in memory, over the tables of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.ledger import BESIDE_TURNS, LedgerLine, LedgerScope, RequestEntry
from agent.ports import Usage
from storage.codec import clean
from storage.memory_records import Segment
from storage.memory_tables import MemoryTables


class MemoryLedger:
    """The counterpart of `storage.ledger`."""

    def __init__(self, tables: MemoryTables, now: Callable[[], float]) -> None:
        self._tables = tables
        self._now = now
        self._marks: dict[str, str] = {}

    def enter_answer(self, conversation_id: str, owner: str, usage: Usage) -> None:
        self._enter(
            RequestEntry(
                "turn",
                usage.model,
                conversation_id,
                owner,
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.cache_write_1h_tokens,
                usage.cache_miss,
            )
        )

    def enter_request(self, entry: RequestEntry) -> None:
        conversation = self._tables.conversations.get(clean(entry.conversation_id or ""))
        charged = "" if conversation is None else conversation.owner
        if conversation is not None:
            entry = replace(entry, conversation_id=conversation.id)
            running = (
                turn.owner
                for turn in self._tables.turns.values()
                if turn.ticket.conversation_id == conversation.id and turn.state == "running"
            )
            if entry.purpose not in BESIDE_TURNS:
                charged = next(running, charged)
        else:
            entry = replace(entry, conversation_id=None)
        self._enter(entry if entry.owner is not None else replace(entry, owner=charged))

    def _enter(self, entry: RequestEntry) -> None:
        entry = replace(
            entry,
            owner=clean(entry.owner or ""),
            model=clean(entry.model),
            cache_miss=clean(entry.cache_miss),
        )
        self._tables.requests.append((self._now(), entry))

    def lines(self, scope: LedgerScope) -> list[LedgerLine]:
        sums: dict[tuple[str, str, str, str], list[int]] = {}
        for at, entry in self._tables.requests:
            if not scope.since <= at < scope.until:
                continue
            if scope.owner is not None and entry.owner != clean(scope.owner):
                continue
            wanted = scope.conversation_id
            if wanted is not None and entry.conversation_id != clean(wanted):
                continue
            key = (entry.owner or "", entry.purpose, entry.model, entry.cache_miss)
            took = (
                1,
                entry.input_tokens,
                entry.output_tokens,
                entry.cache_read_tokens,
                entry.cache_write_tokens,
                entry.cache_write_1h_tokens,
            )
            before = sums.setdefault(key, [0] * len(took))
            sums[key] = [a + b for a, b in zip(before, took, strict=True)]
        # By UTF-8, as the database compares: code points are in the same order there.
        return [LedgerLine(*key, *sums[key]) for key in sorted(sums)]

    def compressions(self, scope: LedgerScope) -> int:
        return sum(
            self._compressions_of(segment, scope)
            for segment in self._tables.segments.values()
            if self._is_meant(segment, scope)
        )

    def _is_meant(self, segment: Segment, scope: LedgerScope) -> bool:
        conversation = self._tables.conversations[segment.session.conversation_id]
        return (scope.owner is None or conversation.owner == clean(scope.owner)) and (
            scope.conversation_id is None or conversation.id == clean(scope.conversation_id)
        )

    def _compressions_of(self, segment: Segment, scope: LedgerScope) -> int:
        session = segment.session
        times = [replaced.made_at for replaced in segment.replaced_lists]
        if session.end_reason == "compression" and session.ended_at is not None:
            times.append(session.ended_at)
        return sum(scope.since <= at < scope.until for at in times)

    def first_time(self, owner: str, mark: str) -> bool:
        owner, mark = clean(owner), clean(mark)
        if self._marks.get(owner) == mark:
            return False
        self._marks[owner] = mark
        return True
