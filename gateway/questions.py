"""Owns what a question is: how it is put, who may answer, what came of it and how that is told."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import StrEnum

from agent.approvals import Proposal, Ruling
from agent.mail import Button, InboxRecord, OutboxDraft
from gateway import approval_text as texts
from gateway.intake.records import is_shared
from gateway.tasks import StopSignal

log = logging.getLogger(__name__)

DENIED = "denied by the user{why}. It was not done; do not try to do the same in another way"
NOT_ANSWERED = (
    "not done: the question whether it may be done was not answered within {minutes} minutes. End "
    "your turn now and say what you wanted to do; the user may ask for it again"
)
NOBODY_THERE = (
    "not done and not asked: an earlier question of this turn was not answered, so nobody is "
    "there. End your turn now and say what you wanted to do"
)
NOT_PUT = "not done: the question whether it may be done could not be put right now"


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
    message_id: str = ""
    """As it stands in its chat; empty: it does not, or not any more."""

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


def asking(question: Question, minutes: int) -> OutboxDraft:
    """How it is put to whoever is asked."""
    shared = is_shared(question.record)
    text = texts.question(question.proposal, question.id, minutes, shared=shared)
    buttons = [
        Button(texts.APPROVE, f"/approve {question.id}"),
        Button(texts.DENY, f"/deny {question.id}"),
    ]
    if not texts.fits(question.proposal):
        buttons.append(Button(texts.SHOW_ALL, f"/approve {question.id} show"))
    return OutboxDraft(question.record.address, text, "notice", buttons=tuple(buttons), asks=True)


def report(question: Question, seconds: float) -> None:
    """Who allowed what: for whoever has to know later."""
    log.info(
        "approval",
        extra={
            "tool": question.proposal.tool,
            "decision": question.fate.value,
            "asked": question.record.owner,
            "by": question.by or "-",
            "seconds": round(seconds, 1),
            "what": question.proposal.digest,
            "question": question.id,
        },
    )


def ruling(question: Question, minutes: int) -> Ruling:
    """What the tool hears of a question that is over."""
    match question.fate:
        case Fate.APPROVED:
            return Ruling(True, "approved by the user")
        case Fate.DENIED:
            why = f", who says: {question.why}" if question.why else ""
            return Ruling(False, DENIED.format(why=why))
        case _:
            return Ruling(False, NOT_ANSWERED.format(minutes=minutes))
