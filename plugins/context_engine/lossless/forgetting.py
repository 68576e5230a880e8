"""Owns how conversations leave the file: no word of them stays in it, and none comes back.

What becomes of a conversation is a shell, a row without a word: its number is never given again,
and an instance that was in it and comes back late may write nothing more (`must_be_there`).
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plugins.context_engine.lossless.database import Database
from plugins.context_engine.lossless.reading import readable
from plugins.context_engine.lossless.records import OWN_TOOLS, scope_word
from plugins.context_engine.lossless.schema import LosslessError
from plugins.context_engine.lossless.words import indexed

FORGOTTEN = -1.0
"""When a shell was made, as the file has it: no conversation of anybody's began before 1970."""

AT_ONCE = 500
"""Messages that are entered into the index in one transaction."""
PAUSE_SECONDS = 0.01
_NOT_INDEXED = (
    "SELECT id, conversation, stored, own FROM messages"
    " WHERE id > ? AND NOT EXISTS (SELECT 1 FROM words_docsize d WHERE d.id = messages.id)"
    " ORDER BY id LIMIT ?"
)
_FOUND = """
SELECT id FROM conversations WHERE made_at <> :forgotten AND (
    session_key IN (SELECT value FROM json_each(:keys) WHERE value <> '')
    OR id IN (SELECT conversation FROM sessions
              WHERE session_id IN (SELECT value FROM json_each(:sessions)))
)
"""

_LISTED = "(SELECT value FROM json_each(:sessions))"
_OVER = f"""
SELECT DISTINCT s.conversation FROM sessions s WHERE s.session_id IN {_LISTED}
AND NOT EXISTS (SELECT 1 FROM sessions other WHERE other.conversation = s.conversation
                AND other.session_id NOT IN {_LISTED})
"""
_STRIKE = f"DELETE FROM sessions WHERE session_id IN {_LISTED}"


def must_be_there(database: sqlite3.Connection, conversation: int) -> None:
    """Before anything is written.

    Raises:
        LosslessError: The conversation was forgotten.
    """
    shell = database.execute(
        "SELECT 1 FROM conversations WHERE id = ? AND made_at = ?", (conversation, FORGOTTEN)
    ).fetchone()
    if shell is not None:
        raise LosslessError("this conversation was forgotten: somebody in it asked for that")


def text_in_index(conversation: int, stored: str, own: bool) -> str:
    """What the index of words holds of a message."""
    words = "" if own else readable(json.loads(stored), without=OWN_TOOLS)
    return f"{scope_word(conversation)} {indexed(words)}"


def in_file(file: Path, work: Callable[[Database], int]) -> bool:
    """Do this to the file, over a connection of its own, if it is there; True: it is done."""
    if file.exists():
        database = Database(file)
        try:
            work(database)
        finally:
            database.close()
    return True


def forget(database: Database, keys: Sequence[str], session_ids: Sequence[str]) -> int:
    """Take out every conversation of these places and of these sessions; how many that were.

    The rows go in one transaction. The rest is done at each call, as one before may have been cut
    off in between: the index is made anew of what is left, in steps, so that no other conversation
    finds the file locked for long; the file is written anew, and its log emptied.
    """
    scope: dict[str, object] = {
        "keys": json.dumps(list(keys)),
        "sessions": json.dumps(list(session_ids)),
        "forgotten": FORGOTTEN,
    }
    return _forget(database, _FOUND, scope)


def forget_sessions(database: Database, session_ids: Sequence[str]) -> int:
    """Take out every conversation that has no other session than these; how many that were.

    As `forget` does. One that has another one stays whole until that goes, too.
    """
    return _forget(database, _OVER, {"sessions": json.dumps(list(session_ids))})


def _forget(database: Database, which: str, scope: dict[str, object]) -> int:
    with database.reading() as connection:
        connection.execute("PRAGMA secure_delete = ON")
    with database.writing() as connection:
        gone = [int(row[0]) for row in connection.execute(which, scope)]
        if gone:
            _take_out(connection, gone)
        connection.execute(_STRIKE, scope)
    newest: int | None = 0
    while newest is not None:
        with database.writing() as connection:
            newest = _index_some(connection, newest)
        time.sleep(PAUSE_SECONDS)  # others wait for the lock by looking for it now and then
    with database.reading() as connection:
        connection.execute("VACUUM")
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise LosslessError("the rows are gone; the file's log could not be emptied at this moment")
    return len(gone)


def _take_out(connection: sqlite3.Connection, gone: Sequence[int]) -> None:
    scope = {"gone": json.dumps(list(gone)), "forgotten": FORGOTTEN}
    listed = "(SELECT value FROM json_each(:gone))"
    for table in ("messages", "nodes", "sources", "sessions"):
        connection.execute(f"DELETE FROM {table} WHERE conversation IN {listed}", scope)
    connection.execute(
        f"UPDATE conversations SET session_key = '', parent = NULL, made_at = :forgotten"
        f" WHERE id IN {listed}",
        scope,
    )
    # Taken out word by word, an index keeps them in its segments until those are merged.
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")


def _index_some(connection: sqlite3.Connection, after: int) -> int | None:
    """Enter messages behind this one that are not in the index; the last of them, None: all are."""
    missing = connection.execute(_NOT_INDEXED, (after, AT_ONCE)).fetchall()
    connection.executemany(
        "INSERT INTO words (rowid, said) VALUES (?, ?)",
        [(row[0], text_in_index(row[1], row[2], bool(row[3]))) for row in missing],
    )
    return int(missing[-1][0]) if missing else None
