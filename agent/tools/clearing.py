"""Owns taking a folder away whose contents others have made: as deep and as closed as they like."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete(folder: Path) -> None:
    """Delete it with all that is in it; there may be none. Of a link goes the link only.

    What lies deep is moved up before it goes: neither the length of a path nor the depth of a
    recursion ends that. Begun again after a crash, it goes on.

    Raises:
        OSError: something of it can not be deleted.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    if not folder.exists():
        return
    folder.chmod(0o700)
    root = os.open(folder, _FOLDER)
    try:
        while entries := _entries(root):
            for name, is_folder in entries:
                if is_folder:
                    os.chmod(name, 0o700, dir_fd=root)
                    _flatten(name, root)
                else:
                    os.unlink(name, dir_fd=root)
    finally:
        os.close(root)
    folder.rmdir()


def _flatten(name: str, root: int) -> None:
    """Delete a folder; those in it are moved to where it stood."""
    fd = os.open(name, _FOLDER, dir_fd=root)
    try:
        for inner, is_folder in _entries(fd):
            if is_folder:
                os.chmod(inner, 0o700, dir_fd=fd)  # a closed one can not even be moved
                os.rename(inner, secrets.token_hex(16), src_dir_fd=fd, dst_dir_fd=root)
            else:
                os.unlink(inner, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=root)


def _entries(fd: int) -> list[tuple[str, bool]]:
    """(name, is it a folder) of each."""
    with os.scandir(fd) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
