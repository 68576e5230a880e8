"""The real daemon whose wall clock is wrong by what a file says, from one moment to the next.

`python -m tests.acceptance.clock_daemon --wrong-by FILE --config FILE`. Only the wall clock: the
monotonic one of a machine never jumps.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from agent.clock import SystemClock


def main(argv: list[str]) -> int:
    """Run the daemon by that clock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong-by", type=Path, required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(argv)

    def now(_clock: SystemClock) -> float:
        return time.time() + float(options.wrong_by.read_text())

    SystemClock.now = now  # type: ignore[method-assign]
    from gateway.cli.main import main as posthouse

    sys.argv = ["posthouse", "run", "--config", options.config]
    return posthouse()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
