"""Owns a turn's compactor as the turn sees it: no newer message cuts a compression off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.messages import Draft, Message
from agent.ports import (
    CompactionDecision,
    CompactionResult,
    CompactionTrigger,
    Compactor,
    TurnEnd,
    Usage,
)
from agent.sessions import LoadedSession
from gateway.tasks import StopSignal


class ShelteredCompactor:
    """An `agent.ports.Compactor`. A stop that the user asked for passes, as everywhere."""

    def __init__(self, compactor: Compactor, stop: StopSignal) -> None:
        self._compactor = compactor
        self._stop = stop

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        return self._compactor.due(loaded)

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> CompactionResult:
        with self._stop.sheltered():
            return await self._compactor.compact(
                loaded, trigger, focus=focus, overflow_proven=overflow_proven, notify=notify
            )

    async def note_usage(
        self,
        loaded: LoadedSession,
        usage: Usage | None,
        *,
        notify: Callable[[str], None] | None = None,
    ) -> LoadedSession:
        return await self._compactor.note_usage(loaded, usage, notify=notify)

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        return await self._compactor.select(loaded, messages, answer_tokens=answer_tokens)

    async def after_turn(
        self, seen: LoadedSession, final: Draft, end: TurnEnd | None = None
    ) -> None:
        await self._compactor.after_turn(seen, final, end)

    def note_limit(self, limit_tokens: int) -> None:
        self._compactor.note_limit(limit_tokens)
