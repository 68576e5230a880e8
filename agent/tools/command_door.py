"""Owns the way of one shell command into a unit of its own: who may ask, and what is shut away.

``python -I -S command_door.py WORKSPACES``, started as root by `systemd/posthouse-tools@.service`
with a connection as its input and output. It takes requests from the owner of that folder only.
Before it is told what to run it leaves of all workspaces the one that is asked for, makes processes
invisible that are not the command's, and becomes that user for good; then it is `command_runner`.
Standard library only, and nothing of ours but that module.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import select
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType

RUNNER = Path(__file__).with_name("command_runner.py")
_CLONE_NEWPID = 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND = 2, 4, 8, 4096
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """Nothing is run; the text is for the log."""


def asker(connection: int) -> tuple[int, int]:
    """User and group of whoever is at the other end; the kernel says so."""
    with socket.socket(fileno=os.dup(connection)) as other:
        found = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, gid = struct.unpack("3i", found)
    return uid, gid


def main() -> None:
    """Look who asks, shut the door behind them, run."""
    workspaces = Path(sys.argv[1])
    try:
        uid, gid = asker(0)
        owner = workspaces.stat().st_uid
        if 0 in (uid, gid) or uid != owner:
            raise Refused(f"user {uid}, group {gid} is not {owner}, whose workspaces these are")
        _shut_in(workspaces, place_of(0), uid, gid)
    except (OSError, ValueError, Refused) as exc:
        sys.stderr.write(f"a command is not run: {exc}\n")
        answer = {"error": "it could not be shut in, so it was not run; the service's log says why"}
        sys.stdout.write(json.dumps(answer))
        sys.stdout.flush()
        _hear_out()
        sys.exit(1)
    runner = _runner()
    os.chdir(workspaces)
    runner.main(folder=str(workspaces))


def _hear_out() -> None:
    """What is left unread when a connection closes takes the answer with it."""
    left = 1_000_000
    while left > 0 and select.select([0], [], [], 0.2)[0] and (piece := os.read(0, 65_536)):
        left -= len(piece)


def place_of(connection: int) -> str:
    """The first line: the name of the folder in which the command may work."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(connection, 1)
        if not piece or len(line) > 255:
            raise Refused("no name of a folder came")
        line += piece
    name = line[:-1].decode("utf-8")
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Refused(f"{name!r} is no name of a folder")
    return name


def _shut_in(workspaces: Path, place: str, uid: int, gid: int) -> None:
    """From here on: one folder, one's own processes, and no way back to root."""
    libc = ctypes.CDLL(None, use_errno=True)
    # As the asker: what they can not enter is not mounted for them. Root without its
    # capabilities could not enter their folders anyhow.
    os.setegid(gid)
    os.seteuid(uid)
    try:
        folder = os.open(workspaces / place, _FOLDER)
    finally:
        os.seteuid(0)
        os.setegid(0)
    source = f"/proc/self/fd/{folder}"
    _mount(libc, source, str(workspaces), "", _MS_BIND)
    os.close(folder)
    if libc.unshare(_CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "no process namespace")
    first = os.fork()
    if first:
        _become(uid, gid)
        # It dies with the connection: its own end is all that is left to wait for.
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _mount(libc, "proc", "/proc", "proc", flags)
    _become(uid, gid)


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str, flags: int) -> None:
    done = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None
    )
    if done != 0:
        raise OSError(ctypes.get_errno(), f"{target} can not be mounted")


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("command_runner", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
