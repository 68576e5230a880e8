"""Owns the one writer: group commit, and what is refused because it would be lost.

The writer is a loop that lives on the thread of its connection. Everything that was asked for
while the last commit ran becomes one transaction; a call in it that fails undoes only itself.
What the event loop asks for in one turn arrives as one burst: a thread that is woken by the first
of fifty calls fights for the interpreter with the loop that is making the other forty-nine.
Callers are answered after the COMMIT, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from agent.errors import StoreUnavailable
from agent.messages import Message
from agent.ports import Clock, IdSource
from agent.store_ports import StoreWork
from storage import long_work
from storage.database import Transaction, is_damage
from storage.group_commit import (
    GROUP_LIMIT,
    Call,
    fail,
    next_group,
    resolve,
    run_group,
    run_outside,
)

_log = logging.getLogger(__name__)

MOVED = (
    "the database file was moved, removed or replaced under this process; put it back where it was"
    " and everything that waits is stored"
)
LOG_REMOVED = (
    "the database's log was removed or replaced under this process. All that was stored is in the"
    " database; start posthouse again"
)
SLOW_SECONDS = 30.0
"""What takes longer is trouble: a disk that hangs, or another process that holds the file."""
IDLE_SECONDS = 0.05
"""Nobody asks for anything for so long: time to write the log back into the file."""
_IDLE_AFTER = 100
"""Calls since the last time; for fewer the disk is not worth being woken."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What is under way."""

    at: float
    what: str = ""
    bound_seconds: float | None = None


class Writer:
    """The loop on the writing connection's thread, and the way to it from the event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        ids: IdSource,
        estimate: Callable[[Message], int],
        in_place: Callable[[], bool],
        log_in_place: Callable[[], bool] = lambda: True,
        on_damage: Callable[[str | None], None] = lambda of_pages: None,
    ) -> None:
        """``in_place``: is the file at the path still the one that was opened?

        ``log_in_place``: and its log? What is written into one without a name is lost.
        ``on_damage``: told, on the loop, that SQLite met a page that is none, or (None) that the
        full-text index was left out of what was stored.
        """
        self._clock = clock
        self._ids = ids
        self._estimate = estimate
        self._in_place = in_place
        self._log_in_place = log_in_place
        self._on_damage = on_damage
        self._loop = asyncio.get_running_loop()
        self._burst: list[Call] = []
        """Asked for in this turn of the loop, not handed over yet."""
        self._queue: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._closed = False
        self._calls = 0
        """Written since the log was last written back."""
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._last_failure: str | None = None
        """Of the last group; written by the connection's thread."""
        self._condemned: str | None = None
        self._asked_at = clock.monotonic()
        self._begun: _Begun | None = None
        """What is under way; written by the connection's thread."""
        self._ended_by_itself = False

    # on the event loop

    def submit(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        alone: bool = False,
        outside: bool = False,
    ) -> asyncio.Future[Any]:
        """Queue a call. The future is done when the call is durable, or has failed."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._burst:
            self._loop.call_soon(self._hand_over)
        future = self._loop.create_future()
        self._asked_at = self._clock.monotonic()
        now = self._clock.now()
        self._burst.append(Call(function, arguments, future, now, alone or outside, outside))
        return future

    def _hand_over(self) -> None:
        burst, self._burst = self._burst, []
        if burst:
            self._queue.put(burst)

    def now(self) -> float:
        """`storage.ways.Writing.now`."""
        return self._clock.now()

    def trouble(self) -> str | None:
        """`storage.ways.Writing.trouble`."""
        if self._ended_by_itself:
            return "the thread that writes has ended"
        work = self.at_work()
        if work is not None and work.seconds > (work.bound_seconds or SLOW_SECONDS):
            return f"{work.what or 'a write'} has been under way for {work.seconds:.0f} s"
        return self._refusal() or self._last_failure

    def at_work(self) -> StoreWork | None:
        """`storage.ways.Writing.at_work`."""
        begun = self._begun
        if self._ended_by_itself:
            return StoreWork(float("inf"))
        if begun is None:
            return None
        seconds = max(0.0, self._clock.monotonic() - begun.at)
        return StoreWork(seconds, begun.what, begun.bound_seconds)

    @property
    def idle_seconds(self) -> float:
        """For how long nobody has asked for anything."""
        return self._clock.monotonic() - self._asked_at

    def condemn(self, reason: str) -> None:
        """Take nothing more, for this reason: writing on would make it worse."""
        self._condemned = reason

    def _refusal(self) -> str | None:
        """Why nothing may be written; asked on both sides."""
        if self._condemned is not None:
            return self._condemned
        if not self._in_place():
            return MOVED
        return None if self._log_in_place() else LOG_REMOVED

    def _refuse_if_need_be(self, connection: sqlite3.Connection) -> None:
        """On the thread, before anything is written."""
        refusal = self._refusal()
        if refusal is LOG_REMOVED:
            # It is still ours to read: what it holds goes into the database while that is so.
            _check_point(connection, "PASSIVE")
        if refusal is not None:
            raise StoreUnavailable(refusal)

    async def stop(self) -> None:
        """Take no more calls, finish those that wait, and let the thread go."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._stopped)

    # on the connection's thread

    def serve(self, connection: sqlite3.Connection) -> None:
        """Run until `stop`."""
        waiting: deque[Call] = deque()
        more = True
        try:
            tx = Transaction(connection, self._ids, self._estimate)
            while more or waiting:
                if more:
                    more = self._gather(waiting, connection)
                if waiting:
                    group = next_group(waiting)
                    self._note_work(connection, group[0])
                    if group[0].outside:
                        self._run_outside(connection, group)
                    else:
                        self._run_group(connection, tx, group)
                    self._begun = None
                    self._answer(group)
            _tidy(connection)
        finally:
            self._tell(self._finish, None)

    def _gather(self, waiting: deque[Call], connection: sqlite3.Connection) -> bool:
        """Take over what was asked for, and wait if nothing was. False: nothing more will be."""
        while len(waiting) < GROUP_LIMIT and not (waiting and self._queue.empty()):
            burst = self._next_burst(connection)
            if burst is None:
                return False
            waiting.extend(burst)
        return True

    def _next_burst(self, connection: sqlite3.Connection) -> list[Call] | None:
        """Wait for one. While none comes the log is written back, so that no append has to."""
        if self._calls >= _IDLE_AFTER:
            try:
                return self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                self._calls = 0
                _check_point(connection, "PASSIVE")
        return self._queue.get()

    def _note_work(self, connection: sqlite3.Connection, call: Call) -> None:
        """Before it begins; the file is asked for its size only if all of it is worked on."""
        now = self._clock.monotonic()
        what = long_work.words_for(call.function) if call.alone else ""
        self._begun = _Begun(now)
        if what:
            try:
                bound_seconds = long_work.bound_seconds(_file_bytes(connection))
            except sqlite3.Error:  # the work itself will say it
                return
            self._begun = _Begun(now, what, bound_seconds)

    def _run_group(
        self, connection: sqlite3.Connection, tx: Transaction, group: list[Call]
    ) -> None:
        try:
            self._refuse_if_need_be(connection)
            before = connection.total_changes
            run_group(connection, tx, group)
            self._calls += len(group)
            # Nothing, and what upkeep does alone, finds room where no message would.
            if connection.total_changes != before and not group[0].alone:
                self._last_failure = None
            if tx.index_damaged:
                self._tell(self._on_damage, None)
        except BaseException as exc:  # noqa: BLE001 - border of the thread: nobody may wait for ever
            _log.error("write failed", extra={"calls": len(group), "error": repr(exc)})
            self._last_failure = str(fail(group, exc))
            if isinstance(exc, sqlite3.Error) and is_damage(exc):
                self._tell(self._on_damage, str(exc))

    def _run_outside(self, connection: sqlite3.Connection, group: list[Call]) -> None:
        """It changes nothing that was stored, so its failure says nothing of what comes next."""
        try:
            self._refuse_if_need_be(connection)
            run_outside(connection, group[0])
        except BaseException as exc:  # noqa: BLE001 - border of the thread, as in `_run_group`
            _log.warning("work on the file failed", extra={"error": repr(exc)})
            fail(group, exc)

    def _finish(self, _: object) -> None:
        """On the loop: the thread takes nothing more, and nobody may wait for ever."""
        self._ended_by_itself = not self._closed
        self._closed = True
        self._hand_over()
        while not self._queue.empty():
            for call in self._queue.get_nowait() or ():
                if not call.future.done():
                    call.future.set_exception(StoreUnavailable("the store is closed"))
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _answer(self, group: list[Call]) -> None:
        self._tell(resolve, group)

    def _tell(self, function: Callable[[Any], None], argument: object) -> None:
        # The loop may be gone by the time of the last commit; then nobody waits either.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, argument)


def _file_bytes(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(page_bytes)


def _tidy(connection: sqlite3.Connection) -> None:
    """Leave one whole file behind. What fails here costs nothing: the log is replayed at start."""
    try:
        connection.execute("PRAGMA optimize")
    except sqlite3.Error as exc:
        _log.warning("tidying failed", extra={"error": repr(exc)})
    _check_point(connection, "TRUNCATE")


def _check_point(connection: sqlite3.Connection, mode: str) -> None:
    """Write the log back. What fails here costs nothing: the log is replayed at start."""
    try:
        connection.execute(f"PRAGMA wal_checkpoint({mode})")
    except sqlite3.Error as exc:
        _log.warning("check-point failed", extra={"error": repr(exc)})
