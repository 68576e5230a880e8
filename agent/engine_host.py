"""Owns how an engine is called: one call at a time, on a daemon thread, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from agent.context_engine import ContextEngine
from agent.daemon_threads import DaemonThreads
from agent.errors import EngineError
from agent.keywords import accepted
from agent.ports import Clock

log = logging.getLogger(__name__)

QUICK_SECONDS = 10.0
"""For every method but `compress`."""
MAX_TOKENS = 100_000_000
"""What an engine may say of any size."""
MAX_WHY_CHARS = 300
_NUMBERS = ("threshold_tokens", "context_length")
_PLAIN = (int, float, type(None))


class EngineHost:
    """Calls the engine of one conversation.

    A call that misses its deadline, or whose caller was cancelled, goes on in its thread, because a
    thread can not be stopped. Until it is back the engine is *late*: further calls are refused at
    once. What a late call returns is thrown away.

    None of the engine's code runs anywhere but on those threads, not even that of its properties:
    they are read behind each call, and what was read then counts until the next one.
    """

    def __init__(
        self, engine: ContextEngine, threads: DaemonThreads, clock: Clock, *, name: str = ""
    ) -> None:
        """``name``: as it is called in texts; "": by its class."""
        self.engine = engine
        self._threads = threads
        self._clock = clock
        self._turn = asyncio.Lock()
        self._running: Future[Any] | None = None
        self._what = ""
        said = inspect.getattr_static(engine, "name", None)
        self._said_name = name or (str.__str__(said) if isinstance(said, str) else "")
        self._read: dict[str, int] = {}
        self._computed = tuple(n for n in _NUMBERS if _is_computed(engine, n))

    @property
    def name(self) -> str:
        """As it was called at first, whatever it says by now."""
        return self._said_name or type(self.engine).__name__

    @property
    def late(self) -> bool:
        """Is a call still running that nobody waits for any more?"""
        return self._running is not None and not self._running.done() and not self._turn.locked()

    @property
    def busy(self) -> bool:
        """Is a call running, waited for or not?"""
        return self._turn.locked() or self.late

    @property
    def occupied(self) -> bool:
        """Is a call running that nobody should wait behind: a compression, or a late one?"""
        return self.late or (self._turn.locked() and self._what == "compress")

    @property
    def threshold_tokens(self) -> int:
        """Prompt size from which on the engine says that it compresses; 0: it does not say."""
        return self._number("threshold_tokens")

    @property
    def context_length(self) -> int:
        """The window that the engine goes by; 0: it does not say."""
        return self._number("context_length")

    def inherits(self, method: str) -> bool:
        """Is this method the contract's own, which does nothing? Runs none of the engine's code."""
        own = inspect.getattr_static(ContextEngine, method)
        return inspect.getattr_static(self.engine, method, own) is own

    async def call(
        self,
        method: str,
        *args: Any,
        timeout_seconds: float = QUICK_SECONDS,
        **keywords: Any,
    ) -> Any:
        """Call a method of the engine with those keywords that it takes.

        Raises:
            EngineError: It raised, it missed the deadline, or it is late with an earlier call.
        """

        def work() -> Any:
            bound = getattr(self.engine, method, None)
            if not callable(bound):
                raise EngineError(f"the context engine {self.name} has no method {method}")
            return bound(*args, **(accepted(bound, keywords) if keywords else {}))

        return await self.run(work, method, timeout_seconds)

    async def run(self, call: Callable[[], Any], what: str, timeout_seconds: float) -> Any:
        """Run a call that uses the engine, with the same guarantees as `call`.

        Raises:
            EngineError: As for `call`.
        """
        if self.late:
            raise EngineError(f"the context engine {self.name} is still busy with an earlier call")
        async with self._turn:
            if self._running is not None and not self._running.done():
                raise EngineError(
                    f"the context engine {self.name} is still busy with an earlier call"
                )
            self._what = what
            self._running = future = self._threads.submit(lambda: self._called(call))
            return await self._outcome(future, what, timeout_seconds)

    def _called(self, call: Callable[[], Any]) -> Any:
        """On the worker thread."""
        if not self._said_name:
            try:
                self._said_name = str(self.engine.name)[:64]
            except Exception:  # noqa: BLE001  (somebody else's property; only used in texts)
                self._said_name = type(self.engine).__name__
        result = call()
        for name in _NUMBERS:
            try:
                value = getattr(self.engine, name, 0)
                if name in self._computed or type(value) not in _PLAIN:
                    self._read[name] = _tokens(value)
            except Exception:  # noqa: BLE001  (somebody else's property: what was read before counts)
                log.debug("a property of the context engine failed", extra={"property": name})
        return result

    async def _outcome(self, future: Future[Any], what: str, timeout_seconds: float) -> Any:
        waiting = asyncio.wrap_future(future)
        deadline = asyncio.ensure_future(self._clock.sleep(timeout_seconds))
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def came(_: asyncio.Future[Any]) -> None:
            if not first.done():
                first.set_result(None)

        waiting.add_done_callback(came)
        deadline.add_done_callback(came)
        try:
            await first  # `asyncio.wait` does the same in twice the time, at every call
            if not waiting.done():
                log.error(
                    "context engine missed its deadline",
                    extra={
                        "engine": self.name,
                        "method": what,
                        "timeout_seconds": timeout_seconds,
                    },
                )
                raise EngineError(
                    f"the context engine {self.name} did not answer within {timeout_seconds:.0f} s"
                )
            try:
                return waiting.result()
            except EngineError as exc:
                # The engine may have raised it itself, and people read it.
                said = " ".join(str(exc).split())
                raise EngineError(said[:MAX_WHY_CHARS]) from exc
            except Exception as exc:
                log.exception("context engine failed", extra={"engine": self.name, "method": what})
                raise EngineError(
                    f"the context engine {self.name} failed ({type(exc).__name__})"
                ) from exc
        finally:
            deadline.cancel()
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # seen, even if the caller was cancelled at this moment
            waiting.cancel()  # a call that has not begun never will; one that has goes on

    async def tell(self, method: str, *args: Any, **keywords: Any) -> None:
        """Call a method whose failure changes nothing; it is logged.

        One that the engine does not have, or only inherits, is not called.
        """
        if hasattr(ContextEngine, method) and self.inherits(method):
            return
        try:
            await self.call(method, *args, **keywords)
        except EngineError:
            log.warning("context engine was not told", extra={"method": method}, exc_info=True)

    def _number(self, name: str) -> int:
        value = inspect.getattr_static(self.engine, name, 0)
        if name in self._computed or type(value) not in _PLAIN:
            return self._read.get(name, 0)  # what makes a number of it is code of the engine's too
        return _tokens(value)


def _is_computed(engine: ContextEngine, name: str) -> bool:
    """Does reading it run code of the engine's?"""
    return hasattr(type(inspect.getattr_static(engine, name, 0)), "__get__")


def _tokens(value: Any) -> int:
    """A size as an engine gives it, whatever it is."""
    try:
        return min(MAX_TOKENS, max(0, int(value)))
    except (TypeError, ValueError, OverflowError):
        return 0
