"""Owns what a turn is while it runs: its ticket, its rows, its agent, what it has to tell."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.approvals import Approver
from agent.jobs.nouns import is_scheduled
from agent.loop import TurnResult
from agent.mail import Address, InboxItem, InboxRecord
from agent.messages import Row
from agent.ports import Compactor, Steering, ToolContext, TurnObserver
from agent.sessions import LoadedSession, SessionPrefix, TurnTicket
from agent.tools.registry import files_of
from gateway.intake.keys import place_for
from gateway.tasks import StopSignal

log = logging.getLogger(__name__)


class AgentLoop(Protocol):
    """Model and tools until the reply (`agent.loop.TurnLoop`)."""

    async def __call__(
        self,
        ticket: TurnTicket,
        loaded: LoadedSession,
        *,
        compactor: Compactor,
        context: ToolContext,
        observer: TurnObserver,
        steering: Steering | None,
    ) -> TurnResult:
        """Go on from the stored rows; between two steps, ``steering`` is asked for more of them.

        Raises:
            ModelError: no usable answer.
            StaleTurn: the turn is over; nothing more was written.
            SessionEnded: somebody else moved the tip.
        """
        ...


MakeWay = Callable[[], Awaitable[None]]
"""Awaited before a question is put: what the turn shows stays above it."""
ApproverFor = Callable[[InboxRecord, str, StopSignal, MakeWay], Approver]
"""Who asks the sender of a row, for a turn of this conversation with this signal."""
PrefixFor = Callable[[str], SessionPrefix]
"""What a new session on this platform begins with."""
Hygiene = Callable[
    [LoadedSession, Compactor, Callable[[str], None]], Coroutine[None, None, LoadedSession]
]
"""The net before the agent: gives back the session that the turn goes on in."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """How patient a turn is."""

    stop_grace_seconds: float = 0.7
    """What cancelled work may take before it is left behind: a stop acts within a second."""


@dataclass(slots=True)
class Collected:
    """Collects what the user should read beside the answer."""

    notices: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Kept files that go out with the answer."""
    show: Callable[[str], None] = field(default=lambda delta: None)
    """Told of each piece of text as it comes (`gateway.delivery.preview`)."""

    stand: MakeWay | None = None
    """What was shown so far is gone on with in a message below."""

    async def make_way(self) -> None:
        if self.stand is not None:
            await self.stand()

    def on_text(self, delta: str) -> None:
        self.show(delta)

    def on_tool(self, name: str) -> None:
        log.debug("tool", extra={"tool": name})

    def on_notice(self, text: str) -> None:
        if text and text not in self.notices:
            self.notices.append(text)

    def on_file(self, name: str) -> None:
        if name not in self.files:
            self.files.append(name)

    def on_results(self, rows: Sequence[Row]) -> None:
        """What tools gave back before an interruption: the files that they made go out as well."""
        for row in rows:
            for name in files_of(row.message):
                self.on_file(name)


@dataclass(frozen=True, slots=True)
class Task:
    """One turn that has begun."""

    ticket: TurnTicket
    items: Sequence[InboxItem]
    stop: StopSignal
    observer: Collected
    steering: Steering | None
    approver: Approver | None = None
    resumed: bool = False
    """It began before a restart."""

    @property
    def address(self) -> Address:
        """The answer replies to the last piece, which stands next to it."""
        return self.items[-1].record.address

    @property
    def owner(self) -> str:
        """Who asked: the pieces of a message are of one person."""
        return self.items[-1].record.owner

    @property
    def context(self) -> ToolContext:
        """Where its tools are called."""
        record = self.items[-1].record
        direct = record.payload.get("chat_kind") == "direct"
        return ToolContext(
            conversation_id=self.ticket.conversation_id,
            owner=self.owner,
            direct_chat=direct,
            turn_id=self.ticket.turn_id,
            user_row_id=self.ticket.user_row_id,
            for_person=not all(is_scheduled(item.record) for item in self.items),
            place=place_for(self.owner, record.session_key, direct=direct),
            approver=self.approver,
        )
