"""Owns what a question is that waits for a yes or no: who may answer, what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from agent.approvals import Proposal
from agent.mail import InboxRecord
from gateway.intake.records import is_shared
from gateway.tasks import StopSignal


class Fate(StrEnum):
    """What became of a question."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class Answered(StrEnum):
    """What came of an answer."""

    TAKEN = "taken"
    NONE_OPEN = "none open"
    WHICH = "which of them"
    NOT_YOURS = "not yours"
    UNKNOWN = "unknown, or of an earlier run"
    OVER = "over"


@dataclass(slots=True, eq=False)
class Question:
    """One question, and what became of it."""

    id: str
    proposal: Proposal
    record: InboxRecord
    """The message for which the turn runs: whose sender is asked, and where."""
    stop: StopSignal
    asked_at: float
    """Unix seconds."""
    answer: asyncio.Future[None]
    """Done when it is answered."""
    fate: Fate = Fate.OPEN
    why: str = ""
    by: str = ""
    """Who answered, as the store names people."""
    over_at: float = 0.0
    outbox_id: int = 0

    @property
    def key(self) -> str:
        """Of the conversation."""
        return self.record.session_key

    def may_be_answered_by(self, record: InboxRecord, admin: bool) -> bool:
        """The person who is asked, wherever they are; where several talk, an admin among them."""
        asked, there = self.record.address, record.address
        if (asked.platform, asked.bot_id) != (there.platform, there.bot_id):
            return False
        if record.owner == self.record.owner:
            return True
        return admin and is_shared(self.record) and record.session_key == self.key

    def is_seen_in(self, record: InboxRecord) -> bool:
        """Does the question stand in this chat?"""
        asked, there = self.record.address, record.address
        return (asked.platform, asked.bot_id, asked.chat_id) == (
            there.platform,
            there.bot_id,
            there.chat_id,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer did, and to which question."""

    answered: Answered
    question: Question | None = None
    choices: tuple[str, ...] = ()
    """The ids of those that are open, where it is not clear which one is meant."""
