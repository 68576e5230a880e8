"""Owns the composition of the ways in and out, and of the turns between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from agent.mail import Address
from agent.ports import Clock, Usage
from agent.sessions import session_key
from gateway.approvals import ApprovalDesk
from gateway.commands.contract import CommandHost
from gateway.delivery.outbox import Delivery
from gateway.delivery.tries import DeliverySettings
from gateway.forgetting.desk import ForgettingDesk
from gateway.hygiene import HygieneNet
from gateway.intake.access import PlatformPolicy
from gateway.intake.gate import Gate
from gateway.intake.intake import GatewayIntake, IntakeLimits
from gateway.intake.pairing import PairingDesk
from gateway.lanes.dispatch import Dispatch
from gateway.lanes.lanes import Lanes
from gateway.lanes.recovery import Recovery
from gateway.monitoring.self_report import SelfReport
from gateway.monitoring.turn_board import PastTurn
from gateway.platforms.console.adapter import ConsolePlatform
from gateway.platforms.console.convert import BOT_ID, CHAT_ID, USER_ID
from gateway.platforms.console.convert import PLATFORM as CONSOLE
from gateway.platforms.contract import Platform
from gateway.restarting import RestartDesk
from gateway.turns.companions import Companions
from gateway.turns.enclosures import Enclosures
from gateway.turns.resetting import SessionResets
from gateway.turns.runner import TurnRunner
from gateway.turns.settling import Ending, Settling
from gateway.turns.task import Task
from gateway.wiring.answering import Answering, Background, Books, build_loop
from gateway.wiring.ground import Ground

IDLE_CHECK_SECONDS = 0.05
CONSOLE_KEY = session_key(CONSOLE, BOT_ID, CHAT_ID, None, USER_ID)
CONSOLE_ADDRESS = Address(CONSOLE, BOT_ID, CHAT_ID)

Erasing = Callable[[Ground, Lanes, Delivery, Answering], ForgettingDesk]
"""Makes the desk where people ask to be forgotten."""


@dataclass(frozen=True, slots=True)
class Outward:
    """The ways out: to the chats, and to those who are asked before a tool acts."""

    delivery: Delivery
    approvals: ApprovalDesk


@dataclass(frozen=True, slots=True)
class Inward:
    """The way in, up to the turn."""

    gate: Gate
    lanes: Lanes
    dispatch: Dispatch
    intake: GatewayIntake
    forgetting: ForgettingDesk


def build_outward(
    ground: Ground, serving: Mapping[str, Platform], *, works: Callable[[str], bool]
) -> Outward:
    """``works``: does this platform work, as far as anybody knows?"""
    delivery = Delivery(
        mailbox=ground.store,
        platforms=serving,
        clock=ground.clock,
        settings=DeliverySettings(zone=lambda: ground.zone),
        awaited=lambda outbox_id: approvals.is_awaited(outbox_id),
        asks=lambda address: approvals.is_asking_in(address),
        stands=lambda outbox_id, message_id: approvals.stands(outbox_id, message_id),
        works=works,
    )
    approvals = ApprovalDesk(
        ground.store, delivery.hand_over, ground.clock, take_buttons=delivery.take_buttons
    )
    return Outward(delivery, approvals)


def build_turns(
    ground: Ground,
    answering: Answering,
    books: Books,
    background: Background,
    outward: Outward,
    enclosures: Enclosures,
    companions: Companions,
    resets: SessionResets,
) -> TurnRunner:
    """What carries one turn from its messages to its answer."""
    store, clock, streaming = ground.store, ground.clock, ground.config.gateway.streaming
    return TurnRunner(
        sessions=store,
        lineages=store,
        mailbox=store,
        loop=build_loop(ground, answering, books),
        hygiene=HygieneNet(store, ground.clock),
        compactors=answering.compactors,
        prefix_for=answering.prefix_for,
        delivery=outward.delivery,
        clock=ground.clock,
        ids=ground.ids,
        accounts=books.accounts,
        enclosures=enclosures,
        companions=companions,
        previews=outward.delivery.previews(store) if streaming else None,
        approver_for=outward.approvals.approver,
        resets=resets,
        on_over=background.ahead.turn_over,
        on_ended=partial(_turn_over, books, clock),
        shown_as_running=partial(_running, books),
        on_answered=background.micro.answered,
    )


def build_inward(
    ground: Ground,
    answering: Answering,
    books: Books,
    outward: Outward,
    turns: TurnRunner,
    policies: Mapping[str, PlatformPolicy],
    report: SelfReport,
    restarts: RestartDesk,
    resets: SessionResets,
    erasing: Erasing,
) -> Inward:
    """From the gate to the lanes; commands get at what they work on."""
    store, clock = ground.store, ground.clock
    delivery = outward.delivery
    lanes = Lanes(clock)
    forgetting = erasing(ground, lanes, delivery, answering)
    gate = Gate(policies, store, store)
    limits = IntakeLimits(
        queue_limit=ground.config.gateway.queue_limit,
        # One message must leave room for the rest: prompt, tools, what was said before.
        max_message_tokens=lambda: answering.factory.triggers().effective_tokens // 2,
    )
    dispatch = Dispatch(
        lanes=lanes,
        turns=turns,
        settling=Settling(store, store, delivery, clock),
        delivery=delivery,
        host=CommandHost(
            store,
            store,
            store,
            answering.compactors,
            answering.notes,
            answering.prefix_for,
            report,
            lanes.waiting,
            lanes.busy,
            books.accounts,
            lane=lanes.view,
            busy_mode=lambda: ground.now.gateway.busy_mode,
            restarts=restarts,
            approvals=outward.approvals,
            forgetting=forgetting,
            crossed=resets.crossed,
            jobs=answering.jobs,
            foreign=ground.plugins.gifts.commands if ground.plugins is not None else {},
            ask_anew=answering.ask_anew,
        ),
        gate=gate,
        mailbox=store,
        clock=clock,
        busy_mode=lambda: ground.now.gateway.busy_mode,
        limits=limits,
    )
    intake = GatewayIntake(
        mailbox=store,
        gate=gate,
        pairing=PairingDesk(gate, store, delivery.say_now, clock),
        dispatcher=dispatch,
        hand_over=delivery.hand_over,
        clock=clock,
        limits=limits,
    )
    return Inward(gate, lanes, dispatch, intake, forgetting)


def build_console(ground: Ground, inward: Inward, outward: Outward) -> ConsolePlatform:
    """One chat for all terminals; it ends a script when all of it is answered."""
    return ConsolePlatform(
        clock=ground.clock,
        ids=ground.ids,
        idle=partial(_console_idle, inward.dispatch, outward.delivery, ground.clock),
        on_attach=lambda: outward.delivery.nudge(CONSOLE),
        standard=ground.around.console,
    )


def build_recovery(ground: Ground, inward: Inward, outward: Outward, turns: TurnRunner) -> Recovery:
    """What a start does about the last run."""
    return Recovery(
        sessions=ground.store,
        mailbox=ground.store,
        turns=turns,
        dispatch=inward.dispatch,
        delivery=outward.delivery,
        gate=inward.gate,
        clock=ground.clock,
    )


async def _console_idle(dispatch: Dispatch, delivery: Delivery, clock: Clock) -> None:
    while dispatch.at_work(CONSOLE_KEY) or delivery.pending(CONSOLE_ADDRESS):
        await clock.sleep(IDLE_CHECK_SECONDS)


def _running(books: Books, task: Task) -> AbstractContextManager[None]:
    record, ticket = task.items[-1].record, task.ticket
    return books.board.shown(
        ticket.turn_id, ticket.conversation_id, record.session_key, record.address.platform
    )


def _turn_over(books: Books, clock: Clock, task: Task, ending: Ending, seconds: float) -> None:
    books.metrics.turn_ended(ending.outcome, seconds)
    result = ending.result
    total = result.total if result is not None else Usage()
    books.board.over(
        PastTurn(
            ended_at=clock.now(),
            platform=task.address.platform,
            conversation_id=task.ticket.conversation_id,
            outcome=ending.outcome,
            seconds=round(seconds, 3),
            requests=result.model_calls if result is not None else 0,
            tool_calls=result.tool_calls if result is not None else 0,
            compactions=result.compactions if result is not None else 0,
            prompt_tokens=total.prompt_tokens,
            cache_read_tokens=total.cache_read_tokens,
            output_tokens=total.output_tokens,
        )
    )
