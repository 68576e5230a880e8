"""Owns what a process may take that reads a document of strangers."""

from __future__ import annotations

import contextlib
from pathlib import Path


def bound_this_process(*, memory_bytes: int, cpu_seconds: int) -> None:
    """What a document may take; where the system has no such limits, only the parent's deadline.

    Where memory runs out all the same, this process is the one to go, and not the daemon.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
