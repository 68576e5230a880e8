"""Owns a whole gateway on a fake platform, a scripted loop and the store in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from agent.compaction.micro.progress import MicroSettings
from agent.loop import TurnResult
from agent.memory.desk import NoteDesk
from agent.messages import Draft, Message, text_of
from agent.model_metadata import IMAGE_TOKENS, TriggerRules, Triggers, triggers_for
from agent.ports import (
    CompactionDecision,
    CompactionResult,
    CompactionTrigger,
    Compactor,
    Steering,
    ToolContext,
    TurnObserver,
    Usage,
)
from agent.prices import price_table
from agent.prompt_caching import CacheTtl
from agent.sessions import LoadedSession, SessionPrefix, TurnTicket
from agent.turn_companions import TurnCompanion
from gateway.accounts import Accounts
from gateway.approvals import ApprovalDesk
from gateway.commands.contract import Command, CommandHost
from gateway.delivery.outbox import Delivery
from gateway.delivery.tries import DeliverySettings
from gateway.forgetting.desk import ForgettingDesk
from gateway.forgetting.leavings import Leavings
from gateway.intake.access import AccessRules, PlatformPolicy
from gateway.intake.gate import Gate
from gateway.intake.intake import GatewayIntake, IntakeLimits
from gateway.intake.pairing import PairingDesk
from gateway.jobs.desk import JobDesk
from gateway.lanes.dispatch import Dispatch
from gateway.lanes.lanes import Lanes
from gateway.lanes.recovery import Recovery
from gateway.lanes.resting import Rest
from gateway.restarting import RestartDesk
from gateway.turns.compactors import CompactorCache
from gateway.turns.companions import Companions
from gateway.turns.runner import TurnRunner
from gateway.turns.settling import Settling
from storage.memory import MemoryStore
from tests.fakes.clock import SequentialIds
from tests.fakes.platform import FakePlatform

Script = Callable[["ScriptedLoop", TurnTicket, LoadedSession, TurnObserver], Awaitable[Draft]]


def said(text: str) -> Draft:
    return Draft({"role": "assistant", "content": text})


@dataclass
class ScriptedLoop:
    """A `gateway.turns.runner.AgentLoop`: answers ``re: <text>`` unless a script says otherwise."""

    store: Any
    scripts: dict[str, Script] = field(default_factory=dict)
    seen: list[list[Message]] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    most_at_once: dict[str, int] = field(default_factory=dict)
    contexts: list[ToolContext] = field(default_factory=list)
    steering: dict[str, Steering | None] = field(default_factory=dict)
    """By turn: what the loop would ask between two steps."""
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=100))
    """Of each answer."""
    _began: asyncio.Event = field(default_factory=asyncio.Event)

    async def started(self, text: str) -> None:
        """Until the turn for this message has reached the loop."""
        while not any(m["content"] == text for seen in self.seen for m in seen[-1:]):
            self._began.clear()
            await self._began.wait()

    async def __call__(
        self,
        ticket: TurnTicket,
        loaded: LoadedSession,
        *,
        compactor: Compactor,
        context: ToolContext,
        observer: TurnObserver,
        steering: Steering | None = None,
    ) -> TurnResult:
        self.steering[ticket.turn_id] = steering
        conversation = ticket.conversation_id
        self._began.set()
        self.running[conversation] = self.running.get(conversation, 0) + 1
        self.most_at_once[conversation] = max(
            self.most_at_once.get(conversation, 0), self.running[conversation]
        )
        self.contexts.append(context)
        self.seen.append([row.message for row in loaded.rows])
        try:
            asked = text_of(
                next(r for r in reversed(loaded.rows) if r.message["role"] == "user").message[
                    "content"
                ]
            )
            script = self.scripts.get(asked, _echo)
            final = await script(self, ticket, loaded, observer)
        finally:
            self.running[conversation] -= 1
        text = text_of(final.message["content"])
        return TurnResult(loaded.session.id, final, text, self.usage, model_calls=1)


async def _echo(
    loop: ScriptedLoop, ticket: TurnTicket, loaded: LoadedSession, observer: TurnObserver
) -> Draft:
    await asyncio.sleep(0)
    user = next(r for r in reversed(loaded.rows) if r.message["role"] == "user")
    return said(f"re: {text_of(user.message['content'])}")


@dataclass
class FakeCompactor:
    """Compresses as it is told; ``gate`` holds it until it is set."""

    outcome: str = "compressed"
    reason: str = ""
    gate: asyncio.Event | None = None
    asked: list[tuple[CompactionTrigger, str | None]] = field(default_factory=list)

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        return CompactionDecision(False, tokens=1234, threshold_tokens=100_000)

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> CompactionResult:
        self.asked.append((trigger, focus))
        if self.gate is not None:
            await self.gate.wait()
        return CompactionResult(
            self.outcome,  # type: ignore[arg-type]
            loaded,
            tokens_before=5000,
            tokens_after=900,
            reason=self.reason,
        )

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        return messages

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage | None, *, notify: object = None
    ) -> LoadedSession:
        return loaded

    async def after_turn(self, *_: Any, **__: Any) -> None:
        pass

    def note_limit(self, limit_tokens: int) -> None:
        pass


class FakeStatus:
    micro_rules: MicroSettings | str = MicroSettings()

    def window_tokens(self) -> int | None:
        return 200_000

    def triggers(self) -> Triggers:
        return triggers_for(200_000, TriggerRules(), max_tokens=8_192)

    def cache(self) -> str:
        return "on, 5m (a test)"

    def cache_ttl(self) -> CacheTtl | None:
        return "5m"

    def summary_model(self) -> str | None:
        return None

    def micro(self) -> MicroSettings | str:
        return self.micro_rules

    def image_tokens(self, model: str) -> int:
        return IMAGE_TOKENS

    def platforms(self) -> Mapping[str, tuple[str, str]]:
        return {"fake": ("running", ""), "other": ("failed-config", "bad token")}

    def memory(self) -> str:
        return "borrowed (plugin x)"

    def engine(self) -> str:
        return "lossless (plugin lossless)"

    def remarks(self) -> list[str]:
        return ["something for operators"]


OPEN_TO_111 = PlatformPolicy(AccessRules(allow_from=frozenset({"111"}), admins=frozenset({"111"})))


class Rig:
    """Everything wired; `boot` again stands for a restart on the same store."""

    agent_loop: Any = None
    """A real one, in place of the script."""
    agent_hygiene: Any = None
    compactors: Any = None
    usd_per_user_day: float | None = None
    companions: Sequence[TurnCompanion] = ()
    """What rides along with turns."""
    busy_mode: Any = "queue"

    def __init__(
        self,
        clock: Any,
        *,
        policy: PlatformPolicy = OPEN_TO_111,
        limits: IntakeLimits | None = None,
        platform: FakePlatform | None = None,
        store: Any = None,
    ) -> None:
        self.clock = clock
        self.platform = platform or FakePlatform(now=clock.monotonic)
        self.turn_ids = SequentialIds()
        self.store: Any = store or MemoryStore(clock, self.turn_ids)
        self.loop = ScriptedLoop(self.store)
        self.compactor = FakeCompactor()
        self.prefix = SessionPrefix("fake", "model-1", "be kind")
        self.policies = {"fake": policy}
        self.limits = limits
        self.hygiene_calls: list[str] = []
        self.foreign: dict[str, Command] = {}
        """Commands of plugins; may grow."""
        self.asked_anew: list[float] = []
        """When a person wanted the model asked, whatever was refused before."""
        self.questions = itertools.count(300_001)
        self.boot()

    def boot(self) -> None:
        self.delivery = Delivery(
            mailbox=self.store,
            platforms={"fake": self.platform},
            clock=self.clock,
            settings=DeliverySettings(),
            jitter=lambda: 0.5,
            awaited=lambda outbox_id: self.approvals.is_awaited(outbox_id),
            asks=lambda address: self.approvals.is_asking_in(address),
            stands=lambda outbox_id, message_id: self.approvals.stands(outbox_id, message_id),
        )
        self.approvals = ApprovalDesk(
            self.store,
            self.delivery.hand_over,
            self.clock,
            take_buttons=self.delivery.take_buttons,
            draw=lambda: f"{next(self.questions):06}",
        )
        self.gate = Gate(self.policies, self.store, self.store)
        self.codes = itertools.count(1)
        self.pairing = PairingDesk(
            self.gate,
            self.store,
            self.delivery.say_now,
            self.clock,
            draw=lambda: f"CODE{next(self.codes):04}".replace("0", "Z"),
        )
        self.lanes = Lanes(self.clock)
        self.accounts = Accounts(
            self.store,
            clock=self.clock,
            zone=ZoneInfo("Europe/Berlin"),
            prices=price_table(),
            usd_per_user_day=self.usd_per_user_day,
        )
        if self.compactors is None:
            self.compactors = CompactorCache(lambda _: self.compactor)
        self.restarts = RestartDesk(self.store, possible=True)
        self.jobs = JobDesk(self.store, self.clock, zone=lambda: "Europe/Berlin")
        self.forgetting = ForgettingDesk(
            self.store,
            Leavings(backups=list, plugin_files=list),
            self.clock,
            lambda: ZoneInfo("Europe/Berlin"),
            lanes=Rest(self.lanes, self.clock),
            hand_over=self.delivery.hand_over,
            withdraw=self.delivery.withdraw,
        )
        riding = Companions(self.companions, self.store, self.prefix_for)
        self.turns = TurnRunner(
            sessions=self.store,
            lineages=self.store,
            mailbox=self.store,
            loop=self.agent_loop or self.loop,
            hygiene=self.agent_hygiene or self._hygiene,
            compactors=self.compactors,
            prefix_for=self.prefix_for,
            delivery=self.delivery,
            clock=self.clock,
            ids=self.turn_ids,
            accounts=self.accounts,
            previews=self.delivery.previews(self.store),
            approver_for=self.approvals.approver,
            companions=riding,
        )
        self.dispatch = Dispatch(
            lanes=self.lanes,
            turns=self.turns,
            settling=Settling(self.store, self.store, self.delivery, self.clock),
            delivery=self.delivery,
            host=CommandHost(
                sessions=self.store,
                archive=self.store,
                lineages=self.store,
                compactors=self.compactors,
                notes=NoteDesk(self.store),
                prefix_for=self.prefix_for,
                status=FakeStatus(),
                waiting=self.lanes.waiting,
                busy=self.lanes.busy,
                accounts=self.accounts,
                lane=self.lanes.view,
                busy_mode=lambda: self.busy_mode,
                restarts=self.restarts,
                approvals=self.approvals,
                crossed=riding.crossed,
                jobs=self.jobs,
                forgetting=self.forgetting,
                foreign=self.foreign,
                ask_anew=lambda: self.asked_anew.append(self.clock.now()),
            ),
            gate=self.gate,
            mailbox=self.store,
            clock=self.clock,
            busy_mode=lambda: self.busy_mode,
            limits=self.limits,
        )
        self.intake = GatewayIntake(
            mailbox=self.store,
            gate=self.gate,
            pairing=self.pairing,
            dispatcher=self.dispatch,
            hand_over=self.delivery.hand_over,
            clock=self.clock,
            limits=self.limits,
        )
        self.recovery = Recovery(
            sessions=self.store,
            mailbox=self.store,
            turns=self.turns,
            dispatch=self.dispatch,
            delivery=self.delivery,
            gate=self.gate,
            clock=self.clock,
        )

    def prefix_for(self, source: str) -> SessionPrefix:
        """What the configuration gives now: a test sets ``prefix``."""
        return replace(self.prefix, source=source)

    async def _hygiene(
        self, loaded: LoadedSession, compactor: Compactor, notify: Callable[[str], None]
    ) -> LoadedSession:
        self.hygiene_calls.append(loaded.session.id)
        return loaded

    def hold(self, text: str, gate: asyncio.Event) -> None:
        """The turn for this message takes until the gate opens."""

        async def script(*_: object) -> Draft:
            await gate.wait()
            return said(f"re: {text}")

        self.loop.scripts[text] = script

    async def settle(self) -> None:
        """Let everything run that needs no time to pass."""
        for _ in range(300):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """An orderly end."""
        drain = asyncio.ensure_future(self.lanes.drain(5))
        close = asyncio.ensure_future(self.dispatch.close(5))
        stop = asyncio.ensure_future(self.delivery.stop(5))
        for _ in range(40):
            await self.clock.advance(1)
        await asyncio.gather(drain, close, stop)

    def kill(self) -> None:
        """kill -9: every task of this process is gone between two steps."""
        for owner in (
            self.lanes._workers,
            self.dispatch._at_once,
            self.delivery._tasks,
            self.delivery._typing,
            self.delivery._asides,
            self.dispatch._receipts._tasks,
        ):
            for task in set(owner._tasks):
                task.cancel()

    async def rows(self, key: str) -> list[tuple[str, str]]:
        conversation = await self.store.conversation_for_key(key)
        assert conversation is not None
        loaded = await self.store.load(conversation.tip_session_id)
        return [(r.message["role"], text_of(r.message["content"])) for r in loaded.rows]
