"""Owns where an accepted row goes: a turn or command in its lane, or a command at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.errors import StoreUnavailable
from agent.mail import InboxItem, InboxRecord, OutboxDraft
from agent.ports import Clock
from agent.sessions import InterruptedTurn
from gateway import texts
from gateway.commands import registry
from gateway.commands.contract import Answer, AskAgain, Call, Command, CommandHost, Settled
from gateway.delivery.outbox import Delivery
from gateway.intake.commands import parse_command
from gateway.intake.gate import Gate
from gateway.intake.records import COMMAND, is_shared, message_of
from gateway.lanes.lanes import Job, Lanes
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.tasks import (
    Completed,
    Stopped,
    StopReason,
    StopSignal,
    TaskOwner,
    run_stoppable,
)
from gateway.turns.runner import TurnRunner
from gateway.turns.settling import Settling

log = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 0.7
_LEAVING = ("exit", "quit")
"""What people type to leave a program; on the console nothing but the end of input does."""


class Dispatch:
    """The `gateway.intake.intake.Dispatcher`: lanes, turns and commands put together."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        turns: TurnRunner,
        settling: Settling,
        delivery: Delivery,
        host: CommandHost,
        gate: Gate,
        clock: Clock,
    ) -> None:
        self._lanes = lanes
        self._turns = turns
        self._settling = settling
        self._delivery = delivery
        self._host = host
        self._gate = gate
        self._clock = clock
        self._held: dict[int, str] = {}
        """Row → session key, of everything that is waiting or at work here."""
        self._at_once = TaskOwner(clock)
        self._going_down = StopSignal()

    # the port of the intake

    def submit(self, item: InboxItem) -> None:
        key = self._held[item.id] = item.record.session_key
        if item.record.kind != COMMAND:
            self._lanes.put(key, self._job(item, lambda stop: self._turns.run(item, stop)))
            return
        if self.queues(item.record):
            self._lanes.put(key, self._job(item, lambda stop: self._command(item, stop)))
            return
        command = _command_of(item.record)
        # A stop hits what runs now: here, before anything can be awaited.
        over = self._lanes.stop(key) if command is not None and command.name == "stop" else None
        self._at_once.spawn(
            self._release(item, self._command(item, self._going_down, over)), name="command"
        )

    def queues(self, record: InboxRecord) -> bool:
        command = _command_of(record) if record.kind == COMMAND else None
        return record.kind != COMMAND or (command is not None and command.place == "in order")

    def holds(self, inbox_id: int) -> bool:
        return inbox_id in self._held

    def waiting(self, session_key: str) -> int:
        return self._lanes.waiting(session_key)

    # the rest

    def at_work(self, session_key: str) -> bool:
        """Is anything of this conversation waiting or being worked on?"""
        return session_key in self._held.values()

    def resume(self, turn: InterruptedTurn, item: InboxItem) -> None:
        """Put a turn that was cut off into its lane: at start-up, before anything else."""
        self._held[item.id] = turn.session_key
        job = self._job(item, lambda stop: self._turns.resume(turn, item, stop))
        self._lanes.put(turn.session_key, job)

    async def idle(self, seconds: float) -> bool:
        """Wait until no turn and no command is left; False if that took too long."""
        deadline = self._clock.monotonic() + seconds
        while len(self._lanes) or len(self._at_once):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            if not await self._lanes.idle(left) or not await self._at_once.wait(left):
                return False
        return True

    async def close(self, seconds: float) -> None:
        """End the commands that are at work; the lanes have their own drain."""
        if not await self._at_once.wait(seconds):
            self._going_down.request(StopReason.SHUTDOWN)
            await self._at_once.cancel(1.0)

    def _job(self, item: InboxItem, run: Callable[[StopSignal], Awaitable[None]]) -> Job:
        return Job(lambda stop: self._release(item, run(stop)), f"{item.record.kind} {item.id}")

    async def _release(self, item: InboxItem, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            self._held.pop(item.id, None)

    async def _command(
        self, item: InboxItem, stop: StopSignal, over: asyncio.Future[None] | None = None
    ) -> None:
        answer = await self._answer(item, stop, over)
        match answer:
            case AskAgain():
                await self._turns.retry(item, stop)
            case Settled(owed):
                self._delivery.hand_over(owed)
            case str():
                draft = OutboxDraft(item.record.address, answer, "command")
                await self._settling.answer(item, draft, stop)
            case None:
                return  # the row stays new: the command runs again at the next start

    async def _answer(
        self, item: InboxItem, stop: StopSignal, over: asyncio.Future[None] | None
    ) -> Answer | None:
        """The command's answer; None: the daemon goes down, nothing was done."""
        asked = parse_command(item.record.text)
        if asked is None:
            return texts.COMMAND_FAILED
        command = registry.find(asked.name)
        if command is None and asked.name in _LEAVING and item.record.address.platform == CONSOLE:
            return texts.LEAVE_THE_CONSOLE
        if command is None:
            return texts.unknown_command(asked.name, registry.near(asked.name))
        verdict = self._gate.decide(message_of(item.record))
        shared = is_shared(item.record)
        if command.admin_only and not verdict.admin:
            return texts.ADMINS_ONLY
        if command.admin_if_shared and shared and not verdict.admin:
            return texts.ADMIN_ONLY
        call = Call(item.record, asked.argument, verdict.admin, shared, over, item.id)
        try:
            outcome = await self._run(command, call, stop)
        except StoreUnavailable:
            log.warning("command found no store", extra={"command": command.name}, exc_info=True)
            return texts.COMMAND_FAILED if command.place == "at once" else texts.COMMAND_IN_DOUBT
        except Exception:  # the supervised border of a command: the user is told
            log.exception("command failed", extra={"command": command.name})
            return texts.COMMAND_FAILED
        log.info("command", extra={"command": command.name, "inbox_id": item.id})
        if isinstance(outcome, Completed):
            return outcome.value
        return texts.COMMAND_STOPPED if outcome.reason is StopReason.USER else None

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


def _command_of(record: InboxRecord) -> Command | None:
    asked = parse_command(record.text)
    return registry.find(asked.name) if asked is not None else None


async def _as_coroutine(answer: Awaitable[Answer]) -> Answer:
    return await answer
