"""Owns waiting for a call that may hang: on a daemon thread, for so long and no longer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Started(Generic[T]):
    """A call that runs; it can not be interrupted, so it is left behind where it takes too long."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._answers: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = (
            queue.SimpleQueue()
        )
        self._call = call
        threading.Thread(target=self._work, daemon=True, name="patience").start()

    def _work(self) -> None:
        try:
            self._answers.put((self._call(), None))
        except BaseException as exc:  # noqa: BLE001 - handed over whole, to whoever waits
            self._answers.put((None, exc))

    def wait(self, seconds: float) -> T:
        """What the call gives, or raises; once.

        Raises:
            TimeoutError: it has not come back in time; its thread ends with the process.
        """
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} seconds") from None
        if answer[1] is not None:
            raise answer[1]
        return answer[0]


def within(seconds: float, call: Callable[[], T]) -> T:
    """As `Started.wait`, at once."""
    return Started(call).wait(seconds)
