"""Owns whether the file is sound: what a check finds, and in which of three ways it is damaged."""

from __future__ import annotations

import logging
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.errors import DatabaseTooNew, StoreUnavailable
from storage.database import Transaction, is_damage
from storage.looking import look
from storage.migrate import check_version, shipped
from storage.search import index, soundness

_log = logging.getLogger(__name__)

_MOST_TOLD = 5
_MOST_LINES = 100_000
"""Of a check: what is no damage must not crowd out what is."""
_NEVER_USED = re.compile(r"Page \d+ is never used")
_INDEX_ALONE = re.compile(
    r"(?:row \d+ missing from index|wrong # of entries in index|non-unique entry in index) (.+)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SEARCH = "message_index"


@dataclass(frozen=True, slots=True)
class Examined:
    """What a check found; each kind of damage is mended in another way, or not at all."""

    pages: tuple[str, ...] = ()
    """Of what is stored. Writing on would spread it."""
    indexes: tuple[str, ...] = ()
    """Names of those that do not say what their tables say: they can be made anew."""
    search: tuple[str, ...] = ()
    """Of the full-text index: it is made anew beside everything else."""

    @property
    def sound(self) -> bool:
        """Nothing was found."""
        return not (self.pages or self.indexes or self.search)

    def lines(self) -> list[str]:
        """For people."""
        return [
            *self.pages,
            *(f"the index {name} does not fit its table" for name in self.indexes),
            *(f"the search index is damaged: {text}" for text in self.search),
        ]


def check_file(path: Path, *, thorough: bool = False) -> list[str]:
    """What is wrong with a database of ours, one line each; also beside a running daemon."""
    try:
        return examine(path, thorough=thorough).lines()
    except StoreUnavailable as exc:
        return [str(exc)]


def examine(path: Path, *, thorough: bool = False) -> Examined:
    """Look at all of it on a connection of its own that can not write. Blocking.

    ``thorough``: is each index complete, and can all of the full-text index be read?

    Raises:
        StoreUnavailable: it could not be looked at; nothing is known of it.
    """
    try:
        with closing(look(path)) as db:
            return looked_over(db, thorough=thorough)
    except DatabaseTooNew as exc:
        return Examined(pages=(str(exc),))
    except sqlite3.Error as exc:
        if not is_damage(exc):
            raise StoreUnavailable(f"{path} can not be checked now: {exc}") from exc
        return Examined(pages=(f"{path.name} can not be read: {exc}",))


def index_trouble(path: Path) -> str | None:
    """What is wrong with the full-text index, every word of it read; None: nothing. Blocking.

    Raises:
        StoreUnavailable: it could not be looked at.
    """
    try:
        with closing(look(path)) as db:
            return soundness.trouble(db, thorough=True)
    except sqlite3.Error as exc:
        raise StoreUnavailable(f"{path} can not be checked now: {exc}") from exc


def looked_over(db: sqlite3.Connection, *, thorough: bool = False) -> Examined:
    """As `examine`, on a connection of somebody's who minds the time."""
    check = "integrity_check" if thorough else "quick_check"
    said = _said(db, f"{check}({_MOST_LINES})")
    if not said:
        if check_version(db, shipped()[-1].version) == 0:
            return Examined(pages=("it is empty: no conversation has ever been stored in it",))
        said_of_search = soundness.trouble(db, thorough=thorough)
        return Examined(search=() if said_of_search is None else (said_of_search,))
    pages: list[str] = []
    indexes: dict[str, None] = {}
    search: list[str] = []
    for table in _tables(db):
        found = _said(db, f"{check}({table})")
        if table.startswith(f"{_SEARCH}_"):
            search += found
            continue
        for line in found:
            index = _INDEX_ALONE.fullmatch(line)
            if index is not None and _NAME.fullmatch(index[1]):
                indexes[index[1]] = None
            else:
                pages.append(f"{table}: {line}")
    if not (pages or indexes or search):
        pages = said  # of no table: the list of free pages, or the file's length
    told = tuple(pages[:_MOST_TOLD])
    return Examined(told, tuple(indexes), tuple(search[:_MOST_TOLD]))


def _tables(db: sqlite3.Connection) -> list[str]:
    """Those with pages; none if not even their list can be read."""
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
    try:
        return [name for (name,) in db.execute(query) if _NAME.fullmatch(name)]
    except sqlite3.Error:
        return []


def _said(db: sqlite3.Connection, check: str) -> list[str]:
    """What SQLite has against it; nothing if all is well."""
    try:
        rows = [str(row[0]) for row in db.execute(f"PRAGMA {check}")]
    except sqlite3.DatabaseError as exc:
        if not is_damage(exc):
            raise
        return [str(exc)]
    lines = [line for row in rows for line in row.splitlines() if not line.startswith("***")]
    # Left by an index that could not be dropped (`storage.search.index.abandon`): room, not damage.
    lines = [line for line in lines if _NEVER_USED.fullmatch(line) is None]
    return [] if lines == ["ok"] else lines


# --- mending, on the writer's thread --------------------------------------------------------------


def mend(tx: Transaction, found: Examined) -> None:
    """Make anew what can be; the full-text index step by step, by the usual upkeep."""
    for name in found.indexes:
        tx.execute(f"REINDEX {name}")
        _log.warning("an index was made anew", extra={"index": name})
    if found.search:
        index.mark_damaged(tx)


# --- room -----------------------------------------------------------------------------------------


def unused_bytes(db: sqlite3.Connection) -> tuple[int, int]:
    """How much of the file nothing is in, and how long it is."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (unused,) = db.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    return int(unused) * int(page_bytes), int(pages) * int(page_bytes)
