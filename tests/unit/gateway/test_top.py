"""`posthouse top` and the words of `posthouse status`: numbers for eyes, in any terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.overview_text import lines, size, span
from gateway.cli.status import NOT_RUNNING, as_text
from gateway.cli.top import GONE
from gateway.cli.top_view import NARROW, picture
from gateway.config.environment import Home, find_home
from gateway.control import send_line
from gateway.control_server import ControlServer

ROOT = Path(__file__).parents[3]
NOW = 1_800_000_000.0
SECONDS = 40.0
EVIL = "evil\x1b]0;owned\x07\x9b2J\nforged: line"

ANSWER: dict[str, Any] = {
    "home": "/home/x",
    "version": "1.2.3",
    "ready": True,
    "state": "degraded",
    "reasons": ["discord retrying for 12 s: no route"],
    "platforms": {
        "telegram": {"state": "running", "reason": ""},
        "discord": {"state": "retrying", "reason": EVIL},
    },
    "details": {"model": "offline", "plugins": EVIL},
    "now": NOW,
    "uptime_seconds": 100_000.0,
    "lanes": {
        "running": 2,
        "waiting": 3,
        "longest_running_seconds": 34.0,
        "oldest_waiting_seconds": 71.0,
    },
    "queues": {
        "inbox": 3,
        "inbox_oldest_seconds": 71.0,
        "outbox": 1,
        "outbox_oldest_seconds": 3.0,
        "outbox_in_doubt": 1,
        "quarantined": 0,
    },
    "today": {"turns": {"done": 122, "failed": 2}, "compressions": 3},
    "compressions": {
        "since_start": 3,
        "last": {
            "at": NOW - 60,
            "trigger": "loop",
            "outcome": "compressed",
            "tokens_before": 90_000,
            "tokens_after": 20_000,
        },
        "last_at": NOW - 60,
        "cooling_down": 1,
    },
    "cache_share": 0.834,
    "jobs": {"active": 3, "paused": 1, "next_at": NOW + 60, "failed": 1},
    "memory": {"resident_bytes": 117_440_512, "grown_bytes": -1_048_576},
    "loop": {"p99_seconds": 0.003, "most_seconds": 0.04, "stalls": 1},
    "database": {"bytes": 12_582_912, "wal_bytes": 524_288, "trouble": None},
    "backups": {"count": 3, "newest_at": NOW - 18_000, "newest_bytes": 12_000_000},
    "runs": {"starts_24h": 2, "cut_off": 1, "last_cut_off_at": NOW - 4000},
    "crashes": {
        "count": 1,
        "newest": {"at": NOW - 4000, "what": EVIL, "file": "/home/x y/crashes/1.txt"},
    },
    "rows": [
        {
            "platform": "telegram",
            "bot_id": "1",
            "chat_id": "-1001234567890",
            "thread_id": None,
            "user_id": "111",
            "conversation_id": "c_1",
            "doing": "turn",
            "seconds": 34.2,
            "waiting": 3,
            "oldest_seconds": 71.0,
            "requests": 4,
            "prompt_tokens": 81_234,
            "output_tokens": 1_200,
        },
        {"platform": EVIL, "doing": None, "seconds": 0.0, "waiting": 0, "oldest_seconds": 0.0}
        | dict.fromkeys(("requests", "prompt_tokens", "output_tokens"), 0),
    ],
    "recent": [
        {
            "ended_at": NOW - 5,
            "platform": "discord",
            "conversation_id": "c_2",
            "outcome": "done",
            "seconds": 3.21,
            "requests": 2,
            "tool_calls": 1,
            "compactions": 0,
            "prompt_tokens": 12_345,
            "cache_read_tokens": 10_000,
            "output_tokens": 345,
        }
    ]
    * 20,
}


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("width", [1, 20, 40, NARROW - 1, NARROW, 100, 300])
@pytest.mark.parametrize("height", [1, 5, 24, None])
def test_it_fits_into_any_window(width: int, height: int | None) -> None:
    answer = deepcopy(ANSWER) | {"reasons": ["漢字" * 80]}
    shown = picture(answer, width, height)
    assert all(columns(line) <= width for line in shown)
    assert height is None or len(shown) <= height
    assert not any(c in line for line in shown for c in "\x1b\x07\x9b\n")


def test_what_it_shows() -> None:
    shown = "\n".join(picture(ANSWER, 120, None))
    for words in (
        "degraded: discord retrying for 12 s: no route",
        "up 1 d 3 h",
        "2 running, 3 waiting (oldest 1 min 11 s)",
        "inbox 3 (1 min 11 s)  outbox 1 (3 s)  in doubt 1",
        "124 turns, 3 compressions  cache 83%",
        "p99 3 ms  worst 40 ms  stalls 1",
        "112.0 MB  grown -1.0 MB",
        "81,234",
        "-1001234567890/111",
        "12,345",
    ):
        assert words in shown
    narrow = "\n".join(picture(ANSWER, 60, None))
    assert "12,345" in narrow
    assert "81,234" not in narrow


def test_nothing_is_at_work_and_the_store_is_silent() -> None:
    quiet = ANSWER | {"rows": [], "recent": [], "queues": None, "today": None, "loop": None}
    quiet |= {"memory": {"resident_bytes": None, "grown_bytes": None}, "platforms": {}}
    shown = "\n".join(picture(quiet, 80, 24))
    assert "nobody is at work" in shown
    assert "the store does not answer" in shown


def test_status_in_words() -> None:
    shown = as_text(deepcopy(ANSWER), Home(Path("/x"), "the default"), NOW)
    for words in (
        "posthouse 1.2.3: degraded: discord retrying for 12 s: no route",
        "up for: 1 d 3 h",
        "at work: 2 conversations at work (longest for 34 s), 3 messages waiting (oldest for 1 min",
        "stored: 3 messages not begun (oldest for 1 min 11 s), 1 answer owed (oldest for 3 s), 1",
        "today: 124 turns (122 done, 2 failed), 3 compressions",
        "compressions: 3 since the start; the last one compressed (90,000 to 20,000 tokens) 1 min",
        "1 conversation cooling down after a failure",
        "cache share: 83% of what turns read came from it",
        "jobs: 3 active, 1 paused, the next one in 1 min 00 s",
        "memory: 112.0 MB (-1.0 MB since it was warm)",
        "event loop: hardly ever more than 3 ms late (at worst 40 ms); it stood still",
        "database: 12.0 MB, its log 512.0 kB",
        "backups: 3, the newest 5 h 00 min old, 11.4 MB",
        "runs: 2 starts in 24 hours; 1 run cut off",
        "(read it: less '/home/x y/crashes/1.txt')",
    ):
        assert words in shown
    assert not any(c in shown for c in "\x1b\x07\x9b")
    assert "\nforged: line" not in shown


def test_what_does_not_run_is_started_by_what_runs_it(tmp_path: Path) -> None:
    """`posthouse run` by root, in the service's home, would be another gateway than that one."""
    unit = tmp_path / "posthouse.service"
    unit.write_text("[Service]\nStateDirectory=bots\n")
    services, own = find_home({}, unit), find_home({"HOME": "/h"}, tmp_path / "none")
    silent = ANSWER | {"reason": NOT_RUNNING, "platforms": {}}
    assert "`systemctl start posthouse`" in as_text(silent, services, NOW)
    assert "posthouse run" not in as_text(silent, services, NOW)
    assert as_text(silent, own, NOW).endswith("start it with `posthouse run`")


def test_what_waits_for_a_restart_is_said_with_the_command(tmp_path: Path) -> None:
    unit = tmp_path / "posthouse.service"
    unit.write_text("[Service]\nStateDirectory=posthouse\n")
    services, own = find_home({}, unit), find_home({"HOME": "/h"}, tmp_path / "none")
    waits = ANSWER | {"details": {"waits for a restart": "model.fallback, DISCORD_BOT_TOKEN"}}
    said = as_text(waits, services, NOW)
    assert "waits for a restart: model.fallback, DISCORD_BOT_TOKEN\nto restart it: " in said
    assert "`systemctl restart posthouse`" in said
    said = as_text(waits, own, NOW)
    assert "systemctl" not in said
    assert "`posthouse run` again" in said
    assert "to restart it" not in as_text(deepcopy(ANSWER), services, NOW)


def test_a_daemon_of_before_says_less() -> None:
    old = {k: ANSWER[k] for k in ("home", "version", "ready", "platforms", "details")}
    assert list(lines(old, NOW)) == []
    assert as_text(old, Home(Path("/x"), "x"), NOW).startswith("posthouse 1.2.3: ready\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (-5, "0 s"), (59.9, "59 s"), (61, "1 min 01 s"), (3660, "1 h 01 min")],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_sizes() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 kB",
        "5.0 MB",
        "3.0 GB",
    ]


# --- live ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(home: Path, answer: dict[str, Any]) -> AsyncIterator[list[int]]:
    """A daemon that is asked for ``top``; how often it was."""
    asked: list[int] = []

    async def top(request: dict[str, Any], reader: Any, writer: Any) -> None:
        asked.append(1)
        await send_line(writer, answer)

    server = ControlServer(home / "control.sock", {"top": top})
    await server.start()
    try:
        yield asked
    finally:
        await server.close()


def start(home: Path, *options: str, **streams: Any) -> subprocess.Popen[bytes]:
    environment = {"POSTHOUSE_HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm"}
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", "top", *options],
        cwd=ROOT,
        env={**environment, "LANG": "C.UTF-8"},
        **streams,
    )


def _of_its_own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def in_terminal(home: Path, rows: int, width: int) -> Any:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
    before = termios.tcgetattr(theirs)
    process = start(
        home, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_of_its_own_terminal
    )
    try:
        yield process, ours
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


async def until(process: subprocess.Popen[bytes], fd: int, seen: bytes, words: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SECONDS):
        while words not in seen:
            seen += await loop.run_in_executor(None, os.read, fd, 65536)
    return seen


@pytest.mark.parametrize("end", ["q", "ctrl-c", "term"])
async def test_live_until_somebody_has_enough(tmp_path: Path, end: str) -> None:
    async with served(tmp_path, ANSWER) as asked:
        with in_terminal(tmp_path, 24, 60) as (process, fd):
            seen = await until(process, fd, b"", b"more line")
            assert seen.startswith(b"\x1b[?1049h")
            os.write(fd, b" ")  # any key: look now
            async with asyncio.timeout(SECONDS):
                while len(asked) < 2:  # noqa: ASYNC110 - another process asks
                    await asyncio.sleep(0.01)
            if end == "term":
                process.send_signal(signal.SIGTERM)
            else:
                os.write(fd, b"q" if end == "q" else b"\x03")
            seen = await until(process, fd, seen, b"\x1b[?1049l")
            code = await asyncio.to_thread(process.wait, SECONDS)
            assert code == 0
            assert b"\x1b]0;" not in seen


async def test_a_daemon_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWER):
        stage = in_terminal(tmp_path, 24, 100)
        process, fd = stage.__enter__()
        seen = await until(process, fd, b"", b"81,234")
    seen = await until(process, fd, b"", GONE[:40].encode())
    async with served(tmp_path, ANSWER):
        seen = await until(process, fd, b"", b"81,234")
        os.write(fd, b"q")
        await until(process, fd, seen, b"\x1b[?1049l")
        await asyncio.to_thread(process.wait, SECONDS)
    stage.__exit__(None, None, None)


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_without_a_terminal_it_looks_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    async with served(tmp_path, ANSWER) as asked:
        process = start(tmp_path, *options, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        out, _ = await asyncio.to_thread(process.communicate, None, SECONDS)
    assert (process.returncode, len(asked)) == (0, 1)
    assert b"\x1b" not in out
    if options:
        assert json.loads(out) == ANSWER
    else:
        assert b"124 turns" in out


def test_nobody_is_there(tmp_path: Path) -> None:
    process = start(tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, said = process.communicate(None, SECONDS)
    assert process.returncode == 1
    assert b"no gateway runs" in said


def test_each_remark_has_a_line_of_its_own() -> None:
    details = {"model": "m", "remarks": "plugin a failed: x\nplugin b failed: \x1b[2Jy"}
    answer = {"version": "1", "ready": True, "home": "/h", "platforms": {}, "details": details}
    said = as_text(answer, Home(Path("/h"), "the default"), 0.0)
    assert "remarks: plugin a failed: x\n  plugin b failed: [2Jy" in said


def test_a_loop_that_is_never_late_is_on_time() -> None:
    loop = {"p99_seconds": 0.0001, "most_seconds": 0.002, "stalls": 0}
    assert dict(lines({"loop": loop}, 0.0))["event loop"] == "on time (at worst 2 ms)"
