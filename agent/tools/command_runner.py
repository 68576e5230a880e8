"""Owns one shell command: a process of its own that runs it, bounds it, and ends all of it.

``python -I -S command_runner.py`` reads one line of JSON from its input (`Request` in
`agent.tools.commands`) and writes one JSON object. As long as its input stays open the command may
run: whoever started this process only has to close the input, or die, and everything that the
command has started is ended, also what has left its process group. Standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""Of each process: data that is its own."""
MAX_FILE_BYTES = 256 * 1024 * 1024
"""Of each file that it writes, where less is not asked for."""
MAX_PROCESSES = 128
"""Beside those that this user runs already."""
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""What says more than this is ended; of what it said both ends are kept."""
KILL_GRACE_SECONDS = 0.25
"""From the request to end to the order to die."""
LAST_WORDS_SECONDS = 0.3
"""What the command has left running may say behind its end."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
_CHUNK_BYTES = 65_536
_PR_SET_CHILD_SUBREAPER = 36


class Kept:
    """The beginning and the end of an output of any length, in bounded memory."""

    def __init__(self, keep_bytes: int) -> None:
        self._half = max(1, keep_bytes // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """More of it."""
        self.total += len(data)
        room = self._half - len(self.head)
        self.head += data[:room]
        self.tail += data[max(0, room) :]
        if len(self.tail) > 2 * self._half:
            del self.tail[: -self._half]

    @property
    def last(self) -> bytes:
        """What is kept behind the head."""
        return bytes(self.tail[-self._half :])


def environment(folder: str) -> dict[str, str]:
    """All that the command finds in its environment: nothing of ours."""
    return {"PATH": _PATH, "HOME": folder, "LANG": "C.UTF-8", "TERM": "dumb", "PAGER": "cat"}


def descendants(root: int) -> list[int]:
    """Every living process that this one has started, or that one of them has."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        some = children.get(waiting.pop(), [])
        found += some
        waiting += some
    return found


def _processes() -> Iterator[tuple[int, int]]:
    """(process, parent) of all that are not dead yet; none where the system does not tell."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue  # it has just ended
            if state not in (b"Z", b"X"):
                yield int(name), int(parent)


def end_all(root: int) -> int:
    """Kill every descendant; how many there were. First all stand still, so that none gets away."""
    stopped: set[int] = set()
    for _ in range(50):
        fresh = set(descendants(root)) - stopped
        if not fresh:
            break
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        _signal(pid, signal.SIGKILL)
    return len(stopped)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def adopt_orphans() -> None:
    """What loses its parent becomes a child of this process, not of the system's first one."""
    with contextlib.suppress(Exception):
        import ctypes  # noqa: PLC0415 - not everywhere, and slow to load

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _bound(seconds: float, file_bytes: int) -> None:
    """In the new process, before the command: what it may take, and that it dies first."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that is too large fails, and says so
    with contextlib.suppress(ImportError):
        import resource  # noqa: PLC0415 - not on every system

        mine = sum(1 for _ in _own_threads())
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(seconds) + 5,
            "RLIMIT_DATA": MAX_MEMORY_BYTES,
            "RLIMIT_FSIZE": min(file_bytes, MAX_FILE_BYTES),
            "RLIMIT_NPROC": mine + MAX_PROCESSES,
        }
        for name, limit in limits.items():
            number = getattr(resource, name, None)
            if number is None:
                continue
            with contextlib.suppress(OSError, ValueError):
                hard = resource.getrlimit(number)[1]
                fits = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
                resource.setrlimit(number, (fits, fits))


def _own_threads() -> Iterator[str]:
    """Threads of this user: they count against the limit of processes."""
    me = os.getuid()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid == me:
                    yield from os.listdir(f"/proc/{name}/task")


class Running:
    """One command from its start to the end of everything it has started."""

    def __init__(self, request: dict[str, Any], folder: str) -> None:
        seconds, file_bytes = request["seconds"], request.get("file_bytes", MAX_FILE_BYTES)
        self._seconds = seconds
        self._kept = Kept(request["keep_bytes"])
        self._started = time.monotonic()
        self._status: int | None = None
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        self._process = subprocess.Popen(
            [shell, "-c", request["command"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
            preexec_fn=lambda: _bound(seconds, file_bytes),  # safe: this process has one thread
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)

    def run(self, life_line: int) -> dict[str, Any]:
        """Until it has ended, or the life line has; what came of it."""
        ended = self._follow(life_line)
        left = self._end()
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return {
            "ended": ended,
            "exit": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "seconds": round(time.monotonic() - self._started, 3),
            "head": base64.b64encode(bytes(self._kept.head)).decode("ascii"),
            "tail": base64.b64encode(self._kept.last).decode("ascii"),
            "total": self._kept.total,
            "left_running": left,
        }

    def _follow(self, life_line: int) -> str:
        """Why it is over: ``exit, time, output, told``."""
        deadline = self._started + self._seconds
        open_output = True
        while True:
            self._reap()
            if self._status is not None:
                return "exit"
            left = deadline - time.monotonic()
            if left <= 0:
                return "time"
            watched = [life_line, *([self._output] if open_output else [])]
            ready = select.select(watched, [], [], min(left, 0.02))[0]
            if life_line in ready and not os.read(life_line, 1024):
                return "told"
            if self._output in ready:
                open_output = self._read()
            if self._kept.total > MAX_OUTPUT_BYTES:
                return "output"

    def _end(self) -> int:
        """End what is left of it; how many processes that were."""
        until = time.monotonic() + LAST_WORDS_SECONDS
        if self._status is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGTERM)
            until = time.monotonic() + KILL_GRACE_SECONDS
        while time.monotonic() < until and (self._read_on() or descendants(os.getpid())):
            self._reap()
            time.sleep(0.01)
        left = end_all(os.getpid())
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        until = time.monotonic() + 2.0
        while time.monotonic() < until and self._reap():
            time.sleep(0.005)
            end_all(os.getpid())
        self._read_on()
        self._process.returncode = 0  # it is waited for here, not there
        return left

    def _read_on(self) -> bool:
        """Take what is there; False: that is all there will ever be."""
        for _ in range(64):
            ready = select.select([self._output], [], [], 0)[0]
            if not ready:
                return True
            if not self._read():
                return False
        return True

    def _read(self) -> bool:
        try:
            data = os.read(self._output, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._kept.add(data)
        return bool(data)

    def _reap(self) -> bool:
        """Bury who has died; False: no child is left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._process.pid:
                    self._status = status
        return False


def main(folder: str | None = None) -> None:
    """Read, run, tell, end. ``folder``: where it begins, instead of where the request says."""
    os.umask(0o077)
    # Unbuffered: the life line has to stay as the system sees it.
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return
        line += piece
    request = json.loads(line)
    where = folder or request["folder"]
    adopt_orphans()
    try:
        running = Running(request, where)
    except (OSError, ValueError) as exc:
        answer: dict[str, Any] = {"error": f"it could not be started: {exc}"}
    else:
        answer = running.run(0)
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
