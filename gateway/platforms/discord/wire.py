"""Owns the way to the gateway under the SDK: how it is dialled, and what of its frames passes.

The SDK gets the frames that it needs to stay connected and to know guilds and channels. Messages
are taken out here: one that the SDK could not read would end the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.ports import Clock
from gateway.platforms.contract import PlatformUnavailable
from gateway.platforms.discord.frames import DISPATCH, HEARTBEAT_ACK, HELLO, parsed
from gateway.platforms.discord.gateway_socket import GatewaySocket

if TYPE_CHECKING:
    import aiohttp
    import yarl

log = logging.getLogger(__name__)

DIAL_SECONDS = 7.0
RECOVERY_SECONDS = 2.0
"""The longest pause, on average, while the gateway can not be dialled: it costs nothing to ask."""
STEADY_SECONDS = 10.0
"""A connection that ends sooner was none."""
LONGEST_PAUSE_SECONDS = 30.0
FRUITLESS_LIMIT = 8
"""Such connections in a row; then a new login is better, which knows how many starts are left."""
USUAL_HEARTBEAT_SECONDS = 41.25
LONGEST_HEARTBEAT_SECONDS = 45.0

MESSAGE_EVENTS = ("MESSAGE_CREATE", "MESSAGE_UPDATE")
INTERACTION_EVENT = "INTERACTION_CREATE"
_SDK_EVENTS = ("READY", "GUILD_", "CHANNEL_", "THREAD_", "USER_UPDATE")
_TAKEN = "TAKEN_OUT"
"""A name that the SDK does not know: it counts such an event and does nothing more."""


class WireEvents(Protocol):
    """What the wire tells; none of these waits."""

    def message_event(self, name: str, payload: object) -> None:
        """MESSAGE_CREATE or MESSAGE_UPDATE, as it came."""
        ...

    def interaction(self, payload: object) -> None:
        """INTERACTION_CREATE, as it came; it has to be acknowledged within three seconds."""
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
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``withheld``: events that the SDK could not read before; it does not get them again."""
        self._dial = dial
        self._events = events
        self._clock = clock
        self._shortest_heartbeat_seconds = shortest_heartbeat_seconds
        self._withheld = withheld
        self._home: yarl.URL | None = None
        self._jitter = jitter
        self._fruitless = 0
        """Connections in a row that ended at once."""
        self._undialled = 0
        """Since then: those that did not even come about."""
        self._has_greeted = False
        self.passed_last: WireEvent | None = None
        """What the SDK got last: if it breaks, then by this."""
        self.trouble = ""
        """Why the newest connection did not come about, or is over."""
        self._sockets: list[GatewaySocket] = []
        """Those that were handed out and not closed: one per shard."""

    async def connect(self, url: str, *, compress: int = 0) -> GatewaySocket:
        """As ``HTTPClient.ws_connect``.

        Raises:
            PlatformUnavailable: one connection after another ends at once.
            OSError, aiohttp.ClientError, TimeoutError: the gateway has never been reached.
        """
        self.passed_last = None
        await self._pace()
        while True:
            target = self._target(url)
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    socket = await self._dial(str(target))
            except Exception as exc:
                self._undialled += 1
                self.trouble = f"{type(exc).__name__}: {exc}"[:300]
                if not self._has_greeted:
                    raise  # a new login is better, which asks anew where the gateway is
            else:
                self._undialled = 0
                made = GatewaySocket(socket, self, self._clock)
                self._sockets = [one for one in self._sockets if not one.closed] + [made]
                return made
            # Here and not in the SDK: its pauses grow to a quarter of an hour. Whoever runs us has
            # his own patience.
            pause = min(RECOVERY_SECONDS, 2.0 ** min(self._undialled - 1, 8))
            await self._clock.sleep(pause * (0.75 + self._jitter() / 2))

    async def leave(self) -> None:
        """Close what the SDK has let go of: it forgets a socket when its greeting is broken off."""
        left, self._sockets = self._sockets, []
        for socket in left:
            if not socket.closed:
                await socket.close(code=1000)

    async def _pace(self) -> None:
        """Whoever answers and then ends the connection is asked less and less often."""
        if self._fruitless >= FRUITLESS_LIMIT:
            raise PlatformUnavailable("discord ends every connection at once")
        if self._fruitless > 1:
            await self._clock.sleep(min(LONGEST_PAUSE_SECONDS, 2.0 ** min(self._fruitless - 2, 8)))

    def _target(self, url: str) -> yarl.URL:
        """Where to dial: where the SDK wants, or home if that came to nothing."""
        import yarl  # noqa: PLC0415 - comes with the SDK

        wanted = yarl.URL(url)
        if self._home is None:
            self._home = wanted
        if self._fruitless > 0 or self._undialled > 0:
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
        frame = parsed(text)
        op = frame.get("op")
        if op == HELLO:
            self._has_greeted = True
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
        if name == INTERACTION_EVENT:
            self._events.interaction(data)
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
