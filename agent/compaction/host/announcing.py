"""Owns what somebody else's engine has been told of where its conversation is."""

from __future__ import annotations

import logging

from agent.compaction.host.running import EngineRunner
from agent.errors import StoreError
from agent.sessions import Session
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)


class Announcer:
    """Tells the engine of each session once, whoever made it: a compression or anybody else."""

    def __init__(self, runner: EngineRunner, store: SessionStore) -> None:
        self._runner = runner
        self._store = store
        self._told: list[str] = []
        """Ids of sessions, in order: the last one is where the engine thinks that it is."""
        self._key = ""
        self._revision = 0

    @property
    def last_id(self) -> str:
        """Where the engine thinks that it is; "": it was told nothing."""
        return self._told[-1] if self._told else ""

    def begin_at(self, session: Session, key: str) -> None:
        """The engine has been told of this one by somebody else."""
        self._told, self._key, self._revision = [session.id], key, session.revision

    async def at(self, session: Session) -> None:
        """The conversation is in this session now.

        The engine learns why the one before it ended; one that is busy hears of it the next time.
        A session that it has left never comes back, whoever still holds it. A list that was
        rewritten in its place is another list: nobody knows its size.
        """
        foreign = self._runner.foreign
        if foreign is None or self._runner.occupied:
            return
        if session.id in self._told:
            if session.id == self._told[-1] and session.revision > self._revision:
                self._revision = session.revision
                await foreign.mark_unknown()
            return
        before = self._told[-1] if self._told else None
        self._told.append(session.id)
        self._revision = session.revision
        try:
            old = await self._store.load(before) if before is not None else None
            branched = await self._is_fresh_branch(session) if before is None else False
            self._key = await self._key_of(session)
        except StoreError:
            self._told.remove(session.id)  # it is told the next time
            log.warning("context engine was not told of a session", exc_info=True)
            return
        if old is None:
            await foreign.starts(session, self._key, branched=branched)
        else:
            await foreign.moves(session, self._key, old)

    async def turn_begins(self, session: Session) -> None:
        """As `at`; and if another chat leads here by now, the engine learns its key."""
        await self.at(session)
        foreign = self._runner.foreign
        if foreign is None or self._runner.occupied or session.id != self.last_id:
            return
        try:
            key = await self._key_of(session)
        except StoreError:
            return
        if key != self._key:
            self._key = key
            await foreign.starts(session, key)

    async def _key_of(self, session: Session) -> str:
        conversation = await self._store.conversation(session.conversation_id)
        return conversation.session_key if conversation is not None else ""

    async def _is_fresh_branch(self, session: Session) -> bool:
        """Was it copied from another conversation, and nothing answered in it since?"""
        if session.link != "branch":
            return False
        rows = (await self._store.load(session.id)).rows
        return not any(row.origin_id is None and row.message["role"] == "assistant" for row in rows)
