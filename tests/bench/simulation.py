"""Owns the bench of `posthouse simulate`: 20,000 events under every setting, against a plain pass.

The twin adds up the sizes of the same events, a hundred times for each setting: what a replay
without any rule would take a hundred times over. By processor time; ten seconds are the aim.
"""

from __future__ import annotations

import time
from dataclasses import replace

from agent.prices import price_table
from agent.simulation.comparing import compare, question_of
from agent.simulation.settings import Choice
from agent.simulation.trace import Trace, bundled
from tests.bench.measure import Result

EVENTS = 20_000
ROUNDS = 3
PASSES = 100


def long_trace() -> Trace:
    """The daily chat, as often as it takes."""
    trace = bundled("daily")
    times = -(-EVENTS // len(trace.events))
    return replace(trace, events=(trace.events * times)[:EVENTS])


def run() -> list[Result]:
    trace = long_trace()
    question = question_of(trace, own={"own": Choice(cache_ttl="1h", background=False)})
    ours, limit = [], []
    settings = 0
    for _ in range(ROUNDS):
        start = time.process_time()
        settings = len(compare(question, price_table()))
        ours.append(1000 * (time.process_time() - start))
        start = time.process_time()
        for _ in range(settings * PASSES):
            total = 0
            for event in trace.events:
                total += event.tokens
        limit.append(1000 * (time.process_time() - start))
    return [
        Result(
            f"simulate, {EVENTS} x {settings}",
            "ms",
            ours,
            limit,
            at_most=10.0,
            note="(aim 10,000 ms)",
        )
    ]
