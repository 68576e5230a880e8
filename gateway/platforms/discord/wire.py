"""Owns the gateway's socket under the SDK: how it is dialled, unpacked, watched, and what passes.

The SDK gets the frames that it needs to stay connected and to know guilds and channels. Messages
are taken out here: one that the SDK could not read would end the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.ports import Clock
from gateway.platforms.contract import PlatformUnavailable

if TYPE_CHECKING:
    import aiohttp
    import yarl

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
HELLO_SECONDS = 15.0
ANSWER_SECONDS = 15.0
"""After a heartbeat something has to be heard, or the socket is dead."""
CLOSE_SECONDS = 2.0
STEADY_SECONDS = 10.0
"""A connection that ends sooner was none."""
LONGEST_PAUSE_SECONDS = 30.0
FRUITLESS_LIMIT = 8
"""Such connections in a row; then a new login is better, which knows how many starts are left."""
USUAL_HEARTBEAT_SECONDS = 41.25
LONGEST_HEARTBEAT_SECONDS = 45.0
MAX_FRAME_BYTES = 64 << 20
_SYNC_FLUSH = b"\x00\x00\xff\xff"

DISPATCH, HEARTBEAT, HELLO, HEARTBEAT_ACK = 0, 1, 10, 11
MESSAGE_EVENTS = ("MESSAGE_CREATE", "MESSAGE_UPDATE")
_SDK_EVENTS = ("READY", "GUILD_", "CHANNEL_", "THREAD_", "USER_UPDATE")
_TAKEN = "TAKEN_OUT"
"""A name that the SDK does not know: it counts such an event and does nothing more."""


class GarbageError(ValueError):
    """A frame that can not be understood: the stream behind it can not be trusted."""


class WireEvents(Protocol):
    """What the wire tells; none of these waits."""

    def message_event(self, name: str, payload: object) -> None:
        """MESSAGE_CREATE or MESSAGE_UPDATE, as it came."""
        ...

    def session_begun(self, shard_id: int) -> None:
        """READY has come: from here on nothing is lost while the session lives."""
        ...

    def alive(self) -> None:
        """A heartbeat was answered."""
        ...


@dataclass(frozen=True, slots=True)
class WireEvent:
    """Which event it was, and of what (the id in it)."""

    name: str
    id: str


class Wire:
    """Stands in for the SDK's way to open a gateway socket (`connect`)."""

    def __init__(
        self,
        dial: Callable[[str], Awaitable[aiohttp.ClientWebSocketResponse]],
        events: WireEvents,
        clock: Clock,
        *,
        shortest_heartbeat_seconds: float,
        withheld: set[WireEvent],
    ) -> None:
        """``withheld``: events that the SDK could not read before; it does not get them again."""
        self._dial = dial
        self._events = events
        self._clock = clock
        self._shortest_heartbeat_seconds = shortest_heartbeat_seconds
        self._withheld = withheld
        self._home: yarl.URL | None = None
        self._fruitless = 0
        self.passed_last: WireEvent | None = None
        """What the SDK got last: if it breaks, then by this."""
        self.trouble = ""
        """Why the newest connection did not come about, or is over."""

    async def connect(self, url: str, *, compress: int = 0) -> GatewaySocket:
        """As ``HTTPClient.ws_connect``.

        Raises:
            PlatformUnavailable: one connection after another ends at once.
            OSError, aiohttp.ClientError, TimeoutError: the SDK tries again.
        """
        self.passed_last = None
        await self._pace()
        target = self._target(url)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                socket = await self._dial(str(target))
        except Exception as exc:
            self._fruitless += 1
            self.trouble = f"{type(exc).__name__}: {exc}"[:300]
            raise
        return GatewaySocket(socket, self, self._clock)

    async def _pace(self) -> None:
        if self._fruitless >= FRUITLESS_LIMIT:
            raise PlatformUnavailable("discord ends every connection at once")
        if self._fruitless > 1:
            await self._clock.sleep(min(LONGEST_PAUSE_SECONDS, 2.0 ** (self._fruitless - 2)))

    def _target(self, url: str) -> yarl.URL:
        """Where to dial: where the SDK wants, or home if that came to nothing."""
        import yarl  # noqa: PLC0415 - comes with the SDK

        wanted = yarl.URL(url)
        if self._home is None:
            self._home = wanted
        if self._fruitless > 0:
            wanted = self._home.with_query(wanted.query)
        # This module unpacks, so it chooses what is packed.
        return wanted.update_query(compress="zlib-stream")

    def ended(self, lived_seconds: float, why: str) -> None:
        """A connection is over."""
        self.trouble = why
        self._fruitless = 0 if lived_seconds >= STEADY_SECONDS else self._fruitless + 1

    def pass_on(self, text: str, *, greeted: bool) -> str | None:
        """What the SDK gets of a frame; None: nothing.

        Raises:
            GarbageError: it is no frame.
        """
        frame = _parsed(text)
        op = frame.get("op")
        if op == HELLO:
            return None if greeted else self._hello(frame)
        if op == HEARTBEAT_ACK:
            self._events.alive()
        if op == DISPATCH:
            return self._dispatch(text, frame)
        return text if isinstance(op, int) else None

    def _hello(self, frame: dict[str, Any]) -> str:
        data = frame.get("d")
        interval = data.get("heartbeat_interval") if isinstance(data, dict) else None
        seconds = USUAL_HEARTBEAT_SECONDS
        if isinstance(interval, int | float) and 0 < interval < 1e9:
            seconds = interval / 1000
        if not self._shortest_heartbeat_seconds <= seconds <= LONGEST_HEARTBEAT_SECONDS:
            log.warning("odd heartbeat interval", extra={"seconds": seconds})
        seconds = min(max(seconds, self._shortest_heartbeat_seconds), LONGEST_HEARTBEAT_SECONDS)
        return json.dumps({"op": HELLO, "d": {"heartbeat_interval": seconds * 1000}})

    def _dispatch(self, text: str, frame: dict[str, Any]) -> str:
        name, data, seq = frame.get("t"), frame.get("d"), frame.get("s")
        taken = json.dumps({"op": DISPATCH, "t": _TAKEN, "s": seq, "d": None})
        if not isinstance(seq, int) or not isinstance(name, str):
            return json.dumps({"op": DISPATCH, "t": _TAKEN, "d": None})
        if name in MESSAGE_EVENTS:
            self._events.message_event(name, data)
            return taken
        if name == "RESUMED":
            return json.dumps({"op": DISPATCH, "t": name, "s": seq, "d": {}})
        if not name.startswith(_SDK_EVENTS) or not isinstance(data, dict):
            return taken
        event = WireEvent(name, str(data.get("id") or data.get("guild_id") or ""))
        if event in self._withheld:
            return taken
        self.passed_last = event
        if name == "READY":
            return self._ready(frame, data)
        return text

    def _ready(self, frame: dict[str, Any], data: dict[str, Any]) -> str:
        shard = data.get("shard")
        first = shard[0] if isinstance(shard, list) and shard else 0
        self._events.session_begun(first if isinstance(first, int) else 0)
        data["resume_gateway_url"] = self._resume_url(data.get("resume_gateway_url"))
        return json.dumps(frame)

    def _resume_url(self, told: object) -> str:
        """The token goes there, so only the same kind of place as the first one is believed."""
        import yarl  # noqa: PLC0415 - comes with the SDK

        assert self._home is not None
        home = self._home.with_query(None)
        try:
            url = yarl.URL(told if isinstance(told, str) else "")
            host, known = url.host or "", home.host or ""
            family = known.partition(".")[2]
            related = host == known or ("." in family and host.endswith("." + family))
            if url.scheme == home.scheme and related:
                return str(url)
        except ValueError:
            pass
        log.warning("odd address to resume at")
        return str(home)


class GatewaySocket:
    """What the SDK takes for its socket: only what it uses of one."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, wire: Wire, clock: Clock) -> None:
        self._socket = socket
        self._wire = wire
        self._clock = clock
        self._opened_at = clock.monotonic()
        self._inflater = _Inflater()
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
        if _op_of(data) == HEARTBEAT:
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
        if len(data) > MAX_FRAME_BYTES:
            raise GarbageError("the frame is too large")
        return str(data)

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


class _Inflater:
    """zlib-stream: one context for the connection, a sync flush behind each frame."""

    def __init__(self) -> None:
        self._context = zlib.decompressobj()
        self._waiting = bytearray()

    def feed(self, data: bytes) -> str | None:
        """The frame that is whole now; None: the rest of it is still to come."""
        self._waiting += data
        if len(self._waiting) > MAX_FRAME_BYTES:
            raise GarbageError("the frame is too large")
        if not data.endswith(_SYNC_FLUSH):
            return None
        packed, self._waiting = bytes(self._waiting), bytearray()
        try:
            plain = self._context.decompress(packed, MAX_FRAME_BYTES)
            if self._context.unconsumed_tail:
                raise GarbageError("the frame is too large")
            return plain.decode()
        except (zlib.error, UnicodeDecodeError) as exc:
            raise GarbageError(str(exc)) from exc


def _parsed(text: str) -> dict[str, Any]:
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise GarbageError("it is no JSON") from exc
    if not isinstance(frame, dict):
        raise GarbageError("it is no object")
    return frame


def _op_of(text: str) -> object:
    try:
        frame = json.loads(text)
    except ValueError:
        return None
    return frame.get("op") if isinstance(frame, dict) else None
