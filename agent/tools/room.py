"""Owns how much a workspace may hold, how much of its disk stays free, and looking at both."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1024 * 1024
MAX_ENTRIES = 50_000
"""Of files and folders together."""
FREE_FILES = 10_000
"""So many more files the disk has to take; of a small one a twentieth of all that it takes."""
SLACK_BYTES = 64 * MEGABYTE
"""What others on the same disk may write while a command makes room."""
_UNCOUNTABLE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)
"""What lies in such a folder nobody can count: a command may have closed it for just that."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of each workspace, and of the disk on which they lie."""

    most_bytes: int = 500 * MEGABYTE
    keep_free_bytes: int = 500 * MEGABYTE


@dataclass(frozen=True, slots=True)
class Room:
    """What one look found; beyond a bound it counts no further."""

    used_bytes: int
    """Of all files, by their lengths."""
    entries: int
    free_bytes: int
    """Of the disk, for users like us."""
    free_files: int
    total_files: int
    """0: this kind of disk takes any number."""


def lacking(room: Room, bounds: Bounds, more_bytes: int = 0) -> str:
    """Why there is no room for so much more, in words; "": there is (pure)."""
    if room.entries >= MAX_ENTRIES or room.used_bytes + more_bytes > bounds.most_bytes:
        return (
            f"the workspace is full ({bounds.most_bytes // MEGABYTE:,} MB and {MAX_ENTRIES:,} "
            "entries at most): delete something first"
        )
    return _disk_lacking(room, bounds, more_bytes)


def disk_lack(folder: Path, bounds: Bounds, more_bytes: int) -> str:
    """Why a folder's disk takes no more such bytes, in words; "": it does.

    Raises:
        OSError: it can not be asked.
    """
    return _disk_lacking(_room(os.statvfs(folder), 0, 0), bounds, more_bytes)


def _disk_lacking(room: Room, bounds: Bounds, more_bytes: int) -> str:
    if room.free_bytes - more_bytes < bounds.keep_free_bytes:
        return (
            f"the server's disk is nearly full ({room.free_bytes // MEGABYTE:,} MB are free, and "
            f"{bounds.keep_free_bytes // MEGABYTE:,} MB have to stay free): delete something, or "
            "ask whoever runs this server to make room"
        )
    if room.total_files and room.free_files < min(FREE_FILES, room.total_files // 20):
        return (
            "the server's disk takes hardly any more files: delete some, or ask whoever runs this "
            "server to make room"
        )
    return ""


def outgrown(start: Room, now: Room, bounds: Bounds) -> str:
    """Why what runs since ``start`` has to end, in words; "": it may go on (pure).

    What has begun without room may delete, and must not make it worse.
    """
    lack = lacking(now, bounds)
    if not lack or not lacking(start, bounds):
        return lack
    fewer_files = start.free_files - now.free_files if start.total_files else 0
    worse = start.free_bytes - now.free_bytes > SLACK_BYTES or fewer_files > FREE_FILES // 10
    return lack if worse else ""


def look(folder: int, bounds: Bounds, counted: Room | None = None) -> Room:
    """At a workspace's folder (an open one) and its disk.

    ``counted``: what it holds is taken from there, and only the disk is asked, which is quick.

    Raises:
        OSError: it can not be read.
    """
    if counted is None:
        used, entries = measured(folder, bounds.most_bytes)
    else:
        used, entries = counted.used_bytes, counted.entries
    return _room(os.fstatvfs(folder), used, entries)


def _room(disk: os.statvfs_result, used: int, entries: int) -> Room:
    return Room(used, entries, disk.f_bavail * disk.f_frsize, disk.f_favail, disk.f_files)


def sizes(root: Path) -> dict[str, tuple[int, int]]:
    """(bytes, entries) of each workspace, by name, up to `MAX_ENTRIES`; not of what is closed."""
    found: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(root)):
            with contextlib.suppress(OSError):
                fd = os.open(root / name, _FOLDER)
                try:
                    found[name] = measured(fd, 2**62)
                finally:
                    os.close(fd)
    return found


def measured(folder: int, most_bytes: int) -> tuple[int, int]:
    """(bytes, entries) below an open folder; it stops where there are too many of either.

    A link that takes the place of a folder while it looks can lead it astray: then it has counted
    something else, and that is all.
    """
    size = entries = 0
    waiting = ["."]
    while waiting and size <= most_bytes and entries < MAX_ENTRIES:
        path = waiting.pop()
        try:
            fd = os.open(path, _FOLDER, dir_fd=folder)
        except OSError as exc:
            if exc.errno in _UNCOUNTABLE:
                return size, MAX_ENTRIES
            continue  # gone, or a link by now
        try:
            with os.scandir(fd) as found:
                for entry in found:
                    entries += 1
                    if entries >= MAX_ENTRIES or size > most_bytes:
                        break
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except PermissionError:  # its names can be read, and nothing else
                        return size, MAX_ENTRIES
                    except OSError:
                        continue  # gone by now
                    if stat.S_ISREG(facts.st_mode):
                        size += facts.st_size
                    elif stat.S_ISDIR(facts.st_mode):
                        waiting.append(f"{path}/{entry.name}")
        finally:
            os.close(fd)
    return size, entries
