"""Owns the claim on the home folder: one daemon per home, told by a held lock, never by a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import HomeInUse, StoreUnavailable


@contextmanager
def claimed(home: Path, lock: Path) -> Iterator[None]:
    """Make the home if it is missing and hold its lock. A file left by a dead daemon is no claim.

    Raises:
        HomeInUse: another process holds it.
        StoreUnavailable: the folder can not be made or written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreUnavailable(f"the home folder {home} can not be used: {exc.strerror}") from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise HomeInUse(
                f"another posthouse{f' (process {holder})' if holder else ''} is running on "
                f"{home}; stop it first, or set POSTHOUSE_HOME to another folder"
            ) from exc
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
