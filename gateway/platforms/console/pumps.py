"""Owns the threads behind the console's streams: reading and writing may block, the loop may not.

Daemon threads of our own: one that hangs in a read must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Protocol

CHUNK_BYTES = 65_536
MAX_CHUNKS_AHEAD = 16
"""How much is read before it is wanted."""
_NOT_READY_SECONDS = 0.02
"""Somebody may have made the terminal non-blocking; then it has to be asked again."""


class RawInput(Protocol):
    """An unbuffered stream: a buffered one would hold a lock while the interpreter ends."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; empty at the end."""
        ...


class RawOutput(Protocol):
    """An unbuffered stream."""

    def write(self, data: bytes, /) -> int | None:
        """How many bytes of it were taken."""
        ...


class InputPump:
    """Reads a stream in a thread, chunk by chunk, not further ahead than it has to."""

    def __init__(self, stream: RawInput) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_CHUNKS_AHEAD)
        self._ended = False
        threading.Thread(target=self._read, name="console-input", daemon=True).start()

    async def chunk(self) -> bytes:
        """The next piece; empty at the end, and ever after."""
        if self._ended:
            return b""
        data = await self._chunks.get()
        self._room.release()
        self._ended = not data
        return data

    def _read(self) -> None:
        while True:
            self._room.acquire()
            data = self._next()
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, data)
            except RuntimeError:  # the loop is over
                return
            if not data:
                return

    def _next(self) -> bytes:
        while True:
            try:
                data = self._stream.read(CHUNK_BYTES)
            except (OSError, ValueError):  # closed under us: that is an end, too
                return b""
            if data is not None:
                return data
            threading.Event().wait(_NOT_READY_SECONDS)


class OutputPump:
    """Writes to a stream in a thread, in order."""

    def __init__(self, stream: RawOutput) -> None:
        self._stream = stream
        self._jobs: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._work = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        """Until all of it is written.

        Raises:
            OSError: the reader is gone.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(loop,), name="console-output", daemon=True
            )
            self._thread.start()
        self._jobs.append((data, done))
        self._work.release()
        await done

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            self._work.acquire()
            data, done = self._jobs.popleft()
            error: OSError | None = None
            try:
                self._write_all(data)
            except OSError as exc:
                error = exc
            except ValueError as exc:  # closed
                error = OSError(str(exc))
            try:
                loop.call_soon_threadsafe(_settle, done, error)
            except RuntimeError:  # the loop is over
                return

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            taken = self._stream.write(bytes(view[:CHUNK_BYTES]))
            if taken is None:
                threading.Event().wait(_NOT_READY_SECONDS)
            view = view[taken or 0 :]


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
