"""The real daemon that kills itself while a job runs.

`python -m tests.acceptance.job_daemon --point P --hits FILE --config FILE`: at a point between two
statements of a due run's transaction, or right behind its commit. It writes down that it did.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.jobs.nouns import Fired, Firing
from agent.store_ports import Store
from storage import faultpoint

BEHIND = "committed"
POINTS = ("fire_job.advanced", "fire_job.claimed", BEHIND)


class KilledBehind:
    """Delegates everything to the real store; dies when a due run is stored."""

    def __init__(self, inner: Store, die: Any) -> None:
        self._inner = inner
        self._die = die

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fire_job(self, job_id: str, firing: Firing) -> Fired | None:
        fired = await self._inner.fire_job(job_id, firing)
        self._die(BEHIND)
        return fired


def main(argv: Sequence[str]) -> int:
    """Run the daemon with its trap set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--point", choices=POINTS, required=True)
    parser.add_argument("--hits", type=Path, required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(argv)

    def die(name: str) -> None:
        if name == options.point:
            options.hits.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    from gateway.cli.main import build_parser
    from gateway.cli.run import serve

    faultpoint.install(die)
    arguments = build_parser().parse_args(["run", "--config", options.config])
    return int(serve(arguments, decorate_store=lambda store: KilledBehind(store, die)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
