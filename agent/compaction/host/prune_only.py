"""Owns pruning without a compression: old tool results get short between two rounds of tools."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.compaction.host.remembering import StateMemory
from agent.compaction.host.running import EngineRunner, Order
from agent.compaction.plan.adoption import Adopted
from agent.compaction.plan.prune import MIN_RECLAIM_TOKENS
from agent.errors import EngineError
from agent.messages import Keep, Row
from agent.ports import CompactionResult
from agent.sessions import RewriteRequest
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)


class PruneOnly:
    """Shortens old tool results of one conversation, as one revision of its list.

    Whatever engine proposes it, it is taken only if nothing but results became shorter, and by
    enough. Afterwards the prompt has to grow by as much again before it is tried once more: the
    revision breaks the prompt cache.
    """

    def __init__(
        self, runner: EngineRunner, memory: StateMemory, store: SessionStore, *, from_tokens: int
    ) -> None:
        """``from_tokens``: the prompt size from which on it is done; 0: never."""
        self._runner = runner
        self._memory = memory
        self._store = store
        self._from_tokens = from_tokens

    def wanted(self, order: Order) -> bool:
        """Cheap: is the prompt large enough for it, and has it grown enough since the last time?"""
        if self._from_tokens <= 0 or not self._runner.prunes_results:
            return False
        limit = max(self._from_tokens, order.state.prune_at_tokens)
        return order.size.source != "unknown" and order.size.tokens >= limit

    async def __call__(self, order: Order) -> CompactionResult:
        """Never raises for a failure of an engine."""
        session = order.loaded.session
        if await self._store.prepared(session.id) is not None:
            return order.unchanged("not_needed", "a compression is prepared, which does it too")
        try:
            checked = await self._runner.prune_results(order)
        except EngineError as exc:
            log.warning("tool results not pruned", extra={"error": str(exc)})
            return order.unchanged("not_needed", str(exc))
        if checked is None or not isinstance(checked.adopted, Adopted):
            return await self._wait(order, "there is too little to prune")
        reclaimed = checked.tokens_before - checked.adopted.tokens
        if not _only_results(checked.adopted, order.loaded.rows):
            log.warning("the context engine changed more than tool results")
            return await self._wait(order, "the context engine changed more than tool results")
        if reclaimed < MIN_RECLAIM_TOKENS:
            return await self._wait(order, "there is too little to prune")
        return await self._store_it(order, checked.adopted, reclaimed)

    async def _store_it(self, order: Order, adopted: Adopted, reclaimed: int) -> CompactionResult:
        session = order.loaded.session
        after = max(0, order.size.tokens - reclaimed)
        runway = max(reclaimed, self._from_tokens, MIN_RECLAIM_TOKENS)
        # Of the newest state: somebody may have noted something while the engine looked.
        state = self._memory.state(order.loaded).changed(prune_at_tokens=after + runway)
        change = await self._store.rewrite(
            RewriteRequest(
                session_id=session.id,
                expected_revision=session.revision,
                covered_row_id=order.loaded.last_row_id,
                entries=adopted.entries,
                compression=state,
            )
        )
        if change.applied:
            self._memory.adopt(session.id, state)
        current = await self._store.load(change.tip.id)
        if not change.applied:
            return CompactionResult("not_needed", current, reason="the conversation moved on")
        log.info(
            "tool results pruned",
            extra={
                "session_id": session.id,
                "tokens_before": order.size.tokens,
                "tokens_reclaimed": reclaimed,
            },
        )
        return CompactionResult("compressed", current, order.size.tokens, after)

    async def _wait(self, order: Order, reason: str) -> CompactionResult:
        """Nothing came of it: looking again makes sense when there is more to look at."""
        state = self._memory.state(order.loaded).changed(
            prune_at_tokens=order.size.tokens + MIN_RECLAIM_TOKENS
        )
        loaded = await self._memory.store(order.loaded, state)
        return CompactionResult("not_needed", loaded, reason=reason)


def _only_results(adopted: Adopted, rows: Sequence[Row]) -> bool:
    """Is every entry the row in its place, or a stand-in for the tool result there?"""
    if len(adopted.entries) != len(rows):
        return False
    for entry, row in zip(adopted.entries, rows, strict=True):
        if isinstance(entry, Keep):
            if entry.row_id != row.id:
                return False
            continue
        said, stored = entry.message, row.message
        if stored["role"] != "tool" or said["role"] != "tool" or entry.origin_id != row.root_id:
            return False
        if said.get("tool_call_id") != stored.get("tool_call_id"):
            return False
    return True
