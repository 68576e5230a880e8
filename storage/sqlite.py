"""Owns aiosqlite: the connections, their threads, and the opening of a store on a file.

Two things of aiosqlite are private and needed: running a callable on a connection's thread, and
making that thread a daemon, so that a connection nobody closed can not keep the process from
ending. Both are used in `Connection` and nowhere else; a test fails if an upgrade takes them away.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiosqlite

from agent.errors import DatabaseDamaged, PosthouseError, StoreError, StoreUnavailable
from agent.messages import Message
from agent.model_metadata import estimate_message_tokens
from agent.ports import Clock, IdSource
from agent.store_ports import StoreWork
from storage.archive import A, SqlArchive, T
from storage.database import READER_PRAGMAS, WRITER_PRAGMAS, Transaction, is_damage, outage
from storage.in_place import same_file, same_log
from storage.looking import READ_ONLY, Reach, is_writable, reach
from storage.migrate import check_version, migrate, shipped
from storage.restored import settle
from storage.search.keeper import IndexKeeper
from storage.store import SqlStore
from storage.writer import Writer

_log = logging.getLogger(__name__)

SET_ASIDE_NOTICE = (
    "I could not finish this message: each attempt ended with a crash. It has been set aside."
    " Please send it again, or something else."
)


class Connection:
    """One SQLite connection on a thread of its own."""

    def __init__(self, uri: str, pragmas: Sequence[str]) -> None:
        self._uri = uri
        self._pragmas = pragmas
        self._raw: sqlite3.Connection | None = None
        self._failure: sqlite3.Error | None = None
        self._driver = aiosqlite.Connection(self._connect, iter_chunk_size=64)
        self._driver._thread.daemon = True

    @classmethod
    async def open(cls, uri: str, pragmas: Sequence[str]) -> Connection:
        """Connect. A cancelled open leaves nothing behind.

        Raises:
            DatabaseDamaged: it is no database.
            StoreUnavailable: the file can not be opened.
        """
        connection = cls(uri, pragmas)
        connecting = asyncio.ensure_future(_awaited(connection._driver))
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The driver forgets a connection whose opening was cancelled: let it arrive, close it.
            await asyncio.wait([connecting])
            await connection.close()
            raise
        if connection._failure is not None:
            await connection.close()
            error = connection._failure
            raise _not_opened(uri, error) from error
        return connection

    def _connect(self) -> sqlite3.Connection:
        """Always a connection: after a failed one the driver does not wait for its thread."""
        try:
            self._raw = self._connect_to_file()
        except sqlite3.Error as exc:
            self._failure = exc
            self._raw = sqlite3.connect(":memory:")
        return self._raw

    def _connect_to_file(self) -> sqlite3.Connection:
        raw = sqlite3.connect(self._uri, uri=True, isolation_level=None, cached_statements=256)
        try:
            for pragma in self._pragmas:
                raw.execute(pragma)
        except sqlite3.Error:
            raw.close()
            raise
        return raw

    async def run(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> T:
        """Run this on the connection's thread, behind what was asked before."""
        if self._raw is None:
            raise StoreUnavailable("the store is closed")
        result: T = await self._driver._execute(function, self._raw, *args)  # type: ignore[no-untyped-call]
        return result

    async def close(self) -> None:
        """Let go of the file and the thread. May be called twice; a cancellation waits for it."""
        if self._raw is None:
            return
        self._raw = None
        await _whole(self._driver.close())


async def _opened_at_once(uri: str, pragmas: Sequence[str], *, count: int) -> list[Connection]:
    """Several connections, each on its thread; all of them or none."""
    tasks = [asyncio.ensure_future(Connection.open(uri, pragmas)) for _ in range(count)]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        for arrived in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(arrived, Connection):
                await arrived.close()
        raise


async def _awaited(driver: aiosqlite.Connection) -> None:
    await driver


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Finish this even when cancelled, then let the cancellation pass."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class SqliteWriting:
    """`storage.ways.Writing`: the writer's loop occupies the writing connection's thread."""

    def __init__(self, connection: Connection, writer: Writer) -> None:
        self._connection = connection
        self._writer = writer
        self._serving = asyncio.ensure_future(connection.run(writer.serve))

    def write(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        return self._writer.submit(function, args)

    def write_alone(self, function: Callable[[Transaction, *A], T], *args: *A) -> Awaitable[T]:
        return self._writer.submit(function, args, alone=True)

    def outside(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> Awaitable[T]:
        return self._writer.submit(function, args, outside=True)

    def trouble(self) -> str | None:
        return self._writer.trouble()

    def at_work(self) -> StoreWork | None:
        return self._writer.at_work()

    def now(self) -> float:
        return self._writer.now()

    def condemn(self, reason: str) -> None:
        self._writer.condemn(reason)

    @property
    def idle_seconds(self) -> float:
        return self._writer.idle_seconds

    async def close(self) -> None:
        await _whole(self._close())

    async def _close(self) -> None:
        try:
            await self._writer.stop()
            await asyncio.wait([self._serving])
        finally:
            await self._connection.close()


class SqliteReading:
    """`storage.archive.Reading`: a connection that can neither write nor check-point."""

    def __init__(self, connection: Connection, way: Reach | None = None) -> None:
        """``way``: how it was opened, if something of that has to go."""
        self._connection = connection
        self._way = way

    async def read(self, function: Callable[[sqlite3.Connection, *A], T], *args: *A) -> T:
        try:
            return await self._connection.run(_in_read_transaction, function, args)
        except sqlite3.Error as exc:
            raise StoreUnavailable(f"the database can not be read: {exc}") from exc

    async def close(self) -> None:
        await self._connection.close()
        if self._way is not None:
            self._way.let_go()


def _in_read_transaction(
    connection: sqlite3.Connection, function: Callable[..., T], args: tuple[Any, ...]
) -> T:
    connection.execute("BEGIN")
    try:
        return function(connection, *args)
    finally:
        connection.execute("ROLLBACK")


def _not_opened(uri: str, error: sqlite3.Error) -> StoreError:
    path = unquote(urlsplit(uri).path)
    said = f"the database {path} can not be opened: {error}. Nothing was changed"
    if is_damage(error):
        return DatabaseDamaged(f"{said}; `posthouse restore` puts a backup back")
    if not is_writable(Path(path).parent):
        return StoreUnavailable(f"{said}: {READ_ONLY}")
    return StoreUnavailable(f"{said}; check the folder's owner and free space")


def _uri(path: Path | str, mode: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?mode={mode}"


async def open_store(
    path: Path | str,
    *,
    clock: Clock,
    ids: IdSource,
    estimate: Callable[[Message], int] = estimate_message_tokens,
    set_aside_notice: str = SET_ASIDE_NOTICE,
) -> SqlStore:
    """Open (and make, and migrate) the store in this file; the only writer, by its caller's word.

    Raises:
        DatabaseTooNew: it was written by a newer version.
        DatabaseDamaged: it is no database, or what is in it can not be read.
        StoreUnavailable: the file can not be opened now.
    """
    opened: list[Connection] = []
    _make_private(path)
    try:
        writing = await Connection.open(_uri(path, "rwc"), WRITER_PRAGMAS)
        opened.append(writing)
        await _migrated(writing, path, clock.now())
        opened += await _opened_at_once(_uri(path, "ro"), READER_PRAGMAS, count=2)
    except BaseException:
        for connection in reversed(opened):
            await connection.close()
        raise
    index = IndexKeeper(clock)
    writer = Writer(
        clock=clock,
        ids=ids,
        estimate=estimate,
        in_place=same_file(path),
        log_in_place=same_log(path),
        on_damage=index.found_by_writer,
    )
    return SqlStore(
        SqliteWriting(writing, writer),
        *(SqliteReading(reader) for reader in opened[1:]),
        index=index,
        set_aside_notice=set_aside_notice,
    )


def _refuse_what_is_no_file(path: Path | str) -> None:
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
        raise StoreUnavailable(f"{path} is no file, so it holds no conversations")


async def open_archive(path: Path | str) -> SqlArchive:
    """Open the file for looking only, beside a running daemon or without one.

    Raises:
        DatabaseTooNew: it was written by a newer version.
        DatabaseDamaged: it is no database, or what is in it can not be read.
        StoreUnavailable: there is no such file, or it is empty.
    """
    _refuse_what_is_no_file(path)
    way = reach(Path(path))
    try:
        connection = await Connection.open(way.uri, READER_PRAGMAS)
    except BaseException:
        way.let_go()
        raise
    try:
        version = await connection.run(check_version, shipped()[-1].version)
        if version == 0:
            raise StoreUnavailable(f"{path} holds no conversations yet")
    except BaseException as exc:
        await connection.close()
        way.let_go()
        if isinstance(exc, sqlite3.Error):
            raise _not_opened(_uri(path, "ro"), exc) from exc
        raise
    return SqlArchive(SqliteReading(connection, way))


async def _migrated(connection: Connection, path: Path | str, now: float) -> None:
    try:
        applied = await connection.run(migrate, now)
        await connection.run(settle, now)
    except PosthouseError:
        raise
    except sqlite3.Error as exc:
        raise (_not_opened(_uri(path, "rwc"), exc) if is_damage(exc) else outage(exc)) from exc
    if applied:
        _log.info("database migrated", extra={"files": applied})


def _make_private(path: Path | str) -> None:
    """Conversations are for their owner only; SQLite's side files follow the file's mode.

    Only ever makes a file: opening and closing a live one would drop SQLite's locks on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    except OSError as exc:
        raise StoreUnavailable(f"the database can not be made: {exc}") from exc
