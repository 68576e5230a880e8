"""Owns the folder of files that people sent: each kept once, whole, under its content's hash.

First the bytes, then the row: a crash in between leaves at most a file that nobody knows, and never
a row without bytes. Files that nobody knows go in `FolderAttachments.sweep`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from agent.attachments import NAME, StoredFile
from agent.errors import StoreUnavailable
from agent.ports import Clock
from storage import file_bytes
from storage.faultpoint import faultpoint

T = TypeVar("T")

_log = logging.getLogger(__name__)

SWEEP_AFTER_SECONDS = 86_400.0
"""A file that nobody knows is left alone for so long: its row may be on its way."""
_SWEPT_AT_ONCE = 1_000
_THREAD = "posthouse-files"
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.part")
_EXTENSIONS = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "audio/aac": ".aac",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/heic": ".heic",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/tiff": ".tif",
    "image/webp": ".webp",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
}


class InThread(Protocol):
    """A way to run what blocks beside the loop: `agent.llm.background.in_daemon_thread`."""

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """Run it; what it raises is raised here."""
        ...


class FileRows(Protocol):
    """What the store knows of the files."""

    async def enter_file(self, file: StoredFile) -> StoredFile:
        """Store that it is kept, or that it was sent again; as stored."""
        ...

    async def file_row(self, name: str, owner: str | None = None) -> StoredFile | None:
        """Whoever sent it first, or this one; None: nobody did."""
        ...

    async def known_files(self, names: Collection[str]) -> set[str]:
        """Those of these names that have a row."""
        ...


def name_of(data: bytes, media_type: str) -> str:
    """What a file is called here."""
    kind = media_type.partition(";")[0].strip().lower()
    return hashlib.sha256(data).hexdigest()[:32] + _EXTENSIONS.get(kind, "")


class FolderAttachments:
    """`agent.attachments.Attachments` over a folder and the rows in the store."""

    def __init__(self, folder: Path, rows: FileRows, clock: Clock, in_thread: InThread) -> None:
        """The folder is made with the first file. Await `sweep` once per start."""
        self._folder = folder
        self._in_thread = in_thread
        self._rows = rows
        self._clock = clock
        # What nobody knows must not be swept while it is being found useful again.
        self._placing = threading.Lock()

    async def keep(self, data: bytes, *, owner: str, file_name: str, media_type: str) -> StoredFile:
        """As the port says. Disk full, read-only, something in the way: nothing half is left."""
        now = self._clock.now()
        try:
            name = await self._in_thread(partial(self._place, data, media_type, now), _THREAD)
        except OSError as exc:
            raise StoreUnavailable(f"the file can not be kept: {exc.strerror or exc}") from exc
        file = StoredFile(name, owner, file_name, media_type, len(data), now)
        return await self._rows.enter_file(file)

    async def find(self, name: str, *, owner: str | None = None) -> StoredFile | None:
        """As the port says. Whether the bytes are still there shows when they are read."""
        return await self._rows.file_row(name, owner) if NAME.fullmatch(name) else None

    async def read(self, name: str) -> bytes:
        """As the port says. Bytes that are not what was kept are no such file."""
        file = await self.find(name)
        if file is None:
            raise LookupError(f"there is no file {name}")
        try:
            data = await self._in_thread(partial(self._load, name, file.size_bytes), _THREAD)
        except OSError as exc:
            raise StoreUnavailable(f"the file can not be read: {exc.strerror or exc}") from exc
        if data is None:
            _log.error("a kept file is gone or damaged", extra={"file": name})
            raise LookupError(f"the file {name} is gone")
        return data

    async def sweep(self) -> int:
        """Take away what crashes left behind; gives back how many files that were."""
        try:
            old = await self._in_thread(self._old_files, _THREAD)
            swept = 0
            for start in range(0, len(old), _SWEPT_AT_ONCE):
                some = old[start : start + _SWEPT_AT_ONCE]
                known = await self._rows.known_files(some)
                unknown = [name for name in some if name not in known]
                swept += await self._in_thread(partial(self._remove, unknown), _THREAD)
        except OSError as exc:
            _log.warning("the folder of files can not be swept", extra={"error": repr(exc)})
            return 0
        if swept:
            _log.info("swept files that nobody knows", extra={"files": swept})
        return swept

    async def remove(self, names: Sequence[str]) -> int:
        """Delete those of these that nobody has any more, at once; how many that were.

        Raises:
            OSError: one of them can not be deleted.
        """
        now = self._clock.now()
        known = await self._rows.known_files(names)
        gone = [name for name in names if name not in known and NAME.fullmatch(name)]
        return await self._in_thread(partial(self._remove_now, gone, now), _THREAD)

    # in the thread

    def _remove_now(self, names: Sequence[str], asked_at: float) -> int:
        """What was put in place since it was asked for has a row, or gets one."""
        removed = 0
        for name in names:
            path = self._folder / name
            with self._placing, contextlib.suppress(FileNotFoundError):
                if os.lstat(path).st_mtime < asked_at:
                    os.unlink(path)
                    removed += 1
        if removed:
            file_bytes.sync_folder(self._folder)
        return removed

    def _place(self, data: bytes, media_type: str, now: float) -> str:
        """The bytes are in the folder, on disk, when this returns their name."""
        name = name_of(data, media_type)
        with self._placing, self._opened_folder() as folder:
            if not file_bytes.holds(folder, name, data, now):
                file_bytes.write(folder, name, data, now)
            os.fsync(folder)
            faultpoint("attachments.placed")
        return name

    @contextlib.contextmanager
    def _opened_folder(self) -> Iterator[int]:
        """Of the folder, which is made if it is missing and is its owner's alone."""
        try:
            self._folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            file_bytes.sync_folder(self._folder.parent)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if stat.S_IMODE(os.fstat(folder).st_mode) != 0o700:
                os.fchmod(folder, 0o700)
            yield folder
        finally:
            os.close(folder)

    def _load(self, name: str, size_bytes: int) -> bytes | None:
        """The bytes; None: they are not what was kept."""
        try:
            with file_bytes.opened_file(self._folder / name) as fd:
                if fd is None or os.fstat(fd).st_size != size_bytes:
                    return None
                data = file_bytes.read(fd, size_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data if hashlib.sha256(data).hexdigest()[:32] == name[:32] else None

    def _old_files(self) -> list[str]:
        """Names of ours in the folder that have not changed for a day."""
        try:
            with os.scandir(self._folder) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if NAME.fullmatch(entry.name) or _UNFINISHED.fullmatch(entry.name)
                ]
        except FileNotFoundError:
            return []
        return [name for name in names if self._is_old(name)]

    def _is_old(self, name: str) -> bool:
        try:
            found = os.lstat(self._folder / name)
        except FileNotFoundError:
            return False
        is_file = stat.S_ISREG(found.st_mode)
        return is_file and found.st_mtime < self._clock.now() - SWEEP_AFTER_SECONDS

    def _remove(self, names: list[str]) -> int:
        removed = 0
        for name in names:
            with self._placing:
                try:
                    if self._is_old(name):
                        os.unlink(self._folder / name)
                        removed += 1
                except OSError as exc:  # one that can not go must not keep the others
                    _log.warning("a file is not swept", extra={"file": name, "error": repr(exc)})
        return removed
