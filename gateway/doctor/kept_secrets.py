"""Owns the check of secrets: which there are, from where, and who else could read them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gateway.config.doubts import doubts_about
from gateway.config.environment import SECRET_NAMES, odd_secrets
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.service.unit import CREDENTIALS


def look(ground: Ground) -> Iterable[Finding]:
    """Names and places; no value."""
    said = Said("secrets")
    for line in ground.secret_problems:
        said.problem(line, _remedy_in(line))
    if ground.secret_problems:
        return said.findings
    for line in odd_secrets(ground.secrets) or doubts_about(ground.secrets, ground.env):
        said.warning(line, "`posthouse init` asks for it again and tries it")
    found = 0
    for name in SECRET_NAMES:
        where, file = source_of(ground, name)
        if where:
            found += 1
            said.ok(f"{name}: from {where}")
        if file is not None and _open_to_others(file):
            said.warning(f"others on this machine can read {file}", f"chmod 600 {file}")
    folder = ground.home.secrets
    if os.path.isdir(folder) and folder.stat().st_mode & 0o077:
        said.warning(f"others on this machine can look into {folder}", f"chmod 700 {folder}")
    if not found:
        said.note("there is no token and no key", "`posthouse init` asks for them and tries each")
    return said.findings


def source_of(ground: Ground, name: str) -> tuple[str, Path | None]:
    """Where a secret comes from, in words, and its file where that is one of ours to look after.

    In the order of `read_secrets`.
    """
    env = ground.env
    if env.get(name, "").strip():
        return "the environment", None
    if env.get(f"{name}_FILE"):
        file = Path(env[f"{name}_FILE"])
        return f"the file {file} ({name}_FILE)", file
    credentials = env.get("CREDENTIALS_DIRECTORY")
    if credentials and _says_something(Path(credentials) / name):
        # A file is looked after; what the manager has put before a service is its own affair.
        file = Path(credentials) / name
        return (str(file), file) if file.parent == CREDENTIALS else ("a systemd credential", None)
    own = ground.home.secrets / name
    return (f"{own}", own) if os.path.isfile(own) else ("", None)


def _says_something(credential: Path) -> bool:
    try:
        return bool(credential.read_bytes().strip())
    except OSError:
        return False


def _open_to_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _remedy_in(line: str) -> str:
    _, found, command = line.rpartition("close it with: ")
    return command if found else "check that path and its rights, or unset the variable"
