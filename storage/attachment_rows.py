"""Owns the rows of kept files in SQL: who sent one, what it is called, how large it is."""

# ruff: noqa: D103 - a function without docstring is the port's method of that name
from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from agent.attachments import StoredFile
from storage.codec import clean
from storage.database import Transaction
from storage.faultpoint import faultpoint

_COLUMNS = "name, owner, file_name, media_type, size_bytes, created_at"


def enter_file(tx: Transaction, file: StoredFile) -> StoredFile:
    (created_at,) = tx.execute(
        f"INSERT INTO attachments ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        # Sent again: what it is called by now counts, and since when it is here.
        " ON CONFLICT (name, owner) DO UPDATE SET file_name = excluded.file_name"
        " RETURNING created_at",
        (
            file.name, file.owner, clean(file.file_name), clean(file.media_type),
            file.size_bytes, tx.now,
        ),
    ).fetchone()  # fmt: skip
    faultpoint("enter_file.row")
    return StoredFile(
        file.name, file.owner, clean(file.file_name), clean(file.media_type), file.size_bytes,
        created_at,
    )  # fmt: skip


def file_row(db: sqlite3.Connection, name: str, owner: str | None = None) -> StoredFile | None:
    query = f"SELECT {_COLUMNS} FROM attachments WHERE name = ?"
    if owner is None:
        row = db.execute(f"{query} ORDER BY created_at, owner LIMIT 1", (name,)).fetchone()
    else:
        row = db.execute(f"{query} AND owner = ?", (name, owner)).fetchone()
    return None if row is None else StoredFile(*row)


def known_files(db: sqlite3.Connection, names: Collection[str]) -> set[str]:
    query = "SELECT DISTINCT name FROM attachments WHERE name IN (SELECT value FROM json_each(?))"
    return {row[0] for row in db.execute(query, (json.dumps(list(names)),))}
