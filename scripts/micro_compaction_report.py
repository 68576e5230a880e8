#!/usr/bin/env python3
"""Owns the report on micro-compaction: what the telemetry lines of a log add up to.

Reads plain and JSON logs, and what journalctl prints or exports. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TextIO

MICRO = "micro compaction telemetry: "
BATCH = "context compression attempt telemetry: "
STORED = ("absorbed", "defrag")
COMPRESSED = ("compressed", "swapped_in")
_MESSAGE_KEYS = ("message", "MESSAGE")
_MAX_DEPTH = 3
"""A JSON line of ours inside a JSON line of the journal, and one to spare."""
_DECODER = json.JSONDecoder()
_BYTES = re.compile(r'"MESSAGE"\s*:\s*\[')
"""The journal writes what it does not take for text as a list of bytes."""
NO_LOG = (
    "posthouse logs to standard error, so under systemd its lines are in the journal:\n"
    "  journalctl -u posthouse -o cat | python scripts/micro_compaction_report.py\n"
    "or name the files that hold them."
)
NOTHING = (
    "no telemetry of micro-compaction in there: "
    "is compression.micro_compact on, and logging.level INFO?"
)


@dataclass(slots=True)
class SessionFigures:
    """One session's lines added up."""

    passes: int = 0
    batches: int = 0
    saved_tokens: int = 0
    occupancy_pct: float | None = None
    """At its last pass."""


@dataclass(slots=True)
class Figures:
    """All lines added up."""

    sessions: dict[str, SessionFigures] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    durations_ms: list[float] = field(default_factory=list)
    occupancies_pct: list[float] = field(default_factory=list)
    exchange_tokens: list[float] = field(default_factory=list)
    saved_tokens: int = 0
    batches: int = 0

    def take(self, event: dict[str, Any]) -> None:
        """One line's object; what it does not have counts as nothing."""
        of_session = self.sessions.setdefault(str(event.get("session_id", "?")), SessionFigures())
        if event.get("event") == "context_compression":
            if event.get("outcome") in COMPRESSED:
                self.batches += 1
                of_session.batches += 1
            return
        outcome = str(event.get("outcome", "?"))
        self.outcomes[outcome] += 1
        of_session.passes += 1
        if (duration := _number(event.get("duration_ms"))) is not None:
            self.durations_ms.append(duration)
        if (occupancy := _number(event.get("occupancy_pct"))) is not None:
            self.occupancies_pct.append(occupancy)
            of_session.occupancy_pct = occupancy
        if outcome in STORED:
            saved = -int(_number(event.get("tokens_delta")) or 0)
            self.saved_tokens += saved
            of_session.saved_tokens += saved
        if outcome == "absorbed":
            self.exchange_tokens.append(_number(event.get("exchange_tokens")) or 0)

    @property
    def passes(self) -> int:
        """Lines of micro-compaction."""
        return self.outcomes.total()


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e15 else None  # neither NaN nor infinite


# --- reading ------------------------------------------------------------------------------------


def events_in(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The telemetry objects of a log, in order."""
    for line in lines:
        if MICRO in line or BATCH in line or _BYTES.search(line):
            event = _event(line, _MAX_DEPTH)
            if event is not None:
                yield event


def _event(line: str, depth: int) -> dict[str, Any] | None:
    for prefix, name in ((MICRO, "micro_compaction"), (BATCH, "context_compression")):
        at = line.find(prefix)
        if at < 0:
            continue
        try:
            found, _ = _DECODER.raw_decode(line, at + len(prefix))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("event") == name:
            return found
    return _event(_message(line), depth - 1) if depth else None


def _message(line: str) -> str:
    """What a line says that is JSON itself, whatever stands before it."""
    try:
        record, _ = _DECODER.raw_decode(line, max(0, line.find("{")))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(record, dict):
        return ""
    said = next((record[key] for key in _MESSAGE_KEYS if key in record), "")
    if isinstance(said, list):
        if not all(isinstance(byte, int) and 0 <= byte < 256 for byte in said):
            return ""
        return bytes(said).decode(errors="replace")
    return said if isinstance(said, str) else ""


def home_log() -> Path | None:
    """A log in posthouse's home, if somebody writes one there."""
    env = os.environ  # noqa: TID251  (stands alone: nothing of the daemon is imported)
    home = env.get("POSTHOUSE_HOME") or env.get("STATE_DIRECTORY") or "~/.posthouse"
    folder = Path(home).expanduser()
    for name in ("posthouse.log", "logs/posthouse.log", "logs/agent.log"):
        if (folder / name).is_file():
            return folder / name
    return None


# --- telling ------------------------------------------------------------------------------------


def report(figures: Figures) -> list[str]:
    """All of it, as lines."""
    lines = [
        f"sessions             {len(figures.sessions):,}",
        f"passes               {figures.passes:,}",
        f"outcomes             {_mix(figures.outcomes)}",
        f"duration             {_durations(figures.durations_ms)}",
        f"net saved            {figures.saved_tokens:,} tokens",
        f"exchanges absorbed   {_exchanges(figures.exchange_tokens)}",
        f"occupancy            {_occupancy(figures.occupancies_pct)}",
        f"batch compressions   {_batches(figures)}",
    ]
    return lines


def table(figures: Figures) -> list[str]:
    """A line for each session."""
    rows = [("session", "passes", "occupancy%", "batch", "saved")]
    for session_id, of_session in figures.sessions.items():
        occupancy = of_session.occupancy_pct
        rows.append(
            (
                "".join(ch if ch.isprintable() else "?" for ch in session_id),
                f"{of_session.passes:,}",
                "-" if occupancy is None else f"{occupancy:.1f}",
                f"{of_session.batches:,}",
                f"{of_session.saved_tokens:,}",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _mix(outcomes: Counter[str]) -> str:
    most_first = sorted(outcomes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count:,}" for name, count in most_first) or "none"


def _durations(durations_ms: Sequence[float]) -> str:
    if not durations_ms:
        return "not known"
    return f"median {median(durations_ms) / 1000:.1f} s, max {max(durations_ms) / 1000:.1f} s"


def _exchanges(tokens: Sequence[float]) -> str:
    mean = f", {sum(tokens) / len(tokens):,.0f} tokens each on average" if tokens else ""
    return f"{len(tokens):,}{mean}"


def _occupancy(percents: Sequence[float]) -> str:
    if not percents:
        return "not known"
    low, middle, high = min(percents), median(percents), max(percents)
    return f"min {low:.1f} %, median {middle:.1f} %, max {high:.1f} % of the threshold"


def _batches(figures: Figures) -> str:
    if not figures.batches:
        return "0"
    return f"{figures.batches:,}, {figures.passes / figures.batches:.1f} passes for each"


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Read, add up, print; 1: there is nothing to tell."""
    parser = argparse.ArgumentParser(description="What micro-compaction did, from the log.")
    parser.add_argument("--per-session", action="store_true", help="a line for each session too")
    parser.add_argument(
        "log", nargs="*", help="log files; - or nothing: a log in posthouse's home, else the input"
    )
    asked = parser.parse_args(arguments)
    out = out or sys.stdout
    paths: list[str] = asked.log
    if not paths:
        found = home_log()
        if found is None and sys.stdin.isatty():
            sys.stderr.write(f"{NO_LOG}\n")
            return 1
        paths = [str(found) if found is not None else "-"]
    figures = Figures()
    try:
        with ExitStack() as files:
            for path in paths:
                lines = sys.stdin if path == "-" else files.enter_context(_opened(path))
                for event in events_in(lines):
                    figures.take(event)
    except OSError as exc:
        sys.stderr.write(f"{exc.filename}: {exc.strerror}\n")
        return 1
    if not figures.passes:
        sys.stderr.write(f"{NOTHING}\n{NO_LOG}\n")
        return 1
    lines_out = report(figures)
    if asked.per_session:
        lines_out += ["", *table(figures)]
    try:
        out.write("\n".join(lines_out) + "\n")
        out.flush()
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _opened(path: str) -> TextIO:
    return Path(path).open(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    sys.exit(main())
