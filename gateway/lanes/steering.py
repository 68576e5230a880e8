"""Owns the way of a waiting message into the turn that runs before it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from agent.jobs.nouns import is_scheduled
from agent.mail import InboxItem
from agent.messages import Row
from agent.ports import Clock
from agent.sessions import TurnTicket
from agent.store_ports import SessionStore
from gateway.lanes.jobs import Job
from gateway.lanes.lanes import Lanes
from gateway.tasks import finish
from gateway.turns.enclosures import has_enclosures
from gateway.turns.words import said

log = logging.getLogger(__name__)


def may_join(running: Job, waiting: Job, *, with_files: bool = False) -> bool:
    """May a turn take this in? Words of whoever it works for, and nothing that has to be loaded.

    What somebody else says in a shared conversation is a question of its own; and a file has to be
    fetched first, which nobody who waits for the running turn shall wait for. A job's turn is its
    own: nobody is answered by it, and nobody's words end it.
    """
    if running.kind == "command" or waiting.kind != "message":
        return False
    if has_enclosures(waiting.items) and not with_files:
        return False
    if is_scheduled(running.items[-1].record) or is_scheduled(waiting.items[-1].record):
        return False
    return running.items[-1].record.owner == waiting.items[-1].record.owner


class LaneSteering:
    """The `agent.ports.Steering` of one running turn."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        job: Job,
        store: SessionStore,
        clock: Clock,
        reread: Callable[[Sequence[InboxItem]], Awaitable[Sequence[InboxItem]]],
        may_go_in: Callable[[Sequence[InboxItem]], Awaitable[bool]],
    ) -> None:
        """Take the parts.

        ``reread``: the rows as they are by now; those that do not wait any more are left out.
        ``may_go_in``: would a message be taken as a turn?
        """
        self._lanes = lanes
        self._job = job
        self._store = store
        self._clock = clock
        self._reread = reread
        self._may_go_in = may_go_in

    async def take_in(self, ticket: TurnTicket, session_id: str) -> Sequence[Row]:
        taken: list[Row] = []
        while (job := self._next()) is not None:
            # Shielded: a stop in the middle must not leave the lane with what is in the list.
            rows = await finish(self._take(job, ticket, session_id))
            if not rows:
                break  # it waits for its own turn, and whatever is behind it for theirs
            taken.extend(rows)
        return taken

    def _next(self) -> Job | None:
        """What stands first behind this turn, if it may go in."""
        job = self._lanes.follower(self._job)
        if job is None or not may_join(self._job, job):
            return None
        return job if job.ready_at <= self._clock.monotonic() else None

    async def _take(self, job: Job, ticket: TurnTicket, session_id: str) -> Sequence[Row]:
        job.closed = True  # what comes meanwhile is a message of its own
        items = await self._reread(job.items)
        if not items or not await self._may_go_in(items):
            return ()
        ids = [item.id for item in items]
        stored = await self._store.steer(ticket, session_id, ids, said(items))
        if stored is None:
            return ()
        log.info("steered", extra={"inbox_ids": ids})
        self._job.items.extend(job.items)  # they are over when this turn is
        self._lanes.withdraw(job)
        return stored.rows
