"""Owns the claim on the home folder: one daemon per home, told by a held lock, never by a file."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import HomeInUse, StoreUnavailable
from gateway.backups.moving_in import finish as finish_restore
from gateway.ownership import left_to_owner

log = logging.getLogger(__name__)


@contextmanager
def claimed(home: Path, lock: Path) -> Iterator[None]:
    """Make the home if it is missing and hold its lock. A file left by a dead daemon is no claim.

    What root makes in another user's home meanwhile becomes that user's.

    Raises:
        HomeInUse: another process holds it.
        StoreUnavailable: the folder can not be made or written, or a restore not be finished.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.geteuid() == 0:  # the daemon, who may be somebody else, has to open it as well
            owner = home.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
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
        # A restore that was cut off: until it is finished there may be no database at all.
        if (aside := finish_restore(home)) is not None:
            log.warning("a restore that was cut off was finished", extra={"aside": str(aside)})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        with left_to_owner(home):
            yield
    finally:
        os.close(descriptor)
