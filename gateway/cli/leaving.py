"""Owns a stop that comes before there is a daemon to take it: a clean end, at once."""

from __future__ import annotations

import os
import signal
from types import FrameType

from gateway.cli import exits


def leave_on_sigterm() -> None:
    """Until the daemon looks after the signal itself: end the process at once, exit code 0.

    Nothing has begun that could be finished. What is under way, a migration at the most, is one
    transaction: it is undone, as after a loss of power, and begins again with the next start.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    # Not by an exception: it would come up in the middle of anything, which may swallow it.
    os._exit(exits.OK)
