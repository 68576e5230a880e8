"""Owns running a shell command: the port, and the runner that starts a process on this machine."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from agent.daemon_threads import DaemonThreads
from agent.tools.command_runner import MAX_FILE_BYTES, end_all, environment

RUNNER = Path(__file__).with_name("command_runner.py")
STARTING_SECONDS = 15.0
"""What a slow machine may take beyond the command's own time."""
ENDING_SECONDS = 0.6
"""How long the end of a command is waited for that nobody wants any more: a stop acts within a
second. It comes all the same."""

Ended = Literal["exit", "time", "output", "told"]
"""By itself, by the limit of time or of output, or because nobody wants it any more."""

log = logging.getLogger(__name__)


class CommandFailed(Exception):
    """It could not be run, or nobody knows what came of it; the text is for the model."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and what it may take."""

    command: str
    folder: Path
    """Where it begins; also its HOME."""
    seconds: float = 120.0
    keep_bytes: int = 64_000
    """Of its output: half from the beginning, half from the end."""
    file_bytes: int = MAX_FILE_BYTES
    """Of each file that it writes; 0: it can delete, and write nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. Nothing that it has started is running any more."""

    ended: Ended
    exit_code: int | None
    """None: a signal has ended it."""
    signal: int | None
    seconds: float
    head: bytes
    tail: bytes
    """What is kept behind the head; in between ``total_bytes`` tells how much is missing."""
    total_bytes: int
    left_running: int
    """Processes that the command had left behind at its own end, and that were ended."""


class CommandRunner(Protocol):
    """Something that runs commands: here, or in another unit of the service manager."""

    async def run(self, request: Request) -> Outcome:
        """Run it to its end, or to one of its limits.

        Raises:
            CommandFailed: the text says why.
            asyncio.CancelledError: nobody wants it any more; it and all it has started is ended.
        """
        ...


class LocalRunner:
    """Runs each command under a process of its own on this machine, as this user.

    That process (`agent.tools.command_runner`) has none of our environment, open files or memory.
    It ends everything when its input closes: at a stop, and also if we die.
    """

    def __init__(self) -> None:
        self._threads = DaemonThreads(1, name="ending commands")
        self._late: set[asyncio.Task[None]] = set()

    async def run(self, request: Request) -> Outcome:
        """As the port says."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(RUNNER)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment("/"),
                start_new_session=True,
            )
        except OSError as exc:
            log.warning("no process to run a command", exc_info=True)
            raise CommandFailed("commands can not be run right now") from exc
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(request.seconds + STARTING_SECONDS):
                process.stdin.write(request_line(request))
                said = await read_all(process.stdout, request.keep_bytes)
        except (TimeoutError, OSError) as exc:
            raise CommandFailed("it did not end in time, so it was ended") from exc
        finally:
            await self._let_end(process)
        return outcome_of(said)

    async def _let_end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        if await _is_over(process):
            return
        log.warning("a command's end is not waited for", extra={"pid": process.pid})
        self._threads.submit(lambda: _end(process))
        late = asyncio.get_running_loop().create_task(_bury(process), name="late end of a command")
        self._late.add(late)
        late.add_done_callback(self._late.discard)


def _end(process: asyncio.subprocess.Process) -> None:
    """What it has started first: once it is dead, nobody knows any more what that was."""
    end_all(process.pid)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def _bury(process: asyncio.subprocess.Process) -> None:
    """Close what is open to it once it is over, or when the loop ends before that."""
    try:
        await process.wait()
    finally:
        transport = getattr(process, "_transport", None)
        if transport is not None:
            runner = transport.get_extra_info("subprocess")
            if runner.returncode is None:
                # Closing would kill it, and with that what it has started would outlive it.
                runner.returncode = -signal.SIGKILL
            transport.close()


async def _is_over(process: asyncio.subprocess.Process) -> bool:
    """Soon, now that its input is closed?"""
    ended = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait({ended}, timeout=ENDING_SECONDS)
    if not done:
        ended.cancel()
    return bool(done)


def request_line(request: Request) -> bytes:
    """The request, as the runner's process reads it."""
    asked = {
        "command": request.command,
        "folder": str(request.folder),
        "seconds": request.seconds,
        "keep_bytes": request.keep_bytes,
        "file_bytes": request.file_bytes,
    }
    return json.dumps(asked).encode("ascii") + b"\n"


async def read_all(stream: asyncio.StreamReader, keep_bytes: int) -> bytes:
    """All that the runner says; nothing, if that is more than it may say.

    What runs as the same user can write there, too.
    """
    limit = 4 * keep_bytes + 10_000
    said = bytearray()
    while piece := await stream.read(65_536):
        said += piece
        if len(said) > limit:
            return b""
    return bytes(said)


def outcome_of(said: bytes) -> Outcome:
    """What the process wrote, which what it ran may have hindered or forged."""
    try:
        found = json.loads(said)
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            raise CommandFailed(found["error"])
        return _read_outcome(found)
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError) as exc:
        raise CommandFailed("what it came to is not known: its runner was ended") from exc


def _read_outcome(found: Mapping[str, Any]) -> Outcome:
    code, number = found["exit"], found["signal"]
    ended = found["ended"]
    if ended not in ("exit", "time", "output", "told"):
        raise ValueError(ended)
    return Outcome(
        ended=ended,
        exit_code=None if code is None else int(code),
        signal=None if number is None else int(number),
        seconds=float(found["seconds"]),
        head=base64.b64decode(found["head"]),
        tail=base64.b64decode(found["tail"]),
        total_bytes=int(found["total"]),
        left_running=int(found["left_running"]),
    )
