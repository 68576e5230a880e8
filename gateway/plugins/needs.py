"""Owns what a plugin needs beside itself: packages, programs, variables. Named, never installed."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from gateway.plugins.manifest import Manifest
from gateway.plugins.packages import is_installed

LIKE_HERMES = (0, 21)
"""The version of the host whose plugins are taken as they are."""

_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)?\s*v?(\d+(?:\.\d+)*)(\.\*)?.*")


def missing(manifest: Manifest, env: Mapping[str, str]) -> list[str]:
    """A line for each thing that is not there and that the plugin's manifest asks for."""
    lines: list[str] = []
    packages = [p for p in manifest.pip_dependencies if not _has_package(p)]
    if packages:
        wanted = " ".join(shlex.quote(p) for p in packages)
        lines.append(f"packages are missing; into posthouse's environment: pip install {wanted}")
    variables = [name for name in manifest.requires_env if not env.get(name, "").strip()]
    if variables:
        lines.append(f"environment variables are not set: {', '.join(variables)}")
    for program in manifest.external_dependencies:
        if shutil.which(program.name) is None:
            how = f" (its author says: {program.install})" if program.install else ""
            lines.append(f"the program {program.name} is not there{how}")
    if excludes(manifest.requires_hermes, LIKE_HERMES):
        ours = ".".join(map(str, LIKE_HERMES))
        lines.append(
            f"it asks for Hermes Agent {manifest.requires_hermes}; here it gets what {ours} offers"
        )
    return lines


def written_by_anybody(*paths: Path) -> list[str]:
    """A line if everybody on the machine can change one of these: they would be the daemon."""
    found: list[str] = []
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not sticky:
            found.append(str(path))
    if not found:
        return []
    return [f"everybody may write to {', '.join(found)}, and what stands there runs as the daemon"]


def _has_package(requirement: str) -> bool:
    name = _PACKAGE.match(requirement.strip())
    return name is None or is_installed(name[0])


def excludes(specifier: str, version: tuple[int, ...]) -> bool:
    """Does a specifier such as ``>=0.19,<1`` clearly leave this version out? Pure."""
    return any(not _allows(clause.strip(), version) for clause in specifier.split(",") if clause)


def _allows(clause: str, version: tuple[int, ...]) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        return True
    asked = tuple(int(part) for part in found[2].split("."))
    size = max(len(asked), len(version))
    have, want = (_padded(v, size) for v in (version, asked))
    match found[1]:
        case "<":
            return have < want
        case "<=":
            return have <= want
        case ">":
            return have > want
        case "!=":
            return have != want
        case "==":
            return version[: len(asked)] == asked if found[3] else have == want
        case "~=":
            return have >= want and version[: len(asked) - 1] == asked[:-1]
        case _:  # ">=", or a bare number
            return have >= want


def _padded(version: tuple[int, ...], size: int) -> tuple[int, ...]:
    return version + (0,) * (size - len(version))
