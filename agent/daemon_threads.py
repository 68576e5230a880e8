"""Owns the worker threads for synchronous code of others: few, daemonic, never the default pool.

The default executor also resolves host names, and the interpreter waits for its threads at exit: an
engine that hangs would take both down.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

IDLE_SECONDS = 30.0
"""A thread without work for so long ends."""


class DaemonThreads:
    """A bounded pool of daemon threads, started as needed. Safe to use from any thread."""

    def __init__(self, size: int = 8, *, name: str = "engine") -> None:
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call on one of the threads; it waits where all of them are taken.

        A future that is cancelled before its call has begun is never run.
        """
        future: Future[T] = Future()
        with self._lock:
            start = self._idle <= self._jobs.qsize() and self._threads < self._size
            if start:
                self._threads += 1
                number = self._threads
            self._jobs.put((future, call))
        if start:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                future, call = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if self._jobs.empty():
                        self._threads -= 1
                        return
                continue
            with self._lock:
                self._idle -= 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except StopIteration as exc:
                future.set_exception(_as_error(exc))  # an event loop can not carry it
            except Exception as exc:  # noqa: BLE001  (it belongs to the caller)
                future.set_exception(exc)
            except BaseException as exc:  # noqa: BLE001  (SystemExit must not end the daemon)
                future.set_exception(_as_error(exc))
            else:
                future.set_result(result)
            del future, call  # an idle thread keeps nothing alive


def _as_error(exc: BaseException) -> RuntimeError:
    error = RuntimeError(f"the call raised {type(exc).__name__}")
    error.__cause__ = exc
    return error
