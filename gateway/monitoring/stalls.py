"""Owns how late the event loop is, and what it is at when it does not come round.

A thread of its own looks: whoever stands still can not say so.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.crashes.report import of_threads, stack_of

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
SAMPLES = 300
"""Five minutes of them."""
STALL_SECONDS = 2.0
FROZEN_SECONDS = 25.0
"""Well before a watchdog gives up (`WatchdogSec` is 60): then a report is left behind."""
QUIET_SECONDS = 60.0
"""Between two stacks in the log."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the loop was, of late; seconds."""

    p99: float = 0.0
    most: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """When it counts as what."""

    tick_seconds: float = TICK_SECONDS
    stall_seconds: float = STALL_SECONDS
    frozen_seconds: float = FROZEN_SECONDS
    quiet_seconds: float = QUIET_SECONDS


def patience_for(watchdog_seconds: float | None) -> Patience:
    """The report has to be there before the watchdog's end.

    It is fed twice in its time, so a loop that stands still has half of it left at the least.
    """
    if watchdog_seconds is None:
        return Patience()
    return Patience(frozen_seconds=min(FROZEN_SECONDS, 0.4 * watchdog_seconds))


class LoopWatch:
    """Asks the loop to say that it is there, once in a while, from outside."""

    def __init__(
        self,
        *,
        on_frozen: Callable[[str, str], object] = lambda what, stacks: None,
        patience: Patience | None = None,
    ) -> None:
        """``on_frozen`` is told, on the thread, what happened and what every thread is at."""
        self._on_frozen = on_frozen
        self._patience = patience or Patience()
        self._lags: deque[float] = deque(maxlen=SAMPLES)
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._asked_at: float | None = None
        """None: it has answered."""
        self.stalls = 0
        """How often it stood still since the start."""

    def start(self) -> None:
        """Watch the loop that this is called on."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, name="loop watch", daemon=True).start()

    def stop(self) -> None:
        """No more."""
        self._over.set()

    def lag(self) -> Lag:
        """Of the last minutes; what it is at just now counts as well."""
        lags, asked = sorted(self._lags), self._asked_at
        if asked is not None and (late := time.monotonic() - asked) > self._patience.tick_seconds:
            lags.append(late)
        if not lags:
            return Lag()
        return Lag(lags[min(len(lags) - 1, len(lags) * 99 // 100)], max(lags), len(lags))

    def _answer(self, asked_at: float) -> None:
        self._lags.append(time.monotonic() - asked_at)
        self._asked_at = None

    def _watch(self) -> None:
        assert self._loop is not None
        stood, told, reported, said_at = 0.0, False, False, float("-inf")
        looked_at = time.monotonic()
        tick = self._patience.tick_seconds
        while not self._over.wait(tick):
            now = time.monotonic()
            # A process that was stopped as a whole comes back late itself: that is not the loop's.
            lived, looked_at = min(now - looked_at, 1.5 * tick), now
            if self._asked_at is not None:
                stood += lived
                if stood >= self._patience.stall_seconds and not told:
                    told = True
                    self.stalls += 1
                    if now - said_at >= self._patience.quiet_seconds:
                        said_at = now
                        self._say(now - self._asked_at_or(now))
                if stood >= self._patience.frozen_seconds and not reported:
                    reported = True
                    self._report(stood)
                continue
            if told:
                log.warning("the event loop goes on", extra={"stood_seconds": round(stood, 1)})
            stood, told, reported = 0.0, False, False
            self._asked_at = now
            try:
                self._loop.call_soon_threadsafe(self._answer, now)
            except RuntimeError:
                return  # it is closed

    def _asked_at_or(self, now: float) -> float:
        asked = self._asked_at
        return now if asked is None else asked

    def _say(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        record = log.makeRecord(
            log.name,
            logging.WARNING,
            __file__,
            0,
            "the event loop stands still: nobody is answered meanwhile",
            (),
            None,
            extra={"seconds": round(seconds, 1)},
        )
        record.stack_info = stack_of(frame) if frame is not None else None
        log.handle(record)

    def _report(self, seconds: float) -> None:
        names = {t.ident: t.name for t in threading.enumerate() if t.ident is not None}
        names[self._loop_thread] = "of the event loop"
        body = of_threads(sys._current_frames(), names)
        try:
            self._on_frozen("the event loop stood still", f"for {seconds:.0f} s\n{body}")
        except Exception:  # the supervised border: whoever watches must not fall
            log.exception("a report of what stands still could not be made")
