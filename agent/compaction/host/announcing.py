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

    async def at(self, session: Session) -> None:
        """The conversation is in this session now.

        The engine learns why the one before it ended; one that is busy hears of it the next time.
        A session that it has left never comes back, whoever still holds it.
        """
        if self._runner.builtin is not None or session.id in self._told or self._runner.busy:
            return
        before = self._told[-1] if self._told else None
        self._told.append(session.id)
        try:
            old = await self._store.load(before) if before is not None else None
            conversation = await self._store.conversation(session.conversation_id)
        except StoreError:
            log.warning("context engine was not told of a session", exc_info=True)
            return
        key = conversation.session_key if conversation is not None else ""
        await self._runner.tell_session(session, key, old)
