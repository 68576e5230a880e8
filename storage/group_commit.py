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
from storage.database import (
    IndexDamaged,
    Transaction,
    is_index_alone,
    is_index_damage,
    is_outage,
    outage,
)
from storage.faultpoint import faultpoint

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

    Savepoints would cost every call something, and the index flushes itself at each. So there are
    none at first, and in the rare case the whole group starts again: with a savepoint for each
    call if one of them failed half-way, without the index if that is damaged. Calls only read and
    write the database.

    Raises:
        BaseException: what stopped it; rolled back, and no call knows of it yet (`fail`).
    """
    index_damaged = tx.index_damaged
    run, without_index = _run_calls, False
    while True:
        try:
            _commit(connection, tx, group, run, without_index=without_index)
            return
        except BaseException as exc:
            _roll_back(connection)
            tx.forget_index(0)
            tx.index_damaged = index_damaged  # what the group found out was not stored either
            match exc:
                case _MustUndo():
                    run = _run_with_savepoints
                case IndexDamaged() if not without_index:
                    without_index = True
                case sqlite3.DatabaseError() if is_index_alone(exc) and not without_index:
                    # Whoever touches the index by itself: what it is for can be made good later.
                    without_index = True
                case _:
                    raise


def _commit(
    connection: sqlite3.Connection,
    tx: Transaction,
    group: list[Call],
    run: Callable[[sqlite3.Connection, Transaction, list[Call]], None],
    *,
    without_index: bool,
) -> None:
    """One attempt.

    Raises:
        _MustUndo: a call failed after it had changed something.
        IndexDamaged: the index could not be written.
    """
    connection.execute("BEGIN IMMEDIATE")
    if without_index:
        tx.give_up_index()
    run(connection, tx, group)
    indexed = tx.write_index()
    faultpoint("commit.indexed")
    try:
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as exc:
        # The index writes itself out just before: some damage shows only now.
        if indexed and is_index_damage(exc):
            raise IndexDamaged from exc
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
        call.error = None
        changes = connection.total_changes
        try:
            call.result = call.function(tx, *call.arguments)
        except Exception as exc:
            if is_outage(exc):
                raise
            if connection.total_changes != changes:
                raise _MustUndo from exc
            call.error = _for_caller(exc)


def _run_with_savepoints(
    connection: sqlite3.Connection, tx: Transaction, group: list[Call]
) -> None:
    for call in group:
        tx.now = call.now
        texts = tx.indexed_count
        call.result = call.error = None
        connection.execute("SAVEPOINT one_call")
        try:
            call.result = call.function(tx, *call.arguments)
        except Exception as exc:
            if is_outage(exc):
                raise
            call.error = _for_caller(exc)
            connection.execute("ROLLBACK TO one_call")
            tx.forget_index(texts)
        connection.execute("RELEASE one_call")


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
