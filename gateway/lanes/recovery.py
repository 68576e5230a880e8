"""Owns the order of a start: interrupted turns first, then the messages that came meanwhile."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.mail import InboxItem, OutboxKind
from agent.mail_ports import Mailbox
from agent.ports import Clock
from agent.sessions import InterruptedTurn
from agent.store_ports import SessionStore
from gateway import __version__, texts
from gateway.commands import registry
from gateway.delivery.outbox import Delivery
from gateway.intake.commands import parse_command
from gateway.intake.gate import Gate
from gateway.intake.records import COMMAND, answer_to, message_of, refusal_of
from gateway.lanes.dispatch import Dispatch
from gateway.turns.runner import TurnRunner

log = logging.getLogger(__name__)

RESUME_WITHIN_SECONDS = 3600.0


class Fate(StrEnum):
    """What becomes of a turn that was cut off."""

    RESUME = "resume"
    TOO_OLD = "too old"
    PLATFORM_OFF = "left for later: its platform is off"
    NOT_ALLOWED = "owner not allowed any more"
    STOPPED = "stopped by its owner"
    NO_MESSAGE = "its message is gone"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a start found."""

    owed: int
    resumed: int
    abandoned: int
    replayed: int
    refused: int


def fate_of(
    turn: InterruptedTurn,
    items: Sequence[InboxItem],
    gate: Gate,
    stop_id: int | None,
    now: float,
) -> Fate:
    """Decide about one turn (pure). ``stop_id``: the unanswered /stop row that was meant for it."""
    if not items:
        return Fate.NO_MESSAGE
    if any(_is_off(item, gate) for item in items):
        return Fate.PLATFORM_OFF
    if not all(_allowed(item, gate) for item in items):
        return Fate.NOT_ALLOWED
    if stop_id is not None:
        return Fate.STOPPED
    # A start that lies far ahead means that the clock was set back: its age is unknown.
    if abs(now - turn.started_at) > RESUME_WITHIN_SECONDS:
        return Fate.TOO_OLD
    return Fate.RESUME


class Recovery:
    """Takes up what the last run left. Run once, before any platform hands in a message."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        mailbox: Mailbox,
        turns: TurnRunner,
        dispatch: Dispatch,
        delivery: Delivery,
        gate: Gate,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._mailbox = mailbox
        self._turns = turns
        self._dispatch = dispatch
        self._delivery = delivery
        self._gate = gate
        self._clock = clock

    async def run(self) -> RecoveryReport:
        """Owed answers go out first; lanes get resumed turns, then stored messages, in order."""
        with self._dispatch.replaying():
            return await self._run()

    async def _run(self) -> RecoveryReport:
        interrupted = await self._sessions.recover_turns()
        owed = await self._delivery.start()
        waiting = await self._mailbox.open_inbox()
        cut_off = await self._mailbox.inbox_items(
            [n for turn in interrupted for n in turn.inbox_ids]
        )
        addresses = [item.record.address for item in (*waiting, *cut_off)]
        await self._gate.learn_all((a.platform, a.bot_id) for a in addresses)
        stops = _stops(waiting, self._gate)
        settled: set[int] = set()
        resumed = 0
        for turn in interrupted:
            items = await self._mailbox.inbox_items(turn.inbox_ids)
            newest = max(turn.inbox_ids, default=0)
            asked = stops.get(turn.session_key, [])
            stop_id = next((n for n in asked if n > newest), None)
            # What an older one was meant for is over: it must not hit the turn that came after it.
            settled.update(n for n in asked if n < newest)
            fate = fate_of(turn, items, self._gate, stop_id, self._clock.now())
            log.info("interrupted turn", extra={"turn_id": turn.ticket.turn_id, "fate": fate.value})
            if fate is Fate.RESUME:
                self._dispatch.resume(turn, items)
                resumed += 1
                continue
            if fate is not Fate.PLATFORM_OFF:
                await self._abandon(turn, items, fate)
            if fate is Fate.STOPPED and stop_id is not None:
                settled.update(_same_stop(stop_id, asked, turn.session_key, waiting))
        refused = left = 0
        for item in waiting:
            if _is_off(item, self._gate):
                left += 1
            elif not _allowed(item, self._gate):
                refused += 1
                await self._mailbox.answer_inbox([item.id])
            elif _is_command(item, "restart") and self._gate.decide(message_of(item.record)).admin:
                # This start is what it asks for: whatever brought it here, it can not go round.
                await self._mailbox.await_restart(item.id)
            elif item.id in settled:
                await self._answer(item, texts.STOPPED, "command")
            elif (refusal := refusal_of(item.record)) is not None:
                await self._answer(item, refusal, "notice")
            else:
                self._dispatch.replay(item)
        news = texts.restarted(__version__, resumed)
        self._delivery.hand_over(await self._mailbox.say_restarted(news))
        report = RecoveryReport(
            owed, resumed, len(interrupted) - resumed, len(waiting) - refused - left, refused
        )
        log.info(
            "recovered",
            extra={
                "owed": report.owed,
                "resumed": report.resumed,
                "abandoned": report.abandoned,
                "replayed": report.replayed,
                "refused": report.refused,
            },
        )
        return report

    async def _answer(self, item: InboxItem, text: str, kind: OutboxKind) -> None:
        draft = answer_to(item.record, text, kind)
        self._delivery.hand_over(await self._mailbox.answer_inbox([item.id], [draft]))

    async def _abandon(self, turn: InterruptedTurn, items: Sequence[InboxItem], fate: Fate) -> None:
        address = items[-1].record.address if items else None
        if fate is Fate.TOO_OLD:
            await self._turns.abandon(turn, address, "failed", texts.TOO_OLD_TO_RESUME)
        else:
            await self._turns.abandon(
                turn, address, "stopped" if fate is Fate.STOPPED else "failed", None
            )


def _allowed(item: InboxItem, gate: Gate) -> bool:
    return gate.decide(message_of(item.record)).allowed


def _is_off(item: InboxItem, gate: Gate) -> bool:
    """A platform that is switched off keeps what it brought, until it is back."""
    return gate.policy(item.record.address.platform) is None


def _stops(waiting: Sequence[InboxItem], gate: Gate) -> Mapping[str, Sequence[int]]:
    """The unanswered /stop rows by session key, oldest first."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for item in waiting:
        if _is_command(item, "stop") and _allowed(item, gate):
            found[item.record.session_key].append(item.id)
    return found


def _same_stop(
    stop_id: int, asked: Sequence[int], key: str, waiting: Sequence[InboxItem]
) -> Sequence[int]:
    """This /stop and those said again because nothing came of it: they hit no later message."""
    said = (i.id for i in waiting if i.record.session_key == key and i.record.kind != COMMAND)
    until = min((n for n in said if n > stop_id), default=None)
    return [n for n in asked if n >= stop_id and (until is None or n < until)]


def _is_command(item: InboxItem, name: str) -> bool:
    if item.record.kind != COMMAND:
        return False
    asked = parse_command(item.record.text)
    command = registry.find(asked.name) if asked is not None else None
    return command is not None and command.name == name
