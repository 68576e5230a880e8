"""Owns /approve and /deny: a person's word on what I have asked about."""

from __future__ import annotations

import re

from gateway import approval_text as texts
from gateway.commands.contract import Call, CommandHost, Said
from gateway.intake.commands import whole_argument
from gateway.questions import Answered, Fate, Reply

_ID = re.compile(r"[2-9][0-9a-z]{5}")
"""As `gateway.approvals.new_id` makes them: no word, so that a reason is never taken for one."""
SHOW = "show"


async def approve(host: CommandHost, call: Call) -> str | Said:
    """Let it be done, or show all that is asked about."""
    if host.approvals is None:
        return texts.NOTHING_OPEN
    words = call.argument.split()
    question_id = _id_in(words)
    if words and question_id is None and words != [SHOW]:
        return texts.USAGE  # whatever it was meant to be, it is no plain yes
    if SHOW in words:
        reply = host.approvals.find(call.record, call.admin, question_id)
        if reply.answered is Answered.TAKEN and reply.question is not None:
            return texts.whole(reply.question.proposal, reply.question.id)
        return _words(reply, call)
    if len(words) > 1:
        return texts.USAGE
    reply = host.approvals.answer(call.record, call.admin, question_id, allow=True)
    return _said(reply, call, texts.APPROVED)


async def deny(host: CommandHost, call: Call) -> str | Said:
    """Forbid it; what is said behind it is told to the model."""
    if host.approvals is None:
        return texts.NOTHING_OPEN
    said = whole_argument(call.record.text)  # the model is told all of it
    words = said.split(maxsplit=1)
    question_id = _id_in(words[:1])
    why = said if question_id is None else " ".join(words[1:])
    reply = host.approvals.answer(call.record, call.admin, question_id, allow=False, why=why)
    return _said(reply, call, texts.DENIED)


def _said(reply: Reply, call: Call, done: str) -> Said:
    """What came of it.

    The desk takes the buttons off a question that it knows. Those of another one are of no use to
    anybody any more, whoever presses them.
    """
    if reply.answered is Answered.TAKEN:
        return Said(done)
    over = reply.answered in (Answered.OVER, Answered.UNKNOWN)
    return Said(_words(reply, call), decides=over, aside=True)


def _id_in(words: list[str]) -> str | None:
    first = words[0].lower() if words else ""
    return first if _ID.fullmatch(first) else None


def _words(reply: Reply, call: Call) -> str:
    """Why nothing has changed."""
    match reply.answered:
        case Answered.NOT_YOURS:
            return texts.NOT_YOURS
        case Answered.WHICH:
            return texts.which(reply.choices)
        case Answered.OVER if reply.question is not None:
            return _over(reply.question.fate, mine=reply.question.by == call.record.owner)
        case Answered.UNKNOWN:
            return texts.OVER
        case _:
            return texts.NOTHING_OPEN


def _over(fate: Fate, *, mine: bool) -> str:
    match fate:
        case Fate.APPROVED:
            return texts.APPROVED_ALREADY
        case Fate.DENIED:
            return texts.DENIED_ALREADY
        case Fate.EXPIRED:
            return texts.EXPIRED
        case _:
            return texts.WITHDRAWN
