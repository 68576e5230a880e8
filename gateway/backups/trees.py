"""Owns copying folders of somebody's files: databases among them by SQLite, links as links."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

_COMPANIONS = ("-wal", "-shm", "-journal")
_NOT_TAKEN = {".env", "__pycache__"}
"""Secrets have no place in a backup; what Python made of a source it makes again."""
_BUSY_SECONDS = 5.0
_SMALLEST_DATABASE_BYTES = 512
"""One page. SQLite takes a file of one byte for an empty database, and the byte would be gone."""
_MAX_DEPTH = 200
_MAX_PATH_BYTES = 3500
"""Deeper or longer no path is followed: the system takes no longer ones, Python no deeper ones."""
_SAID_CHARS = 200


@dataclass(slots=True)
class Taken:
    """What was copied, and what was not."""

    files: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """Could not be read; relative paths."""

    def add(self, path: Path) -> None:
        """One more file."""
        self.files += 1
        self.bytes += path.stat().st_size


def copy_tree(source: Path, target: Path) -> Taken:
    """A folder, or one file. What vanishes or can not be read meanwhile is left out, and said.

    Raises:
        OSError: the target can not be written.
    """
    taken = Taken()
    if source.is_file():
        _copy_entry(source, target, source.name, taken)
        return taken

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # else gone meanwhile
            taken.left_out.append(_said(Path(error.filename), source))

    for folder, folders, files in os.walk(source, onerror=unreadable):
        here = Path(folder)
        within = here.relative_to(source)
        there = target / within
        if len(within.parts) > _MAX_DEPTH or _longer(here, there) > _MAX_PATH_BYTES:
            taken.left_out.append(_said(here, source))
            folders.clear()
            continue
        there.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders[:] = [name for name in folders if name not in _NOT_TAKEN]
        for name in [*files, *(n for n in folders if (here / n).is_symlink())]:
            if name not in _NOT_TAKEN and not _is_companion(here, name):
                _copy_entry(here / name, there / name, _said(here / name, source), taken)
    return taken


def place_file(source: Path, target: Path) -> None:
    """A file that never changes: a second name for it where the file system can, else a copy.

    Raises:
        OSError: there is no such file, or the target can not be written.
    """
    if not stat.S_ISREG(source.lstat().st_mode):
        raise FileNotFoundError(source)
    if source.stat().st_uid == os.geteuid() or os.geteuid() == 0:
        # Another disk, no links there, too many of them, not allowed: then a copy.
        with contextlib.suppress(OSError):
            os.link(source, target, follow_symlinks=False)
            return
    _copy_bytes(source, target)


def sync(path: Path) -> None:
    """On disk, whatever happens next: a file, or the list of names that a folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(root: Path) -> None:
    """The lists of names of a folder and of all below it; their files are on disk already."""
    for folder, _, _ in os.walk(root):
        sync(Path(folder))


def size_of(path: Path) -> int:
    """Of all files below it, in bytes; 0 if there are none."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def give_to_owner_of(home: Path, root: Path) -> None:
    """What root has made in somebody's home becomes theirs: the daemon reads it."""
    owner = home.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _said(path: Path, source: Path) -> str:
    said = str(path.relative_to(source.parent))
    return said if len(said) <= _SAID_CHARS else f"{said[:_SAID_CHARS]}…"


def _longer(*paths: Path) -> int:
    return max(len(os.fsencode(path)) for path in paths)


def _is_companion(folder: Path, name: str) -> bool:
    return any(
        name.endswith(ending) and (folder / name.removesuffix(ending)).exists()
        for ending in _COMPANIONS
    )


def _copy_entry(source: Path, target: Path, said: str, taken: Taken) -> None:
    try:
        mode = source.lstat().st_mode
        if stat.S_ISLNK(mode):
            target.symlink_to(os.readlink(source))
            return
        if not stat.S_ISREG(mode):
            return  # a socket, a pipe
        if not os.access(source, os.R_OK):
            taken.left_out.append(said)
            return
        if _copied_as_database(source, target):
            taken.add(target)
            return
    except FileNotFoundError:
        return  # gone while the folder was read
    except sqlite3.Error:
        target.unlink(missing_ok=True)
        taken.left_out.append(said)
        return
    _copy_bytes(source, target)
    taken.add(target)


def _copied_as_database(source: Path, target: Path) -> bool:
    """Let SQLite try first: opening a live database by hand drops the locks on it.

    Raises:
        sqlite3.Error: it is one, and can not be read now.
    """
    if source.stat().st_size < _SMALLEST_DATABASE_BYTES:
        return False
    uri = f"file:{quote(str(source))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as db:
        try:
            db.execute("PRAGMA schema_version").fetchone()
        except sqlite3.DatabaseError as exc:
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                return False
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(target)) as copy:
            # In one step: in several, each write of its owner would make it begin again.
            db.backup(copy)
    sync(target)
    return True


def _copy_bytes(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        runs = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, 0o700 if runs else 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy, 1024 * 1024)
            copy.flush()
            os.fsync(copy.fileno())
