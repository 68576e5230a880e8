"""Owns the check of the home folder: which one and why, whose, writable, with room left."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground

_MB = 1024 * 1024
LITTLE_BYTES = 500 * _MB
TOO_LITTLE_BYTES = 50 * _MB


def look(ground: Ground) -> Iterable[Finding]:
    """Everything about the folder itself."""
    said = Said("home")
    home, path = ground.home, ground.home.path
    if not _may_look(path):
        said.problem(
            f"{path} ({home.reason}) is closed to you", "ask as the gateway's user, or as root"
        )
        return said.findings
    if not path.exists() and not (below := _there(path)).is_dir():
        said.problem(
            f"{path} ({home.reason}) can not be made: {below} is no folder",
            "set POSTHOUSE_HOME to another folder",
        )
        return said.findings
    if not path.exists():
        said.note(
            f"{path} ({home.reason}) is not there yet",
            "`posthouse init` makes it; so does `posthouse run`",
        )
        say_room(said, path, os.statvfs(_there(path)))
        return said.findings
    if not path.is_dir():
        said.problem(f"{path} ({home.reason}) is no folder", f"move it away: mv {path} {path}.old")
        return said.findings
    said.ok(f"{path} ({home.reason})")
    _rights(said, path)
    say_room(said, path, os.statvfs(path))
    return said.findings


def _may_look(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return False
    except OSError:
        return True
    return not path.is_dir() or os.access(path, os.R_OK | os.X_OK, effective_ids=True)


def _rights(said: Said, path: Path) -> None:
    facts = path.stat()
    owner = _name_of(facts.st_uid)
    if facts.st_mode & 0o077:
        said.warning(
            f"others on this machine can look into it (mode {facts.st_mode & 0o777:o}); it holds "
            "every conversation",
            f"chmod 700 {path}",
        )
    if os.geteuid() not in (0, facts.st_uid):
        said.problem(
            f"it belongs to {owner}, and you are {_name_of(os.geteuid())}",
            f"ask as that user (sudo -u '#{facts.st_uid}' posthouse doctor), or as root",
        )
        return
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        said.problem(
            "it lies on a disk that is mounted read-only: nothing can be stored",
            f"see `dmesg` for why; then: mount -o remount,rw $(findmnt -no TARGET -T {path})",
        )
    elif not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        said.problem("it can not be written", f"chmod u+rwx {path}")
    if strange := [entry.name for entry in path.iterdir() if _is_strange(entry, facts.st_uid)]:
        names = ", ".join(sorted(strange)[:3])
        said.warning(
            f"some of it belongs to somebody else than the folder does: {names}",
            f"chown -R --reference={path}/. {path}/.",  # a service's is behind a link
        )


def _is_strange(entry: Path, owner: int) -> bool:
    try:
        facts = entry.lstat()
        # systemd makes the socket of the tools, as root; what is asked there is what it is for.
        passed_over = stat.S_ISLNK(facts.st_mode) or stat.S_ISSOCK(facts.st_mode)
        return not passed_over and facts.st_uid != owner
    except FileNotFoundError:  # the gateway at work
        return False


def say_room(said: Said, path: Path, facts: os.statvfs_result) -> None:
    """How much more the disk takes, of bytes and of files."""
    free = facts.f_bavail * facts.f_frsize
    room = f"{free // _MB:,} MB free where it lies"
    if free < TOO_LITTLE_BYTES:
        full = "full" if free < _MB else "nearly full"
        said.problem(f"the disk is {full}: {room}", f"make room: du -xh {path} | sort -h | tail")
    elif facts.f_files and facts.f_favail == 0:
        said.problem(
            "the disk takes no further file (no inodes left)",
            f"delete files: du -x --inodes {path} | sort -n | tail",
        )
    elif free < LITTLE_BYTES:
        said.warning(
            f"the disk is nearly full: {room}", f"make room: du -xh {path} | sort -h | tail"
        )
    else:
        said.ok(room)


def _there(path: Path) -> Path:
    """The nearest folder that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
