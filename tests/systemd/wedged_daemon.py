"""The real daemon with a platform that falls silent and does not even end when it is cancelled.

Its patience is seconds instead of minutes; what happens behind that is the real thing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from gateway import liveness, supervisor
from gateway.cli.main import main
from gateway.platforms.contract import Intake, PlatformState, Report
from gateway.platforms.telegram.adapter import TelegramPlatform

ONCE = Path(os.environ.get("STATE_DIRECTORY", "/tmp")) / "wedged-once"


async def wedged(self: TelegramPlatform, intake: Intake, report: Report) -> None:
    """Running, it says, and that was the last of it."""
    report(PlatformState.RUNNING, "")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


if __name__ == "__main__":
    liveness.SIGN_OF_LIFE_SECONDS = 2.0
    liveness.TICK_SECONDS = supervisor.TICK_SECONDS = 0.5
    liveness.MOST_SECONDS_PER_TICK = 1.0
    liveness.ENDING_SECONDS = supervisor.ENDING_SECONDS = 1.0
    if not ONCE.exists():
        ONCE.touch()
        TelegramPlatform.run = wedged  # type: ignore[method-assign]
    else:
        liveness.SIGN_OF_LIFE_SECONDS = 60.0
    sys.argv[0] = "posthouse"
    sys.exit(main())
