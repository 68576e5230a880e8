"""Owns what a plugin must leave as it was: parts of the process that everybody shares."""

from __future__ import annotations

import asyncio
import builtins
import gc
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

_NEEDED = {"agent", "gateway", "storage", *sys.stdlib_module_names}
"""Of these the daemon imports more while it runs. Plugins replace modules of their own names."""


class SharedState:
    """A snapshot of what the process shares, to be compared with later."""

    def __init__(self) -> None:
        self._before = [(label, get, get(), put) for label, get, put in _aspects()]

    def put_back(self) -> list[str]:
        """Undo what was changed since; gives the names of it."""
        changed: list[str] = []
        now = [get() for _, get, _, _ in self._before]
        for (label, _, value, put), is_now in zip(self._before, now, strict=True):
            if not _same(value, is_now):
                put(value)
                changed.append(label)
        return changed


def _same(value: Any, now: Any) -> bool:
    """By identity, and by value for plain facts: a plugin's own `==` is not asked."""
    if value is now:
        return True
    if type(value) is not type(now):
        return False
    if isinstance(value, tuple):
        return len(value) == len(now) and all(a is b for a, b in zip(value, now, strict=True))
    return isinstance(value, str | int | float) and bool(value == now)


def _aspects() -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    root = logging.getLogger()
    for holder, name in _SHARED:
        # None for one that was deleted: it is put back as well.
        yield (
            f"{holder.__name__}.{name}",
            partial(getattr, holder, name, None),
            partial(setattr, holder, name),
        )
    yield "the finders of modules", partial(_finders, len(sys.meta_path)), _finders_first
    names = [name for name in sys.modules if name.split(".")[0] in _NEEDED]
    yield "modules", partial(_modules, names), partial(_put_modules, names)
    yield "the tracing of threads", threading.gettrace, threading.settrace
    yield "the profiling of threads", threading.getprofile, threading.setprofile
    yield "the log's handlers", _handlers, _set_handlers
    yield "the log's level", lambda: root.level, partial(setattr, root, "level")
    yield "the log's switch", lambda: root.manager.disable, logging.disable
    yield "the working folder", _folder, _go_to
    yield "the time-out of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout
    yield "the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit
    yield "the switch interval", sys.getswitchinterval, sys.setswitchinterval
    yield "the garbage collector", gc.isenabled, lambda on: gc.enable() if on else gc.disable()


def _finders(count: int) -> tuple[Any, ...]:
    """Those that are asked first. One that is added behind them takes no module from anybody."""
    finders = sys.meta_path
    return tuple(finders[:count]) if isinstance(finders, list) else ()


def _finders_first(finders: tuple[Any, ...]) -> None:
    known = {id(finder) for finder in finders}
    there = sys.meta_path if isinstance(sys.meta_path, list) else []
    sys.meta_path = [*finders, *(finder for finder in there if id(finder) not in known)]


def _modules(names: list[str]) -> tuple[Any, ...]:
    return tuple(sys.modules.get(name) for name in names)


def _put_modules(names: list[str], modules: tuple[Any, ...]) -> None:
    sys.modules.update({n: m for n, m in zip(names, modules, strict=True) if m is not None})


def _handlers() -> tuple[Any, ...]:
    handlers = logging.getLogger().handlers
    return tuple(handlers) if isinstance(handlers, list) else ()


def _set_handlers(handlers: Any) -> None:
    logging.getLogger().handlers = list(handlers)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _go_to(folder: str | None) -> None:
    if folder is not None and os.path.isdir(folder):
        os.chdir(folder)
