"""Owns the questions that wait for a person's yes or no: asked, answered once, or over.

They live in this process: a turn that waits for an answer is a task here. What the store has of a
question is the message in the chat; it is not sent any more once nobody waits for its answer
(`is_awaited`), also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.approvals import Proposal, Ruling
from agent.errors import StoreError
from agent.mail import Address, InboxRecord, OutboxDraft, OutboxItem
from agent.mail_ports import Mailbox
from agent.ports import Clock
from agent.sessions import key_in
from gateway import approval_text as texts
from gateway.questions import (
    NOBODY_THERE,
    NOT_PUT,
    Answered,
    Fate,
    Question,
    Reply,
    asking,
    report,
    ruling,
)
from gateway.tasks import StopReason, StopSignal, finish, wait_all

log = logging.getLogger(__name__)

WAIT_SECONDS = 300.0
"""Without an answer by then it is a no."""
SAME_BREATH_SECONDS = 10.0
"""A bare /approve so shortly behind another question's end may have been meant for that one."""
REMEMBERED = 1_000
"""Questions that are over, so that their old buttons get an answer of their own."""
_DIGITS = "23456789"
_LETTERS = _DIGITS + "abcdefghjkmnpqrstuvwxyz"


def new_id() -> str:
    """Short enough to type; six characters, the first of them a digit."""
    return secrets.choice(_DIGITS) + "".join(secrets.choice(_LETTERS) for _ in range(5))


@dataclass(frozen=True, slots=True)
class _Turn:
    """For which turn something is asked."""

    record: InboxRecord
    conversation_id: str
    stop: StopSignal
    make_way: Callable[[], Awaitable[None]]


@dataclass(slots=True, eq=False)
class TurnApprover:
    """The `agent.approvals.Approver` of one turn."""

    desk: ApprovalDesk
    turn: _Turn
    _in_order: asyncio.Lock = field(default_factory=asyncio.Lock)
    _nobody_there: bool = False

    async def ask(self, proposal: Proposal) -> Ruling:
        """As the port says. Who has not answered one question is not asked the next."""
        async with self._in_order:
            if self._nobody_there:
                return Ruling(False, NOBODY_THERE)
            question = await self.desk.put(proposal, self.turn)
            if question is None:
                return Ruling(False, NOT_PUT)
            self._nobody_there = question.fate is Fate.EXPIRED
            return ruling(question, self.desk.minutes)


class ApprovalDesk:
    """Where tools ask and people answer. All on the event loop."""

    def __init__(
        self,
        mailbox: Mailbox,
        hand_over: Callable[[Sequence[OutboxItem]], None],
        clock: Clock,
        *,
        take_buttons: Callable[[Address, str], None] = lambda address, message_id: None,
        draw: Callable[[], str] = new_id,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """``take_buttons`` off a message, some time soon. ``draw``: a new id, as people type it."""
        self._mailbox = mailbox
        self._hand_over = hand_over
        self._clock = clock
        self._take_buttons = take_buttons
        self._draw = draw
        self._wait_seconds = wait_seconds
        self._open: dict[str, Question] = {}
        self._over: OrderedDict[str, Question] = OrderedDict()
        self._closing = False

    @property
    def minutes(self) -> int:
        """How long a question is open."""
        return max(1, round(self._wait_seconds / 60))

    def approver(
        self,
        record: InboxRecord,
        conversation_id: str,
        stop: StopSignal,
        make_way: Callable[[], Awaitable[None]],
    ) -> TurnApprover:
        """Who asks for one turn: the sender of this row, below what ``make_way`` has left there."""
        return TurnApprover(self, _Turn(record, conversation_id, stop, make_way))

    def is_awaited(self, outbox_id: int) -> bool:
        """Is the question of this row open?"""
        return any(question.outbox_id == outbox_id for question in self._open.values())

    def stands(self, outbox_id: int, message_id: str) -> None:
        """The question of this row is in its chat now, as this message."""
        for question in (*self._open.values(), *reversed(self._over.values())):
            if question.outbox_id == outbox_id:
                question.message_id = message_id
                if question.fate is not Fate.OPEN:  # over while it was on its way
                    self._leave_without_buttons(question)
                return

    def _leave_without_buttons(self, question: Question) -> None:
        if question.message_id:
            self._take_buttons(question.record.address, question.message_id)

    def is_asking(self, session_key: str) -> bool:
        """Does a turn of this conversation wait for an answer?"""
        return any(question.key == session_key for question in self._open.values())

    def is_asking_in(self, address: Address) -> bool:
        """Does any turn wait for an answer in this chat?"""
        chat = (address.platform, address.bot_id, address.chat_id)
        there = (q.record.address for q in self._open.values())
        return any((a.platform, a.bot_id, a.chat_id) == chat for a in there)

    def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        """A chat has got another id."""
        old = (platform, bot_id, old_chat_id)
        for question in self._open.values():
            address = question.record.address
            if (address.platform, address.bot_id, address.chat_id) == old:
                question.record = replace(
                    question.record,
                    address=replace(address, chat_id=new_chat_id, thread_id=None),
                    session_key=key_in(question.key, new_chat_id),
                )
                question.message_id = ""  # in the new chat that number is another message's

    def close(self) -> None:
        """The daemon goes down: turns that wait for a person do not hold it up."""
        self._closing = True
        for question in list(self._open.values()):
            question.stop.request(StopReason.SHUTDOWN)

    # for tools

    async def put(self, proposal: Proposal, turn: _Turn) -> Question | None:
        """Ask, and wait; the question as it ended. None: it could not be put."""
        started = self._clock.monotonic()
        question = self._new(proposal, turn)
        try:
            if not await self._post(question, turn):
                return None
            if not await wait_all((question.answer,), self._clock, self._wait_seconds):
                self._end(question, Fate.EXPIRED)
        finally:
            if question.fate is Fate.OPEN:  # the turn has ended
                self._end(question, Fate.WITHDRAWN)
            self._open.pop(question.id, None)
            report(question, self._clock.monotonic() - started)
        if question.fate is Fate.EXPIRED:
            await self._say_expired(question, turn.conversation_id)
        return question

    def _new(self, proposal: Proposal, turn: _Turn) -> Question:
        question_id = self._draw()
        while question_id in self._open or question_id in self._over:
            question_id = self._draw()
        future = asyncio.get_running_loop().create_future()
        now = self._clock.now()
        return Question(question_id, proposal, turn.record, turn.stop, now, future)

    async def _post(self, question: Question, turn: _Turn) -> bool:
        """Owe it to the chat; False: the store does not take it."""
        if not self._closing:
            await turn.make_way()
        if self._heeds_the_end(question):
            return True
        draft = asking(question, self.minutes)
        try:
            item = await finish(self._mailbox.owe(draft, turn.conversation_id))
        except StoreError:
            log.warning("a question could not be put", exc_info=True)
            return False
        question.outbox_id = item.id
        question.asked_at = self._clock.now()
        self._open[question.id] = question
        self._hand_over([item])
        self._heeds_the_end(question)
        return True

    def _heeds_the_end(self, question: Question) -> bool:
        """Where the daemon goes down the turn ends, and the model may ask again after the start."""
        if self._closing:
            question.stop.request(StopReason.SHUTDOWN)
        return self._closing

    def _end(self, question: Question, fate: Fate) -> None:
        question.fate = fate
        question.over_at = self._clock.now()
        self._open.pop(question.id, None)
        self._over[question.id] = question
        while len(self._over) > REMEMBERED:
            self._over.popitem(last=False)
        self._leave_without_buttons(question)
        if not question.answer.done():
            question.answer.set_result(None)

    async def _say_expired(self, question: Question, conversation_id: str) -> None:
        text = texts.expired(question.proposal.deed, self.minutes)
        draft = OutboxDraft(question.record.address, text, "notice")
        try:
            self._hand_over([await finish(self._mailbox.owe(draft, conversation_id))])
        except StoreError:
            log.warning("the end of a question could not be told", exc_info=True)

    # for people

    def find(self, record: InboxRecord, admin: bool, question_id: str | None) -> Reply:
        """The open question that somebody means: by its id, or the only one here."""
        if question_id is None:
            return self._only_one(record, admin)
        question = self._open.get(question_id) or self._over.get(question_id)
        if question is None:
            return Reply(Answered.UNKNOWN)
        if not question.may_be_answered_by(record, admin):
            return Reply(Answered.NOT_YOURS if question.is_seen_in(record) else Answered.UNKNOWN)
        if question.fate is not Fate.OPEN:
            return Reply(Answered.OVER, question)
        return Reply(Answered.TAKEN, question)

    def answer(
        self,
        record: InboxRecord,
        admin: bool,
        question_id: str | None,
        *,
        allow: bool,
        why: str = "",
    ) -> Reply:
        """Take a person's word. The first one counts."""
        reply = self.find(record, admin, question_id)
        if reply.answered is not Answered.TAKEN or reply.question is None:
            return reply
        question = reply.question
        if allow and question_id is None and not self._is_sure(question, record):
            return Reply(Answered.WHICH, choices=(question.id,))
        question.by, question.why = record.owner, why
        self._end(question, Fate.APPROVED if allow else Fate.DENIED)
        return reply

    def _only_one(self, record: InboxRecord, admin: bool) -> Reply:
        here = [q for q in self._open.values() if q.key == record.session_key]
        theirs = [q for q in here if q.may_be_answered_by(record, admin)]
        if not theirs:
            return Reply(Answered.NOT_YOURS if here else Answered.NONE_OPEN)
        if len(theirs) > 1:
            return Reply(Answered.WHICH, choices=tuple(q.id for q in theirs))
        return Reply(Answered.TAKEN, theirs[0])

    def _is_sure(self, question: Question, record: InboxRecord) -> bool:
        """Can a bare yes only be meant for this one?

        Not if it was said before the question was put (a row that waited over a restart), nor if
        another question has just ended here: two yeses in a row are often one.
        """
        if record.received_at < question.asked_at:
            return False
        return not any(
            other.key == question.key
            and abs(record.received_at - other.over_at) < SAME_BREATH_SECONDS
            for other in self._over.values()
        )
