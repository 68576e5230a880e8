"""Owns showing what everybody is doing: the stacks of all threads, and where each task waits.

Code and line numbers only, no values: what people said and secrets are in no stack.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import signal
import traceback
from types import FrameType

log = logging.getLogger(__name__)

ASK = getattr(signal, "SIGUSR2", None)
"""`systemctl kill -s USR2 posthouse`: the stacks go to standard error, the tasks into the log."""
MOST_TASKS = 200
INNERMOST = 3
"""Frames of each task."""


def show_when_asked() -> None:
    """At SIGABRT (an unfed watchdog) and at SIGUSR2. A loop that is stuck shows its thread's stack.

    Of the loop that runs; it is told once.
    """
    loop = asyncio.get_running_loop()
    # Fails where standard error is no file of the system's, or there are no such signals.
    with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
        faulthandler.enable()
        if ASK is not None:
            loop.add_signal_handler(ASK, log_tasks)
            faulthandler.register(ASK, all_threads=True, chain=True)


def log_tasks() -> None:
    """One line for each task of the loop that runs."""
    tasks = sorted(asyncio.all_tasks(), key=asyncio.Task.get_name)
    log.warning("tasks", extra={"count": len(tasks)})
    for task in tasks[:MOST_TASKS]:
        log.warning("task", extra={"task": task.get_name(), "at": where(task)})


def where(task: asyncio.Task[object]) -> str:
    """Where it waits, the innermost first."""
    frames: list[FrameType] = []
    inner: object = task.get_coro()
    while inner is not None and len(frames) < 50:  # `get_stack` knows the outermost only
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    lines = [_place(frame) for frame in reversed(frames[-INNERMOST:])]
    return " < ".join(lines) or "nowhere"


def _place(frame: FrameType) -> str:
    [summary] = traceback.StackSummary.extract([(frame, frame.f_lineno)], lookup_lines=False)
    file = "/".join(summary.filename.rsplit("/", 2)[-2:])
    return f"{file}:{summary.lineno} {summary.name}"
