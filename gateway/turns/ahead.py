"""Owns which conversations get a compression ahead of time, how many at once, and when again."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from agent.compaction.host.ahead import LEVEL
from agent.compaction.host.session import SessionCompactor
from agent.errors import StoreError
from agent.ports import Clock
from agent.store_ports import SessionStore
from gateway.logs import about
from gateway.tasks import TaskOwner
from gateway.turns.compactors import CompactorCache

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Each holds a thread and a request to the provider for up to minutes, and nobody waits for it."""
MAX_WAITING = 256
"""Conversations that wait for a try; the longest waiting goes when there are more."""
SWEEP_SECONDS = 300.0
"""How often those are tried again that could not be prepared: the shortest cool-downs are over."""
FIRST_SWEEP_SECONDS = 20.0
"""After the start people who waited come first."""
RECENT_SECONDS = 3 * 86_400.0
"""One that nobody has touched for longer may be over, and its summary would be for nobody."""
FROM_START = 20
"""So many conversations of the run before are looked at."""


class AheadDesk:
    """Has compressions prepared while nobody waits.

    A turn that is over hands its conversation in; those of the run before are found in the store
    after a start. What could not be done is tried again by the sweep, as often as its conversation
    allows it (`agent.compaction.host.ahead`). Failures are logged and counted, and never told.
    """

    def __init__(
        self,
        store: SessionStore,
        compactors: CompactorCache,
        clock: Clock,
        *,
        threshold_tokens: Callable[[], int],
        may_spend: Callable[[str], Awaitable[bool]] | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take the parts.

        Args:
            store: Where conversations are.
            compactors: Who compresses them.
            clock: Time.
            threshold_tokens: Where compressions begin, for what the store is asked at the start.
            may_spend: May this owner's money be spent now?
            wanted: False: nothing is begun now.
        """
        self._store = store
        self._compactors = compactors
        self._clock = clock
        self._threshold_tokens = threshold_tokens
        self._may_spend = may_spend
        self._wanted = wanted
        self._open = True
        self._tasks = TaskOwner(clock)
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._running: set[str] = set()
        self._later: OrderedDict[str, None] = OrderedDict()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How the tries so far have ended: outcome → how often."""
        return self._counts

    @property
    def running(self) -> int:
        """How many are at work."""
        return len(self._running)

    def turn_over(self, conversation_id: str) -> None:
        """A turn has ended here. Returns at once."""
        self._later.pop(conversation_id, None)
        self._put(conversation_id)

    async def sweep(self) -> None:
        """For ever, until cancelled: first those of the run before, then what was put off."""
        if not self._open:
            return
        await self._clock.sleep(FIRST_SWEEP_SECONDS)
        await self._find()
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            again, self._later = list(self._later), OrderedDict()
            for conversation_id in again:
                self._put(conversation_id)

    def hold(self) -> None:
        """Begin nothing more: the daemon goes down."""
        self._open = False
        self._waiting.clear()

    async def close(self, seconds: float) -> None:
        """End what runs; what has been paid for by then is lost, and is not paid for again."""
        self.hold()
        await self._tasks.cancel(seconds)

    async def _find(self) -> None:
        level = int(LEVEL * self._threshold_tokens())
        if level <= 0 or not self._wanted():
            return
        since = self._clock.now() - RECENT_SECONDS
        try:
            found = await self._store.crowded(level, since=since, limit=FROM_START)
        except StoreError:
            log.warning("crowded conversations not found", exc_info=True)
            return
        for conversation_id in found:
            self._put(conversation_id)

    def _put(self, conversation_id: str) -> None:
        if not (self._open and self._wanted()) or conversation_id in self._waiting:
            return
        self._waiting[conversation_id] = None
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        self._start()

    def _start(self) -> None:
        for conversation_id in list(self._waiting):
            if len(self._running) >= AT_ONCE:
                return
            if conversation_id in self._running:
                continue  # its newest turn is looked at when that one is done
            del self._waiting[conversation_id]
            self._running.add(conversation_id)
            self._tasks.spawn(self._work(conversation_id), name=f"ahead {conversation_id}")

    async def _work(self, conversation_id: str) -> None:
        try:
            with about(conversation_id=conversation_id, turn_id=""):  # no turn waits for it
                await self._prepare(conversation_id)
        except StoreError:
            self._counts["failed"] += 1
            self._put_off(conversation_id, "the store")
            log.warning("compression ahead of time not stored", exc_info=True)
        except Exception:  # the supervised border: it is only a favour to the next turn
            self._counts["crashed"] += 1
            log.exception("compression ahead of time crashed")
        finally:
            self._running.discard(conversation_id)
            if self._open:
                self._start()

    async def _prepare(self, conversation_id: str) -> None:
        conversation = await self._store.conversation(conversation_id)
        if conversation is None:
            return
        tip = await self._store.session(conversation.tip_session_id)
        compactor = await self._compactors.get(conversation_id)
        # Nearly every turn ends here, without its list being read once more.
        if tip.ended_at is not None or not isinstance(compactor, SessionCompactor):
            return
        if not compactor.is_crowded(tip):
            return
        if self._may_spend is not None and not await self._may_spend(conversation.owner):
            self._put_off(conversation_id, "budget")
            return
        done = await compactor.prepare(await self._store.load(tip.id))
        self._counts[done.outcome] += 1
        if done.outcome in ("not_now", "failed"):
            self._put_off(conversation_id, done.reason)

    def _put_off(self, conversation_id: str, reason: str) -> None:
        log.debug("compression ahead of time put off", extra={"reason": reason})
        self._later[conversation_id] = None
        while len(self._later) > MAX_WAITING:
            self._later.popitem(last=False)
