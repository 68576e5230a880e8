"""Owns the way of one command: may its sender give it, what comes of it, its row answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial

from agent.errors import StoreError, StoreUnavailable
from agent.mail import InboxItem, InboxRecord
from agent.ports import Clock
from agent.sessions import Conversation
from gateway import texts
from gateway.commands import registry
from gateway.commands.contract import Answer, AskAgain, Call, Command, CommandHost, Said, Settled
from gateway.delivery.outbox import Delivery
from gateway.intake.command_rules import may_give
from gateway.intake.commands import parse_command
from gateway.intake.gate import Gate
from gateway.intake.records import answer_to, is_shared, message_of
from gateway.logs.work import about
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.contract import InboundMessage
from gateway.tasks import Completed, Stopped, StopReason, StopSignal, run_stoppable
from gateway.turns.settling import Settling

log = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 0.7
_LEAVING = ("exit", "quit")
"""What people type to leave a program; on the console nothing but the end of input does."""


class Commanding:
    """Runs commands, one per call."""

    def __init__(
        self, host: CommandHost, gate: Gate, settling: Settling, delivery: Delivery, clock: Clock
    ) -> None:
        self._host = host
        self._gate = gate
        self._settling = settling
        self._delivery = delivery
        self._clock = clock

    async def run(
        self, item: InboxItem, stop: StopSignal, over: asyncio.Future[None] | None = None
    ) -> AskAgain | None:
        """Do it, and answer its row, unless the row is to become a turn.

        ``over``: for /stop; done when what was running has ended, None if nothing was.
        """
        answer = await self._answer(item, stop, over)
        match answer:
            case AskAgain():
                return answer
            case Settled(owed):
                self._delivery.hand_over(owed)
            case str():
                draft = answer_to(item.record, answer, "command")
                await self._settling.answer([item], draft, stop)
            case Said(text, buttons, decides, aside):
                draft = answer_to(item.record, text, "command")
                draft = replace(draft, buttons=buttons, decides=decides, aside=aside)
                await self._settling.answer([item], draft, stop)
            case None:
                pass  # if the row is still new, the command runs again at the next start
        return None

    async def _answer(
        self, item: InboxItem, stop: StopSignal, over: asyncio.Future[None] | None
    ) -> Answer | None:
        """The command's answer; None: the daemon goes down, or the sender has been shut out."""
        asked = parse_command(item.record.text)
        if asked is None:
            return texts.COMMAND_FAILED
        foreign = self._host.foreign
        command = registry.find(asked.name, foreign)
        if command is None and asked.name in _LEAVING and item.record.address.platform == CONSOLE:
            return texts.LEAVE_THE_CONSOLE
        message = message_of(item.record)
        if command is None:
            others = [name for name in foreign if self._may_give(name, message, item, admin=False)]
            return texts.unknown_command(asked.name, registry.near(asked.name, others))
        verdict = await self._gate.decide_again(message)
        if not verdict.allowed:
            await self._settling.dismiss([item], stop)
            return None
        shared = is_shared(item.record)
        may = partial(self._may_give, message=message, item=item, admin=verdict.admin)
        if command.plugin and not may(command.name):
            return texts.NOT_YOUR_COMMAND
        if command.admin_only and not verdict.admin:
            return texts.ADMINS_ONLY
        if command.admin_if_shared and shared and not verdict.admin:
            return texts.ADMIN_ONLY
        call = Call(item.record, asked.argument, verdict.admin, shared, over, item.id, may)
        conversation = await self._conversation(call)
        with about(**({"conversation_id": conversation.id} if conversation is not None else {})):
            return await self._outcome(command, call, stop, conversation)

    async def _conversation(self, call: Call) -> Conversation | None:
        """In which the command is given, for the log."""
        try:
            return await self._host.sessions.conversation_for_key(call.key)
        except StoreError:
            return None  # what the command itself meets there, it says

    async def _outcome(
        self, command: Command, call: Call, stop: StopSignal, conversation: Conversation | None
    ) -> Answer | None:
        try:
            outcome = await self._run(command, call, stop)
        except StoreUnavailable:
            log.warning("command found no store", extra={"command": command.name}, exc_info=True)
            return texts.COMMAND_FAILED if command.place == "at once" else texts.COMMAND_IN_DOUBT
        except Exception:  # the supervised border of a command: the user is told
            log.exception("command failed", extra={"command": command.name})
            return texts.COMMAND_FAILED
        log.info(
            "command",
            extra={
                "command": command.name,
                "inbox_id": call.inbox_id,
                "platform": call.record.address.platform,
                **({"session_id": conversation.tip_session_id} if conversation is not None else {}),
            },
        )
        if isinstance(outcome, Completed):
            return outcome.value
        return texts.COMMAND_STOPPED if outcome.reason is StopReason.USER else None

    def _may_give(
        self, name: str, message: InboundMessage, item: InboxItem, *, admin: bool
    ) -> bool:
        """Is this command of a plugin for whoever sent this?"""
        policy = self._gate.policy(message.platform)
        return policy is not None and may_give(
            policy.commands,
            name,
            message.sender_id,
            direct=message.chat_kind == "direct",
            shared=is_shared(item.record),
            admin=admin,
        )

    async def _run(
        self, command: Command, call: Call, stop: StopSignal
    ) -> Completed[Answer] | Stopped:
        if not command.stoppable:
            return Completed(await command.run(self._host, call))
        return await run_stoppable(
            lambda: _as_coroutine(command.run(self._host, call)),
            stop,
            self._clock,
            name=f"/{command.name}",
            grace_seconds=STOP_GRACE_SECONDS,
        )


def command_of(record: InboxRecord, foreign: Mapping[str, Command]) -> Command | None:
    """The command that this row is; None: there is none of that name."""
    asked = parse_command(record.text)
    return registry.find(asked.name, foreign) if asked is not None else None


async def _as_coroutine(answer: Awaitable[Answer]) -> Answer:
    return await answer
