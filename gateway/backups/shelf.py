"""Owns which backups of a home there are: those in its folder, and those put elsewhere by hand."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.config.environment import Home

MANIFEST = "backup.json"
"""Written last: a folder without it is no backup, but the leaving of one that was cut off."""
REPLACED = "replaced-"
"""In front of the date: what a restore has put aside."""
_ELSEWHERE = "elsewhere.jsonl"
_MOST_ELSEWHERE = 200
_OURS = 1
"""The form of `MANIFEST`."""

Kind = Literal["kept", "elsewhere", "replaced"]


@dataclass(frozen=True, slots=True)
class Backup:
    """One state of the home that can be put back."""

    path: Path
    made_at: float
    bytes: int
    """Of its database."""
    kind: Kind = "kept"
    """``replaced``: what a restore has put aside; nobody looked whether it is whole."""


def folder_of(home: Home) -> Path:
    """Where a home keeps the backups that the daemon makes."""
    return home.path / "backups"


def kept(home: Home) -> list[Backup]:
    """All of which we know, newest first. Those elsewhere may be out of reach at this moment."""
    found = [*within(folder_of(home)), *_elsewhere(home), *_replaced(home)]
    return sorted(found, key=lambda backup: backup.made_at, reverse=True)


def within(folder: Path) -> list[Backup]:
    """The whole ones that lie in a folder, newest first."""
    found = [backup for path in _children(folder) if (backup := backup_at(path)) is not None]
    return sorted(found, key=lambda backup: backup.made_at, reverse=True)


def backup_at(path: Path) -> Backup | None:
    """The backup that this folder is; None: it is none, or was cut off."""
    facts = manifest_of(path)
    if facts is None:
        return None
    return Backup(path, float(facts["made_at"]), int(facts["database_bytes"]))


def manifest_of(path: Path) -> dict[str, Any] | None:
    """What a backup says of itself; None: nothing that we could read."""
    try:
        facts = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        float(facts["made_at"]), int(facts["database_bytes"])
        known = facts["posthouse_backup"] <= _OURS
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if known else None


def manifest(facts: dict[str, Any]) -> str:
    """The text of `MANIFEST`."""
    return json.dumps({"posthouse_backup": _OURS, **facts}, indent=2) + "\n"


def note_elsewhere(home: Home, backup: Backup) -> None:
    """Remember one that was put outside the home. Not being able to costs no backup its worth."""
    file = folder_of(home) / _ELSEWHERE
    line = {"path": str(backup.path), "made_at": backup.made_at, "bytes": backup.bytes}
    with contextlib.suppress(OSError):
        ours = home.path.stat()
        file.parent.mkdir(mode=0o700, exist_ok=True)
        lines = [*_lines(file), json.dumps(line)][-_MOST_ELSEWHERE:]
        unfinished = file.with_name(f".{_ELSEWHERE}.part")
        unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.chmod(unfinished, 0o600)
        os.replace(unfinished, file)
        if os.geteuid() == 0:  # the daemon, who is somebody else, reads it too
            for path in (file.parent, file):
                os.chown(path, ours.st_uid, ours.st_gid)


def _elsewhere(home: Home) -> Iterator[Backup]:
    found: dict[Path, Backup] = {}  # a file that is written again and again is one
    for line in _lines(folder_of(home) / _ELSEWHERE):
        try:
            facts = json.loads(line)
            path = Path(facts["path"])
            backup = Backup(path, float(facts["made_at"]), int(facts["bytes"]), "elsewhere")
        except (ValueError, KeyError, TypeError):
            continue
        # A folder that is not there may be a disk that is not mounted.
        with contextlib.suppress(OSError):
            if path.parent.exists() and not path.exists():
                continue
        found[path] = backup
    yield from found.values()


def _replaced(home: Home) -> Iterator[Backup]:
    for path in _children(home.path):
        if path.name.startswith(REPLACED):
            with contextlib.suppress(OSError):
                database = (path / "state.db").stat()
                yield Backup(path, path.stat().st_mtime, database.st_size, "replaced")


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


def not_allowed(home: Home, error: PermissionError) -> str:
    """What to do about it, for people."""
    named = Path(str(error.filename or home.path))
    whose = home.path if named.is_relative_to(home.path) else named
    return f"{whose} belongs to another user; do it as that one, or as root"
