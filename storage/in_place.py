"""Owns whether a path still leads to the file that was opened. It looks at names, opens nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_LOG = "-wal"


def same_file(path: Path | str) -> Callable[[], bool]:
    """A check that the file at the path is still the one that was opened."""
    path = os.path.abspath(path)
    opened = _identity(path)

    def check() -> bool:
        return opened is not None and _identity(path) == opened

    return check


def same_log(path: Path | str) -> Callable[[], bool]:
    """The same for the log of the database at the path, once there is one.

    It stays until the last connection closes; emptied, it is still there.
    """
    path = _log_of(path)
    known = _identity(path)

    def check() -> bool:
        nonlocal known
        now = _identity(path)
        known = known or now
        return known == now

    return check


def has_log(path: Path) -> bool:
    """Is there a log beside it: does somebody have it open, or was it cut off?"""
    return _identity(_log_of(path)) is not None


def _log_of(path: Path | str) -> str:
    """SQLite follows links first."""
    return os.path.realpath(path) + _LOG


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
