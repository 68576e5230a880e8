"""Owns the bench of the command line's start (row 1): no SDK, no event loop, only arguments."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.measure import Result, process

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
    walls = [[wall * 1000 for wall, _ in side] for side in (mine, floor)]
    peaks = [[peak for _, peak in side] for side in (mine, floor)]
    return [
        Result("1 cli --version, wall", "ms", *walls, at_most=2.1),
        Result("1 cli --version, peak RSS", "MiB", *peaks, at_most=20 / 13),
    ]
