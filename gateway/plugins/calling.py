"""Owns calls of plugin code: on threads of our own, one after the other, each with a deadline.

What hangs is left behind on its thread, said once, and not called again until it has come back: so
a plugin can hold up nothing but itself, and it takes no more threads than it has things to call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from agent.daemon_threads import DaemonThreads
from agent.ports import Clock
from gateway.plugins.loops import PluginLoops
from gateway.tasks import wait_all

log = logging.getLogger(__name__)

MANY = 200
"""Threads, for all plugins together."""
HANGING_AT_MOST = 2
"""Calls of one thing that may be left behind before it is not called any more."""
PATIENCE_SECONDS = 0.25
"""A call that takes longer is not waited for by those behind it."""
_TRACES = 3
"""So often an exception of one thing is logged with its trace; then by name only."""


class CallFailed(Exception):
    """Plugin code did not give a result; the text is for the log, not for people."""


class Raised(CallFailed):
    """It raised something."""


class TookTooLong(CallFailed):
    """It missed its deadline and was left behind."""


class StillHangs(CallFailed):
    """It was not called: earlier calls of it have not come back."""


@dataclass(slots=True, eq=False)
class Callee:
    """Something of a plugin that is called, and how that went."""

    plugin: str
    what: str
    """``hook pre_llm_call``, ``tool weather``, ``/weather``."""
    hanging: int = 0
    failures: int = 0
    most_hanging: int = HANGING_AT_MOST
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def hangs(self) -> bool:
        """Is it better not called now?"""
        return self.hanging >= self.most_hanging

    def left_behind(self, seconds: float) -> None:
        """It has missed a deadline."""
        with self.lock:
            self.hanging += 1
            first = self.hanging == self.most_hanging
        if first:
            log.error(
                "plugin hangs; not called again until it comes back",
                extra=self._about(seconds),
            )

    def came_back(self) -> None:
        """A call that was left behind has ended."""
        with self.lock:
            self.hanging -= 1
        log.warning("plugin came back", extra=self._about())

    def failed(self, problem: BaseException) -> None:
        """It raised; a plugin that does so each time must not fill the log."""
        with self.lock:
            self.failures += 1
            number = self.failures
        if number <= _TRACES:
            log.error("plugin raised", extra=self._about(), exc_info=problem)
        elif number & (number - 1) == 0:
            log.error("plugin raises again and again", extra={**self._about(), "times": number})

    def _about(self, seconds: float | None = None) -> dict[str, Any]:
        about = {"plugin": self.plugin, "what": self.what}
        return about if seconds is None else {**about, "seconds": seconds}


@dataclass(frozen=True, slots=True)
class Step:
    """One call: of whom, and how."""

    callee: Callee
    call: Callable[[], Any]
    """May give something to wait for: it is waited for on its plugin's loop."""
    then: Callable[[Any], Any] | None = None
    """Makes of it what is wanted, on the same thread: what a plugin gives may be anything."""
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered on that thread; what has to be waited for runs within it as well."""


class _Chain:
    """Steps on one thread, one after the other, until somebody leaves it behind."""

    def __init__(self, steps: Sequence[Step], loops: PluginLoops, now: Callable[[], float]) -> None:
        self.steps = steps
        self._loops = loops
        self._now = now
        self._lock = threading.Lock()
        self._left = False
        self._waits: Future[Any] | None = None
        self.at = 0
        """The step that runs, or runs next."""
        self.since = now()
        self.end = len(steps)
        """So many of them are its own; others were taken over by another chain."""
        self.outcomes: list[Any] = []
        """What each step gave, in their order; a `Raised` for one that raised."""

    def run(self) -> None:
        """On a thread of plugins."""
        for number, step in enumerate(self.steps):
            with self._lock:
                if number >= self.end:
                    return
            outcome: Any = None
            problem: BaseException | None = None
            try:
                with step.within():
                    given = self._settled(step, step.call())
                outcome = given if step.then is None else step.then(given)
            except BaseException as exc:  # noqa: BLE001  (of others: SystemExit as well)
                problem, outcome = exc, Raised(f"{step.callee.what} raised {type(exc).__name__}")
                outcome.__cause__ = exc
            with self._lock:
                if self._left:
                    step.callee.came_back()
                    return
                self.outcomes.append(outcome)
                self.at += 1
                self.since = self._now()
            if problem is not None:
                step.callee.failed(problem)

    def _settled(self, step: Step, given: Any) -> Any:
        if not inspect.isawaitable(given):
            return given
        waits = self._loops.submit(step.callee.plugin, given)
        with self._lock:
            self._waits = waits
            if self._left:
                waits.cancel()
        return waits.result()

    def keep_to(self, at: int) -> bool:
        """If it is still at this step, it is its last one."""
        with self._lock:
            if self.at == at:
                self.end = at + 1
            return self.at == at

    def leave(self, at: int) -> bool:
        """Leave it behind if it is still at this step; then nothing more of it counts."""
        with self._lock:
            if self.at != at or self.at >= self.end:
                return False
            self._left = True
            waits = self._waits
        if waits is not None:
            waits.cancel()  # what only waits ends by it, and its thread is free
        return True


class PluginCalls:
    """Calls code of plugins from the event loop, which is never held up by it."""

    def __init__(
        self,
        clock: Clock,
        threads: DaemonThreads | None = None,
        loops: PluginLoops | None = None,
    ) -> None:
        self._clock = clock
        self._threads = threads or DaemonThreads(MANY, name="plugin code")
        self._loops = loops or PluginLoops()

    async def one(
        self,
        callee: Callee,
        call: Callable[[], Any],
        seconds: float,
        *,
        then: Callable[[Any], Any] | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Any:
        """Call it once; ``then`` and ``within`` as in `Step`.

        Raises:
            CallFailed: the matching class; it is logged already.
        """
        if callee.hangs:
            raise StillHangs(f"{callee.what} of plugin {callee.plugin} hangs")
        outcomes = await self.each([Step(callee, call, then, within)], seconds, seconds)
        if not outcomes:
            raise TookTooLong(f"{callee.what} took longer than {seconds:g} s")
        given = outcomes[0][1]
        if isinstance(given, Raised):
            raise given from given.__cause__
        return given

    async def each(
        self, steps: Sequence[Step], each_seconds: float, all_seconds: float
    ) -> list[tuple[Step, Any]]:
        """Call them one after the other; what they gave, `Raised` for those that raised.

        One that misses its deadline is left out, and so are those that the time was too short for
        and those that hang already.
        """
        end = self._clock.monotonic() + all_seconds
        given: dict[int, Any] = {}
        await self._from(0, steps, given, each_seconds, end)
        return [(step, given[n]) for n, step in enumerate(steps) if n in given]

    async def _from(
        self, first: int, steps: Sequence[Step], given: dict[int, Any], each: float, end: float
    ) -> None:
        """Call them from this one on, and note what they gave by their numbers.

        As long as they are quick, one thread calls them in a row. One that is not goes on alone,
        and the others do not wait for it.
        """
        due = [n for n in range(first, len(steps)) if not steps[n].callee.hangs]
        if not due or self._clock.monotonic() >= end:
            names = [f"{steps[n].callee.plugin}: {steps[n].callee.what}" for n in due]
            if names:
                log.warning("plugins were not called: no time left", extra={"what": names})
            return
        chain = _Chain([steps[n] for n in due], self._loops, self._clock.monotonic)
        future = self._threads.submit(chain.run)
        waiting = asyncio.wrap_future(future)
        others: asyncio.Task[None] | None = None
        try:
            while not waiting.done():
                at = chain.at
                patience = each if others or at + 1 >= len(due) else PATIENCE_SECONDS
                until = min(chain.since + patience, end)
                await wait_all((waiting,), self._clock, until - self._clock.monotonic())
                if waiting.done() or self._clock.monotonic() < until:
                    continue
                if others is None and self._clock.monotonic() < end and chain.keep_to(at):
                    rest = due[at + 1] if at + 1 < len(due) else len(steps)
                    coro = self._from(rest, steps, given, each, end)
                    others = asyncio.ensure_future(coro)
                elif self._clock.monotonic() >= min(chain.since + each, end):
                    # If no thread was free for it, nobody of these is to blame.
                    if not future.cancel():
                        _leave_running(chain, each)
                    break
            if others is not None:
                await others
        except asyncio.CancelledError:
            if not future.cancel():
                _leave_running(chain, each)
            raise
        finally:
            waiting.cancel()
            if others is not None:
                others.cancel()
        given.update(zip(due, chain.outcomes, strict=False))


def _leave_running(chain: _Chain, seconds: float) -> None:
    """Leave it behind wherever it is."""
    while (at := chain.at) < chain.end:
        if chain.leave(at):
            chain.steps[at].callee.left_behind(seconds)
            return
