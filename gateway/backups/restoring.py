"""Owns putting a backup back: made ready beside the home's state, then moved in its place."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.errors import PosthouseError
from gateway.backups.choosing import Chosen
from gateway.backups.making import ATTACHMENTS, DATABASE, dated
from gateway.backups.moving_in import STAGING, finish, write_plan
from gateway.backups.nouns import SPARE_BYTES, StoreTools
from gateway.backups.shelf import REPLACED, manifest_of
from gateway.backups.trees import (
    copy_tree,
    give_to_owner_of,
    place_file,
    size_of,
    sync_folders,
)
from gateway.config.environment import Home

_STATE = ("workspace", "hermes")
"""Goes back to what it was, with the conversations that it belongs to."""
_SETTINGS = ("config.yaml", "plugins")
"""Those of today are better than those of then: put back only where there are none."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back, and what was not."""

    items: tuple[str, ...]
    aside: Path
    """Where that is which it has replaced."""
    kept: tuple[str, ...]
    """Settings of the backup that were not put back, since there are some."""
    old_was_readable: bool


def restore(
    home: Home, chosen: Chosen, tools: StoreTools, now: float, *, forget_again: bool = True
) -> Restored:
    """Put it back; the home is claimed by the caller. Blocking.

    ``forget_again``: whoever was forgotten since it was made is, at the next start.

    Killed at any point before the plan, nothing has changed; after it, whoever claims the home next
    finishes it. Nothing is deleted.

    Raises:
        PosthouseError: it can not be done; nothing has changed.
    """
    aside = _aside(home, now)
    staging = home.path / STAGING
    try:
        _refuse_what_can_not_move(home, chosen)
        _refuse_without_room(home, chosen)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700, parents=True)
        tools.copy(chosen.database, staging / DATABASE, now)
        items: list[str] = [DATABASE]
        kept: list[str] = []
        if chosen.folder is not None:
            more, kept = _stage_folder(home, chosen.folder, staging)
            items += more
        readable = tools.prepare(staging / DATABASE, home.database, forget_again=forget_again)
        sync_folders(staging)
        give_to_owner_of(home.path, staging)
        write_plan(home.path, items, aside.name, chosen.path)
    except OSError as exc:
        shutil.rmtree(staging, ignore_errors=True)
        raise PosthouseError(f"{chosen.path} can not be put back: {exc.strerror or exc}") from exc
    except PosthouseError:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finish(home.path)
    return Restored(tuple(items), aside, tuple(kept), readable)


def _aside(home: Home, now: float) -> Path:
    name = REPLACED + dated(now).removeprefix("posthouse-")
    names = [home.path / name, *(home.path / f"{name}-{n}" for n in range(2, 100))]
    return next(path for path in names if not path.exists())


def _stage_folder(home: Home, folder: Path, staging: Path) -> tuple[list[str], list[str]]:
    """What is staged, and what the home keeps instead."""
    items: list[str] = []
    kept: list[str] = []
    if (folder / ATTACHMENTS).is_dir():
        (staging / ATTACHMENTS).mkdir(mode=0o700)
        for entry in sorted((folder / ATTACHMENTS).iterdir()):
            if entry.is_file() and not entry.is_symlink():
                place_file(entry, staging / ATTACHMENTS / entry.name)
        items.append(ATTACHMENTS)
    for name in (*_state_in(folder), *_SETTINGS):
        if not (folder / name).exists():
            continue
        if name in _SETTINGS and os.path.lexists(home.path / name):
            kept.append(name)
            continue
        left_out = copy_tree(folder / name, staging / name).left_out
        if left_out:
            raise PosthouseError(f"{folder / left_out[0]} can not be read")
        items.append(name)
    return items, kept


def _state_in(folder: Path) -> list[str]:
    """What the backup holds beside: also what plugins keep elsewhere in the home."""
    told = (manifest_of(folder) or {}).get("beside", [])
    others = {name for name in told if isinstance(name, str) and Path(name).name == name}
    return sorted({*_STATE, *others} - {*_SETTINGS, DATABASE, ATTACHMENTS, "..", "."})


def _refuse_what_can_not_move(home: Home, chosen: Chosen) -> None:
    """Moving aside is renaming: not possible for a disk of its own."""
    beside = [] if chosen.folder is None else [ATTACHMENTS, *_state_in(chosen.folder)]
    for name in (DATABASE, *beside):
        path = home.path / name
        if path.is_mount() or path.is_symlink():
            raise PosthouseError(
                f"{path} is a disk of its own, or a link, and can not be moved aside; move what is "
                "in it away by hand, take it out of the home, and try again"
            )


def _refuse_without_room(home: Home, chosen: Chosen) -> None:
    needed = chosen.database.stat().st_size + SPARE_BYTES
    if chosen.folder is not None:
        far = chosen.folder.stat().st_dev != home.path.stat().st_dev
        needed += size_of(chosen.folder / ATTACHMENTS) if far else 0
        needed += sum(size_of(chosen.folder / name) for name in _state_in(chosen.folder))
    free = shutil.disk_usage(home.path).free
    if free < needed:
        raise PosthouseError(
            f"{home.path} has {free >> 20} MB free, and {needed >> 20} MB are needed beside what "
            "is there"
        )
