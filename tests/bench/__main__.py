"""Owns `make bench`: every bench in one run, ours beside its limit twin, as a table of ratios."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys

from tests.bench.measure import Result

BENCHES = (
    "cli",
    "daemon",
    "store",
    "file",
    "compaction",
    "turn",
    "first",
    "crowd",
    "inbound",
    "render",
    "streaming",
    "pause",
    "recall",
    "simulation",
    "plugins",
    "hooks",
    "engine",
    "memory",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("only", nargs="*", choices=[*BENCHES, []], help="which; all by default")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    arguments = parser.parse_args()
    # By `timeout`, say: what a bench has started ends with it, and with it the pipe it writes to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"load {os.getloadavg()[0]:.1f} (above 2: noisy)", file=sys.stderr)
    results: list[Result] = []
    for name in arguments.only or BENCHES:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        results += importlib.import_module(f"tests.bench.{name}").run()
    for result in results:
        print(json.dumps(result.as_dict()) if arguments.json else result.line())
    missed = [r for r in results if not r.met]
    print(f"{len(results) - len(missed)} of {len(results)} within budget", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
