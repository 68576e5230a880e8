"""Owns what an engine of others is given as its host's list of sessions: read-only."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any


class SessionDb:
    """The façade's ``state.db``, opened anew for each question, on whatever thread asks.

    Whatever is missing or broken, the answer is "there is none". Nothing can be written.
    """

    def __init__(self, path: Path) -> None:
        self.db_path = path

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """One row of the list, or None."""
        found = self._asked("SELECT * FROM sessions WHERE id = ?", session_id)
        return found[0] if found else None

    def list_sessions(self, limit: int = 50) -> list[dict[str, Any]]:
        """The newest first."""
        return self._asked("SELECT * FROM sessions ORDER BY started_at DESC LIMIT ?", limit)

    def _asked(self, question: str, *values: Any) -> list[dict[str, Any]]:
        try:
            address = f"{self.db_path.absolute().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
                database.row_factory = sqlite3.Row
                return [dict(row) for row in database.execute(question, values)]
        except (sqlite3.Error, ValueError):
            return []
