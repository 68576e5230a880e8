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
from agent.ports import Clock

log = logging.getLogger(__name__)

QUICK_SECONDS = 10.0
"""For every method but `compress`."""


def accepted_keywords(call: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Those of the keywords that a callable takes, by its signature.

    Older engines lack newer arguments. Asking the signature, and not calling twice, keeps a
    ``TypeError`` from inside the engine what it is.
    """
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return dict(keywords)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return dict(keywords)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {p.name for p in parameters if p.kind in named}
    return {key: value for key, value in keywords.items() if key in names}


class EngineHost:
    """Calls the engine of one conversation.

    A call that misses its deadline, or whose caller was cancelled, goes on in its thread, because a
    thread can not be stopped. Until it is back the engine is *late*: further calls are refused at
    once. What a late call returns is thrown away.
    """

    def __init__(self, engine: ContextEngine, threads: DaemonThreads, clock: Clock) -> None:
        self.engine = engine
        self._threads = threads
        self._clock = clock
        self._turn = asyncio.Lock()
        self._running: Future[Any] | None = None

    @property
    def late(self) -> bool:
        """Is a call still running that nobody waits for any more?"""
        return self._running is not None and not self._running.done() and not self._turn.locked()

    @property
    def busy(self) -> bool:
        """Is a call running, waited for or not?"""
        return self._turn.locked() or self.late

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
        bound = getattr(self.engine, method, None)
        if not callable(bound):
            raise EngineError(f"the engine has no method {method}")
        accepted = accepted_keywords(bound, keywords)
        return await self.run(lambda: bound(*args, **accepted), method, timeout_seconds)

    async def run(self, call: Callable[[], Any], what: str, timeout_seconds: float) -> Any:
        """Run a call that uses the engine, with the same guarantees as `call`.

        Raises:
            EngineError: As for `call`.
        """
        if self.late:
            raise EngineError(f"the context engine {self._name} is still busy with an earlier call")
        async with self._turn:
            if self._running is not None and not self._running.done():
                raise EngineError(
                    f"the context engine {self._name} is still busy with an earlier call"
                )
            self._running = future = self._threads.submit(call)
            return await self._outcome(future, what, timeout_seconds)

    async def _outcome(self, future: Future[Any], what: str, timeout_seconds: float) -> Any:
        waiting = asyncio.wrap_future(future)
        deadline = asyncio.ensure_future(self._clock.sleep(timeout_seconds))
        try:
            await asyncio.wait({waiting, deadline}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                log.error(
                    "context engine missed its deadline",
                    extra={
                        "engine": self._name,
                        "method": what,
                        "timeout_seconds": timeout_seconds,
                    },
                )
                raise EngineError(
                    f"the context engine {self._name} did not answer within {timeout_seconds:.0f} s"
                )
            try:
                return waiting.result()
            except Exception as exc:
                log.exception("context engine failed", extra={"engine": self._name, "method": what})
                raise EngineError(
                    f"the context engine {self._name} failed ({type(exc).__name__})"
                ) from exc
        finally:
            deadline.cancel()
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # seen, even if the caller was cancelled at this moment
            waiting.cancel()  # a call that has not begun never will; one that has goes on

    async def tell(self, method: str, *args: Any, **keywords: Any) -> None:
        """Call a method whose failure changes nothing; it is logged."""
        if getattr(type(self.engine), method, None) is getattr(ContextEngine, method, None):
            return  # inherited: does nothing
        try:
            await self.call(method, *args, **keywords)
        except EngineError:
            log.warning("context engine was not told", extra={"method": method}, exc_info=True)

    @property
    def _name(self) -> str:
        try:
            return str(self.engine.name)
        except Exception:  # noqa: BLE001  (somebody else's property; only used in texts)
            return type(self.engine).__name__
