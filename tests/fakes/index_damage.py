"""Owns what may happen to a search index without SQLite's pages being any the worse for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

DAMAGE: Mapping[str, str] = {
    "noise": "UPDATE message_index_data SET block = randomblob(length(block)) WHERE id > 10",
    "zeroed": "UPDATE message_index_data SET block = zeroblob(length(block)) WHERE id > 10",
    "rows gone": "DELETE FROM message_index_data WHERE id > 10",
    "structure": "UPDATE message_index_data SET block = x'00' WHERE id = 10",
    "no structure": "DELETE FROM message_index_data WHERE id = 10",
    "no way to a word": "DELETE FROM message_index_idx",
    "sizes": "UPDATE message_index_docsize SET sz = x''",
    "no sizes": "DELETE FROM message_index_docsize",
    "settings": "UPDATE message_index_config SET v = 99 WHERE k = 'version'",
    "no settings": "DELETE FROM message_index_config",
    "a table gone": "DROP TABLE message_index_data",
    "another gone": "DROP TABLE message_index_config",
}


def damage(path: Path, kind: str) -> None:
    """Also beside whoever has it open."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as db:
        db.execute(DAMAGE[kind])
