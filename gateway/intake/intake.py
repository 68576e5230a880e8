"""Owns the way of one inbound message: gate, inbox row, then a lane or an answer in words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agent.mail import Cursor, InboxItem, InboxRecord, OutboxItem
from agent.mail_ports import Mailbox
from agent.messages import is_blank
from agent.model_metadata import estimate_tokens_rough
from agent.ports import Clock
from gateway import texts
from gateway.intake.access import PlatformPolicy
from gateway.intake.commands import Command, parse_command
from gateway.intake.gate import Gate
from gateway.intake.keyed_locks import KeyedLocks
from gateway.intake.pairing import PairingDesk
from gateway.intake.records import COMMAND, MESSAGE, answer_to, message_of, record_of, refused
from gateway.intake.wording import readable, readable_message
from gateway.platforms.contract import InboundMessage
from gateway.tasks import finish

log = logging.getLogger(__name__)

REFUSED_TEXT_CHARS = 1_000
"""What is kept of a message that was too long to be taken."""
LATELY_ROWS = 300
"""Seconds of the busiest daemon."""


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """What is taken."""

    queue_limit: int = 200
    """Waiting messages per conversation."""
    max_message_chars: int = 100_000
    max_message_tokens: Callable[[], int] | None = None
    """By the rough estimate, asked for each message: it follows the window. None: no limit."""


def too_large(text: str, limits: IntakeLimits) -> str | None:
    """Why so much is not taken at once, in words; None: it is (pure)."""
    if len(text) > limits.max_message_chars:
        return texts.too_long(len(text), limits.max_message_chars)
    if limits.max_message_tokens is not None:
        tokens, limit = estimate_tokens_rough(text), limits.max_message_tokens()
        if tokens > limit:
            return texts.too_many_tokens(tokens, limit)
    return None


class Dispatcher(Protocol):
    """Where accepted rows go on."""

    def submit(self, item: InboxItem) -> None:
        """Take a row over: into its lane, or done at once. Never waits."""
        ...

    def holds(self, inbox_id: int) -> bool:
        """Is this row waiting or being worked on in this process?"""
        ...

    def queues(self, record: InboxRecord) -> bool:
        """Does this wait in its conversation's lane? What does not is done at once."""
        ...

    def waiting(self, session_key: str) -> int:
        """Rows of this conversation that have not started."""
        ...

    def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        """The store leads this chat's conversations under its new id from now on."""
        ...


class GatewayIntake:
    """The `gateway.platforms.contract.Intake` of every platform."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        gate: Gate,
        pairing: PairingDesk,
        dispatcher: Dispatcher,
        hand_over: Callable[[Sequence[OutboxItem]], None],
        clock: Clock,
        limits: IntakeLimits | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._gate = gate
        self._pairing = pairing
        self._dispatcher = dispatcher
        self._hand_over = hand_over
        self._clock = clock
        self._limits = limits or IntakeLimits()
        self._order = KeyedLocks()
        self._told_full: set[str] = set()
        self._known_channels: dict[tuple[str, str], set[str]] = {}

    def admits(self, message: InboundMessage) -> bool | None:
        if self._gate.decide(message).allowed:
            return True
        return False if self._gate.is_up_to_date(message.platform, message.bot_id) else None

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> bool:
        policy = await self._pass_gate(message)
        if policy is None:
            await self._pairing.knock(message)
            await self._pass_by_stranger(cursor)
            return False
        command = _command_in(message)
        if _is_of_no_interest(message, policy, command):
            await self._pass_by(cursor)
            return False
        record = self._record(message, policy, COMMAND if command is not None else MESSAGE)
        # Shielded: a platform that is cancelled behind the commit never asks again about a message
        # whose cursor has moved, so what is stored has to reach its lane.
        await finish(self._take(record, cursor))
        return True

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        log.warning(
            "update could not be read",
            extra={"platform": platform, "update_id": update_id, "reason": reason},
        )
        await finish(
            self._mailbox.quarantine(platform, bot_id, update_id, readable(raw), readable(reason))
        )

    async def edited(self, message: InboundMessage) -> None:
        policy = await self._pass_gate(message)
        # Whether it is addressed to the bot does not matter: if it waits, it was.
        if policy is None or _is_from_a_bot(message):
            return
        # A command that has been edited in is not run: who has not typed it did not mean it.
        if _command_in(message) is not None:
            return
        record = self._record(message, policy, MESSAGE)
        if self._refusal(record) is None:
            await finish(self._mailbox.revise(record))

    async def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        await self._gate.learn(platform, bot_id)
        if self._gate.policy(platform) is None or not await self._leads_here(
            platform, bot_id, old_chat_id
        ):
            return
        fresh = await finish(self._mailbox.move_chat(platform, bot_id, old_chat_id, new_chat_id))
        # As the store sees it, which goes on to the end of several moves and believes no circle.
        for old, today in (await self._mailbox.moved_chats(platform, bot_id)).items():
            self._dispatcher.moved(platform, bot_id, old, today)
        if fresh:
            log.info("a chat has moved", extra={"platform": platform, "chat_id": new_chat_id})
        self._gate.changed()
        await self._gate.learn(platform, bot_id)

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        return await self._mailbox.moved_chats(platform, bot_id)

    async def lately(self, platform: str, bot_id: str) -> list[InboundMessage]:
        newest = await self._mailbox.newest_items(platform, bot_id, among=LATELY_ROWS)
        return [message_of(item.record) for item in newest]

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        return await self._mailbox.cursors(platform, bot_id)

    async def _pass_gate(self, message: InboundMessage) -> PlatformPolicy | None:
        """The policy that lets this in, or None."""
        await self._gate.learn(message.platform, message.bot_id)
        verdict = self._gate.decide(message)
        if verdict.allowed:
            return self._gate.policy(message.platform)
        log.debug(  # with the ids that somebody who fills in the access lists is looking for
            "message refused",
            extra={
                "platform": message.platform,
                "ground": verdict.ground.value,
                "sender_id": message.sender_id,
                "chat_id": message.chat_id,
            },
        )
        return None

    async def _leads_here(self, platform: str, bot_id: str, chat_id: str) -> bool:
        """Is a chat's move of any interest? What happens among strangers leaves no trace."""
        if self._gate.allows_chat(platform, bot_id, chat_id):
            return True
        return await self._mailbox.knows_chat(platform, bot_id, chat_id)

    def _record(self, message: InboundMessage, policy: PlatformPolicy, kind: str) -> InboxRecord:
        return record_of(
            readable_message(message),
            kind=kind,
            group_sessions_per_user=policy.group_sessions_per_user,
            now=self._clock.now(),
        )

    async def _take(self, record: InboxRecord, cursor: Cursor | None) -> None:
        refusal = self._refusal(record)
        if refusal is not None:
            record = refused(record, refusal, REFUSED_TEXT_CHARS)
        # One at a time per conversation, so that the lane has the order of the rows.
        async with self._order.hold(record.session_key):
            receipt = await self._mailbox.accept(record, cursor)
            if cursor is not None:
                self._remember(cursor)
            if not receipt.fresh and not await self._is_stranded(receipt.inbox_id):
                return
            record = receipt.record
            item = InboxItem(receipt.inbox_id, record, "new")
            if refusal is None and self._is_full(record):
                await self._refuse_full(item)
            elif refusal is not None:
                await self._answer(item, refusal)
            else:
                self._told_full.discard(record.session_key)
                self._dispatcher.submit(item)

    def reconfigure(self, *, queue_limit: int) -> None:
        """Another length of the queues, for messages from now on."""
        self._limits = replace(self._limits, queue_limit=queue_limit)

    def _refusal(self, record: InboxRecord) -> str | None:
        """Why this message is not taken, in words; None: it is."""
        if is_blank(record.text) and not record.payload.get("attachments"):
            return texts.NOTHING_TO_READ
        return too_large(record.text, self._limits)

    def _is_full(self, record: InboxRecord) -> bool:
        if not self._dispatcher.queues(record):
            return False  # /stop is the way out of a full queue
        limit, key = self._limits.queue_limit, record.session_key
        # Told once, then nothing until half of it is answered. Taking the next one for each that is
        # answered would be a refusal beside each answer, and a talk with every second message.
        return self._dispatcher.waiting(key) >= (limit if key not in self._told_full else limit / 2)

    async def _refuse_full(self, item: InboxItem) -> None:
        key = item.record.session_key
        told = key in self._told_full
        level = logging.DEBUG if told else logging.WARNING
        log.log(level, "queue is full", extra={"inbox_id": item.id})
        # What came by an interaction waits for an answer of its own.
        if told and not item.record.payload.get("interaction"):
            await self._mailbox.answer_inbox([item.id])
            return
        await self._answer(item, texts.queue_full(self._limits.queue_limit))
        self._told_full.add(key)

    async def _answer(self, item: InboxItem, text: str) -> None:
        draft = answer_to(item.record, text, "notice")
        self._hand_over(await self._mailbox.answer_inbox([item.id], [draft]))

    async def _is_stranded(self, inbox_id: int) -> bool:
        """Stored by a try whose outcome nobody learned, and so in no lane?"""
        if self._dispatcher.holds(inbox_id):
            return False
        return any(item.state == "new" for item in await self._mailbox.inbox_items([inbox_id]))

    # cursors

    async def _pass_by(self, cursor: Cursor | None) -> None:
        if cursor is not None:
            await self._mailbox.set_cursor(cursor)
            self._remember(cursor)

    async def _pass_by_stranger(self, cursor: Cursor | None) -> None:
        """Move on in a channel that is known anyway; strangers leave no trace in any other."""
        if cursor is None:
            return
        bot = (cursor.platform, cursor.bot_id)
        if bot not in self._known_channels:
            self._known_channels[bot] = set(await self._mailbox.cursors(*bot))
        if cursor.channel_id in self._known_channels[bot]:
            await self._mailbox.set_cursor(cursor)

    def _remember(self, cursor: Cursor) -> None:
        channels = self._known_channels.get((cursor.platform, cursor.bot_id))
        if channels is not None:
            channels.add(cursor.channel_id)


def _is_of_no_interest(
    message: InboundMessage, policy: PlatformPolicy, command: Command | None
) -> bool:
    """Allowed, but not meant for the bot."""
    if _is_from_a_bot(message):
        return True
    if message.addressed:
        return False
    if command is not None and command.bot is not None:
        return True  # another bot's command
    if is_blank(message.text):
        return True  # a picture among friends is no question
    return message.chat_kind == "group" and policy.require_mention


def _command_in(message: InboundMessage) -> Command | None:
    """What this message orders. Somebody else's words, passed on, are no order."""
    return None if message.forwarded_from is not None else parse_command(message.text)


def _is_from_a_bot(message: InboundMessage) -> bool:
    """Bots that answer bots never stop."""
    return message.sender_is_bot or message.sender_id == message.bot_id
