"""Owns the host's side of compaction: when it is due, lease, engine, commit, aftermath."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent import pressure
from agent.compaction.host.ahead import PREPARING, Ahead, Preparation
from agent.compaction.host.announcing import Announcer
from agent.compaction.host.committing import Committer, Job, Notify, blocked_text
from agent.compaction.host.detaching import Detachable
from agent.compaction.host.foreign import ForeignEngine
from agent.compaction.host.foreign_extras import usage_dict
from agent.compaction.host.memory_text import MemoryText
from agent.compaction.host.prune_only import PruneOnly
from agent.compaction.host.remembering import StateMemory
from agent.compaction.host.running import EngineRunner, Order
from agent.compaction.micro.passes import MicroCompactor, MicroParts
from agent.compaction.native.running import NativeCompaction
from agent.compaction.plan.policy import after_usage, blocked_for, in_words, verdict
from agent.context_compressor import ContextCompressor
from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.messages import Draft, Message, is_real_user
from agent.model_metadata import HYGIENE_RATIO, IMAGE_TOKENS, Measurement
from agent.ports import (
    Clock,
    CompactionDecision,
    CompactionOutcome,
    CompactionResult,
    CompactionTrigger,
    IdSource,
    SideModel,
    TurnEnd,
    Usage,
)
from agent.sessions import CompressionState, LoadedSession, Session
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

MAX_PER_TURN = 3
"""Compressions by itself within one turn."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How the host compacts."""

    enabled: bool = True
    """False: only ``/compress`` does."""
    in_place: bool = False
    compress_timeout_seconds: float = 900.0
    lease_ttl_seconds: float = 1200.0
    """Longer than the time-out, so that a lease outlives the call that it announces."""
    background: bool = True
    """Compressions may be prepared before they are due (`SessionCompactor.prepare`)."""
    cache_ttl_seconds: float = 300.0
    """How long the provider keeps a prompt; 0: it keeps none, so another list costs nothing."""
    prune_from_tokens: int = 0
    """Prompt size from which on old tool results are shortened by themselves; 0: never."""


class SessionCompactor:
    """Keeps the sessions of one conversation inside the window (`agent.ports.Compactor`)."""

    def __init__(
        self,
        engine: ContextEngine | ForeignEngine,
        store: SessionStore,
        clock: Clock,
        ids: IdSource,
        settings: CompactionSettings | None = None,
        *,
        threads: DaemonThreads | None = None,
        fallback: ContextCompressor | None = None,
        on_limit: Callable[[int], None] = lambda tokens: None,
        memory_text: MemoryText | None = None,
        ahead_model: SideModel | None = None,
        image_tokens: Callable[[str], int] = lambda model: IMAGE_TOKENS,
        micro: MicroParts | None = None,
        native: NativeCompaction | None = None,
        on_result: Callable[[CompactionTrigger, CompactionResult], None] = lambda why, what: None,
    ) -> None:
        """Take the parts of one conversation.

        Args:
            engine: This conversation's own instance, `update_model` done.
                Somebody else's may come with all that is known of it.
            store: Where sessions are.
            clock: Time.
            ids: Names of leases.
            settings: How to compact.
            threads: Where engines run; shared by all conversations.
            fallback: Steps in for a third-party engine, only after a proven overflow.
            on_limit: Told when the provider named a smaller window than was assumed.
            memory_text: What the memory wants every summary to keep; it may fail or be slow.
            ahead_model: Makes the summaries that nobody waits for; None: the engine's own.
            image_tokens: What a picture takes in a model's prompts (`agent.image_tokens`).
            micro: For micro-compaction; only beside the built-in engine.
            native: The provider's own summaries, and the way back from them; likewise.
            on_result: Told of the end of each compression, also one that nobody waits for any more.
        """
        self._settings = settings or CompactionSettings()
        self._on_result = on_result
        self._runner = EngineRunner(
            engine,
            clock,
            threads=threads,
            fallback=fallback,
            timeout_seconds=self._settings.compress_timeout_seconds,
            memory=memory_text,
            ahead_model=ahead_model,
            native=native,
        )
        self._memory = StateMemory(store, image_tokens)
        self._ahead = Ahead(
            self._runner,
            self._memory,
            store,
            clock,
            ids,
            lease_ttl_seconds=self._settings.lease_ttl_seconds,
        )
        self._prune = PruneOnly(
            self._runner, self._memory, store, from_tokens=self._settings.prune_from_tokens
        )
        self._announcer = Announcer(self._runner, store)
        self._committer = Committer(
            self._runner,
            self._memory,
            store,
            clock,
            ids,
            self._ahead,
            self._announcer,
            in_place=self._settings.in_place,
            lease_ttl_seconds=self._settings.lease_ttl_seconds,
        )
        self._store = store
        builtin = self._runner.builtin
        self._micro = (
            MicroCompactor(micro, builtin, self._memory, store, clock, held=self._is_held)
            if micro is not None and builtin is not None and self._settings.enabled
            else None
        )
        self._clock = clock
        self._on_limit = on_limit
        self._job: Job | None = None
        self._turn_count = (0, 0)
        """The turn that was compressed last (its person's message), and how often."""

    # --- deciding -------------------------------------------------------------------------------

    @property
    def engine(self) -> ContextEngine:
        """The conversation's engine."""
        return self._runner.engine

    @property
    def foreign(self) -> ForeignEngine | None:
        """The same, if it is somebody else's."""
        return self._runner.foreign

    @property
    def announced_session_id(self) -> str:
        """Where somebody else's engine thinks that the conversation is; "": it was not told."""
        return self._announcer.last_id

    async def is_at(self, session: Session) -> None:
        """The conversation is in this session now: somebody else's engine is told, if it is new."""
        await self._announcer.at(session)

    def has_begun_at(self, session: Session, key: str) -> None:
        """Its engine has been told of this session already."""
        self._announcer.begin_at(session, key)

    @property
    def enabled(self) -> bool:
        """Does it compress by itself?"""
        return self._settings.enabled

    @property
    def hygiene_tokens(self) -> int:
        """Prompt size at which the net before the agent fires; 0: the window is not known."""
        if self._runner.builtin is not None:
            return self._runner.builtin.triggers.hygiene_tokens
        return int(self._runner.window_tokens * HYGIENE_RATIO)

    @property
    def threshold_tokens(self) -> int:
        """Prompt size at which the loop compresses; 0: the engine never wants to."""
        return self._runner.threshold_tokens

    def measure(self, loaded: LoadedSession) -> Measurement:
        """The size of the session's next prompt, and how far to trust it."""
        return self._memory.measure(loaded)

    def due(self, loaded: LoadedSession) -> CompactionDecision:
        size = self.measure(loaded)
        threshold = self.threshold_tokens
        if not self._settings.enabled:
            return CompactionDecision(False, size.tokens, threshold, "compression is off")
        if self.foreign is not None:
            return self._due_by_another(loaded, size)
        if threshold <= 0 or not size.reaches(threshold):
            prune = self._prune.wanted(self._order(loaded, "prune"))
            return CompactionDecision(False, size.tokens, threshold, prune=prune)
        if self._ahead.running:  # it is there soon, and until then there is room behind the trigger
            return CompactionDecision(False, size.tokens, threshold, PREPARING)
        state, now = self._memory.state(loaded), self._clock.now()
        found = verdict(state, now, size)
        reason = "" if found.allowed else in_words(state, found.reason or "", now)
        return CompactionDecision(found.allowed, size.tokens, threshold, reason)

    def _due_by_another(self, loaded: LoadedSession, size: Measurement) -> CompactionDecision:
        """Somebody else's engine is asked, whatever its threshold says, unless it cools down."""
        threshold = self.threshold_tokens
        full = threshold > 0 and size.reaches(threshold)
        state, now = self._memory.state(loaded), self._clock.now()
        found = verdict(state, now, size)
        if not found.allowed:
            reason = in_words(state, found.reason or "", now) if full else ""
            return CompactionDecision(False, size.tokens, threshold, reason)
        prune = not full and self._prune.wanted(self._order(loaded, "prune"))
        return CompactionDecision(full, size.tokens, threshold, prune=prune, ask=True)

    def blocked_for_hygiene(self, loaded: LoadedSession, *, ignore_block: bool = True) -> str:
        """Why the last net may not fire, in words; "" if it may.

        Args:
            loaded: The session.
            ignore_block: The window is nearly full: cool-downs count then, anti-thrash does not.
        """
        state, now = self._memory.state(loaded), self._clock.now()
        found = verdict(state, now, self.measure(loaded), ignore_block=ignore_block)
        return "" if found.allowed else in_words(state, found.reason or "", now)

    # --- compressing ----------------------------------------------------------------------------

    async def compact(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
        notify: Notify | None = None,
    ) -> CompactionResult:
        job = self._job
        if job is not None and job.running and trigger in ("overflow", "manual"):
            await job.over()  # there is no way around it, and it is paid for already
        if self._micro is not None and trigger == "manual":
            loaded = await self._micro.settled(loaded)
        if trigger in ("overflow", "manual", "hygiene"):
            await self._ahead.over()  # the same: what would be made now is nearly made
        order = self._order(loaded, trigger, focus=focus, overflow_proven=overflow_proven)
        loaded = order.loaded
        if (refused := self._refusal(order)) is not None:
            return refused
        if trigger == "preflight":
            await self._announcer.turn_begins(loaded.session)
        else:
            await self._announcer.at(loaded.session)
        if trigger == "prune":
            return await self._prune(order)
        if trigger in ("preflight", "loop") and (run := await self._runner.asked(order)):
            return await self._committer.not_wanted(order, run, notify)
        if notify is not None and self.foreign is not None and not order.force:
            text = await self.foreign.extras.status_text(trigger, order.size.tokens)
            if text:
                notify(text)
        self._job = job = Detachable(
            lambda job: self._carry_out(order, job, notify), name="compression"
        )
        result = await job.wait()
        if result.outcome == "compressed" and not order.force and not result.prepared:
            turn, count = _turn_of(loaded), 1
            if self._turn_count[0] == turn:
                count += self._turn_count[1]
            self._turn_count = (turn, count)
        return result

    async def _carry_out(self, order: Order, job: Job, notify: Notify | None) -> CompactionResult:
        result = await self._committer.carry_out(order, job, notify)
        self._on_result(order.trigger, result)
        return result

    def _refusal(self, order: Order) -> CompactionResult | None:
        """Why nothing is even tried; None: it is."""
        loaded = order.loaded
        if not order.force and not self._settings.enabled:
            return order.unchanged("aborted", "compression is off")
        if not loaded.rows:
            return order.unchanged("not_needed", "there is nothing yet")
        if any(row.id < 0 for row in loaded.rows):
            return order.unchanged("aborted", "a tool is at work in this conversation")
        if self._job is not None and self._job.running:
            return order.unchanged("aborted", "the conversation is being compressed already")
        if not order.force and self._turn_count == (_turn_of(loaded), MAX_PER_TURN):
            return order.unchanged("aborted", f"it was compressed {MAX_PER_TURN} times already")
        match order.trigger:
            case "preflight" | "loop" if not ((decision := self.due(loaded)).due or decision.ask):
                outcome: CompactionOutcome = "aborted" if decision.reason else "not_needed"
                return order.unchanged(outcome, decision.reason)
            case "prune" if not self._prune.wanted(order):
                return order.unchanged("not_needed", "there is room")
            case "prune" | "expired" if self._ahead.running:
                return order.unchanged("not_needed", PREPARING)
            case "expired" if not verdict(order.state, self._clock.now(), order.size).allowed:
                return order.unchanged("not_needed", "compression is held")
        return None

    def _order(
        self,
        loaded: LoadedSession,
        trigger: CompactionTrigger,
        *,
        focus: str | None = None,
        overflow_proven: bool = False,
    ) -> Order:
        loaded = self._memory.current(loaded)
        return Order(
            loaded=loaded,
            trigger=trigger,
            size=self.measure(loaded),
            prefix_tokens=self._memory.prefix_tokens(loaded.session.prefix),
            image_tokens=self._memory.image_tokens(loaded.session.prefix),
            focus=focus,
            overflow_proven=overflow_proven,
        )

    # --- ahead of time --------------------------------------------------------------------------

    @property
    def prepares(self) -> bool:
        """Does it compress ahead of time? Only the built-in engine does."""
        settings = self._settings
        return settings.enabled and settings.background and self._runner.builtin is not None

    def is_crowded(self, session: Session) -> bool:
        """Cheap: may it be time to prepare a compression of this session?"""
        return self.prepares and self._ahead.is_crowded(session)

    async def prepare(self, loaded: LoadedSession) -> Preparation:
        """Make the compression that will be due soon, and keep it in the store.

        Nothing of it holds up the conversation. It never raises for a failure of the model, which
        is remembered with the session, and of which the user hears nothing. Cancelled, it goes on.
        """
        if not self.prepares:
            return Preparation("not_needed", "nothing is compressed ahead of time")
        if self._job is not None and self._job.running:
            return Preparation("not_now", "the conversation is being compressed already")
        return await self._ahead.prepare(loaded)

    async def swap_if_cold(self, loaded: LoadedSession) -> LoadedSession:
        """At the start of a turn: take what is prepared if the provider has forgotten the prompt.

        The whole prompt is paid for anew then in any case, and the shorter one costs less.
        """
        anchor = loaded.session.anchor
        if not self.prepares or anchor is None or not self.is_crowded(loaded.session):
            return loaded
        answered_at = next(
            (row.created_at for row in reversed(loaded.rows) if row.id == anchor.through_row_id),
            None,
        )
        idle = -1.0 if answered_at is None else self._clock.now() - answered_at
        if idle < self._settings.cache_ttl_seconds:  # also where the clock was set back
            return loaded
        if await self._store.prepared(loaded.session.id) is None:
            return loaded
        return (await self.compact(loaded, "expired")).loaded

    async def select(
        self, loaded: LoadedSession, messages: Sequence[Message], *, answer_tokens: int
    ) -> Sequence[Message]:
        if self.foreign is None or not self.foreign.extras.selects:
            return messages
        await self._announcer.at(loaded.session)
        prefix = self._memory.prefix_tokens(loaded.session.prefix)
        room = max(0, self._runner.window_tokens - answer_tokens - prefix)
        return await self.foreign.extras.select(loaded, messages, room_tokens=room)

    async def after_turn(
        self, seen: LoadedSession, final: Draft, end: TurnEnd | None = None
    ) -> None:
        if self._micro is not None:
            await self._micro.after_turn(seen, final)
        if self.foreign is not None and end is not None:
            await self.foreign.extras.turn_complete(seen, final.message, end)

    def _is_held(self, loaded: LoadedSession) -> bool:
        """Is a compression of this list at work, or paid for and not stored yet?"""
        at_work = self._job is not None and self._job.running
        paid_for = self._committer.keeps(loaded.session) or self._ahead.keeps(loaded.session)
        return at_work or self._ahead.running or paid_for

    # --- what comes back ------------------------------------------------------------------------

    async def note_usage(
        self, loaded: LoadedSession, usage: Usage | None, *, notify: Notify | None = None
    ) -> LoadedSession:
        loaded = self._memory.current(loaded)
        if usage is None:
            if self.foreign is not None:
                await self.foreign.miss_usage()
            return loaded
        state = loaded.session.compression
        prompt, threshold, now = usage.prompt_tokens, self.threshold_tokens, self._clock.now()
        await self._announcer.at(loaded.session)
        await self._runner.tell_usage(usage_dict(usage))
        state = after_usage(state, prompt, threshold, now)
        if threshold > 0 and prompt >= threshold and notify is not None:
            state = self._tell_block(state, Measurement(prompt, "usage"), notify)
        if prompt > 0 and threshold > 0:
            # Held after an /uncompress: what fills up then is the room below the hold.
            threshold = max(threshold, state.hold_tokens)
            state, tell = pressure.after_size(state, prompt, threshold, now)
            if tell:
                self._warn(prompt, threshold, notify)
        return await self._memory.store(loaded, state)

    def _tell_block(
        self, state: CompressionState, size: Measurement, notify: Notify
    ) -> CompressionState:
        """A conversation that is full and blocked: the user learns of it once."""
        kind, now = blocked_for(state), self._clock.now()
        if not self.enabled or not kind or kind == state.told_block:
            return state
        if verdict(state, now, size).reason != kind:
            return state
        log.warning("compression is blocked", extra={"block": kind, "prompt_tokens": size.tokens})
        notify(blocked_text(in_words(state, kind, now)))
        return state.changed(told_block=kind)

    def _warn(self, prompt_tokens: int, threshold_tokens: int, notify: Notify | None) -> None:
        log.warning(
            "context pressure",
            extra={"prompt_tokens": prompt_tokens, "threshold_tokens": threshold_tokens},
        )
        if notify is not None:
            window, automatic = self._runner.window_tokens, self._settings.enabled
            notify(
                pressure.pressure_text(prompt_tokens, threshold_tokens, window, automatic=automatic)
            )

    def note_limit(self, limit_tokens: int) -> None:
        lowered = self._runner.lower_window(limit_tokens)
        if lowered is not None:
            self._on_limit(lowered)


def _turn_of(loaded: LoadedSession) -> int:
    """What tells turns apart across splits: the original of the newest message of a person."""
    said = (row for row in reversed(loaded.rows) if is_real_user(row.message, row.kind))
    return next((row.root_id for row in said), 0)
