"""Owns calls of plugin code: on threads of our own, one after the other, each with a deadline.

What hangs is left behind on its thread, said once, and not called again until it has come back: so
a plugin can hold up nothing but itself, and it takes no more threads than it has things to call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
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
        self.outcomes: list[tuple[Step, Any]] = []
        """What each step gave, in their order; a `Raised` for one that raised."""

    def run(self) -> None:
        """On a thread of plugins."""
        for step in self.steps:
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
                self.outcomes.append((step, outcome))
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

    def leave(self, at: int) -> bool:
        """Leave it behind if it is still at this step; then nothing more of it counts."""
        with self._lock:
            if self.at != at or self.at == len(self.steps):
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
        left = [step for step in steps if not step.callee.hangs]
        end = self._clock.monotonic() + all_seconds
        outcomes: list[tuple[Step, Any]] = []
        while left and self._clock.monotonic() < end:
            chain = _Chain(left, self._loops, self._clock.monotonic)
            future = self._threads.submit(chain.run)
            try:
                done = await self._watch(chain, future, each_seconds, end)
            except asyncio.CancelledError:
                if not future.cancel():
                    _leave_running(chain, each_seconds)
                raise
            outcomes += chain.outcomes
            left = left[done:]
        if left:
            names = [f"{step.callee.plugin}: {step.callee.what}" for step in left]
            log.warning("plugins were not called: no time left", extra={"what": names})
        return outcomes

    async def _watch(
        self, chain: _Chain, future: Future[None], each_seconds: float, end: float
    ) -> int:
        """Until it is done or left behind; how many steps are dealt with."""
        waiting = asyncio.wrap_future(future)
        try:
            while True:
                at, until = chain.at, min(chain.since + each_seconds, end)
                await wait_all((waiting,), self._clock, until - self._clock.monotonic())
                if waiting.done():
                    return len(chain.steps)
                if self._clock.monotonic() < until:
                    continue
                if future.cancel():
                    return 0  # no thread was free for it: nobody of these is to blame
                if self._clock.monotonic() >= end or chain.at == at:
                    return _leave_running(chain, each_seconds)
        finally:
            waiting.cancel()


def _leave_running(chain: _Chain, seconds: float) -> int:
    """Leave it behind wherever it is; how many steps are dealt with."""
    while (at := chain.at) < len(chain.steps):
        if chain.leave(at):
            chain.steps[at].callee.left_behind(seconds)
            return at + 1
    return len(chain.steps)


def accepted(call: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those keywords that it takes; all of them if it takes any, or can not be asked."""
    names = names_taken(call)
    return dict(offered) if names is None else {k: v for k, v in offered.items() if k in names}


def names_taken(call: Callable[..., Any]) -> frozenset[str] | None:
    """Its parameters that can be given by name; None: any."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
