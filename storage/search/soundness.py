"""Owns whether the full-text index does what it is for: asked as a search asks it, or word by word.

No check of pages sees its damage: rows of its tables may be gone, or hold anything, and to SQLite
they are rows like others.
"""

from __future__ import annotations

import re
import sqlite3

from storage.codec import ROW_COLUMNS, decode_row
from storage.database import is_damage, is_index_damage
from storage.rows import SEARCHED, TAKEN_BACK
from storage.search.question import Term, read_question
from storage.segment import indexable_text

LOST = "the newest message is not found by its own words"
MARKED = "it is marked as damaged"
OWN_CHARS = 1_000
"""How much of a message it is looked for with; a question may have more."""
_NEWEST_ROWS = 20
_WORDS_ASKED = 64
"""Of all its words, so many are looked up as a search does it."""
_BROKEN_WORD = re.compile(r"\w+\Z")
_OWN = "SELECT 1 FROM message_index WHERE message_index MATCH ? AND rowid = ?"
_RANKED = "SELECT rowid FROM message_index WHERE message_index MATCH ? ORDER BY rank LIMIT 1"


def finds_itself(db: sqlite3.Connection) -> bool:
    """Is the newest message found by its own words?

    Some damage makes the index answer "nothing" instead of failing.
    """
    own = _own_words(db)
    if own is None:
        return True
    newest, words = own
    return db.execute(_OWN, (words, newest)).fetchone() is not None


def trouble(db: sqlite3.Connection, *, thorough: bool = False) -> str | None:
    """What is wrong with it; None: nothing that was looked for. Blocking.

    ``thorough``: every word of it is read, and some are looked up.

    Raises:
        sqlite3.DatabaseError: it could not be looked at, or what is stored can not be read.
    """
    if db.execute("SELECT 1 FROM facts WHERE name = 'index_damaged'").fetchone() is not None:
        return MARKED
    own = _own_words(db)
    try:
        if own is not None:
            newest, words = own
            if db.execute(_OWN, (words, newest)).fetchone() is None:
                return LOST
            db.execute(_RANKED, (words,)).fetchall()
        return _trouble_in_words(db) if thorough else None
    except sqlite3.DatabaseError as exc:
        # Nothing but tables of the index is read here, so damage of pages is its own as well.
        if not (is_index_damage(exc) or is_damage(exc)):
            raise
        return str(exc)


def _own_words(db: sqlite3.Connection) -> tuple[int, str] | None:
    """The newest message that the index has to hold, and how it is asked for it."""
    found = db.execute("SELECT value FROM facts WHERE name = 'index_missing_upto'").fetchone()
    newest = db.execute(
        f"SELECT {ROW_COLUMNS} FROM messages WHERE id > ? AND {SEARCHED} AND NOT {TAKEN_BACK}"
        f" ORDER BY id DESC LIMIT {_NEWEST_ROWS}",
        (int(found[0]) if found else 0,),
    )
    for row in map(decode_row, newest.fetchall()):
        text = indexable_text(row.message, row.kind, row.origin_id)
        terms = _terms(text) if text is not None else ()
        if terms:
            return row.id, " OR ".join(term.match for term in terms)
    return None


def _terms(text: str) -> tuple[Term, ...]:
    # A word that is cut is another word.
    whole = text if len(text) <= OWN_CHARS else _BROKEN_WORD.sub("", text[:OWN_CHARS])
    return tuple(read_question(whole).terms)


def _trouble_in_words(db: sqlite3.Connection) -> str | None:
    db.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, message_index, row)"
    )
    (count,) = db.execute("SELECT count(*) FROM temp.words").fetchone()
    (indexed,) = db.execute("SELECT count(*) FROM message_index_docsize").fetchone()
    every = max(1, count // _WORDS_ASKED)
    words = db.execute("SELECT term, doc FROM temp.words")
    for number, (word, messages) in enumerate(words):
        if messages > indexed:
            return f"a word stands in {messages} messages, and it holds {indexed}"
        if number % every == 0 and not _looked_up(db, word):
            return "a word that it holds is not found"
    return None


def _looked_up(db: sqlite3.Connection, word: str) -> bool:
    """By the way that a search goes to a word; `MATCH` would make another stem of a stem."""
    query = "SELECT 1 FROM temp.words WHERE term = ?"
    return db.execute(query, (word,)).fetchone() is not None
