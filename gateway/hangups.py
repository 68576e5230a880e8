"""Owns that SIGHUP never ends the process: before there is a daemon, and after it.

It asks for a reload. To a service manager a death by it is a wanted end: it starts nobody again.
"""

from __future__ import annotations

import signal
from types import FrameType

_came = False


def outlive() -> None:
    """From here on. What comes before the daemon looks after the signal itself is remembered."""
    signal.signal(signal.SIGHUP, _remember)


def ignore() -> None:
    """At the end: the interpreter takes handlers away first, and then works on for a while."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def came() -> bool:
    """Has one come that nobody has looked at yet? Asking is looking."""
    global _came
    found, _came = _came, False
    return found


def _remember(number: int, frame: FrameType | None) -> None:
    global _came
    _came = True
