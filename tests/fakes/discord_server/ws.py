"""The gateway: sessions with their buffered events, and the sockets they are attached to."""

from __future__ import annotations

import asyncio
import json
import secrets
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.fakes.discord_server import payloads, state
from tests.fakes.discord_server.state import Build, Clock, World

DISPATCH, HEARTBEAT, IDENTIFY, PRESENCE, VOICE, RESUME = 0, 1, 2, 3, 4, 6
RECONNECT, REQUEST_MEMBERS, INVALID_SESSION, HELLO, HEARTBEAT_ACK = 7, 8, 9, 10, 11
UNKNOWN_OP, DECODE_ERROR, NOT_AUTHENTICATED, BAD_TOKEN, ALREADY_AUTHENTICATED = (
    4001,
    4002,
    4003,
    4004,
    4005,
)
INVALID_SEQ, INVALID_SHARD, INVALID_VERSION, INVALID_INTENTS, DISALLOWED_INTENTS = (
    4007,
    4010,
    4012,
    4013,
    4014,
)
KNOWN_INTENTS = (1 << 26) - 1
PRIVILEGED = state.INTENT_MEMBERS | state.INTENT_PRESENCES | state.INTENT_CONTENT
BUFFER_LIMIT = 20_000


@dataclass
class Received:
    """One frame that a client sent."""

    op: int
    data: Any
    at: float
    connection: int


@dataclass
class GatewayStats:
    connects: int = 0
    refused: int = 0
    identifies: int = 0
    resumes: int = 0
    invalidated: int = 0
    heartbeats: int = 0
    dispatched: int = 0
    replayed: int = 0
    closes: list[int] = field(default_factory=list)


class Session:
    """What survives a lost socket: the sequence and the events a RESUME asks for."""

    def __init__(self, intents: int, shard: tuple[int, int]) -> None:
        self.id = secrets.token_hex(16)
        self.intents = intents
        self.shard = shard
        self.seq = 0
        self.buffer: deque[dict[str, Any]] = deque(maxlen=BUFFER_LIMIT)
        self.connection: Connection | None = None
        self.detached_at: float | None = None

    def send(self, event: str, data: Any) -> None:
        self.seq += 1
        frame = {"op": DISPATCH, "t": event, "s": self.seq, "d": data}
        self.buffer.append(frame)
        if self.connection is not None:
            self.connection.push(frame)

    def wants(self, guild_id: int | None, intent: int) -> bool:
        shard, count = self.shard
        home = 0 if guild_id is None else (guild_id >> 22) % count
        return shard == home and (intent == 0 or bool(self.intents & intent))

    def acknowledge(self, seq: int) -> None:
        """Forget what the client has said it holds."""
        while self.buffer and self.buffer[0]["s"] <= seq:
            self.buffer.popleft()

    def can_replay(self, seq: int) -> bool:
        return seq == self.seq or (bool(self.buffer) and self.buffer[0]["s"] <= seq + 1)


class Connection:
    """One socket. Frames go through a queue, so that helpers need not wait for the network."""

    def __init__(self, number: int, request: web.Request, ws: web.WebSocketResponse) -> None:
        self.number = number
        self.zombie = False
        self.closed_by_us = False
        self.session: Session | None = None
        self._request = request
        self._ws = ws
        self._queue: asyncio.Queue[dict[str, Any] | int | str | bytes] = asyncio.Queue()
        self._deflate: Any = None

    def compress(self) -> None:
        """Send zlib-stream from here on: one context, a sync flush after each frame."""
        self._deflate = zlib.compressobj()

    def push(self, frame: dict[str, Any]) -> None:
        if not self.zombie:
            self._queue.put_nowait(frame)

    def push_raw(self, data: str | bytes) -> None:
        """Anything at all, as it is."""
        self._queue.put_nowait(data)

    def close(self, code: int) -> None:
        self.closed_by_us = True
        self._queue.put_nowait(code)

    def abort(self) -> None:
        """Lose the socket without a closing handshake."""
        self.closed_by_us = True
        if self._request.transport is not None:
            self._request.transport.abort()

    async def write(self) -> None:
        while True:
            item = await self._queue.get()
            if isinstance(item, int):
                await self._ws.close(code=item)
                return
            try:
                if isinstance(item, str):
                    await self._ws.send_str(item)
                elif isinstance(item, bytes):
                    await self._ws.send_bytes(item)
                else:
                    await self._send(json.dumps(item))
            except (ConnectionError, aiohttp.ClientError):
                return  # the reader ends too; what was not sent is in the session's buffer

    async def _send(self, text: str) -> None:
        if self._deflate is None:
            await self._ws.send_str(text)
            return
        packed = self._deflate.compress(text.encode()) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._ws.send_bytes(packed)


@dataclass
class GatewaySettings:
    token: str
    heartbeat_interval: float
    allowed_intents: int
    session_ttl: float
    compress: bool
    shards: int


class Gateway:
    """Hands events to sessions and speaks the protocol with clients."""

    def __init__(self, settings: GatewaySettings, clock: Clock, changed: Any) -> None:
        self.settings = settings
        self.world: World | None = None
        self.url = ""
        self.sessions: dict[str, Session] = {}
        self.connections: list[Connection] = []
        self.received: list[Received] = []
        self.stats = GatewayStats()
        self.crashes: list[Exception] = []
        self.refuse = 0  # upgrades still to be refused; -1: all
        self.hello: Any = None  # what op 10 says instead of what is right
        self.close_at_once: int | None = None  # the code with which each new socket is closed
        self.deaf = False  # IDENTIFY and RESUME are not answered
        self.mute = False  # nobody is greeted
        self.resume_url: Any = None  # what READY says instead of what is right
        self.mangle: Callable[[str, Any], Any] = lambda _event, data: data
        self._clock = clock
        self._changed = changed

    # -- events ---------------------------------------------------------------------------------

    def emit(self, event: str, build: Build, *, guild_id: int | None, intent: int) -> None:
        for session in self.sessions.values():
            if session.wants(guild_id, intent):
                session.send(event, build(bool(session.intents & state.INTENT_CONTENT)))
                self.stats.dispatched += 1
        self._changed()

    # -- faults ---------------------------------------------------------------------------------

    def kill(self, code: int | None = None) -> int:
        """Close every socket with a code, or drop it without a word."""
        for connection in self.connections:
            if code is None:
                connection.abort()
            else:
                connection.close(code)
        return len(self.connections)

    def ask_to_reconnect(self) -> None:
        for connection in self.connections:
            connection.push({"op": RECONNECT, "d": None, "s": None, "t": None})

    def invalidate(self, *, resumable: bool) -> None:
        for connection in self.connections:
            if not resumable and connection.session is not None:
                self.sessions.pop(connection.session.id, None)
                connection.session = None
            self._invalid(connection, resumable)

    def forget_sessions(self) -> None:
        """Lose all sessions: the sockets stay, the next RESUME is answered op 9 false."""
        self.sessions.clear()

    def make_zombies(self) -> None:
        for connection in self.connections:
            connection.zombie = True

    # -- the protocol ---------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.refuse:
            self.refuse -= 1 if self.refuse > 0 else 0
            self.stats.refused += 1
            return web.Response(status=503, text="upstream connect error")
        ws = web.WebSocketResponse(timeout=1.0, compress=False, max_msg_size=0)
        await ws.prepare(request)
        self.stats.connects += 1
        connection = Connection(self.stats.connects, request, ws)
        self.connections.append(connection)
        self._changed()
        writer = asyncio.create_task(connection.write())
        try:
            await self._converse(connection, request, ws)
        except Exception as error:
            self.crashes.append(error)
            raise
        finally:
            self._detach(connection, ws.close_code)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        return ws

    async def _converse(
        self, connection: Connection, request: web.Request, ws: web.WebSocketResponse
    ) -> None:
        query = request.query
        if query.get("v") not in ("9", "10"):
            connection.close(INVALID_VERSION)
        else:
            if self.settings.compress and query.get("compress") == "zlib-stream":
                connection.compress()
            interval = int(self.settings.heartbeat_interval * 1000)
            hello = {"heartbeat_interval": interval, "_trace": []}
            if self.hello is not None:
                hello = self.hello
            if not self.mute:
                connection.push({"op": HELLO, "d": hello, "s": None, "t": None})
            if self.close_at_once is not None:
                connection.close(self.close_at_once)
        async for message in ws:
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(connection, message.data)

    def _detach(self, connection: Connection, code: int | None) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        self.stats.closes.append(code or 1006)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None
            session.detached_at = self._clock()
            # A client that says goodbye gives its session up; any other end may be resumed.
            if code in (1000, 1001) and not connection.closed_by_us:
                self.sessions.pop(session.id, None)
        self._changed()

    def _take(self, connection: Connection, text: str) -> None:
        try:
            frame = json.loads(text)
            op, data = int(frame["op"]), frame.get("d")
        except (ValueError, TypeError, KeyError):
            connection.close(DECODE_ERROR)
            return
        self.received.append(Received(op, data, self._clock(), connection.number))
        self._changed()
        if op == HEARTBEAT:
            self._heartbeat(connection, data)
        elif op in (IDENTIFY, RESUME) and self.deaf:
            pass
        elif op == IDENTIFY:
            self._identify(connection, data)
        elif op == RESUME:
            self._resume(connection, data)
        elif op not in (PRESENCE, VOICE, REQUEST_MEMBERS):
            connection.close(UNKNOWN_OP)
        elif connection.session is None:
            connection.close(NOT_AUTHENTICATED)
        elif op == REQUEST_MEMBERS:
            self._members(connection.session, data)

    def _heartbeat(self, connection: Connection, seq: int | None) -> None:
        self.stats.heartbeats += 1
        if connection.session is not None and isinstance(seq, int):
            connection.session.acknowledge(seq)
        connection.push({"op": HEARTBEAT_ACK, "d": None, "s": None, "t": None})

    def _identify(self, connection: Connection, data: Any) -> None:
        problem = self._identify_problem(connection, data)
        if problem:
            connection.close(problem)
            return
        self.stats.identifies += 1
        for old in list(self.sessions.values()):
            self._expired(old)  # forgets it, so that dead sessions do not buffer for ever
        shard = tuple(data.get("shard") or (0, 1))
        session = Session(int(data["intents"]), (int(shard[0]), int(shard[1])))
        self.sessions[session.id] = session
        self._attach(connection, session)
        session.send("READY", self.mangle("READY", self._ready(session)))
        assert self.world is not None
        for guild in list(self.world.guilds.values()):
            if session.wants(guild.id, state.INTENT_GUILDS):
                session.send("GUILD_CREATE", self.guild_event(session, guild))
        self._changed()

    def _identify_problem(self, connection: Connection, data: Any) -> int:
        """The code to close with, or 0."""
        if connection.session is not None:
            return ALREADY_AUTHENTICATED
        if not isinstance(data, dict) or "properties" not in data or "token" not in data:
            return DECODE_ERROR
        if data["token"] != self.settings.token:
            return BAD_TOKEN
        shard = data.get("shard") or [0, 1]
        if not (len(shard) == 2 and 0 <= shard[0] < shard[1]):
            return INVALID_SHARD
        intents = data.get("intents")
        if not isinstance(intents, int) or not 0 <= intents <= KNOWN_INTENTS:
            return INVALID_INTENTS
        if intents & PRIVILEGED & ~self.settings.allowed_intents:
            return DISALLOWED_INTENTS
        return 0

    def _attach(self, connection: Connection, session: Session) -> None:
        if session.connection is not None and session.connection is not connection:
            session.connection.close(4000)  # one socket per session: the new one wins
        session.connection = connection
        session.detached_at = None
        connection.session = session

    def _resume(self, connection: Connection, data: Any) -> None:
        if connection.session is not None:
            connection.close(ALREADY_AUTHENTICATED)
            return
        if not isinstance(data, dict) or data.get("token") != self.settings.token:
            connection.close(BAD_TOKEN)
            return
        session = self.sessions.get(str(data.get("session_id")))
        seq = data.get("seq")
        if session is None or self._expired(session) or not isinstance(seq, int):
            self._invalid(connection, resumable=False)
            return
        if seq > session.seq:
            connection.close(INVALID_SEQ)
            return
        if not session.can_replay(seq):
            self._invalid(connection, resumable=False)
            return
        self._replay(connection, session, seq)

    def _replay(self, connection: Connection, session: Session, seq: int) -> None:
        self.stats.resumes += 1
        self._attach(connection, session)
        session.acknowledge(seq)
        for frame in session.buffer:
            connection.push(frame)
            self.stats.replayed += 1
        session.send("RESUMED", {"_trace": []})
        self._changed()

    def _expired(self, session: Session) -> bool:
        if session.detached_at is None:
            return False
        if self._clock() - session.detached_at <= self.settings.session_ttl:
            return False
        self.sessions.pop(session.id, None)
        return True

    def _invalid(self, connection: Connection, resumable: bool) -> None:
        self.stats.invalidated += 1
        connection.push({"op": INVALID_SESSION, "d": resumable, "s": None, "t": None})

    def _ready(self, session: Session) -> dict[str, Any]:
        world = self.world
        assert world is not None
        guilds = [guild for guild in world.guilds if session.wants(guild, 0)]
        application = payloads.application_payload(world, self.settings.allowed_intents)
        return {
            "v": 10,
            "user": payloads.own_user_payload(world.bot),
            "guilds": [{"id": str(guild), "unavailable": True} for guild in guilds],
            "session_id": session.id,
            "resume_gateway_url": self.url if self.resume_url is None else self.resume_url,
            "shard": list(session.shard),
            "application": {"id": application["id"], "flags": application["flags"]},
            "private_channels": [],
            "relationships": [],
            "_trace": [],
        }

    def guild_event(self, session: Session, guild: state.Guild) -> Any:
        assert self.world is not None
        everybody = bool(session.intents & state.INTENT_MEMBERS)
        payload = payloads.guild_payload(self.world, guild, all_members=everybody)
        return self.mangle("GUILD_CREATE", payload)

    def _members(self, session: Session, data: Any) -> None:
        """Answer op 8 in one chunk; Discord would cut at a thousand."""
        assert self.world is not None
        guild = self.world.guilds.get(int(data.get("guild_id", 0)))
        if guild is None:
            return
        wanted = {int(user) for user in _as_list(data.get("user_ids"))}
        prefix = str(data.get("query") or "").lower()
        members = [
            payloads.member_payload(self.world, member, with_user=True)
            for member in guild.members.values()
            if (not wanted or member.user_id in wanted)
            and self.world.users[member.user_id].name.lower().startswith(prefix)
        ]
        chunk = {
            "guild_id": str(guild.id),
            "members": members,
            "chunk_index": 0,
            "chunk_count": 1,
            "not_found": [],
            "presences": [],
        }
        session.send("GUILD_MEMBERS_CHUNK", chunk | {"nonce": data.get("nonce")})


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
