"""Owns the check of what we run on: Python, SQLite, the libraries and their pinned versions."""

from __future__ import annotations

import importlib.metadata
import re
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

from agent.errors import ConfigError
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.installation import check_installation

_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
_SOUND_SQLITE = (3, 51, 3)
_BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Branches that got the correction too, and from which of their releases on."""


def look(ground: Ground) -> Iterable[Finding]:
    """Versions; nothing is imported for it."""
    said = Said("software")
    said.ok(f"Python {_dotted(sys.version_info[:3])}")  # with an older one nothing of ours loads
    say_sqlite(said, sqlite3.sqlite_version_info)
    say_libraries(said, ground.checkout / "constraints.txt")
    try:
        check_installation()
    except ConfigError as exc:
        said.problem(exc.problems[0], "make clean install, in the folder of posthouse")
    return said.findings


def say_sqlite(said: Said, version: tuple[int, ...]) -> None:
    """Has it the bug that two writers bring out?"""
    backported = version[2] >= _BACKPORTS.get((version[0], version[1]), sys.maxsize)
    text = f"SQLite {_dotted(version)}"
    if version >= _SOUND_SQLITE or backported:
        said.ok(text)
    else:
        # Not a warning: there is nothing to do about the system's SQLite, and it is safe here.
        said.note(
            f"{text} has the WAL-reset bug (before 3.51.3); it needs two writers of one file, and "
            "posthouse has exactly one, with a lock on its home",
            "never write to state.db with other programs while the gateway runs",
        )


def say_libraries(said: Said, pins: Path) -> None:
    """What is installed, beside what was tested together."""
    try:
        lines = pins.read_text(encoding="utf-8").splitlines()
    except OSError:
        said.note("no constraints.txt beside it, so versions of libraries are not compared")
        return
    matches = (_PIN.fullmatch(line.strip()) for line in lines)
    wanted = {found[1]: found[2] for found in matches if found}
    needed = {_key(name) for name in _needed()}
    there = {name: _installed(name) for name in wanted}
    missing = [name for name in wanted if there[name] is None and _key(name) in needed]
    other = [
        f"{name} {there[name]} (tested with {version})"
        for name, version in wanted.items()
        if there[name] not in (None, version)
    ]
    for name in missing:
        said.problem(f"{name} is missing", f"cd {pins.parent} && make clean install")
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        said.warning(
            f"libraries differ from those that were tested: {', '.join(other[:3])}{more}",
            f"cd {pins.parent} && make clean install",
        )
    elif not missing:
        said.ok("libraries are those that were tested")


def _needed() -> list[str]:
    """What running needs, by our own metadata."""
    try:
        lines = importlib.metadata.requires("posthouse") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [
        re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in lines if "extra" not in line
    ]


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))
