"""Owns copies of our database: whole, checked, made by SQLite itself beside whoever writes."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from agent.clock import RandomIds
from agent.errors import StoreError, StoreUnavailable
from agent.model_metadata import estimate_message_tokens
from storage import forgetting, remembered
from storage.database import Transaction, is_damage
from storage.in_place import has_log
from storage.looking import look
from storage.migrate import check_version, shipped
from storage.restored import carry_cursors, cursors_of, mark_as_copy
from storage.search import index, soundness
from storage.upkeep import examine

T = TypeVar("T")

_COUNTED = ("conversations", "sessions", "messages")
_SAMPLE_ROWS = 500


@dataclass(frozen=True, slots=True)
class Copy:
    """What is known of a copy, or of any database of ours that nobody writes to."""

    schema: int
    counts: dict[str, int]
    files: tuple[str, ...]
    """Names of the attachments that it names."""
    bytes: int
    sha256: str
    index_damage: str | None = None
    """Why the search index is not whole, or was not in what this was copied from. No message is
    lost by it: whoever opens the file as a store makes it anew."""


def copy_database(source: Path, target: Path, now: float) -> Copy:
    """Make a file with all that is committed at this moment. Blocking; writes go on meanwhile.

    It bears a mark: what was under way when it was made is not taken up where it is put to use
    (`storage.restored`). The target must not exist; if anything fails it does not exist then.

    Raises:
        StoreUnavailable: no room, no rights, or the copy is not what it should be.
        DatabaseTooNew: the source is of a newer version.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as exc:
        raise StoreUnavailable(f"{target} can not be made: {exc.strerror or exc}") from exc
    try:
        _copy(source, target, now)
        index_damage = _made_whole(target)
        copy = replace(facts_of(target), index_damage=index_damage)
        if _is_older(source, target, copy):
            raise StoreError("messages were erased while the copy was made; make it again")
    except BaseException as exc:
        target.unlink(missing_ok=True)
        if isinstance(exc, sqlite3.Error):
            raise StoreUnavailable(f"the database can not be copied: {exc}") from exc
        if isinstance(exc, OSError):
            raise StoreUnavailable(f"{target} can not be written: {exc.strerror}") from exc
        raise
    return copy


def _copy(source: Path, target: Path, now: float) -> None:
    # `VACUUM INTO` reads one state of the database, without holding up who writes.
    with closing(look(source)) as db:
        check_version(db, shipped()[-1].version)
        try:
            db.execute("VACUUM INTO ?", (str(target),))
        except sqlite3.DatabaseError as exc:
            if not is_damage(exc):
                raise
            _copy_without_index(db, target)
    with closing(_changing(target)) as db:
        mark_as_copy(db, now)
    sync(target)


def _copy_without_index(db: sqlite3.Connection, target: Path) -> None:
    """If the damaged page is one of the search index, all else is whole."""
    os.truncate(target, 0)
    with closing(sqlite3.connect(_uri(target, "rw"), uri=True, isolation_level=None)) as copy:
        db.backup(copy)
    with closing(_changing(target)) as copy:
        copy.execute("BEGIN IMMEDIATE")
        tx = Transaction(copy, RandomIds(), estimate_message_tokens)
        index.abandon(tx)
        remembered.set_fact(tx, index.ABANDONED, None)
        index.mark_damaged(tx)
        copy.execute("COMMIT")
        copy.execute("VACUUM")


def _made_whole(copy: Path) -> str | None:
    """Make its search index anew if that is damaged; why it was.

    One of an older version is only marked: it is made anew by the version that takes it in.
    """
    with closing(_changing(copy)) as db:
        damage = soundness.trouble(db, thorough=True)
        if damage is None:
            return None
        db.execute("BEGIN IMMEDIATE")
        tx = Transaction(db, RandomIds(), estimate_message_tokens)
        if check_version(db, shipped()[-1].version) == shipped()[-1].version:
            index.rebuild(tx)
        else:
            index.mark_damaged(tx)
        db.execute("COMMIT")
    sync(copy)
    return damage


def facts_of(path: Path) -> Copy:
    """Check a file that nobody writes to, to the last index, and say what it holds. Blocking.

    Raises:
        StoreUnavailable: it is damaged, or none of ours.
        DatabaseTooNew: it is of a newer version.
    """
    try:
        with closing(look(path)) as db:
            schema = check_version(db, shipped()[-1].version)
        found = examine(path, thorough=True)
        if found.pages or found.indexes:
            raise StoreUnavailable(f"{path} is damaged: {found.lines()[0]}")
        with closing(look(path)) as db:
            return Copy(
                schema,
                _counts(db),
                _files(db, schema),
                path.stat().st_size,
                digest_of(path),
                found.search[0] if found.search else None,
            )
    except sqlite3.Error as exc:
        raise StoreUnavailable(f"{path} is no database that can be read: {exc}") from exc
    except OSError as exc:
        raise StoreUnavailable(f"{path} can not be read: {exc.strerror or exc}") from exc


def is_spare(path: Path) -> bool:
    """Is this a database of ours that nobody has open? Then a newer copy may take its place."""
    if has_log(path):
        return False
    try:
        with closing(look(path)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    except sqlite3.Error:
        return False
    return not tables or tables.issuperset(_COUNTED)


def would_come_back(copy: Path, replaced: Path) -> tuple[str, ...] | None:
    """Who was forgotten in that store since the copy was made, and is in it. Blocking.

    None: that can not be told, as the store can not be read.
    """
    since = _read(replaced, forgetting.forgotten)
    if not since:
        return None if since is None else ()
    with closing(look(copy)) as db:
        return tuple(forgetting.would_come_back(db, since))


def prepare(copy: Path, replaced: Path, *, forget_again: bool = True) -> bool:
    """Make a copy fit to take a store's place: whatever is over by now is not begun again.

    ``forget_again``: whoever was forgotten since is, at the first start. False: the store that it
    replaces can not be read. What came in since is then not looked for.
    """
    rows = _read(replaced, cursors_of)
    since = _read(replaced, forgetting.forgotten)
    try:
        with closing(_changing(copy)) as db:
            carry_cursors(db, rows or [])
            if forget_again:
                forgetting.wish_again(db, forgetting.would_come_back(db, since or {}))
            forgetting.carry_forgotten(db, since or {})
        sync(copy)
    except sqlite3.Error as exc:
        raise StoreUnavailable(f"{copy} can not be prepared: {exc}") from exc
    return rows is not None


def _read(store: Path, what: Callable[[sqlite3.Connection], T]) -> T | None:
    """None: it can not be read."""
    try:
        with closing(look(store)) as db:
            return what(db)
    except (sqlite3.Error, StoreUnavailable, ValueError):
        return None


def digest_of(path: Path) -> str:
    """Of a file that nobody has open: a live database must never be opened by hand."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """On disk, whatever happens next: a file, or the list of names that a folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _changing(path: Path) -> sqlite3.Connection:
    """A copy that nobody else has open yet."""
    db = sqlite3.connect(_uri(path, "rw"), uri=True, isolation_level=None)
    db.execute("PRAGMA journal_mode = MEMORY")
    return db


def _counts(db: sqlite3.Connection) -> dict[str, int]:
    return {
        table: int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in _COUNTED
    }


def _files(db: sqlite3.Connection, schema: int) -> tuple[str, ...]:
    if schema < 2:
        return ()
    query = "SELECT DISTINCT name FROM attachments ORDER BY name"
    return tuple(name for (name,) in db.execute(query))


def _is_older(source: Path, target: Path, copy: Copy) -> bool:
    """Has something been erased since the copy was made? It must not outlive that here.

    Else what the copy says is what the source says: messages do not change, only new ones come.
    """
    with closing(look(source)) as live, closing(look(target)) as db:
        (last,) = db.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
        query = (
            "SELECT id, session_id, role, content FROM messages"
            f" WHERE id <= ? ORDER BY id DESC LIMIT {_SAMPLE_ROWS}"
        )
        there = {row[0]: row for row in live.execute(query, (last,))}
        here = {row[0]: row for row in db.execute(query, (last,))}
        counts = _counts(live)
    same = all(here.get(row_id, row) == row for row_id, row in there.items())
    return not same or any(count > counts[table] for table, count in copy.counts.items())
