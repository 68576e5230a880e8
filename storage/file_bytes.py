"""Owns what is done to one kept file on disk: written whole, read, compared; no link followed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from storage.faultpoint import faultpoint

_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.ENXIO)
"""What opening a link or a socket says."""


def sync_folder(path: Path) -> None:
    """What was put into it or taken out is so after a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def opened_file(path: Path | str, *, folder: int | None = None) -> Iterator[int | None]:
    """For reading; None: what is there is no file (a link, a folder, a pipe)."""
    try:
        # Without O_NONBLOCK a pipe would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as exc:
        if exc.errno not in _NO_FILE:
            raise
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def read(fd: int, size_bytes: int) -> bytes:
    """So many bytes, or fewer if the file ends before."""
    with os.fdopen(fd, "rb", closefd=False) as file:
        return file.read(size_bytes)


def holds(folder: int, name: str, data: bytes, now: float) -> bool:
    """Is exactly this kept already? Then it is as good as new: on disk, and young."""
    try:
        with opened_file(name, folder=folder) as fd:
            if fd is None or os.fstat(fd).st_size != len(data) or read(fd, len(data)) != data:
                return False
            os.utime(fd, (now, now))
            os.fsync(fd)
    except OSError:
        return False  # missing, or not to be read: it is put in place anew
    return True


def write(folder: int, name: str, data: bytes, now: float) -> None:
    """Whole or not at all; whatever bears the name is replaced, never followed."""
    unfinished = f".{secrets.token_hex(16)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    fd = os.open(unfinished, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.utime(fd, (now, now))
            os.fsync(fd)
        faultpoint("attachments.written")
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise
