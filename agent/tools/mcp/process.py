"""Owns the process of an MCP server on this machine: started, its errors noted, ended for good.

The server is a session of its own. At its end its input is closed, as the protocol says; what is
there after that is ended with all it has started.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.llm.background import in_daemon_thread
from agent.tools.command_runner import end_all
from agent.tools.mcp.nouns import ServerFailed, ServerHopeless, StdioWay

LAUNCHER = Path(__file__).with_name("launcher.py")
MAX_LINE_BYTES = 8_000_000
"""One message. A picture of six megabytes fits; whatever is longer ends the connection."""
GRACE_SECONDS = 1.5
"""For its own end, once its input is closed; then as long again behind a signal."""
ERROR_LINE_CHARS = 300
ERROR_LINES_KEPT = 3
ERROR_LINES_A_MINUTE = 60

log = logging.getLogger(__name__)


class ServerProcess:
    """A server that runs."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.input, self.output = process.stdin, process.stdout
        self._errors = process.stderr
        self._name = name
        self._process = process
        self._last: collections.deque[str] = collections.deque(maxlen=ERROR_LINES_KEPT)

    def last_words(self) -> str:
        """How it ended and what it wrote last, in one line."""
        code = self._process.returncode
        how = "" if code is None else f"it ended with {_how(code)}"
        return ": ".join(part for part in (how, " | ".join(self._last)) if part)

    async def note_errors(self) -> None:
        """What it writes to its standard error goes into our log, within limits."""
        loop = asyncio.get_running_loop()
        minute, lines = loop.time(), 0
        while piece := await self._errors.read(4096):
            for line in piece.decode("utf-8", "replace").splitlines():
                shown = "".join(c if c.isprintable() else " " for c in line)[:ERROR_LINE_CHARS]
                if not shown.strip():
                    continue
                self._last.append(shown)
                if loop.time() - minute > 60:
                    minute, lines = loop.time(), 0
                lines += 1
                # Its words may hold what people said, so they are no INFO.
                if lines <= ERROR_LINES_A_MINUTE:
                    log.debug("mcp server writes", extra={"server": self._name, "text": shown})

    async def end(self) -> None:
        """Until nothing of it runs any more."""
        pid = self._process.pid
        self.input.close()
        if not await self._is_over():
            _signal_group(pid, signal.SIGTERM)
            if not await self._is_over():
                # Also what has left its group, as long as it is known whose child that is.
                await in_daemon_thread(lambda: end_all(pid), "ending an mcp server")
                _signal_group(pid, signal.SIGKILL)
                await self._is_over()
        _signal_group(pid, signal.SIGKILL)  # what it has left behind

    async def _is_over(self) -> bool:
        # Not `wait`: that is also for the ends of its streams, which others may hold.
        for _ in range(round(GRACE_SECONDS / 0.02)):
            if self._process.returncode is not None:
                return True
            await asyncio.sleep(0.02)
        return False


@asynccontextmanager
async def started(name: str, way: StdioWay) -> AsyncIterator[ServerProcess]:
    """Run it as long as the block does.

    Raises:
        ServerHopeless: there is no such program, or no such folder.
        ServerFailed: no process can be started.
    """
    program = way.command[0]
    if shutil.which(program, path=way.env.get("PATH")) is None:
        raise ServerHopeless(f"there is no program {program!r} that could be started")
    if not way.folder.is_dir():
        raise ServerHopeless(f"its cwd {way.folder} is no folder")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *way.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=way.folder,
            env=dict(way.env),
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
    except (OSError, ValueError) as exc:
        raise ServerFailed(f"it can not be started: {exc}") from exc
    running = ServerProcess(name, process)
    noting = asyncio.get_running_loop().create_task(running.note_errors(), name=f"errors of {name}")
    try:
        yield running
    finally:
        try:
            await _to_its_end(running)
        finally:
            noting.cancel()
            transport = getattr(process, "_transport", None)
            if transport is not None:
                transport.close()


async def _to_its_end(running: ServerProcess) -> None:
    """Also while the caller is being cancelled: nothing is left behind."""
    ending = asyncio.ensure_future(running.end())
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            if ending.cancelled():
                raise
            await asyncio.wait({ending})
            raise


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
