"""Owns how calls become one transaction, and how each of them ends (on the writer's thread).

Whatever goes wrong with the database goes wrong for all of them; a call that fails by itself
undoes only itself.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.errors import StoreError
from storage.database import Transaction, is_outage, outage

_log = logging.getLogger(__name__)

GROUP_LIMIT = 256
"""Calls in one transaction; bounds how long the first of them waits."""


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


def next_group(waiting: deque[Call]) -> list[Call]:
    """What becomes one transaction: the first of them, and all behind it that may join it."""
    group = [waiting.popleft()]
    if not group[0].alone:
        while waiting and not waiting[0].alone and len(group) < GROUP_LIMIT:
            group.append(waiting.popleft())
    return group


def run_group(connection: sqlite3.Connection, tx: Transaction, group: list[Call]) -> None:
    """Commit all of it.

    Raises:
        BaseException: what stopped it; rolled back, and no call knows of it yet (`fail`).
    """
    index_damaged = tx.index_damaged
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            _run_calls(connection, tx, group)
        except _MustUndo:
            # Rare, and a savepoint before each call would cost every call something: start
            # again, this time with savepoints. Calls only read and write the database.
            connection.execute("ROLLBACK")
            tx.forget_index(0)
            connection.execute("BEGIN IMMEDIATE")
            for call in group:
                _run_with_savepoint(tx, call)
        tx.write_index()
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        tx.forget_index(0)
        tx.index_damaged = index_damaged  # what the group found out was not stored either
        raise


def run_outside(connection: sqlite3.Connection, call: Call) -> None:
    """Without a transaction of ours.

    Raises:
        BaseException: the call knows nothing of it yet (`fail`).
    """
    try:
        call.result = call.function(connection, *call.arguments)
    except BaseException:
        _roll_back(connection)
        raise


def fail(group: list[Call], error: BaseException) -> StoreError:
    """All of them end with this; gives back how callers are told."""
    told = error if isinstance(error, StoreError) else outage(error)
    for call in group:
        call.error = told
    return told


def resolve(group: list[Call]) -> None:
    """On the loop: tell who waits."""
    for call in group:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)


def _run_calls(connection: sqlite3.Connection, tx: Transaction, group: list[Call]) -> None:
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


def _run_with_savepoint(tx: Transaction, call: Call) -> None:
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


def _for_caller(error: Exception) -> Exception:
    """The error as the port names it; a bug stays what it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    refused = StoreError(f"the database refused this: {error}")
    refused.__cause__ = error
    return refused


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk may have rolled back by itself already.
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error as exc:
            _log.error("roll-back failed", extra={"error": repr(exc)})
