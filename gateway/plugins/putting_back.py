"""Owns what a plugin must leave as it was: parts of the process that everybody shares."""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_SHARED: tuple[tuple[Any, str], ...] = (
    *((builtins, name) for name in ("open", "print", "__import__", "input", "exit", "quit")),
    *((socket, name) for name in ("socket", "getaddrinfo", "create_connection")),
    *((time, name) for name in ("time", "monotonic", "sleep", "perf_counter")),
    *((asyncio, name) for name in ("sleep", "wait", "gather", "to_thread")),
    *((threading, name) for name in ("Thread", "Lock", "RLock", "excepthook")),
    *((sys, name) for name in ("stdin", "stdout", "stderr", "excepthook")),
    *((os, name) for name in ("_exit", "fork", "kill", "replace", "unlink")),
    (sqlite3, "connect"),
)
"""Replacing one of these would reach every part of the daemon."""


class SharedState:
    """A snapshot of what the process shares, to be compared with later."""

    def __init__(self) -> None:
        self._before = [(label, get(), put) for label, get, put in _aspects()]

    def put_back(self) -> list[str]:
        """Undo what was changed since; gives the names of it."""
        changed: list[str] = []
        now = {label: get() for label, get, _ in _aspects()}
        for label, value, put in self._before:
            # By identity where things can be called, by value for plain facts.
            same = now[label] is value or (isinstance(value, _PLAIN) and now[label] == value)
            if not same:
                put(value)
                changed.append(label)
        return changed


_PLAIN = (str, int, float, tuple, type(None))


def _aspects() -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    root = logging.getLogger()
    for holder, name in _SHARED:
        yield (
            f"{holder.__name__}.{name}",
            partial(getattr, holder, name),
            partial(setattr, holder, name),
        )
    yield "the log's handlers", lambda: tuple(root.handlers), _set_handlers
    yield "the log's level", lambda: root.level, root.setLevel
    yield "the log's switch", lambda: root.manager.disable, logging.disable
    yield "the working folder", _folder, _go_to
    yield "the time-out of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout
    yield "the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit
    yield "the switch interval", sys.getswitchinterval, sys.setswitchinterval


def _set_handlers(handlers: Any) -> None:
    logging.getLogger().handlers[:] = handlers


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _go_to(folder: str | None) -> None:
    if folder is not None and os.path.isdir(folder):
        os.chdir(folder)
