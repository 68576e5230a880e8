"""Owns where an accepted row goes: a turn or command in its lane, or a command at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from agent.mail import InboxItem, InboxRecord, OutboxDraft
from agent.mail_ports import Mailbox
from agent.ports import Clock, Steering
from agent.sessions import InterruptedTurn, key_in, place_of
from gateway import texts
from gateway.commands.contract import CommandHost
from gateway.delivery.outbox import Delivery
from gateway.intake.gate import Gate
from gateway.intake.intake import IntakeLimits, too_large
from gateway.intake.records import COMMAND, message_of
from gateway.lanes import joining
from gateway.lanes.commanding import Commanding, command_of
from gateway.lanes.jobs import BusyMode, Job
from gateway.lanes.lanes import Lanes
from gateway.lanes.overdue import bounded
from gateway.lanes.receipts import Receipts
from gateway.lanes.steering import LaneSteering, may_join
from gateway.tasks import StopReason, StopSignal, TaskOwner, wait_all
from gateway.turns.rereading import as_they_are
from gateway.turns.runner import TurnRunner
from gateway.turns.settling import Settling

GATHER_SECONDS = 1.0
"""What may go on waits so long for its next piece."""
LONGEST_GATHER_SECONDS = 5.0
"""And not longer than this for all of them."""
STOP_SEEN_SECONDS = 0.4
"""A stop is answered after this, whether what ran has come to its end or not."""


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
        mailbox: Mailbox,
        clock: Clock,
        busy_mode: Callable[[], BusyMode] = lambda: "queue",
        limits: IntakeLimits | None = None,
    ) -> None:
        """``limits``: what may be said at once, also in several pieces."""
        self._lanes = lanes
        self._turns = turns
        self._settling = settling
        self._delivery = delivery
        self._host = host
        self._gate = gate
        self._commands = Commanding(host, gate, settling, delivery, clock)
        self._mailbox = mailbox
        self._clock = clock
        self._busy_mode = busy_mode
        self._limits = limits or IntakeLimits()
        self._receipts = Receipts(
            lanes, delivery.say_now, clock, goes_in=self._goes_in, asks=self._asks
        )
        self._early: dict[int, InboxItem] | None = None
        """What came while the rows of the run before are still being put into their lanes."""
        self._heirs: dict[tuple[str, str, str], str] = {}
        """Platform, bot, chat → the id that this chat has got while we run."""
        self._held: dict[int, str] = {}
        """Row → session key, of everything that is waiting or at work here."""
        self._at_once = TaskOwner(clock)
        self._going_down = StopSignal()

    # the port of the intake

    def submit(self, item: InboxItem) -> None:
        self._delivery.heard(item.record.address)
        if self._early is not None:
            self._early[item.id] = item
        else:
            self._take(item, live=True)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """While the block runs, what is submitted waits: what was here before comes before it."""
        self._early = {}
        try:
            yield
        finally:
            early, self._early = self._early, None
            for _, item in sorted(early.items()):
                self._take(item, live=True)

    def replay(self, item: InboxItem) -> None:
        """Take over a row that waited already when we were started: in its place, without a word.

        It interrupts nothing: what it would have interrupted was cut off in another way.
        """
        self._take(item, live=False)

    def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        """A chat has got another id, and what waits under the old one waits under the new one."""
        self._heirs[platform, bot_id, old_chat_id] = new_chat_id
        if self._host.approvals is not None:
            self._host.approvals.moved(platform, bot_id, old_chat_id, new_chat_id)
        for key in self._lanes.open_keys():
            today = self._key_of_today(key)
            if today != key:
                self._lanes.merge(key, today)
                self._receipts.moved(key, today)
        self._held = {row: self._key_of_today(key) for row, key in self._held.items()}

    def queues(self, record: InboxRecord) -> bool:
        command = command_of(record, self._host.foreign) if record.kind == COMMAND else None
        return record.kind != COMMAND or (command is not None and command.place == "in order")

    def holds(self, inbox_id: int) -> bool:
        return inbox_id in self._held or inbox_id in (self._early or ())

    def waiting(self, session_key: str) -> int:
        return self._lanes.rows_waiting(session_key)

    # the rest

    def at_work(self, session_key: str) -> bool:
        """Is anything of this conversation waiting or being worked on?"""
        return session_key in self._held.values()

    def resume(self, turn: InterruptedTurn, items: Sequence[InboxItem]) -> None:
        """Put a turn that was cut off into its lane: at start-up, before anything else."""
        job = Job(
            lambda stop: self._resumed(turn, items, stop, job),
            f"turn {turn.ticket.turn_id}",
            list(items),
            "turn",
        )
        self._put(turn.session_key, job)

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
        await self._receipts.close(1.0)
        if not await self._at_once.wait(seconds):
            self._going_down.request(StopReason.SHUTDOWN)
            await self._at_once.cancel(1.0)

    # into a lane

    def _take(self, item: InboxItem, *, live: bool) -> None:
        if item.id in self._held:
            return  # it came again, while it waits
        key = self._key_of_today(item.record.session_key)
        if not self.queues(item.record):
            self._at_once_done(key, item)
            return
        if item.record.kind == COMMAND:
            job = Job(
                lambda stop: self._command(job, item, stop), f"command {item.id}", [item], "command"
            )
        elif self._joins(key, item):
            return
        else:
            job = Job(lambda stop: self._turn(job, stop), f"message {item.id}", [item])
            self._wait_for_more(job)
        running = self._lanes.running(key)
        self._put(key, job)
        job.told = not live
        if not live:
            return
        if running is not None and self._interrupts(running.job, job):
            running.stop.give_way()
        if running is not None or self._lanes.held:
            self._receipts.queued(key, job)

    def _interrupts(self, running: Job, job: Job) -> bool:
        return self._busy_mode() == "interrupt" and may_join(running, job, with_files=True)

    def _put(self, key: str, job: Job) -> None:
        self._held.update((item.id, key) for item in job.items)
        run = job.run
        job.run = lambda stop: self._release(job, run(stop))
        self._lanes.put(key, job)

    def _joins(self, key: str, item: InboxItem) -> bool:
        """Is it a piece of a message that waits? Then it is in there now."""
        owner = item.record.owner
        theirs = (j for j in self._lanes.unbegun(key) if j.items[-1].record.owner == owner)
        job = next(theirs, None)
        if job is None or job.closed or job.kind != "message":
            return False
        if not joining.continues(job.items, item):
            return False
        self._held[item.id] = key
        job.items.append(item)
        self._wait_for_more(job)
        self._lanes.wake(key)
        return True

    def _wait_for_more(self, job: Job) -> None:
        now = self._clock.monotonic()
        first_at = job.put_at or now
        job.ready_at = (
            min(now + GATHER_SECONDS, first_at + LONGEST_GATHER_SECONDS)
            if joining.may_go_on(job.items)
            else now
        )

    def _key_of_today(self, key: str) -> str:
        place = place_of(key) if self._heirs else None
        heir = self._heirs.get(place[:3]) if place is not None else None
        return key if heir is None else key_in(key, heir)

    def _goes_in(self, key: str) -> bool:
        """Will all that waits in this lane be taken into what runs there?"""
        running = self._lanes.running(key)
        if self._busy_mode() != "steer" or running is None:
            return False
        return all(may_join(running.job, job) for job in self._lanes.behind(key))

    def _asks(self, key: str) -> bool:
        return self._host.approvals is not None and self._host.approvals.is_asking(key)

    async def _release(self, job: Job, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            for item in job.items:
                self._held.pop(item.id, None)

    # out of it

    async def _turn(self, job: Job, stop: StopSignal) -> None:
        items = await as_they_are(self._mailbox, job.items) if job.waited else tuple(job.items)
        shut_out = [item for item in items if not await self._is_allowed(item)]
        if shut_out:
            await self._settling.dismiss(shut_out, stop)
        items = [item for item in items if item not in shut_out]
        if not items:
            return  # answered in another way meanwhile
        refusal = too_large(joining.joined_text(items), self._limits)
        if refusal is None:
            async with bounded(items, stop, self._clock):
                await self._turns.run(items, stop, self._steering(job))
            return
        text = refusal if len(items) == 1 else f"{refusal} {texts.JOINED_TOO_LONG}"
        draft = OutboxDraft(items[-1].record.address, text, "notice")
        await self._settling.answer(items, draft, stop)

    async def _resumed(
        self, turn: InterruptedTurn, items: Sequence[InboxItem], stop: StopSignal, job: Job
    ) -> None:
        async with bounded(items, stop, self._clock):
            await self._turns.resume(turn, items, stop, self._steering(job))

    async def _is_allowed(self, item: InboxItem) -> bool:
        return (await self._gate.decide_again(message_of(item.record))).allowed

    def _steering(self, job: Job) -> Steering | None:
        if self._busy_mode() != "steer":
            return None
        return LaneSteering(
            lanes=self._lanes,
            job=job,
            store=self._host.sessions,
            clock=self._clock,
            reread=partial(as_they_are, self._mailbox),
            may_go_in=self._may_go_in,
        )

    async def _may_go_in(self, items: Sequence[InboxItem]) -> bool:
        """Would it be taken as a turn? If not, that is said there."""
        if too_large(joining.joined_text(items), self._limits) is not None:
            return False
        for item in items:
            if not await self._is_allowed(item):
                return False
        return await self._host.accounts.may_prepare(items[-1].record.owner)

    # commands

    def _at_once_done(self, key: str, item: InboxItem) -> None:
        self._held[item.id] = key
        command = command_of(item.record, self._host.foreign)
        # A stop hits what runs now: here, before anything can be awaited.
        over = self._lanes.stop(key) if command is not None and command.name == "stop" else None
        job = Job(
            lambda stop: self._command(job, item, stop, over),
            f"command {item.id}",
            [item],
            "command",
        )
        self._at_once.spawn(self._release(job, job.run(self._going_down)), name="command")

    async def _command(
        self,
        job: Job,
        item: InboxItem,
        stop: StopSignal,
        over: asyncio.Future[None] | None = None,
    ) -> None:
        if over is not None:
            # What runs is cut off; that it tidies up for a while (a preview's call hangs) is no
            # reason to let a person wait who wants to see that the stop was heard.
            await wait_all((over,), self._clock, STOP_SEEN_SECONDS)
        if await self._commands.run(item, stop, over) is not None:
            job.kind = "turn"
            await self._turns.retry(item, stop, self._steering(job))
