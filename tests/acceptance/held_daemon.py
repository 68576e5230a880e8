"""The real daemon, held in the middle of its start or its end, so that a signal can hit it there.

`python -m tests.acceptance.held_daemon --at PLACE --reached FILE --config FILE`. It makes the file
when it is at the place, and goes no further.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from pathlib import Path

PLACES = ("importing", "migrating", "building")
NAMING = "naming"
"""While it ends, a name is still looked up: the system's resolver takes its time."""
HELD_SECONDS = 60.0


def main(argv: list[str]) -> int:
    """Run the daemon up to the place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", choices=(*PLACES, NAMING), required=True)
    parser.add_argument("--reached", type=Path, required=True)
    parser.add_argument("--config", required=True)
    options = parser.parse_args(argv)

    def hold(*_: object, **__: object) -> None:
        options.reached.touch()
        if threading.current_thread() is threading.main_thread():
            time.sleep(HELD_SECONDS)
        else:
            threading.Event().wait(HELD_SECONDS)

    match options.at:
        case "importing":
            import gateway.cli.run as run

            run.check_installation = hold  # type: ignore[assignment]
        case "migrating":
            from storage import faultpoint

            faultpoint.install(lambda name: hold() if name == "migrate.recorded" else None)
        case "building":
            from gateway.wiring import assembling

            assembling.assemble = hold  # type: ignore[assignment]
        case _:
            from gateway.daemon import Daemon

            serve = Daemon.serve

            async def serve_and_ask(daemon: Daemon) -> int:
                asyncio.get_running_loop().run_in_executor(None, hold)
                return await serve(daemon)

            Daemon.serve = serve_and_ask  # type: ignore[method-assign]

    from gateway.cli.main import main as posthouse

    sys.argv = ["posthouse", "run", "--config", options.config]
    return posthouse()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
