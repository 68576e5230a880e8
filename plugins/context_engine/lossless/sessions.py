"""Owns which session belongs to which conversation of the file."""

from __future__ import annotations

import sqlite3

from plugins.context_engine.lossless.database import Database


class Sessions:
    """The conversations of the file and their sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def conversation_of(self, session_id: str) -> int | None:
        """The conversation that a session belongs to."""
        with self._database.reading() as database:
            row = database.execute(
                "SELECT conversation FROM sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
        return None if row is None else int(row[0])

    def begin(self, session_id: str, key: str, at: float, *, parent: int | None = None) -> int:
        """A new conversation, at its first session."""
        with self._database.writing() as database:
            made = database.execute(
                "INSERT INTO conversations (session_key, parent, made_at) VALUES (?, ?, ?)",
                (key, parent, at),
            )
            conversation = int(made.lastrowid or 0)
            self._lead(database, session_id, conversation)
        return conversation

    def lead(self, session_id: str, conversation: int) -> None:
        """A session belongs to a conversation, whatever it was taken to belong to before."""
        with self._database.writing() as database:
            self._lead(database, session_id, conversation)

    @staticmethod
    def _lead(database: sqlite3.Connection, session_id: str, conversation: int) -> None:
        database.execute(
            "INSERT INTO sessions VALUES (?, ?) ON CONFLICT DO UPDATE SET conversation = ?",
            (session_id, conversation, conversation),
        )

    def is_empty(self, conversation: int) -> bool:
        """Was nothing of it seen yet?"""
        with self._database.reading() as database:
            found = database.execute(
                "SELECT 1 FROM messages WHERE conversation = ? LIMIT 1", (conversation,)
            ).fetchone()
        return found is None

    def relatives(self, conversation: int) -> tuple[int | None, list[int]]:
        """(whom it branched from, others of the same place, the newest first)."""
        with self._database.reading() as database:
            row = database.execute(
                "SELECT parent, session_key FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
            if row is None:
                return None, []
            others = database.execute(
                "SELECT id FROM conversations WHERE session_key = ? AND id <> ? ORDER BY id DESC",
                (row[1], conversation),
            ).fetchall()
        return row[0], [int(other[0]) for other in others]
