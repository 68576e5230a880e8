"""Owns when a conversation starts anew by itself: after a silence, or once a day.

It is decided when the next message is about to begin its turn, in its lane, so nothing of the old
conversation runs or waits; a job of the house does the same where nobody writes (`sweep`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from agent.errors import StoreError
from agent.jobs import schedules
from agent.jobs.nouns import Schedule
from agent.ports import Clock
from agent.sessions import LastSaid, SessionPrefix, place_of
from agent.store_ports import SessionStore
from agent.turn_companions import Boundary
from gateway import texts
from gateway.lanes.jobs import Job
from gateway.lanes.lanes import Lanes
from gateway.tasks import StopSignal
from gateway.turns.compactors import CompactorCache

log = logging.getLogger(__name__)

GONE_ON_AT = "gone_on_at"
"""An option of a session: when a person has led a place to it, although its words are old."""
SWEPT_AT_ONCE = 500
SWEPT_SECONDS = 7 * 86_400.0
"""Places that are silent for longer than that get their new conversation when somebody writes."""


@dataclass(frozen=True, slots=True)
class ResetRules:
    """`sessions` of the configuration."""

    mode: Literal["none", "idle", "daily"]
    idle_seconds: float
    daily_hour: int
    zone: str

    def is_due(self, last_at: float, now: float) -> bool:
        """Does a new conversation begin now, where something was last said then?"""
        match self.mode:
            case "none":
                return False
            case "idle":
                return now - last_at >= self.idle_seconds
            case "daily":
                begin = schedules.next_due(self.daily, last_at, 0.0)
                return begin is not None and begin <= now

    @property
    def daily(self) -> Schedule:
        """When the day begins."""
        return Schedule("cron", f"0 {self.daily_hour} * * *", self.zone)


class SessionResets:
    """Leads places to new conversations, as /new does."""

    def __init__(
        self,
        sessions: SessionStore,
        clock: Clock,
        compactors: CompactorCache,
        *,
        rules: Callable[[], ResetRules],
        prefix_for: Callable[[str], SessionPrefix],
        crossed: Callable[[Boundary], Awaitable[None]],
    ) -> None:
        """``crossed``: told of every boundary."""
        self._sessions = sessions
        self._clock = clock
        self._compactors = compactors
        self._rules = rules
        self._prefix_for = prefix_for
        self._crossed = crossed

    async def before_turn(self, session_key: str, owner: str) -> str:
        """Start anew if it is time; what the person should read of it, "": it is not."""
        rules = self._rules()
        if rules.mode == "none":
            return ""
        try:
            said = await self._sessions.last_said(session_key)
            if said is None or not await self._is_due(rules, said):
                return ""
            await self._start_anew(rules, said, owner)
        except StoreError:
            log.warning("whether a conversation starts anew is not known", exc_info=True)
            return ""
        return texts.STARTED_ANEW[rules.mode]

    async def crossed(self, boundary: Boundary) -> None:
        """A person has led a place somewhere: what is old there was meant."""
        if boundary.reason != "reset":
            now = str(self._clock.now())
            await self._sessions.set_option(boundary.new_session_id, GONE_ON_AT, now)
        await self._crossed(boundary)

    async def sweep(self, lanes: Lanes) -> str:
        """The same where nobody writes, each in its lane; what came of it, in words."""
        rules, now = self._rules(), self._clock.now()
        idle = rules.idle_seconds if rules.mode == "idle" else 0.0
        silent = await self._sessions.silent_since(
            now - idle, after=now - idle - SWEPT_SECONDS, limit=SWEPT_AT_ONCE
        )
        due = [said for said in silent if rules.is_due(said.at, now)]
        for said in due:
            if not lanes.busy(said.session_key):
                lanes.put(said.session_key, Job(self._swept(said), "session reset", kind="command"))
        return f"{len(due)} due"

    def _swept(self, said: LastSaid) -> Callable[[StopSignal], Awaitable[None]]:
        async def run(stop: StopSignal) -> None:
            await self.before_turn(said.session_key, said.owner)

        return run

    async def _is_due(self, rules: ResetRules, said: LastSaid) -> bool:
        now = self._clock.now()
        if not rules.is_due(said.at, now):
            return False
        session = await self._sessions.session(said.session_id)
        return rules.is_due(float(session.prefix.model_config.get(GONE_ON_AT) or said.at), now)

    async def _start_anew(self, rules: ResetRules, said: LastSaid, owner: str) -> None:
        assert rules.mode != "none"
        place = place_of(said.session_key)
        fresh = await self._sessions.start_conversation(
            said.session_key,
            owner,
            self._prefix_for(place[0] if place is not None else ""),
            end_reason=rules.mode,
        )
        self._compactors.succeed(said.conversation_id, fresh.conversation_id)
        log.info(
            "conversation started anew",
            extra={"conversation_id": said.conversation_id, "reason": rules.mode},
        )
        await self._crossed(
            Boundary(
                "reset",
                said.session_key,
                owner,
                said.conversation_id,
                said.session_id,
                fresh.conversation_id,
                fresh.id,
            )
        )
