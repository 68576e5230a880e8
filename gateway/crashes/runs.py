"""Owns the book of runs: when each began and how it ended, in a small file of the home."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gateway import __version__

KEPT = 50
_NAME = "runs.json"
_MOST_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Run:
    """One life of the daemon on this home."""

    started_at: float
    ended_at: float | None = None
    code: int | None = None
    """The exit code; None: it runs, or was cut off (killed, crashed, out of power)."""
    version: str = ""


def runs(home: Path) -> list[Run]:
    """The last ones, oldest first; none where nothing can be read."""
    try:
        with (home / _NAME).open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        return [_run(dict(each)) for each in found]
    except (OSError, ValueError, TypeError, KeyError):
        return []


class RunRecord:
    """This run's line."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        self._home = home
        self._now = now
        self._before = runs(home)[-(KEPT - 1) :]
        self._run = Run(now(), version=__version__)
        self._put()

    def ended(self, code: int) -> None:
        """It has come to its own end."""
        self._run = replace(self._run, ended_at=self._now(), code=code)
        self._put()

    def _put(self) -> None:
        """Whole or not at all; a disk that takes nothing is told of elsewhere."""
        path = self._home / _NAME
        text = json.dumps([asdict(run) for run in (*self._before, self._run)])
        unfinished = path.with_name(f"{_NAME}.{os.getpid()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "w", encoding="ascii") as file:
                file.write(text)
            unfinished.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def recorded(home: Path, now: Callable[[], float]) -> Iterator[RunRecord]:
    """The home's lock is held meanwhile. A block that raises has ended with 1, or by its word."""
    record = RunRecord(home, now)
    try:
        yield record
    except BaseException:
        record.ended(1)
        raise


def cut_off(found: Sequence[Run]) -> list[Run]:
    """Of the runs before the present one: those that did not come to an end of their own."""
    return [run for run in found[:-1] if run.code is None]


def _run(found: dict[str, object]) -> Run:
    ended, code = found.get("ended_at"), found.get("code")
    return Run(
        float(str(found["started_at"])),
        float(str(ended)) if ended is not None else None,
        int(str(code)) if code is not None else None,
        str(found.get("version", ""))[:40],
    )
