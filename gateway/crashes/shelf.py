"""Owns the folder of crash reports: the last few, for their owner only."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway import __version__
from gateway.crashes import report

KEPT = 10
AGAIN_SECONDS = 3600.0
"""The same fault is written down once in this time: a loop of it must not push out the others."""
_MOST_FAULTS = 200


@dataclass(frozen=True, slots=True)
class Crash:
    """One report."""

    path: Path
    at: float
    what: str


def folder_of(home: Path) -> Path:
    """Where they are."""
    return home / "crashes"


def kept(home: Path) -> list[Crash]:
    """Those that there are, the newest first; none where the folder can not be read."""
    found: list[Crash] = []
    with contextlib.suppress(OSError):
        for path in folder_of(home).glob("*.txt"):
            with contextlib.suppress(OSError):
                found.append(Crash(path, path.stat().st_mtime, _what(path)))
    return sorted(found, key=lambda crash: (crash.at, crash.path.name), reverse=True)


class CrashShelf:
    """Writes them. A disk that takes nothing is no second crash: then there is none."""

    def __init__(self, home: Path, redact: Callable[[str], str], now: Callable[[], float]) -> None:
        self._home = home
        self._redact = redact
        self._now = now
        self._started = time.monotonic()
        self._numbers = itertools.count(1)
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def error(self, what: str, error: BaseException) -> Path | None:
        """Of an error that nobody foresaw; None: it is written down already, or can not be."""
        return self._write(what, report.signature(error), lambda: report.of_error(error))

    def stacks(self, what: str, body: str) -> Path | None:
        """Of a process that does not come round."""
        return self._write(what, what, lambda: body)

    def _write(self, what: str, fault: str, body: Callable[[], str]) -> Path | None:
        with self._lock:
            before, now = self._written.get(fault), time.monotonic()
            if before is not None and now - before < AGAIN_SECONDS:
                return None
            if len(self._written) >= _MOST_FAULTS:
                self._written.clear()
            self._written[fault] = now
            try:
                return self._put(what, body())
            except OSError:
                return None

    def _put(self, what: str, body: str) -> Path:
        stamp = time.gmtime(self._now())
        facts = (
            ("time", time.strftime("%Y-%m-%dT%H:%M:%SZ", stamp)),
            ("version", __version__),
            ("process", f"{os.getpid()}, for {time.monotonic() - self._started:.0f} s"),
        )
        text = self._redact(report.text_of(" ".join(what.split()), facts, body))
        folder = folder_of(self._home)
        folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', stamp)}-{os.getpid()}-{next(self._numbers)}.txt"
        path = folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        self._tidy(path)
        return path

    def _tidy(self, fresh: Path) -> None:
        for crash in [c for c in kept(self._home) if c.path != fresh][KEPT - 1 :]:
            with contextlib.suppress(OSError):
                crash.path.unlink()


def _what(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = [file.readline(1000).rstrip("\n") for _ in range(2)]
    return lines[1].removeprefix("what: ") if lines[0] == report.TITLE else ""
