"""Owns the connection's facts and the one writer: group commit, errors, read-only connections.

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
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import Any

from agent.errors import StoreError, StoreUnavailable
from agent.messages import Message
from agent.ports import Clock, IdSource
from storage.faultpoint import faultpoint

_log = logging.getLogger(__name__)

GROUP_LIMIT = 256
"""Calls in one transaction; bounds how long the first of them waits."""

WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA busy_timeout = 5000",
    # A check-point makes a commit wait for dozens of milliseconds, so it is left to idle moments
    # (`Writer._next_burst`); without any, the log ends at 16 MB.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -8000",
    # What is erased is overwritten, whoever built the library.
    "PRAGMA secure_delete = ON",
)
READER_PRAGMAS = (
    "PRAGMA busy_timeout = 5000",
    # SQLite before 3.51.3 can corrupt a WAL that two connections checkpoint.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -8000",
    "PRAGMA query_only = ON",
)

INDEX_TEXT = "INSERT INTO message_index (rowid, text) VALUES (?, ?)"
# Taking out what is not in would spoil the index: it keeps no texts to compare with.
UNINDEX_TEXT = (
    "INSERT INTO message_index (message_index, rowid, text) SELECT 'delete', ?1, ?2"
    " WHERE EXISTS (SELECT 1 FROM message_index_docsize WHERE id = ?1)"
)

# Joining the index's segments by itself, SQLite now and then makes one append wait for dozens of
# milliseconds. Instead each append joins about as much as it adds (`Writer._write_index`); the
# second setting is how many segments may pile up before SQLite joins them all the same.
INDEX_SETTINGS = (
    "INSERT INTO message_index (message_index, rank) VALUES ('automerge', 0)",
    "INSERT INTO message_index (message_index, rank) VALUES ('crisismerge', 64)",
)
MOVED = (
    "the database file was moved, removed or replaced under this process; put it back where it was"
    " and everything that waits is stored"
)
LOG_REMOVED = (
    "the database's log was removed or replaced under this process. All that was stored is in the"
    " database; start posthouse again"
)
MERGE_INDEX = "INSERT INTO message_index (message_index, rank) VALUES ('merge', ?)"
_MERGE_AFTER = 4
"""Texts; the merging of fewer is not worth a statement."""
_MERGED_PAGES = 4
"""Of the index, for each text."""

SLOW_SECONDS = 30.0
"""What takes longer is trouble: a disk that hangs, or another process that holds the file."""
IDLE_SECONDS = 0.05
"""Nobody asks for anything for so long: time to write the log back into the file."""
_IDLE_AFTER = 100
"""Calls since the last time; for fewer the disk is not worth being woken."""

# Primary result codes that say: this statement is wrong. All others (full, I/O, busy, corrupt …)
# say: this database can not be written now.
_STATEMENT_CODES = frozenset({1, 18, 19, 20, 21, 23, 25})
_CORRUPT_VTAB = 267


def code_of(error: sqlite3.Error) -> int | None:
    """The extended result code; None if the error was not SQLite's own."""
    return getattr(error, "sqlite_errorcode", None)


def is_outage(error: BaseException) -> bool:
    """Does this error say that the database, not the statement, is at fault?"""
    if not isinstance(error, sqlite3.Error):
        return False
    code = code_of(error)
    return code is not None and code & 0xFF not in _STATEMENT_CODES


def is_index_damage(error: sqlite3.Error) -> bool:
    """Does this error, met while indexing, come from the full-text index alone?

    A damaged index says so, or trips over its own constraints. Page damage carries the plain code
    and must stay an outage: writing on would spread it.
    """
    return code_of(error) == _CORRUPT_VTAB or not is_outage(error)


def outage(error: BaseException) -> StoreUnavailable:
    """The error to hand to callers."""
    return StoreUnavailable(f"the database can not be written: {error}")


def _for_caller(error: Exception) -> Exception:
    """The error as the port names it; a bug stays what it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    refused = StoreError(f"the database refused this: {error}")
    refused.__cause__ = error
    return refused


class Transaction:
    """What a write sees: statements, the time of the call, ids, and the index of what it stores."""

    __slots__ = ("_ids", "_texts", "estimate", "execute", "executemany", "index_damaged", "now")

    def __init__(
        self,
        connection: sqlite3.Connection,
        ids: IdSource,
        estimate: Callable[[Message], int],
    ) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.estimate = estimate
        self.now = 0.0
        self.index_damaged = _index_is_damaged(connection)
        self._ids = ids
        self._texts: list[tuple[str, int, str]] = []

    def new_id(self, prefix: str) -> str:
        """A new id."""
        return self._ids.new(prefix)

    def index(self, row_id: int, text: str) -> None:
        """Put this text (segmented already) into the search index in this transaction.

        Gathered and written once per group: the index flushes itself at every savepoint.
        """
        self._texts.append((INDEX_TEXT, row_id, text))

    def unindex(self, row_id: int, text: str) -> None:
        """Take this text (segmented, as it went in) out of the search index."""
        self._texts.append((UNINDEX_TEXT, row_id, text))

    @property
    def indexed_count(self) -> int:
        """How many texts wait to be indexed."""
        return len(self._texts)

    def forget_index(self, count: int) -> None:
        """Keep only the first ``count`` texts: a call was undone."""
        del self._texts[count:]

    def take_index(self) -> list[tuple[str, int, str]]:
        """The gathered texts, each with its statement, in order; none are left."""
        texts = self._texts
        self._texts = []
        return texts


@dataclass(slots=True, eq=False)
class Call:
    """One store method on its way through the writer."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    now: float
    alone: bool
    """Has a transaction for itself: it takes long, and nobody shall wait for its savepoint."""
    outside: bool = False
    """Is given the connection, outside any transaction: it works on the file, not in it."""
    result: Any = None
    error: BaseException | None = None


class _MustUndo(Exception):
    """A call failed after it had changed something."""


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
    ) -> None:
        """``in_place``: is the file at the path still the one that was opened?

        ``log_in_place``: and its log? What is written into one without a name is lost.
        """
        self._clock = clock
        self._ids = ids
        self._estimate = estimate
        self._in_place = in_place
        self._log_in_place = log_in_place
        self._loop = asyncio.get_running_loop()
        self._burst: list[Call] = []
        """Asked for in this turn of the loop, not handed over yet."""
        self._queue: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._closed = False
        self._unmerged = 0
        self._calls = 0
        """Written since the log was last written back."""
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._last_failure: str | None = None
        """Of the last group; written by the connection's thread."""
        self._condemned: str | None = None
        self._asked_at = clock.monotonic()
        self._at_work_since: float | None = None
        """A transaction is under way; written by the connection's thread."""
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
        """`storage.store.Writing.now`."""
        return self._clock.now()

    def trouble(self) -> str | None:
        """`storage.store.Writing.trouble`."""
        if self._ended_by_itself:
            return "the thread that writes has ended"
        if (seconds := self.at_work_seconds()) > SLOW_SECONDS:
            return f"a write has been under way for {seconds:.0f} s"
        return self._refusal() or self._last_failure

    def at_work_seconds(self) -> float:
        """`storage.store.Writing.at_work_seconds`."""
        since = self._at_work_since
        if self._ended_by_itself:
            return float("inf")
        return 0.0 if since is None else max(0.0, self._clock.monotonic() - since)

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
                    group = _next_group(waiting)
                    if group[0].outside:
                        self._run_outside(connection, group[0])
                    else:
                        self._at_work_since = self._clock.monotonic()
                        self._run_group(connection, tx, group)
                        self._at_work_since = None
                    self._answer(group)
            _tidy(connection)
        finally:
            self._tell(self._finish, None)

    def _gather(self, waiting: deque[Call], connection: sqlite3.Connection) -> bool:
        """Take over what was asked for, and wait if nothing was. False: nothing more will be."""
        while len(waiting) < GROUP_LIMIT:
            try:
                burst = self._queue.get_nowait() if waiting else self._next_burst(connection)
            except Empty:
                return True
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

    def _run_group(
        self, connection: sqlite3.Connection, tx: Transaction, group: list[Call]
    ) -> None:
        """One transaction. Whatever goes wrong with the database goes wrong for all of them."""
        index_damaged = tx.index_damaged
        try:
            self._refuse_if_need_be(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._run_calls(connection, tx, group)
            except _MustUndo:
                # Rare, and a savepoint before each call would cost every call something: start
                # again, this time with savepoints. Calls only read and write the database.
                connection.execute("ROLLBACK")
                tx.take_index()
                connection.execute("BEGIN IMMEDIATE")
                for call in group:
                    self._run_with_savepoint(tx, call)
            self._write_index(connection, tx)
            connection.execute("COMMIT")
            self._calls += len(group)
            self._last_failure = None
        except BaseException as exc:  # noqa: BLE001 - border of the thread: nobody may wait for ever
            _roll_back(connection)
            tx.take_index()
            tx.index_damaged = index_damaged  # what the group found out was not stored either
            _log.error("write failed", extra={"calls": len(group), "error": repr(exc)})
            error = exc if isinstance(exc, StoreError) else outage(exc)
            self._last_failure = str(error)
            for call in group:
                call.error = error

    def _run_outside(self, connection: sqlite3.Connection, call: Call) -> None:
        """It changes nothing that was stored, so its failure says nothing of what comes next."""
        try:
            self._refuse_if_need_be(connection)
            call.result = call.function(connection, *call.arguments)
        except BaseException as exc:  # noqa: BLE001 - border of the thread, as in `_run_group`
            _roll_back(connection)
            call.error = exc if isinstance(exc, StoreError) else outage(exc)

    def _run_calls(
        self, connection: sqlite3.Connection, tx: Transaction, group: list[Call]
    ) -> None:
        """Without savepoints: a call that fails has, as a rule, not changed anything yet."""
        for call in group:
            tx.now = call.now
            changes = connection.total_changes
            try:
                call.result = call.function(tx, *call.arguments)
            except Exception as exc:
                if is_outage(exc):
                    raise
                if connection.total_changes != changes:
                    raise _MustUndo from exc
                call.error = _for_caller(exc)

    def _run_with_savepoint(self, tx: Transaction, call: Call) -> None:
        tx.now = call.now
        texts = tx.indexed_count
        call.result = call.error = None
        tx.execute("SAVEPOINT one_call")
        try:
            call.result = call.function(tx, *call.arguments)
        except Exception as exc:
            if is_outage(exc):
                raise
            call.error = _for_caller(exc)
            tx.execute("ROLLBACK TO one_call")
            tx.forget_index(texts)
        tx.execute("RELEASE one_call")

    def _write_index(self, connection: sqlite3.Connection, tx: Transaction) -> None:
        """Index what the group stored. A damaged index must not stop anyone from talking."""
        texts = tx.take_index()
        if not texts or tx.index_damaged:
            return
        connection.execute("SAVEPOINT search_index")
        try:
            for statement, of_one_kind in groupby(texts, key=itemgetter(0)):
                connection.executemany(statement, [pair for _, *pair in of_one_kind])
            self._unmerged += len(texts)
            if self._unmerged >= _MERGE_AFTER:
                connection.execute(MERGE_INDEX, (self._unmerged * _MERGED_PAGES,))
                self._unmerged = 0
            # The index writes itself out at a savepoint: its damage has to show before COMMIT.
            connection.execute("SAVEPOINT written_out")
            connection.execute("RELEASE search_index")
        except sqlite3.DatabaseError as exc:
            if not is_index_damage(exc):
                raise
            connection.execute("ROLLBACK TO search_index")
            connection.execute("INSERT OR REPLACE INTO facts VALUES ('index_damaged', '1')")
            tx.index_damaged = True
            connection.execute("RELEASE search_index")
            _log.error("search index is damaged; messages are stored without it until a rebuild")
        faultpoint("commit.indexed")

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
        self._tell(_resolve, group)

    def _tell(self, function: Callable[[Any], None], argument: object) -> None:
        # The loop may be gone by the time of the last commit; then nobody waits either.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, argument)


def _next_group(waiting: deque[Call]) -> list[Call]:
    """What becomes one transaction: the first of them, and all behind it that may join it."""
    group = [waiting.popleft()]
    if not group[0].alone:
        while waiting and not waiting[0].alone and len(group) < GROUP_LIMIT:
            group.append(waiting.popleft())
    return group


def _resolve(group: list[Call]) -> None:
    for call in group:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk may have rolled back by itself already.
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error as exc:
            _log.error("roll-back failed", extra={"error": repr(exc)})


def _index_is_damaged(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM facts WHERE name = 'index_damaged'"
    return connection.execute(query).fetchone() is not None


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
