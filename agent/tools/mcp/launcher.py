"""Owns the first moment of an MCP server's process: it is not to outlive us. Runs on its own.

As the main program: ``launcher.py PARENT COMMAND…``. It imports nothing of ours. What is started
gets our place, with its own name and nothing of ours open.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def main() -> None:
    """Bind the process to the life of its parent, then become the server."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    with contextlib.suppress(Exception):
        import ctypes  # noqa: PLC0415 - not everywhere

        # A daemon that is killed closes the server's input; one that does not heed that ends too.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(NOT_STARTED)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    # Python ignores it, and would hand that on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as exc:
        sys.stderr.write(f"{command[0]}: {exc.strerror}\n")
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
