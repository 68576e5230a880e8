"""Owns `agent.remembered.Remembered` in SQL: beside what the file knows about itself."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

from storage.codec import clean
from storage.database import Transaction
from storage.sessions import Reader

_OURS = "gateway "
"""In front of the name: the file's own facts have none like it."""


def fact(db: Reader, name: str) -> str | None:
    found = db.execute("SELECT value FROM facts WHERE name = ?", (_OURS + clean(name),)).fetchone()
    return None if found is None else str(found[0])


def set_fact(tx: Transaction, name: str, value: str | None) -> None:
    if value is None:
        tx.execute("DELETE FROM facts WHERE name = ?", (_OURS + clean(name),))
    else:
        tx.execute(
            "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)",
            (_OURS + clean(name), clean(value)),
        )
