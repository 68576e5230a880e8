"""Owns what becomes of a context engine of a plugin when its conversation ends or is put aside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from agent.compaction.host.foreign import ForeignEngine
from agent.compaction.host.session import SessionCompactor
from agent.errors import StoreError
from agent.ports import Compactor
from agent.store_ports import SessionStore
from gateway.plugins.engines import EngineSource

log = logging.getLogger(__name__)

Build = Callable[[str, ForeignEngine], SessionCompactor]
"""The compactor of a conversation around an engine that is there already."""
MakeNew = Callable[[str], Awaitable[Compactor]]


def foreign_of(compactor: Compactor) -> ForeignEngine | None:
    """The engine of somebody else's behind a compactor, if it has one."""
    return compactor.foreign if isinstance(compactor, SessionCompactor) else None


class EngineKeeper:
    """A `gateway.turns.compactors.Keeper`."""

    def __init__(
        self, source: EngineSource, store: SessionStore, build: Build, make_new: MakeNew
    ) -> None:
        self._source = source
        self._store = store
        self._build = build
        self._make_new = make_new

    def survives(self, compactor: Compactor) -> bool:
        return foreign_of(compactor) is not None

    async def succeed(self, compactor: Compactor, old_id: str, new_id: str) -> Compactor:
        """The engine goes on with the place: it is told that the old session is over."""
        foreign = foreign_of(compactor)
        if foreign is None or not isinstance(compactor, SessionCompactor):
            return await self._make_new(new_id)
        try:
            old = await self._store.conversation(old_id)
            new = await self._store.conversation(new_id)
            if old is None or new is None:
                raise StoreError("a conversation is gone")
            before = await self._store.load(old.tip_session_id)
            session = await self._store.session(new.tip_session_id)
        except StoreError:
            log.warning("context engine was not told of a new conversation", exc_info=True)
            await self.let_go(compactor, old_id)
            return await self._make_new(new_id)
        await compactor.is_at(before.session)
        await foreign.resets(session, new.session_key, before)
        self._source.moved(old_id, new_id)
        successor = self._build(new_id, foreign)
        successor.has_begun_at(session, new.session_key)
        return successor

    async def let_go(self, compactor: Compactor, conversation_id: str) -> None:
        """Its conversation goes on with another instance some day: that is no end of a session."""
        self._source.let_go(conversation_id)
        foreign = foreign_of(compactor)
        if foreign is not None:
            await foreign.ends(None)

    async def close(self, compactors: Iterable[tuple[str, Compactor]]) -> None:
        """The daemon goes down: all of them side by side; whoever waits sets the limit."""
        each = [self._close(compactor) for _, compactor in compactors]
        await asyncio.gather(self._source.close(), *each)

    async def _close(self, compactor: Compactor) -> None:
        foreign = foreign_of(compactor)
        if foreign is None or not isinstance(compactor, SessionCompactor):
            return
        told = compactor.announced_session_id
        old = None
        if told and not foreign.host.inherits("on_session_end"):
            try:
                old = await self._store.load(told)
            except StoreError:
                log.warning("context engine was not told of the end", exc_info=True)
        await foreign.ends(old)
