"""Owns workspaces: folders in which tools may act, one for each person or group, nothing beyond.

Every path is walked folder by folder from the workspace's own, and no link is ever followed: what
stands there when it is opened is what counts, whatever it was a moment before. What is written
appears whole or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from agent.daemon_threads import DaemonThreads
from agent.errors import ToolError
from agent.tools.clearing import delete
from agent.tools.paths import (
    UNFINISHED,
    Entry,
    Kind,
    Seen,
    folder_name,
    in_words,
    named,
    parts_of,
)
from agent.tools.room import Bounds, Room, lacking, look

T = TypeVar("T")

MAX_LISTED = 500
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

log = logging.getLogger(__name__)


class Workspaces:
    """All of them, in one folder."""

    def __init__(self, root: Path, bounds: Bounds | None = None) -> None:
        """The folder is made with the first workspace. ``bounds`` hold for each; None: usual."""
        self._root = root
        self._bounds = bounds or Bounds()
        self._threads = DaemonThreads(2, name="workspace")

    def of(self, place: str) -> Workspace:
        """The one of this person or group.

        Raises:
            ToolError: it is nobody's.
        """
        if not place:
            raise ToolError("there is no workspace here")
        return Workspace(self._root, folder_name(place), self._threads, self._bounds)

    async def clear(self, place: str) -> None:
        """Delete the one of this person or group with all that is in it; there may be none.

        Raises:
            OSError: something of it can not be deleted.
        """
        folder = self._root / folder_name(place)
        await asyncio.wrap_future(self._threads.submit(partial(delete, folder)))


class Workspace:
    """One folder. All paths are relative to it, with / between names.

    Every method raises `ToolError`, with a text for the model, for what can not be done.
    """

    def __init__(self, root: Path, name: str, threads: DaemonThreads, bounds: Bounds) -> None:
        self._root = root
        self._name = name
        self._threads = threads
        self._bounds = bounds

    @property
    def bounds(self) -> Bounds:
        """What it may hold, and what has to stay free beside it."""
        return self._bounds

    async def path(self) -> Path:
        """Where it is; it is there when this returns."""
        await self._run(self._make)
        return self._root / self._name

    async def room(self, counted: Room | None = None) -> Room:
        """What it holds (as it was ``counted``), and what its disk takes now."""
        return await self._run(partial(self._room, counted))

    async def look(self, path: str) -> Seen | None:
        """What stands there; None: nothing."""
        return await self._run(partial(self._look, parts_of(path)))

    async def entries(self, path: str) -> tuple[list[Entry], bool]:
        """The entries of a folder by name; True: there are more than are listed."""
        return await self._run(partial(self._list, parts_of(path)))

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """All of a file."""
        return await self._run(partial(self._read, named(path), limit_bytes))

    async def write(self, path: str, data: bytes, before: Seen | None) -> None:
        """Write a file whole; folders on the way are made. ``before``: what must stand there."""
        await self._run(partial(self._write, named(path), data, before))

    async def delete(self, path: str, before: Seen) -> None:
        """Delete a file, a link or an empty folder."""
        await self._run(partial(self._delete, named(path), before))

    async def move(self, path: str, to: str, before: Seen) -> None:
        """Move something to where nothing is; folders on the way are made."""
        await self._run(partial(self._move, named(path), named(to), before))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._threads.submit(work))
        except OSError as exc:
            raise ToolError(in_words(exc)) from exc

    # in a thread

    def _make(self) -> None:
        with self._opened():
            pass

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The workspace's own folder, which is made if it is missing."""
        if not self._root.is_dir():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._name, 0o700, dir_fd=root)
                log.info("a workspace was made", extra={"folder": self._name})
            with _open(os.open(self._name, _FOLDER, dir_fd=root)) as fd:
                yield fd

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """A folder in it, reached name by name."""
        with contextlib.ExitStack() as stack:
            fd = stack.enter_context(self._opened())
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=fd)
                fd = stack.enter_context(_open(os.open(part, _FOLDER, dir_fd=fd)))
            yield fd

    def _look(self, parts: Sequence[str]) -> Seen | None:
        if not parts:
            return Seen("folder", 0, (0, 0, 0))
        try:
            with self._folder(parts[:-1]) as folder:
                return _seen(folder, parts[-1])
        except FileNotFoundError:
            return None

    def _list(self, parts: Sequence[str]) -> tuple[list[Entry], bool]:
        with self._folder(parts) as folder:
            names = sorted(n for n in os.listdir(folder) if not UNFINISHED.fullmatch(n))
            found = []
            for name in names[:MAX_LISTED]:
                seen = _seen(folder, name)
                if seen is not None:
                    found.append(Entry(name, seen.kind, seen.size_bytes))
        return found, len(names) > MAX_LISTED

    def _read(self, parts: Sequence[str], limit_bytes: int) -> bytes:
        with self._folder(parts[:-1]) as folder:
            # Without O_NONBLOCK a pipe would be waited for.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with _open(os.open(parts[-1], flags, dir_fd=folder)) as fd:
                found = os.fstat(fd)
                if stat.S_ISDIR(found.st_mode):
                    raise ToolError("that is a folder; list it")
                if not stat.S_ISREG(found.st_mode):
                    raise ToolError("that is no ordinary file")
                if found.st_nlink > 1:
                    # Its other name may lie outside, where a person has not said yes to reading.
                    raise ToolError("that file has several names (hard links); copy it with shell")
                if found.st_size > limit_bytes:
                    raise ToolError(
                        f"that file has {found.st_size:,} bytes, and {limit_bytes:,} is the limit"
                    )
                with os.fdopen(fd, "rb", closefd=False) as file:
                    return file.read(limit_bytes)

    def _write(self, parts: Sequence[str], data: bytes, before: Seen | None) -> None:
        self._require_room(len(data))
        with self._folder(parts[:-1], make=True) as folder:
            _require_unchanged(folder, parts[-1], before)
            mode = 0o600
            if before is not None:
                if before.kind != "file":
                    raise ToolError(f"there is a {before.kind} of that name; take another one")
                runs = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode & 0o100
                mode = 0o700 if runs else mode
            unfinished = f".{secrets.token_hex(16)}.part"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(unfinished, flags, mode, dir_fd=folder), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(unfinished, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                raise

    def _delete(self, parts: Sequence[str], before: Seen) -> None:
        with self._folder(parts[:-1]) as folder:
            _require_unchanged(folder, parts[-1], before)
            if before.kind == "folder":
                os.rmdir(parts[-1], dir_fd=folder)
            else:
                os.unlink(parts[-1], dir_fd=folder)

    def _move(self, parts: Sequence[str], to: Sequence[str], before: Seen) -> None:
        if parts == to[: len(parts)]:
            raise ToolError("something can not be moved into itself")
        with self._folder(parts[:-1]) as source, self._folder(to[:-1], make=True) as target:
            _require_unchanged(source, parts[-1], before)
            if _seen(target, to[-1]) is not None:
                raise ToolError("there is something of that name already; delete it first")
            os.rename(parts[-1], to[-1], src_dir_fd=source, dst_dir_fd=target)

    def _require_room(self, more_bytes: int) -> None:
        if lack := lacking(self._room(), self._bounds, more_bytes):
            raise ToolError(lack)

    def _room(self, counted: Room | None = None) -> Room:
        with self._opened() as folder:
            return look(folder, self._bounds, counted)


@contextlib.contextmanager
def _open(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _seen(folder: int, name: str) -> Seen | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    mode = found.st_mode
    kind: Kind = "other"
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISDIR(mode):
        kind = "folder"
    elif stat.S_ISLNK(mode):
        kind = "link"
    changed = 0 if kind == "folder" else found.st_mtime_ns
    return Seen(kind, found.st_size, (found.st_dev, found.st_ino, changed))


def _require_unchanged(folder: int, name: str, before: Seen | None) -> None:
    now = _seen(folder, name)
    if now is not None and before is not None and now.kind == before.kind == "folder":
        return
    if now != before:
        raise ToolError("it has changed since the user was asked; look again, then ask again")
