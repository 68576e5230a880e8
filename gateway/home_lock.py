"""Owns the claim on the home folder: one daemon per home, told by a held lock, never by a file."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigError, HomeInUse, StoreUnavailable
from gateway.backups.moving_in import finish as finish_restore
from gateway.ownership import is_foreign, left_to_owner

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""How long whoever wants the lock lets others look at it (`holder`)."""
_MOST_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Note:
    """What the last one that held the lock has written into it; it may be long gone."""

    process: int
    user: int
    """Whose the file is, so whose the process was."""
    socket: Path | None
    """Where a daemon listens; None: it was a command."""


@contextmanager
def claimed(home: Path, lock: Path, *, socket: Path | None = None) -> Iterator[None]:
    """Make the home if it is missing and hold its lock. A file left by a dead daemon is no claim.

    What root makes in another user's home meanwhile becomes that user's. ``socket``: where this
    process will listen; noted in the lock's file, so that every command finds it.

    Raises:
        HomeInUse: another process holds it.
        ConfigError: what is there is no folder, or lies below something that is none.
        StoreUnavailable: the folder can not be made or written, or a restore not be finished.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _opened(home, lock)
        if os.geteuid() == 0:  # the daemon, who may be somebody else, has to open it as well
            owner = home.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except (FileExistsError, NotADirectoryError) as exc:
        raise ConfigError([_no_folder(home)]) from exc
    except OSError as exc:
        raise _unusable(home, exc) from exc
    try:
        if not _taken(descriptor):
            found = noted(lock)
            raise HomeInUse(
                f"another posthouse{f' (process {found.process})' if found else ''} is running on "
                f"{home}; stop it first, or set POSTHOUSE_HOME to another folder"
            )
        # A restore that was cut off: until it is finished there may be no database at all.
        if (aside := finish_restore(home)) is not None:
            log.warning("a restore that was cut off was finished", extra={"aside": str(aside)})
        _note(home, descriptor, socket)
        with left_to_owner(home):
            yield
    finally:
        os.close(descriptor)


def noted(lock: Path) -> Note | None:
    """What the lock's file says, whether somebody holds it or not; None: nothing usable."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None
        first, _, rest = os.pread(descriptor, _MOST_BYTES, 0).partition(b"\n")
    finally:
        os.close(descriptor)
    if not (first.isdigit() and len(first) < 12):
        return None
    path, end, _ = rest.partition(b"\n")
    return Note(int(first), facts.st_uid, Path(os.fsdecode(path)) if path and end else None)


def holder(lock: Path) -> Note | None:
    """Who holds the lock now; None: nobody, as far as we may look."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return noted(lock)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _opened(home: Path, lock: Path) -> int:
    """Never another file by this name: root writes into it, and gives it to the home's owner.

    Raises:
        OSError: it can not be made or opened, or is another file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(lock, flags, 0o600)
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and not (facts.st_nlink > 1 and is_foreign(home)):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"{lock.name} in it is no file, or one with a second name")


def _taken(descriptor: int) -> bool:
    """False: somebody else has it, and not only for a look."""
    until = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS / 10)
        else:
            return True


def _note(home: Path, descriptor: int, socket: Path | None) -> None:
    """Two lines, over what is there: a full disk has room for that, and no reader finds nothing."""
    path = b"" if socket is None else os.fsencode(socket.absolute())
    written = b"%d\n%s\n" % (os.getpid(), b"" if b"\n" in path else path)
    try:
        os.pwrite(descriptor, written, 0)
        os.ftruncate(descriptor, len(written))
    except OSError as exc:
        raise _unusable(home, exc) from exc


def _unusable(home: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"the home folder {home} can not be used: {error.strerror}")


def _no_folder(home: Path) -> str:
    """Which of them it is."""
    there = next(path for path in (home, *home.parents) if os.path.lexists(path))
    if there == home:
        return f"the home {home} is no folder; POSTHOUSE_HOME says where another one is"
    return f"the home {home} can not be: {there} is no folder"
