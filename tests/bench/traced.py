"""Owns the daemon that says where its memory was taken, for `soak --trace`: on SIGUSR1.

Each time it writes to standard error which lines hold more than the time before.
"""

from __future__ import annotations

import signal
import sys
import tracemalloc

from gateway.cli.main import main

FRAMES = 1
"""More take so long that the daemon is taken for dead."""
SHOWN = 40


def install() -> None:
    tracemalloc.start(FRAMES)
    before: list[tracemalloc.Snapshot] = []

    def show(*_: object) -> None:
        now = tracemalloc.take_snapshot()
        now = now.filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
        held, peak = tracemalloc.get_traced_memory()
        print(f"traced {held:,} bytes, at most {peak:,}", file=sys.stderr)
        if before:
            for line in now.compare_to(before[0], "lineno")[:SHOWN]:
                where = line.traceback[0]
                print(f"{line.size_diff:+,} in {line.count_diff:+,}: {where}", file=sys.stderr)
        before[:] = [now]
        sys.stderr.flush()

    signal.signal(signal.SIGUSR1, show)


if __name__ == "__main__":
    install()
    sys.exit(main())
