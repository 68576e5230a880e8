"""Owns an end that nothing holds up: before there is a daemon, and after it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

from gateway.cli import exits

LAST_SECONDS = 3.0
"""How long the interpreter may take to end, once all is done and said."""


def leave_for_sure(code: int) -> None:
    """End the process, whatever threads still run: the interpreter would wait for them.

    All of ours is stopped and stored by then; what was said may still be on its way to a reader.
    """
    ours = sys.modules.get("agent.llm.background")
    if ours is not None and ours.is_at_work():
        # A restart right behind a start finds the model's SDK half imported: seconds for nothing.
        _leave_now(code)
    if "gateway.plugins.importing" in sys.modules:  # code of others has run, maybe for ever
        leave_soon(code)


def leave_soon(code: int) -> None:
    """The same, whatever goes on, within `LAST_SECONDS`. Nothing may be left to be said."""
    threading.Thread(target=_leave_late, args=(code,), name="last exit", daemon=True).start()


def _leave_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has left
            if stream is not None:
                stream.flush()
    os._exit(code)


def _leave_late(code: int) -> None:
    time.sleep(LAST_SECONDS)
    os._exit(code)


def leave_on_sigterm() -> None:
    """Until the daemon looks after the signal itself: end the process at once, exit code 0.

    Nothing has begun that could be finished. What is under way, a migration at the most, is one
    transaction: it is undone, as after a loss of power, and begins again with the next start.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    # Not by an exception: it would come up in the middle of anything, which may swallow it.
    os._exit(exits.OK)
