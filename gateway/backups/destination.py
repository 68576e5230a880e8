"""Owns what DEST of `posthouse backup` means: one file, a new folder, or a new one in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.errors import PosthouseError
from gateway.backups.shelf import folder_of, manifest_of
from gateway.config.environment import Home

_FILES = (".db", ".sqlite", ".sqlite3")
_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a backup goes. Its folder is there."""

    path: Path
    is_file: bool = False


def destination(home: Home, named: str, date: str) -> Destination:
    """What somebody typed; ``date`` names a new folder in one that is there.

    Raises:
        PosthouseError: there can be no backup there.
    """
    try:
        return _destination(home, named, date)
    except (OSError, ValueError, RuntimeError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise PosthouseError(f"{named[:200]!r} can be no place for a backup: {why}") from exc


def _destination(home: Home, named: str, date: str) -> Destination:
    path = Path(named).expanduser().absolute()
    parent = path.parent.resolve()
    path = path.resolve() if path.exists() else parent / path.name
    _refuse_in_home(home, path)
    is_file = path.suffix.lower() in _FILES and not path.is_dir()
    if not path.exists() and not parent.is_dir():
        raise PosthouseError(f"{parent} is not there; make it first, or is a disk not mounted?")
    if is_file:
        _refuse_other_file(path)
        return Destination(path, is_file=True)
    if path == folder_of(home).resolve():
        _make(path)  # where all of them lie is none of them
    if manifest_of(path) is not None:
        raise PosthouseError(  # one inside would be overlooked, and the old one put back
            f"{path} is a backup already; name a new folder, or {path.parent} for one beside it"
        )
    if path.is_dir():
        return Destination(_free(path / date))
    if path.exists():
        raise PosthouseError(
            f"{path} is there already, and no folder; name a folder, or a file that ends with .db"
        )
    return Destination(path)


def _make(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise PosthouseError(f"{path} can not be made: {exc.strerror or exc}") from exc


def names_for(path: Path) -> list[Path]:
    """This one, and those beside it if it is taken."""
    return [path, *(path.with_name(f"{path.name}-{n}") for n in range(2, 100))]


def _free(path: Path) -> Path:
    return next(name for name in names_for(path) if not name.exists())


def _refuse_in_home(home: Home, path: Path) -> None:
    """Only the folder for it: elsewhere it would be taken for part of the home, or replace it."""
    ours = home.path.resolve()
    shelf = folder_of(home).resolve()
    if path.is_relative_to(ours) and not path.is_relative_to(shelf):
        raise PosthouseError(
            f"{path} is inside the home {ours}; name a place outside of it, or {shelf}"
        )


def _refuse_other_file(path: Path) -> None:
    """A backup of yesterday may be replaced, nothing else."""
    if path.exists():
        if not path.is_file():
            raise PosthouseError(f"{path} is there already, and no file; name another one")
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
        if start not in (_MAGIC, b""):
            raise PosthouseError(f"{path} is there already, and no database; name another file")
