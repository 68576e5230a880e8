"""Owns how somebody else's engine decides and compresses: what it is asked, with which copies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent.compaction.host.foreign_lists import copied, looked_at, pruned_by
from agent.compaction.plan.adoption import Checked
from agent.engine_host import QUICK_SECONDS, EngineHost
from agent.keywords import accepted
from agent.messages import Row
from agent.ports import CompactionTrigger
from agent.sessions import SessionPrefix


class ForeignCompressing:
    """The part of an engine's contract that it is there for."""

    def __init__(
        self,
        host: EngineHost,
        mind_the_window: Callable[[str], Awaitable[None]],
        timeout_seconds: float,
    ) -> None:
        """``mind_the_window``: tells it of another window; ``timeout_seconds``: for `compress`."""
        self._host = host
        self._engine = host.engine
        self._mind_the_window = mind_the_window
        self._timeout_seconds = timeout_seconds

    async def wants(
        self, tokens: int, trigger: CompactionTrigger, prefix: SessionPrefix
    ) -> tuple[bool, str | None]:
        """Does it want to compress a prompt of this size; if not although it should: why not.

        Raises:
            EngineError: It failed, or it is busy.
        """
        await self._mind_the_window(prefix.model)
        engine = self._engine

        def work() -> tuple[bool, str | None]:
            if trigger == "preflight":
                if engine.should_defer_preflight_to_real_usage(tokens):
                    return False, None
                cooldown = getattr(engine, "get_active_compression_failure_cooldown", None)
                if callable(cooldown) and cooldown():
                    return False, None
            answer: Any = engine.should_compress_info(tokens)
            if isinstance(answer, tuple) and len(answer) == 2:
                return bool(answer[0]), answer[1] if isinstance(answer[1], str) else None
            return bool(answer), None

        wanted: tuple[bool, str | None] = await self._host.run(
            work, "should_compress", QUICK_SECONDS
        )
        return wanted

    async def has_content(self, rows: Sequence[Row]) -> bool:
        """Is there anything that it could shorten? Asked where somebody wants it to."""
        if self._host.inherits("has_content_to_compress"):
            return True
        found = await self._host.run(
            lambda: self._engine.has_content_to_compress(copied(rows)),
            "has_content_to_compress",
            QUICK_SECONDS,
        )
        return bool(found)

    async def only_cleans_up(self, rows: Sequence[Row]) -> bool:
        """Would `compress` do less than a compression, so that the memory need not be asked?"""
        if self._host.inherits("pending_compression_operation"):
            return False
        operation = await self._host.run(
            lambda: self._engine.pending_compression_operation(copied(rows)),
            "pending_compression_operation",
            QUICK_SECONDS,
        )
        return bool(operation == "sanitize")

    async def compress(
        self,
        rows: Sequence[Row],
        prefix: SessionPrefix,
        *,
        tokens: int,
        focus: str | None,
        force: bool,
        memory: str,
    ) -> Checked:
        """What it makes of a list, looked at.

        Raises:
            EngineError: It failed, it is busy, or it gave back what nobody can look at.
        """
        await self._mind_the_window(prefix.model)
        keywords = {
            "current_tokens": tokens,
            "focus_topic": focus,
            "force": force,
            "memory_context": memory,
        }

        def work() -> Checked:
            call = self._engine.compress
            result = call(copied(rows), **accepted(call, keywords))
            return looked_at(result, rows)

        checked: Checked = await self._host.run(work, "compress", self._timeout_seconds)
        return checked

    async def prune_results(self, rows: Sequence[Row], tokens: int) -> Checked | None:
        """What it makes of old tool results; None: it changed nothing.

        Raises:
            EngineError: It failed, or it is busy.
        """
        pruned: Checked | None = await self._host.run(
            lambda: pruned_by(self._engine, rows, tokens), "prune_tool_results_only", QUICK_SECONDS
        )
        return pruned
