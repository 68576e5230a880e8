"""Owns one socket of the gateway: what the SDK is given for it, and when it counts as dead."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from agent.ports import Clock
from gateway.platforms.discord.frames import HEARTBEAT, GarbageError, Inflater, bounded, op_of

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

HELLO_SECONDS = 15.0
ANSWER_SECONDS = 15.0
"""After a heartbeat something has to be heard, or the socket is dead."""
CLOSE_SECONDS = 2.0


class Passage(Protocol):
    """Where frames go through, and where the end of a connection is told."""

    def pass_on(self, text: str, *, greeted: bool) -> str | None:
        """What the SDK gets of a frame; None: nothing.

        Raises:
            GarbageError: it is no frame.
        """
        ...

    def ended(self, lived_seconds: float, why: str) -> None:
        """A connection is over."""
        ...


class GatewaySocket:
    """What the SDK takes for its socket: only what it uses of one."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, wire: Passage, clock: Clock
    ) -> None:
        self._socket = socket
        self._wire = wire
        self._clock = clock
        self._opened_at = clock.monotonic()
        self._inflater = Inflater()
        self._alarm: asyncio.Timeout | None = None
        self._answer_due: float | None = None
        """By the event loop's time."""
        self._greeted = False
        self._over = False

    @property
    def closed(self) -> bool:
        return self._socket.closed

    @property
    def close_code(self) -> int | None:
        return self._socket.close_code

    async def send_str(self, data: str) -> None:
        if op_of(data) == HEARTBEAT:
            self._expect_answer()
        await self._socket.send_str(data)

    def _expect_answer(self) -> None:
        if self._answer_due is not None:
            return
        self._answer_due = asyncio.get_running_loop().time() + ANSWER_SECONDS
        alarm = self._alarm
        if alarm is not None:
            when = alarm.when()
            if when is None or when > self._answer_due:
                alarm.reschedule(self._answer_due)

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        """The next frame for the SDK.

        Raises:
            TimeoutError: nothing is heard any more; the SDK connects anew and resumes.
        """
        import aiohttp  # noqa: PLC0415 - comes with the SDK

        try:
            while True:
                message = await self._next(timeout)
                text = self._text_of(message)
                if text is None:
                    if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                        continue
                    self._end(f"it was closed with code {self.close_code}")
                    return message
                kept = self._wire.pass_on(text, greeted=self._greeted)
                if kept is not None:
                    self._greeted = True
                    return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, kept, None)
        except TimeoutError:
            log.warning("discord's gateway says nothing any more")
            self._end("it said nothing any more")
            raise
        except GarbageError as exc:
            log.warning("discord's gateway says what nobody understands", extra={"why": str(exc)})
            self._end(f"it said what nobody understands: {exc}")
            raise TimeoutError from exc

    async def _next(self, timeout_seconds: float | None) -> aiohttp.WSMessage:
        loop = asyncio.get_running_loop()
        longest = timeout_seconds if self._greeted else HELLO_SECONDS
        deadline = None if longest is None else loop.time() + longest
        due = self._answer_due
        if due is not None and (deadline is None or due < deadline):
            deadline = due
        try:
            async with asyncio.timeout_at(deadline) as self._alarm:
                message = await self._socket.receive()
        finally:
            self._alarm = None
        self._answer_due = None
        return message

    def _text_of(self, message: aiohttp.WSMessage) -> str | None:
        data: Any = message.data
        if isinstance(data, bytes | bytearray) and message.type.name == "BINARY":
            return self._inflater.feed(bytes(data))
        if message.type.name != "TEXT":
            return None
        return bounded(str(data))

    async def close(self, *, code: int = 4000, message: bytes = b"") -> bool:
        """Bounded: a dead socket answers no farewell."""
        self._end("it was left")
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                return await self._socket.close(code=code, message=message)
        except TimeoutError:
            return True

    def _end(self, why: str) -> None:
        if not self._over:
            self._over = True
            self._wire.ended(self._clock.monotonic() - self._opened_at, why)
