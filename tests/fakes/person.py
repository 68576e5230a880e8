"""A person at a terminal: starts a program on a pty of its own, waits for words, types."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
SECONDS = 20.0


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, if the tests run in the background
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # getpass asks the controlling terminal


class Person:
    """Use as a context; at its end the program is gone."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        program: Sequence[str] = (sys.executable, "-m", "gateway"),
    ) -> None:
        self._command = [*program, *command]
        self._env = dict(env)
        self.seen = ""
        self._read_up_to = 0

    async def __aenter__(self) -> Self:
        self._start()
        self._news = asyncio.Event()
        self._gone = False
        asyncio.get_running_loop().add_reader(self._master, self._readable)
        return self

    def _start(self) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        os.set_blocking(self._master, False)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _readable(self) -> None:
        try:
            data = os.read(self._master, 65_536)
        except OSError as exc:
            if exc.errno == errno.EAGAIN:
                return
            data = b""  # Linux: the program has let go of its terminal
        if not data:
            self._close()
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        self._news.set()

    def _close(self) -> None:
        if not self._gone:
            self._gone = True
            asyncio.get_running_loop().remove_reader(self._master)

    async def sees(self, words: str) -> None:
        """Wait until these words stand behind those that were seen last."""
        try:
            async with asyncio.timeout(SECONDS):
                while (at := self.seen.find(words, self._read_up_to)) < 0:
                    if self._gone:
                        raise AssertionError(f"it ended without {words!r}:\n{self.seen}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"never seen: {words!r}\n{self.seen}") from None
        self._read_up_to = at + len(words)

    def types(self, line: str) -> None:
        """A line, and Enter."""
        os.write(self._master, f"{line}\n".encode())

    def presses(self, key: str) -> None:
        """Ctrl with a letter."""
        os.write(self._master, bytes([ord(key.upper()) - 64]))

    async def interrupts(self) -> int:
        """Ctrl-C, and its exit code. One that comes just before a read is seen behind that only."""
        for _ in range(round(SECONDS / 4)):
            self.presses("c")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return await asyncio.to_thread(self._process.wait, 4.0)
        raise AssertionError(f"it goes on:\n{self.seen}")

    async def answers(self, *pairs: tuple[str, str]) -> None:
        """One after the other: wait for these words, type that."""
        for words, line in pairs:
            await self.sees(words)
            self.types(line)

    async def ends(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self._process.wait, SECONDS)
