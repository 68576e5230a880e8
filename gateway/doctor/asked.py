"""Owns asking a program of the system for what it knows: lines of NAME=VALUE, or nothing at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

SECONDS = 3.0


def facts_of(env: Mapping[str, str], program: str, *arguments: str) -> dict[str, str]:
    """What it prints; nothing where there is no such program, or it does not answer."""
    found = shutil.which(program, path=env.get("PATH"))
    if found is None:
        return {}
    try:
        done = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if value}
