"""Owns what root does in a home that is another user's: no code of it is run, nothing stays root's.

Else the daemon, who is that user, would not start any more for a file that it can not open; and
root would run what that user, or whoever speaks through them, has put there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigError

if TYPE_CHECKING:
    from gateway.config.environment import Home

_PRIVATE = Path("/var/lib/private")
"""Where systemd keeps the homes of services whose users are made for them; only root enters it."""
_COARSE_NS = 20_000_000
"""The clock of files comes on in steps, of at most ten milliseconds."""


def is_foreign(home: Path) -> bool:
    """Are we root, and is it somebody else's?"""
    try:
        return os.geteuid() == 0 != home.stat().st_uid
    except OSError:
        return False  # it is not there yet


def refuse_as_root(home: Home, command: str) -> None:
    """Before code of a home is run: plugins, tools, a daemon.

    Args:
        home: Where it is.
        command: What was wanted, as it is typed behind `posthouse`.

    Raises:
        ConfigError: it is another user's home; with the command that is right.
    """
    if not is_foreign(home.path):
        return
    owner = home.path.stat()
    try:
        name, user = pwd.getpwuid(owner.st_uid).pw_name, ""
    except KeyError:
        name, user = str(owner.st_uid), "user "
    if home.is_services:
        instead = "start it by `systemctl start posthouse`"
        if command not in ("run", "chat"):
            instead += f"; `posthouse {command}` goes through it then"
    elif home.path.resolve().is_relative_to(_PRIVATE):
        instead = "start the service that it belongs to"
    elif user:
        ids = f"--reuid={owner.st_uid} --regid={owner.st_gid} --clear-groups"
        instead = f"`setpriv {ids} posthouse {command}`"
    else:
        instead = f"`runuser -u {name} -- posthouse {command}`"
    raise ConfigError(
        [
            f"{home.path} belongs to {user}{name}: as root this would run what lies there with all "
            f"rights, and leave files that {user}{name} can not open. Instead: {instead}"
        ]
    )


@contextlib.contextmanager
def left_to_owner(home: Path) -> Iterator[None]:
    """What root makes in there while the block runs becomes the home's owner's at its end.

    What root has put there before, a plugin that the daemon must not change, stays root's.
    """
    begun_ns = time.time_ns() - _COARSE_NS
    try:
        yield
    finally:
        if is_foreign(home):
            _give(home, begun_ns)


def _give(home: Path, since_ns: int) -> None:
    owner = home.stat()
    for _, folders, files, folder in os.fwalk(home):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if _was_made(found, since_ns):
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _was_made(found: os.stat_result, since_ns: int) -> bool:
    """By root, since then. A second name may be that of a file anywhere."""
    if found.st_uid != 0 or found.st_ctime_ns < since_ns:
        return False
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
