"""Owns the last step of a restore: what is ready moves in, what was there moves aside.

Everything is renames within the home, in an order that can be gone on with from any point of it:
once the plan is written the restore will be finished, by whoever claims the home next.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from agent.errors import StoreUnavailable

STAGING = ".restoring"
PLAN = "plan.json"
DATABASE = "state.db"
_WITH_DATABASE = ("", "-wal", "-shm", "-journal")
"""A log of the old database beside the new one would be read as its own."""


def is_pending(home: Path) -> bool:
    """Is there a restore that was cut off after its plan was made?"""
    return (home / STAGING / PLAN).exists()


def write_plan(home: Path, items: Sequence[str], aside: str, source: Path) -> None:
    """From here on it will be finished. All that is staged is on disk already."""
    staging = home / STAGING
    text = json.dumps({"items": list(items), "aside": aside, "source": str(source)})
    unfinished = staging / f".{PLAN}"
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(unfinished, staging / PLAN)
    _sync(staging)


def planned_source(home: Path) -> Path | None:
    """What a pending restore puts back."""
    try:
        return Path(json.loads((home / STAGING / PLAN).read_text())["source"])
    except (OSError, ValueError, KeyError):
        return None


def finish(home: Path) -> Path | None:
    """Go on with a restore from wherever it stands; the home is claimed. None: there is none.

    Gives back where the replaced state lies.

    Raises:
        StoreUnavailable: something can not be moved; the next try goes on from here.
    """
    staging = home / STAGING
    if not is_pending(home):
        shutil.rmtree(staging, ignore_errors=True)  # cut off before its plan: nothing has begun
        return None
    try:
        plan = json.loads((staging / PLAN).read_text())
        aside = home / str(plan["aside"])
        aside.mkdir(mode=0o700, exist_ok=True)
        owner = home.stat()
        if os.geteuid() == 0:
            os.chown(aside, owner.st_uid, owner.st_gid)
        for item in plan["items"]:
            _move(home, staging, aside, str(item))
        (staging / PLAN).unlink()
        _sync(staging)
    except (OSError, ValueError, KeyError) as exc:
        raise StoreUnavailable(f"the restore in {staging} can not be finished: {exc}") from exc
    shutil.rmtree(staging, ignore_errors=True)
    _sync(home)
    return aside


def _move(home: Path, staging: Path, aside: Path, item: str) -> None:
    """What is still staged has not moved in yet, so whatever stands in its place is the old one."""
    if not os.path.lexists(staging / item):
        return
    for ending in _WITH_DATABASE if item == DATABASE else ("",):
        old = home / f"{item}{ending}"
        if os.path.lexists(old):
            os.rename(old, aside / old.name)
    _sync(aside)
    _sync(home)  # gone before the new one comes, also after a loss of power
    os.rename(staging / item, home / item)
    _sync(home)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
