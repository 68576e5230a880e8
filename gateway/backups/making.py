"""Owns making a backup: aside until all of it is checked and on disk, then under its name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.errors import PosthouseError
from gateway import __version__
from gateway.backups.destination import Destination, names_for
from gateway.backups.nouns import SPARE_BYTES, Facts, StoreTools
from gateway.backups.shelf import MANIFEST, Backup, manifest
from gateway.backups.trees import copy_tree, place_file, size_of, sync, sync_folders
from gateway.config.environment import Home

DATABASE = "state.db"
ATTACHMENTS = "attachments"
BESIDE = ("config.yaml", "workspace", "hermes", "plugins")
"""What else of the home is taken along; nothing of it is a secret of ours."""
_UNFINISHED = ".part"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Made:
    """A backup, as whoever asked for it wants to know it."""

    backup: Backup
    schema: int
    counts: dict[str, int]
    sha256: str
    attachments: int = 0
    missing_attachments: int = 0
    """Named by messages, and gone from the home before this."""
    beside: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Could not be read, or is a plugin's and lies outside the home."""
    alone: bool = field(default=False)
    """The database only."""
    index_damage: str | None = None
    """Why the search index of what was copied is not whole; that of the copy was made anew."""

    def facts(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "path": str(self.backup.path),
            "made_at": self.backup.made_at,
            "database_bytes": self.backup.bytes,
            "database_sha256": self.sha256,
            "schema": self.schema,
            "counts": self.counts,
            "attachments": self.attachments,
            "missing_attachments": self.missing_attachments,
            "beside": list(self.beside),
            "left_out": list(self.left_out),
            "database_only": self.alone,
            "search_index_made_anew": self.index_damage is not None,
        }


def make(
    home: Home,
    destination: Destination,
    tools: StoreTools,
    now: float,
    *,
    made_by: str = "hand",
    also: Sequence[Path] = (),
) -> Made:
    """Copy what the home holds; beside a running daemon or without one. Blocking.

    ``also``: further files in the home, of plugins. If anything fails, nothing is there.

    Raises:
        PosthouseError: it can not be made; the text says why.
    """
    if not home.database.exists():
        raise PosthouseError(f"nothing is stored yet in {home.path}; `posthouse run` begins it")
    target = destination.path
    if destination.is_file and target.exists() and not tools.is_spare(target):
        raise PosthouseError(
            f"{target} is there already, and no old copy of ours; name another file"
        )
    tidy(target.parent)
    try:
        _refuse_without_room(home, target.parent, database_only=destination.is_file)
        if destination.is_file:
            return _make_file(home, target, tools, now)
        return _make_folder(home, target, tools, now, made_by, also)
    except OSError as exc:
        raise PosthouseError(f"{target} can not be written: {exc.strerror or exc}") from exc


def dated(now: float) -> str:
    """The name of a backup made now."""
    return f"posthouse-{datetime.fromtimestamp(now, UTC).astimezone():%Y-%m-%d-%H%M%S}"


def _make_file(home: Home, target: Path, tools: StoreTools, now: float) -> Made:
    with _aside(target) as part:
        facts = tools.copy(home.database, part / DATABASE, now)
        os.replace(part / DATABASE, target)
        part.rmdir()
    sync(target.parent)
    backup = Backup(target, now, facts.bytes)
    return Made(
        backup,
        facts.schema,
        dict(facts.counts),
        facts.sha256,
        alone=True,
        index_damage=facts.index_damage,
    )


def _make_folder(
    home: Home, target: Path, tools: StoreTools, now: float, made_by: str, also: Sequence[Path]
) -> Made:
    with _aside(target) as part:
        facts = tools.copy(home.database, part / DATABASE, now)
        # Behind the database: whatever it names is there by now.
        missing = _take_attachments(home.attachments, part / ATTACHMENTS, facts.files)
        beside, left_out = _take_beside(home.path, part, also)
        made = Made(
            Backup(target, now, facts.bytes),
            facts.schema,
            dict(facts.counts),
            facts.sha256,
            len(facts.files) - missing,
            missing,
            beside,
            left_out,
            index_damage=facts.index_damage,
        )
        _write(part / MANIFEST, manifest(_facts_of(made, facts, made_by)))
        sync_folders(part)
        target = _named(part, target)
    sync(target.parent)
    return replace(made, backup=replace(made.backup, path=target))


def _named(part: Path, target: Path) -> Path:
    """Give it its name; another backup of the same second may have taken it meanwhile."""
    names = names_for(target)
    for name in names[:-1]:
        try:
            os.rename(part, name)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return name
    os.rename(part, names[-1])
    return names[-1]


def _facts_of(made: Made, facts: Facts, made_by: str) -> dict[str, Any]:
    told = made.facts()
    del told["path"], told["database_only"]
    return {"version": __version__, "made_by": made_by, "database": DATABASE, **told}


def _take_attachments(source: Path, target: Path, names: Sequence[str]) -> int:
    """How many of them are gone."""
    target.mkdir(mode=0o700)
    missing = 0
    for name in names:
        try:
            place_file(source / name, target / name)
        except FileNotFoundError:
            missing += 1
    return missing


def _take_beside(
    home: Path, part: Path, also: Sequence[Path]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was taken along, and what could not be read."""
    names = {Path(name) for name in BESIDE}
    left_out: list[str] = []
    for path in also:
        if not path.is_relative_to(home):
            left_out.append(str(path))  # theirs to look after; a backup is of this home
            continue
        inside = path.relative_to(home)
        if inside.parts and inside.parts[0] not in (*BESIDE, DATABASE, ATTACHMENTS, "backups"):
            names.add(inside)
    found = sorted(name for name in names if (home / name).exists())
    for name in found:
        (part / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        left_out += copy_tree(home / name, part / name).left_out
    return tuple(map(str, found)), tuple(left_out)


def _refuse_without_room(home: Home, folder: Path, *, database_only: bool) -> None:
    needed = home.database.stat().st_size + SPARE_BYTES
    if not database_only:
        if folder.stat().st_dev != home.path.stat().st_dev:
            needed += size_of(home.attachments)
        needed += sum(size_of(home.path / name) for name in BESIDE)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PosthouseError(
            f"{folder} has {free >> 20} MB free, and the backup may need {needed >> 20} MB"
        )


# --- aside, until it is whole ---------------------------------------------------------------------


def tidy(folder: Path) -> None:
    """Take away what backups that were cut off have left. One that is being made is left alone."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        if path.is_dir() and path.name.startswith(".posthouse-"):
            with contextlib.suppress(OSError), _held(path):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as held:
        part = _begun(target, held)
        try:
            yield part
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def _begun(target: Path, held: contextlib.ExitStack) -> Path:
    """A folder that is held. Before it is, another backup may take it for a left one, and away."""
    for _ in range(_TRIES):
        part = _part_of(target)
        part.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            held.enter_context(_held(part))
            if part.exists():
                return part
    raise PosthouseError(f"other backups are being made in {target.parent}; try it again")


def _part_of(target: Path) -> Path:
    return target.with_name(f".posthouse-{secrets.token_hex(8)}{_UNFINISHED}")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Ours for so long; BlockingIOError: it is somebody's who lives."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
