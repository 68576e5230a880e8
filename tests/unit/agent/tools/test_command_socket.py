"""Commands over a socket: as over a process of our own. The real door needs root: tests/systemd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.tools.command_door import Refused, asker, place_of
from agent.tools.command_socket import UNREACHABLE, SocketRunner
from agent.tools.commands import RUNNER, CommandFailed, Request
from tests.unit.agent.tools.test_shell import alive, gone

BEHIND = f"""
import importlib.util, os, sys
name = b""
while not name.endswith(b"\\n"):
    name += os.read(0, 1)
spec = importlib.util.spec_from_file_location("runner", {str(RUNNER)!r})
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)
runner.main(folder=os.path.join(sys.argv[1], name[:-1].decode()))
"""


class Door:
    """A process for each connection, as systemd makes them; nothing is shut in."""

    def __init__(self, path: Path, workspaces: Path) -> None:
        self.path = path
        self._workspaces = workspaces
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    command = [sys.executable, "-I", "-S", "-c", BEHIND, str(self._workspaces)]
                    self.processes.append(
                        subprocess.Popen(command, stdin=connection, stdout=connection)
                    )

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    (tmp_path / "me").mkdir()
    made = Door(tmp_path / "tools.sock", tmp_path)
    yield made
    made.close()


def request(tmp_path: Path, command: str, seconds: float = 20.0) -> Request:
    return Request(command, tmp_path / "me", seconds, 1000)


async def test_it_runs_in_its_folder(door: Door, tmp_path: Path) -> None:
    outcome = await SocketRunner(door.path).run(request(tmp_path, "echo hi > a; pwd; exit 3"))
    assert (outcome.ended, outcome.exit_code) == ("exit", 3)
    assert outcome.head.decode() == f"{tmp_path / 'me'}\n"
    assert (tmp_path / "me" / "a").read_text() == "hi\n"


async def test_more_than_is_kept(door: Door, tmp_path: Path) -> None:
    outcome = await SocketRunner(door.path).run(request(tmp_path, "seq 100000"))
    assert outcome.total_bytes == 588_895
    assert outcome.head.startswith(b"1\n2\n")
    assert outcome.tail.endswith(b"100000\n")


async def test_it_ends_with_whoever_wanted_it(door: Door, tmp_path: Path) -> None:
    running = asyncio.ensure_future(
        SocketRunner(door.path).run(
            request(tmp_path, "echo $$ > p; setsid sleep 60 & echo $! > q; mv q r; sleep 60")
        )
    )
    pids = [tmp_path / "me" / name for name in ("p", "r")]
    while not all(path.exists() for path in pids):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    found = [int(path.read_text()) for path in pids]
    assert all(alive(pid) for pid in found)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in found:
        assert await gone(pid)


async def test_nobody_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=UNREACHABLE):
        await SocketRunner(tmp_path / "none").run(request(tmp_path, "true"))


async def test_an_end_without_an_answer_is_told(door: Door, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="not known"):
        await SocketRunner(door.path).run(request(tmp_path, "kill -9 $PPID; sleep 0.1"))


def test_the_kernel_says_who_asks() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert asker(one.fileno()) == (os.getuid(), os.getgid())


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/etc", b"a\0b", b"x" * 300])
def test_what_is_no_name_of_a_folder_is_refused(name: bytes) -> None:
    with pytest.raises(Refused):
        read_place(name + b"\n")


def test_a_name_ends_with_its_line() -> None:
    assert read_place(b"telegram-111\n{}") == "telegram-111"
    with pytest.raises(Refused):
        read_place(b"cut off")


def read_place(line: bytes) -> str:
    read, write = os.pipe()
    try:
        os.write(write, line)
        os.close(write)
        return place_of(read)
    finally:
        os.close(read)
