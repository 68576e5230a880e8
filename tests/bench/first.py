"""Owns the bench of the first turn after a start (row 5e), in a process of its own each time.

What is slow to load is loaded behind the start, so that nobody waits for it; so does the twin, the
bare calls in a process of its own as well.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import Result
from tests.bench.turn import Ours, Twin, provider

ROUNDS = 3
SETTLING_SECONDS = 5.0
"""Until what is loaded behind the start is there, also on a busy machine."""
BUDGET_MS = 300.0


async def _first(side: Ours | Twin) -> float:
    async with side:
        await asyncio.sleep(SETTLING_SECONDS)
        return await side.turn(500, "hello") * 1000


def _measured(side: str, url: str) -> float:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.bench.first", side, url]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def run() -> list[Result]:
    """All of it."""
    ours, twin = [], []
    with provider() as url:
        for _ in range(ROUNDS):
            ours.append(_measured("ours", url))
            twin.append(_measured("twin", url))
    floor = f"budget {BUDGET_MS:.0f} ms"
    return [Result("5e first turn after start", "ms", ours, twin, at_most=4.0, note=floor)]


if __name__ == "__main__":
    made = {"ours": Ours, "twin": Twin}[sys.argv[1]]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        print(asyncio.run(_first(made(sys.argv[2], Path(folder)))))
