"""What others write into the log is bounded; what we write is not."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from gateway import logs
from gateway.logs.flood import MAX_LINES, WINDOW_SECONDS, FloodGate


def record(name: str, at: float) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "f", 1, "line %d", (1,), None)
    made.created = at
    return made


@pytest.fixture
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield
    root.handlers, root.level = before[0], before[1]


def test_a_plugin_that_floods_is_cut_off_until_the_next_window() -> None:
    gate = FloodGate()
    names = [f"hermes_plugins.noisy.part{n % 3}" for n in range(1000)]
    passed = [r for name in names if gate.filter(r := record(name, 1000.0))]
    assert len(passed) == MAX_LINES + 1
    assert passed[0].getMessage() == "line 1"
    assert passed[-1].getMessage().startswith("too many lines")
    assert gate.filter(record("hermes_plugins.quiet", 1000.0))
    assert gate.filter(record("hermes_plugins.noisy", 1000.0 + WINDOW_SECONDS))


def test_ours_pass() -> None:
    gate = FloodGate()
    assert all(gate.filter(record("gateway.turns.runner", 1000.0)) for _ in range(1000))


@pytest.mark.usefixtures("_log_as_before")
def test_it_stands_before_the_log() -> None:
    stream = io.StringIO()
    logs.set_up(level="INFO", style="plain", secrets=(), env={}, stream=stream)
    for _ in range(3 * MAX_LINES):
        logging.getLogger("hermes_plugins.noisy").info("again")
    assert stream.getvalue().count("\n") <= 2 * MAX_LINES + 2
