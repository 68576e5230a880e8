"""Owns keeping others out: of this process's memory and environment, and of what it writes.

What the shell tool runs belongs to the same user. Linux shows such processes each other's
environment and memory, and with that the secrets which this one was started with.
"""

from __future__ import annotations

import contextlib
import logging
import os

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4

log = logging.getLogger(__name__)


def keep_to_the_owner() -> None:
    """What this process makes is its user's alone, whatever the shell that started it says.

    And a crash leaves no copy of its memory, with everybody's words and all secrets, on a disk.
    """
    os.umask(0o077)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def conceal_this_process() -> bool:
    """From now on only the system's administrator looks into it; no core is dumped either.

    False: this system does not offer that. What is started from here is not concealed.
    """
    with contextlib.suppress(Exception):  # the supervised border of somebody else's library
        import ctypes  # noqa: PLC0415 - needed only where commands may run

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0:
            return True
    log.warning("commands of the shell tool can read this process's environment here")
    return False
