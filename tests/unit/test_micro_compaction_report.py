"""The report on micro-compaction, as a process: from every form in which our log comes out."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.compaction.host import telemetry
from gateway import logs

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "micro_compaction_report.py"
WHOLE = """\
sessions             2
passes               4
outcomes             absorbed 2, defrag 1, summarize_failed 1
duration             median 2.0 s, max 4.0 s
net saved            700 tokens
exchanges absorbed   2, 500 tokens each on average
occupancy            min 10.0 %, median 25.0 %, max 40.0 % of the threshold
batch compressions   1, 4.0 passes for each
"""
SESSIONS = """
session  passes  occupancy%  batch  saved
s_one         3        30.0      1    400
s_two         1        40.0      0    300
"""


def micro(session_id: str, outcome: str, delta: int, **fields: Any) -> dict[str, Any]:
    return {
        "event": "micro_compaction",
        "session_id": session_id,
        "outcome": outcome,
        "tokens_delta": delta,
        "exchange_tokens": 500,
        **fields,
    }


EVENTS = [
    micro("s_one", "absorbed", 200, occupancy_pct=10.0, duration_ms=1000),
    micro("s_one", "summarize_failed", 0, occupancy_pct=20.0, duration_ms=4000),
    micro("s_one", "defrag", -600, occupancy_pct=30.0, duration_ms=2000),
    {"event": "context_compression", "session_id": "s_one", "outcome": "compressed"},
    {"event": "context_compression", "session_id": "s_one", "outcome": "failed"},
    micro("s_two", "absorbed", -300, occupancy_pct=40.0, duration_ms=2000),
]


@pytest.fixture
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def log_of(style: str) -> str:
    """What the daemon writes, in one of its styles."""
    stream = io.StringIO()
    logs.set_up(level="INFO", style=style, secrets=["s_secret"], env={}, stream=stream)
    log = logging.getLogger("agent.compaction.micro.passes")
    with logs.about(conversation_id="c_1", turn_id="t 1"):
        for event in EVENTS:
            log.info("turn", extra={"seconds": 1.0})
            write = telemetry.write_micro if "micro" in event["event"] else telemetry.write_batch
            write(log, event)
    return stream.getvalue()


def run(*arguments: str, stdin: str = "", home: Path | None = None) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k not in ("POSTHOUSE_HOME", "STATE_DIRECTORY")}
    env |= {"HOME": str(home or "/nonexistent"), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=env,
        timeout=30,
        check=False,
    )


def journal_json(log: str) -> str:
    lines = [{"MESSAGE": line, "PRIORITY": "6"} for line in log.splitlines()]
    lines[1]["MESSAGE"] = list(lines[1]["MESSAGE"].encode())  # type: ignore[call-overload]
    return "\n".join(json.dumps(line) for line in lines)


def journal_export(log: str) -> str:
    return "\n".join(f"__CURSOR=s=1\nMESSAGE={line}\n" for line in log.splitlines())


@pytest.mark.usefixtures("_root_logger")
@pytest.mark.parametrize("style", ["plain", "json", "journal"])
@pytest.mark.parametrize("form", [str, journal_json, journal_export])
def test_every_form_of_the_log_is_read(style: str, form: Any, tmp_path: Path) -> None:
    done = run(stdin=form(log_of(style)))
    assert (done.stdout, done.stderr, done.returncode) == (WHOLE, "", 0)


@pytest.mark.usefixtures("_root_logger")
def test_files_each_session_and_lines_that_are_none(tmp_path: Path) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    lines = log_of("plain").splitlines()
    bad = [
        "micro compaction telemetry: ",
        'micro compaction telemetry: {"event": "micro_compaction", "outc',
        'micro compaction telemetry: ["micro_compaction"]',
        'micro compaction telemetry: {"event": "another"}',
        "micro compaction telemetry: " + "[" * 5000,
        json.dumps({"MESSAGE": ["micro compaction telemetry: ", 900]}),
        json.dumps("micro compaction telemetry: {}"),
    ]
    first.write_bytes("\n".join(lines[:4] + bad).encode() + b"\n\xff\xfe\n")
    second.write_text("\n".join(lines[4:]))
    done = run("--per-session", str(first), str(second))
    assert done.stdout == WHOLE + SESSIONS
    assert done.returncode == 0


def test_nothing_in_there_is_an_error(tmp_path: Path) -> None:
    empty = run(stdin="turn seconds=1\n")
    assert (empty.stdout, empty.returncode) == ("", 1)
    assert "journalctl" in empty.stderr
    missing = run(str(tmp_path / "none.log"))
    assert missing.returncode == 1
    assert "none.log" in missing.stderr
    only_batch = 'context compression attempt telemetry: {"event":"context_compression"}'
    assert run(stdin=only_batch).returncode == 1


@pytest.mark.usefixtures("_root_logger")
def test_a_log_in_the_home_is_found(tmp_path: Path) -> None:
    home = tmp_path / ".posthouse"
    home.mkdir()
    (home / "posthouse.log").write_text(log_of("json"))
    assert run(home=tmp_path).stdout == WHOLE


def test_figures_that_make_no_sense_break_nothing() -> None:
    odd = [
        micro("s\u001b[31m", "absorbed", -1, occupancy_pct=None, duration_ms="fast"),
        {"event": "micro_compaction", "tokens_delta": 1e400, "outcome": None},
        micro("s", "absorbed", 5, exchange_tokens=True, occupancy_pct=float("nan")),
    ]
    text = "\n".join(f"micro compaction telemetry: {json.dumps(event)}" for event in odd)
    done = run("--per-session", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "duration             not known" in done.stdout
    assert "occupancy            not known" in done.stdout
    assert "\u001b" not in done.stdout
