"""Owns the bench of the command line's start (row 1): no SDK, no event loop, only arguments."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.measure import Result, median, process

LIMIT = (
    "import argparse; p = argparse.ArgumentParser(); "
    "p.add_argument('--version', action='version', version='1'); p.parse_args(['--version'])"
)


def run() -> list[Result]:
    posthouse = str(Path(sys.executable).with_name("posthouse"))
    ours, limit = [posthouse, "--version"], [sys.executable, "-c", LIMIT]
    process(ours), process(limit)
    mine, floor = [], []
    for _ in range(15):
        mine.append(process(ours))
        floor.append(process(limit))
    return [
        Result(
            "1 cli --version, wall",
            "ms",
            median(w for w, _ in mine) * 1000,
            median(w for w, _ in floor) * 1000,
            at_most=2.1,
        ),
        Result(
            "1 cli --version, peak RSS",
            "MiB",
            median(r for _, r in mine),
            median(r for _, r in floor),
            at_most=20 / 13,
        ),
    ]
