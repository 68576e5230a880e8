"""Owns the bound on what code of others may write into the log."""

from __future__ import annotations

import logging

OURS = frozenset({"agent", "gateway", "storage"})
WINDOW_SECONDS = 10
MAX_LINES = 200
"""Of one logger (of a plugin: all of its modules together) in a window."""
_MAX_LOGGERS = 1000


class FloodGate(logging.Filter):
    """For the handler of the log. Ours pass; of others so many lines, then one that says so."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """May this line be written?"""
        parts = record.name.split(".")
        if parts[0] in OURS:
            return True
        name, now = ".".join(parts[:2]), int(record.created // WINDOW_SECONDS)
        window, count = self._seen.get(name, (now, 0))
        count = 1 if window != now else count + 1
        if len(self._seen) >= _MAX_LOGGERS:
            self._seen.clear()
        self._seen[name] = (now, count)
        if count == MAX_LINES + 1:
            record.msg = f"too many lines: more of them are let go for up to {WINDOW_SECONDS} s"
            record.args, record.exc_info, record.levelno = None, None, logging.WARNING
            record.levelname = "WARNING"
        return count <= MAX_LINES + 1
