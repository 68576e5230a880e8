"""Owns the check of workspaces: how much tools have written, and whether they may write on."""

from __future__ import annotations

import os
from collections.abc import Iterable

from agent.tools.room import MAX_ENTRIES, MEGABYTE, sizes
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground

NEARLY = 0.9
"""Of what a workspace may hold."""


def look(ground: Ground) -> Iterable[Finding]:
    """Nothing to say where no tool writes, or none has written yet."""
    said = Said("workspaces")
    wanted, folder = ground.config.agent.tools, ground.home.workspace
    found = sizes(folder)
    if not found:
        return said.findings
    most = wanted.workspace_mb * MEGABYTE
    total = sum(size for size, _ in found.values())
    said.ok(f"{len(found):,} with {_mb(total)} in all; each may hold {wanted.workspace_mb:,} MB")
    for name, (size, entries) in found.items():
        if size > most or entries >= MAX_ENTRIES:
            said.warning(
                f"{name} is full: {_mb(size)} in {entries:,} entries; in it tools can only delete",
                f"look into {folder / name}, or raise agent.tools.workspace_mb",
            )
        elif size > NEARLY * most:
            said.warning(
                f"{name} is nearly full: {_mb(size)}",
                f"look into {folder / name}, or raise agent.tools.workspace_mb",
            )
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if (wanted.shell or wanted.files) and free < wanted.keep_free_mb * MEGABYTE:
        said.problem(
            f"tools write nothing: {_mb(free)} are free on their disk, and "
            f"{wanted.keep_free_mb:,} MB have to stay free (agent.tools.keep_free_mb)",
            f"make room: du -xh {folder} | sort -h | tail",
        )
    return said.findings


def _mb(size: int) -> str:
    return f"{size // MEGABYTE:,} MB"
