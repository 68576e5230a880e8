"""Owns how a memory provider of others is called: in order, one call at a time, on our threads."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.daemon_threads import DaemonThreads
from agent.keywords import accepted
from agent.memory_provider import MemoryProvider
from agent.ports import Clock

log = logging.getLogger(__name__)

TELL_SECONDS = 60.0
"""What nobody waits for may take so long before the provider counts as late."""
MAX_WAITING = 50
"""Calls that nobody waits for; more of them are lost, which is logged and counted."""


class ProviderTrouble(Exception):
    """The provider raised, or gave no answer in time; it is logged already."""


@dataclass(slots=True, eq=False)
class _Job:
    method: str
    call: Callable[[], Any]
    seconds: float
    result: asyncio.Future[Any] | None
    """None: nobody waits."""


class ProviderHost:
    """The provider of one conversation.

    All calls stand in one queue, so it sees a conversation in its order and never two calls at
    once. A call that hangs can not be stopped: until it is back, whoever would wait is refused at
    once, and what nobody waits for stays in the queue.
    """

    def __init__(
        self, provider: MemoryProvider, name: str, threads: DaemonThreads, clock: Clock
    ) -> None:
        self._provider = provider
        self._name = name
        self._threads = threads
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._late_at: float | None = None
        self.lost = 0
        """Calls that were let go because too many waited."""

    @property
    def is_late(self) -> bool:
        """Does a call run longer than it may?"""
        return self._late_at is not None and self._clock.monotonic() > self._late_at

    def takes(self, method: str, keyword: str) -> bool:
        """Has its method this parameter? Runs none of the provider's code."""
        found = inspect.getattr_static(self._provider, method, None)
        return callable(found) and keyword in accepted(found, {keyword: None})

    def has(self, method: str) -> bool:
        """Does the provider do anything in this method?"""
        own = getattr(type(self._provider), method, None)
        return own is not getattr(MemoryProvider, method, None)

    async def ask(
        self,
        method: str,
        *args: Any,
        seconds: float,
        then: Callable[[Any], Any] = lambda given: given,
        **keywords: Any,
    ) -> Any:
        """Call a method with those keywords that it takes, and wait for what it gives.

        ``then``: what is made of that, on the same thread: its own code may run in it.

        Raises:
            ProviderTrouble: it raised, was late, or did not answer in time.
        """
        if self.is_late:
            log.warning("memory provider is still busy", extra=self._about(method))
            raise ProviderTrouble(f"{self._name} is still busy with an earlier call")
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = self._bound(method, args, keywords)
        self._queue(_Job(method, lambda: then(call()), seconds, result))
        deadline = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({result, deadline}, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                log.warning(
                    "memory provider gave no answer in time",
                    extra={**self._about(method), "timeout_seconds": seconds},
                )
                raise ProviderTrouble(f"{self._name} did not answer within {seconds:g} s")
            return result.result()
        finally:
            deadline.cancel()
            result.cancel()

    def tell(self, method: str, *args: Any, **keywords: Any) -> None:
        """Have a method called in its turn; nobody waits. Never raises."""
        if not self.has(method):
            return
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            log.error("memory provider is too slow: a call is lost", extra=self._about(method))
            return
        self._queue(_Job(method, self._bound(method, args, keywords), TELL_SECONDS, None))

    async def quiet(self, seconds: float) -> bool:
        """Wait until nothing is queued any more; False: not in time."""
        if self._worker is None or self._worker.done():
            return True
        deadline = asyncio.ensure_future(self._clock.sleep(seconds))
        await asyncio.wait({self._worker, deadline}, return_when=asyncio.FIRST_COMPLETED)
        deadline.cancel()
        return self._worker.done()

    def unsay(self) -> None:
        """What waits is not told any more."""
        self._waiting.clear()

    def drop(self) -> None:
        """Let go of it: what waits is not called any more; what runs goes on in its thread."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.cancel()

    def _bound(
        self, method: str, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Callable[[], Any]:
        def call() -> Any:
            bound = getattr(self._provider, method)
            taken = accepted(bound, keywords)
            return bound(*copy.deepcopy(args), **copy.deepcopy(taken))  # it may change all of it

        return call

    def _queue(self, job: _Job) -> None:
        self._waiting.append(job)
        if self._worker is None or self._worker.done():
            name = f"memory provider {self._name}"
            self._worker = asyncio.get_running_loop().create_task(self._work(), name=name)

    async def _work(self) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            if job.result is not None and job.result.done():
                continue  # whoever waited has given up
            await self._run(job)

    async def _run(self, job: _Job) -> None:
        self._late_at = self._clock.monotonic() + job.seconds
        try:
            outcome = await asyncio.wrap_future(self._threads.submit(job.call))
        except Exception as exc:  # the border to code of others: a turn can do without it
            log.exception("memory provider failed", extra=self._about(job.method))
            if job.result is not None and not job.result.done():
                trouble = ProviderTrouble(f"{self._name} failed ({type(exc).__name__})")
                job.result.set_exception(trouble)
                job.result.exception()  # seen, whoever has stopped waiting
        else:
            if job.result is not None and not job.result.done():
                job.result.set_result(outcome)
        finally:
            self._late_at = None

    def _about(self, method: str) -> dict[str, Any]:
        return {"provider": self._name, "method": method, "waiting": len(self._waiting)}
