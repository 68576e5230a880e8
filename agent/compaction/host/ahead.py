"""Owns compression ahead of time: when it is worth a call, what is kept, and when it is taken."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from agent import pressure
from agent.compaction.host.detaching import Detachable
from agent.compaction.host.leasing import leased
from agent.compaction.host.remembering import StateMemory
from agent.compaction.host.running import EngineRunner, Order, Run
from agent.compaction.plan.assemble import problem_with
from agent.compaction.plan.policy import MAX_BIAS, in_words, verdict
from agent.messages import Entry, Keep, Message, Row, newest_real_user, to_engine
from agent.native_block import compaction_block
from agent.ports import Clock, IdSource
from agent.prepared import Prepared
from agent.sessions import LoadedSession, Session
from agent.store_ports import SessionStore

log = logging.getLogger(__name__)

LEVEL = pressure.TIERS[0]
"""Share of the threshold from which on it is worth to be ready."""
MIN_NEW_RATIO = 0.10
"""Of the threshold: so much has to be new since the last summary that was made ahead of time, taken
or not. Between this level and the threshold that allows one, and one more if it was thrown away."""
MAX_CALLS_AN_HOUR = 6
"""For one conversation, whatever happens to the results: somebody who says, takes back and says
again buys no summary each time. A conversation that needs more compresses while it waits."""
HOUR_SECONDS = 3600.0
NEARLY_ALL_RATIO = 0.05
"""Of the threshold: who asks for a compression gets the prepared one if no more was said since."""
MANY_ROWS = 500
"""From so many on a list is looked through beside the event loop."""

PREPARING = "a compression is being prepared"

PreparationOutcome = Literal["prepared", "not_needed", "not_now", "failed"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What came of it. ``not_now`` and ``failed``: worth another try later."""

    outcome: PreparationOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """A prepared list that fits the session as it is now."""

    base: LoadedSession
    """The session up to the row that it has seen."""
    prepared: Prepared


class Ahead:
    """Prepares the compressions of one conversation; only for the built-in engine.

    It works on an engine of its own, so nothing of it holds up the lane, and the same rules decide
    as there: cool-downs, blocks and holds count, failures are remembered with the session. The user
    hears nothing of it.
    """

    def __init__(
        self,
        runner: EngineRunner,
        memory: StateMemory,
        store: SessionStore,
        clock: Clock,
        ids: IdSource,
        *,
        lease_ttl_seconds: float,
    ) -> None:
        self._runner = runner
        self._memory = memory
        self._store = store
        self._clock = clock
        self._ids = ids
        self._lease_ttl_seconds = lease_ttl_seconds
        self._job: Detachable[Preparation] | None = None
        self._calls: deque[float] = deque(maxlen=MAX_CALLS_AN_HOUR)
        self._kept: tuple[str, int] | None = None
        """Session and revision for which something is known to be prepared."""

    # --- preparing ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Is one being prepared at this moment?"""
        return self._job is not None and self._job.running

    async def over(self) -> None:
        """Until none is being prepared any more."""
        if self._job is not None and self._job.running:
            await self._job.over()

    def keeps(self, session: Session) -> bool:
        """Cheap: is something prepared for this list, as far as this process knows?"""
        return self._kept == (session.id, session.revision)

    def is_crowded(self, session: Session) -> bool:
        """Cheap: was its last answer given to a prompt at the level?"""
        anchor, threshold = session.anchor, self._threshold_tokens
        if anchor is None or threshold <= 0:
            return False
        return anchor.prompt_tokens + anchor.output_tokens >= LEVEL * threshold

    async def prepare(self, loaded: LoadedSession) -> Preparation:
        """Make the compression of this list, and keep it. Never raises for a failure of a model.

        Cancelled, it goes on alone: it is paid for already.
        """
        if self.running:
            return Preparation("not_now", PREPARING)
        loaded = self._memory.current(loaded)
        if (refused := self._refusal(loaded)) is not None:
            return refused
        self._job = Detachable(lambda _: self._leased(loaded), name="preparation")
        return await self._job.wait()

    @property
    def _threshold_tokens(self) -> int:
        return self._runner.threshold_tokens

    def _refusal(self, loaded: LoadedSession) -> Preparation | None:
        """Why nothing is even tried; None: it is."""
        threshold, size = self._threshold_tokens, self._memory.measure(loaded)
        if threshold <= 0 or size.source != "usage" or size.tokens < LEVEL * threshold:
            return Preparation("not_needed", "there is room")
        if any(row.id < 0 for row in loaded.rows):
            return Preparation("not_now", "a tool is at work in this conversation")
        state, now = loaded.session.compression, self._clock.now()
        found = verdict(state, now, size)
        if not found.allowed:
            return Preparation("not_now", in_words(state, found.reason or "", now))
        return None

    async def _leased(self, loaded: LoadedSession) -> Preparation:
        done = await leased(
            lambda _: self._under_lease(loaded),
            self._store,
            self._ids,
            loaded.session.conversation_id,
            self._lease_ttl_seconds,
        )
        return done or Preparation("not_now", "the conversation is being compressed already")

    async def _under_lease(self, loaded: LoadedSession) -> Preparation:
        kept = await self._store.prepared(loaded.session.id)
        order = self._order(loaded)
        if kept is not None:
            if not await self._problem(order, kept):
                self._kept = (kept.session_id, kept.revision)
                return Preparation("not_needed", "it is prepared already")
            await self._discard(order, kept, "it would not fit any more")
        # A turn may have noted something while the store was asked: that has to stay.
        loaded = self._memory.current(loaded)
        if (refused := self._over_budget(loaded)) is not None:
            return refused
        # Before the call: whoever is killed in the middle of it does not pay for it once more.
        before = loaded.session.compression
        newest = max(row.root_id for row in loaded.rows)
        marked = before.changed(ahead_row_id=max(newest, before.ahead_row_id))
        order = replace(order, loaded=await self._memory.store(loaded, marked))
        run = await self._runner.run_ahead(order)
        if run.cost:
            self._calls.append(self._clock.monotonic())
        if run.adopted is None:
            return await self._in_vain(order, run, before.ahead_row_id)
        return await self._keep(order, run)

    def _order(self, loaded: LoadedSession) -> Order:
        prefix = loaded.session.prefix
        return Order(
            loaded=loaded,
            trigger="ahead",
            size=self._memory.measure(loaded),
            prefix_tokens=self._memory.prefix_tokens(prefix),
            image_tokens=self._memory.image_tokens(prefix),
        )

    def _over_budget(self, loaded: LoadedSession) -> Preparation | None:
        """Why another summary would be one too many; None if it is not."""
        seen = loaded.session.compression.ahead_row_id
        fresh = sum(row.tokens for row in loaded.rows if row.root_id > seen and row.kind is None)
        if seen and fresh < MIN_NEW_RATIO * self._threshold_tokens:
            # Time does not change that: the next turn that ends is the next try.
            return Preparation("not_needed", "too little is new since the last one")
        now = self._clock.monotonic()
        recent = [at for at in self._calls if now - at < HOUR_SECONDS]
        if len(recent) >= MAX_CALLS_AN_HOUR:
            return Preparation("not_now", f"{MAX_CALLS_AN_HOUR} were made within an hour")
        return None

    async def _in_vain(self, order: Order, run: Run, marked_before: int) -> Preparation:
        """No summary: a failure counts in the lane too, and nobody is told.

        That there was nothing to gain yet says nothing of the threshold: it does not count there.
        """
        state = run.state if run.failed else order.state
        if run.failed or not run.cost:  # a cool-down decides when it is tried again, or nothing
            state = state.changed(ahead_row_id=marked_before)
        await self._memory.store(order.loaded, self._memory.rebased(order.loaded, state))
        log.log(
            logging.WARNING if run.failed else logging.INFO,
            "compression not prepared",
            extra=_facts(order, run.cost) | {"reason": run.reason},
        )
        return Preparation("failed" if run.failed else "not_needed", run.reason)

    async def _keep(self, order: Order, run: Run) -> Preparation:
        assert run.adopted is not None
        session = order.loaded.session
        prepared = Prepared(
            session_id=session.id,
            revision=session.revision,
            covered_row_id=order.loaded.last_row_id,
            entries=run.adopted.entries,
            tokens=run.adopted.tokens,
            manifest=run.manifest or {},
            cost=run.cost,
        )
        if not await self._store.save_prepared(prepared):
            log.info(
                "prepared compression discarded",
                extra=_facts(order, run.cost) | {"reason": "the conversation moved on"},
            )
            return Preparation("not_now", "the conversation moved on meanwhile")
        self._kept = (prepared.session_id, prepared.revision)
        log.info(
            "compression prepared",
            extra=_facts(order, run.cost) | {"tokens_after": prepared.tokens + order.prefix_tokens},
        )
        return Preparation("prepared")

    # --- taking ---------------------------------------------------------------------------------

    async def take(self, order: Order) -> Taken | None:
        """What is prepared for this session, if it is what is wanted now; else None.

        One that does not fit any more is thrown away.
        """
        prepared = await self._store.prepared(order.loaded.session.id)
        if prepared is None or order.focus:
            return None
        rows = order.loaded.rows
        if order.force and _tokens(_later(rows, prepared)) > NEARLY_ALL_RATIO * max(
            1, self._threshold_tokens
        ):
            return None  # who asks for it wants it to cover what was said since
        if problem := await self._problem(order, prepared):
            await self._discard(order, prepared, problem)
            return None
        seen = rows[: len(rows) - len(_later(rows, prepared))]
        return Taken(replace(order.loaded, rows=seen), prepared)

    async def _problem(self, order: Order, prepared: Prepared) -> str:
        """Why a prepared list must not be taken; "" if it may: current, small enough, valid."""
        rows, session = order.loaded.rows, order.loaded.session
        if prepared.revision != session.revision:
            return "the list is another one by now"
        if all(row.id != prepared.covered_row_id for row in rows):
            return "what it covers is not there any more"
        estimate = order.prefix_tokens + _tokens(rows)
        after = order.prefix_tokens + prepared.tokens + _tokens(_later(rows, prepared))
        if after >= estimate:
            return "nothing would become smaller"
        bias = 1.0
        if order.size.source == "usage":
            bias = min(MAX_BIAS, max(1.0, order.size.tokens / max(1, estimate)))
        if 0 < self._threshold_tokens <= after * bias:
            return "it would not fit any more"
        if len(rows) < MANY_ROWS:
            return _fault(rows, prepared)
        return await self._runner.beside(lambda: _fault(rows, prepared))

    async def _discard(self, order: Order, prepared: Prepared, reason: str) -> None:
        await self._store.discard_prepared(prepared.session_id)
        self._kept = None
        log.info(
            "prepared compression discarded",
            extra=_facts(order, prepared.cost) | {"reason": reason},
        )


def _later(rows: Sequence[Row], prepared: Prepared) -> Sequence[Row]:
    """What stands behind the newest row that it has seen."""
    for place in range(len(rows) - 1, -1, -1):
        if rows[place].id == prepared.covered_row_id:
            return rows[place + 1 :]
    return rows


def _tokens(rows: Sequence[Row]) -> int:
    return sum(row.tokens for row in rows)


def _fault(rows: Sequence[Row], prepared: Prepared) -> str:
    """What would be wrong with the list that it makes of these rows."""
    before = to_engine(rows)
    by_id = {row.id: message for row, message in zip(rows, before, strict=True)}
    if any(isinstance(e, Keep) and e.row_id not in by_id for e in prepared.entries):
        return "a message that it keeps is not there any more"
    after = [_message(entry, by_id) for entry in prepared.entries]
    after.extend(by_id[row.id] for row in _later(rows, prepared))
    if after[0]["role"] != "user" and compaction_block(after[0]) is None:
        return "the list would not begin with the user"
    return problem_with(before, after, newest_real_user(before))


def _message(entry: Entry, by_id: dict[int, Message]) -> Message:
    if isinstance(entry, Keep):
        return by_id[entry.row_id]
    if entry.kind is None:
        return entry.message
    return cast(Message, {**entry.message, "_kind": entry.kind})


def _facts(order: Order, cost: dict[str, object]) -> dict[str, object]:
    facts: dict[str, object] = {
        "session_id": order.loaded.session.id,
        "trigger": order.trigger,
        "tokens_before": order.size.tokens,
    }
    return facts | {f"summary_{name}": value for name, value in cost.items()}
