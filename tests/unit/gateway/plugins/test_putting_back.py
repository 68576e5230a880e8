"""What everybody shares is compared and put back, whatever a plugin made of it."""

from __future__ import annotations

import builtins
import gc
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.putting_back import SharedState


class Evil:
    """Its code must not run when it is compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("asked")

    def __bool__(self) -> bool:
        raise RuntimeError("asked")


def chdir_and_remove(folder: Path) -> None:
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()


CHANGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "deleted": ("socket.getaddrinfo", lambda _: delattr(socket, "getaddrinfo")),
    "replaced": ("time.sleep", lambda _: setattr(time, "sleep", print)),
    "evil": ("builtins.open", lambda _: setattr(builtins, "open", Evil())),
    "stream": ("sys.stderr", lambda _: setattr(sys, "stderr", None)),
    "no list": ("the log's handlers", lambda _: setattr(logging.root, "handlers", None)),
    "other list": ("the log's handlers", lambda _: logging.basicConfig(force=True)),
    "evil handler": ("the log's handlers", lambda _: logging.root.handlers.append(Evil())),  # type: ignore[arg-type]
    "level": ("the log's level", lambda _: setattr(logging.root, "level", Evil())),
    "silent": ("the log's switch", lambda _: logging.disable(logging.CRITICAL)),
    "elsewhere": ("the working folder", lambda _: os.chdir("/")),
    "nowhere": ("the working folder", chdir_and_remove),
    "time-out": ("the time-out of sockets", lambda _: socket.setdefaulttimeout(0.1)),
    "depth": ("the recursion limit", lambda _: sys.setrecursionlimit(9999)),
    "interval": ("the switch interval", lambda _: sys.setswitchinterval(1.0)),
    "no module": ("modules", lambda _: sys.modules.update(json=None)),  # type: ignore[arg-type]
    "module gone": ("modules", lambda _: sys.modules.pop("gateway.plugins.putting_back")),
    "traced": ("the tracing of threads", lambda _: threading.settrace(print)),  # type: ignore[arg-type]
    "profiled": ("the profiling of threads", lambda _: threading.setprofile(print)),  # type: ignore[arg-type]
    "finder in front": (
        "the finders of modules",
        lambda _: sys.meta_path.insert(0, Evil()),  # type: ignore[arg-type]
    ),
    "no finder": ("the finders of modules", lambda _: sys.meta_path.clear()),
    "no list of finders": ("the finders of modules", lambda _: setattr(sys, "meta_path", None)),
    "garbage": ("the garbage collector", lambda _: gc.disable()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_put_back(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    label, do = CHANGES[change]
    handlers, finders = list(logging.root.handlers), list(sys.meta_path)
    modules = [json, sys.modules["gateway.plugins.putting_back"]]
    watchers = (threading.gettrace(), threading.getprofile())
    facts = (socket.getaddrinfo, time.sleep, open, sys.stderr, logging.root.level, os.getcwd())
    numbers = (sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled())
    state = SharedState()
    try:
        do(tmp_path)
        assert state.put_back() == [label]
    finally:
        SharedState.put_back(state)
    assert facts == (
        *(socket.getaddrinfo, time.sleep, open, sys.stderr),
        *(logging.root.level, os.getcwd()),
    )
    assert numbers == (sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled())
    assert logging.root.handlers == handlers
    assert [sys.modules[name] for name in ("json", "gateway.plugins.putting_back")] == modules
    assert watchers == (threading.gettrace(), threading.getprofile())
    assert [id(finder) for finder in sys.meta_path[: len(finders)]] == list(map(id, finders))
    del sys.meta_path[len(finders) :]
    assert (logging.root.manager.disable, socket.getdefaulttimeout()) == (0, None)


def test_nothing_changed_nothing_touched() -> None:
    state = SharedState()
    handlers = logging.root.handlers
    assert state.put_back() == []
    assert logging.root.handlers is handlers


def test_a_finder_behind_all_others_is_no_harm() -> None:
    state, behind = SharedState(), Evil()
    sys.meta_path.append(behind)  # type: ignore[arg-type]
    try:
        assert state.put_back() == []
        assert sys.meta_path[-1] is behind
    finally:
        sys.meta_path.pop()
