"""The socket under discord.py: what passes, what is taken out, when it is dead."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.contract import PlatformUnavailable
from gateway.platforms.discord import frames, gateway_socket
from gateway.platforms.discord import wire as wires
from gateway.platforms.discord.gateway_socket import GatewaySocket
from gateway.platforms.discord.wire import Wire, WireEvent
from tests.fakes.clock import FakeClock

HOME = "wss://gateway.discord.gg/?v=10&encoding=json&compress=zlib-stream"
RESUME = "wss://us-east1-b.gateway.discord.gg/?v=10"
HELLO = {"op": 10, "d": {"heartbeat_interval": 41250}, "s": None, "t": None}
T = aiohttp.WSMsgType


class Socket:
    """The far end's frames, and what was sent to it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self.sent: list[str] = []
        self.closed = False
        self.close_code: int | None = None
        self.hangs_at_close = False

    async def receive(self) -> aiohttp.WSMessage:
        return await self.frames.get()

    async def send_str(self, data: str) -> None:
        self.sent.append(data)

    async def close(self, *, code: int, message: bytes) -> bool:
        if self.hangs_at_close:
            await asyncio.sleep(3600)
        self.closed, self.close_code = True, code
        return True

    def says(self, *frames: Any) -> None:
        for frame in frames:
            text = frame if isinstance(frame, str) else json.dumps(frame)
            self.frames.put_nowait(aiohttp.WSMessage(T.TEXT, text, None))

    def says_bytes(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.frames.put_nowait(aiohttp.WSMessage(T.BINARY, piece, None))

    def ends(self) -> None:
        self.frames.put_nowait(aiohttp.WSMessage(T.CLOSED, None, None))


class Rig:
    def __init__(self, withheld: set[WireEvent] | None = None) -> None:
        self.clock = FakeClock()
        self.dialled: list[str] = []
        self.sockets: list[Socket] = []
        self.heard: list[tuple[str, object]] = []
        self.begun: list[int] = []
        self.beats = 0
        self.refuse = 0
        self.wire = Wire(
            self._dial,  # type: ignore[arg-type]
            self,
            self.clock,
            shortest_heartbeat_seconds=5.0,
            withheld=withheld if withheld is not None else set(),
        )

    async def _dial(self, url: str) -> Socket:
        self.dialled.append(url)
        if self.refuse:
            self.refuse -= 1
            raise OSError("refused")
        self.sockets.append(Socket())
        return self.sockets[-1]

    def message_event(self, name: str, payload: object) -> None:
        self.heard.append((name, payload))

    def session_begun(self, shard_id: int) -> None:
        self.begun.append(shard_id)

    def alive(self) -> None:
        self.beats += 1

    async def connect(self, url: str = HOME) -> tuple[Socket, GatewaySocket]:
        connecting = asyncio.ensure_future(self.wire.connect(url))
        while not connecting.done():
            await self.clock.advance(1.0)
        return self.sockets[-1], await connecting

    async def greeted(self) -> tuple[Socket, GatewaySocket]:
        far, near = await self.connect()
        far.says(HELLO)
        await near.receive()
        return far, near


def event(name: Any, data: Any, seq: Any = 1) -> dict[str, Any]:
    return {"op": 0, "t": name, "s": seq, "d": data}


async def gives_up(receiving: Awaitable[object]) -> None:
    """By itself, long before the time that whoever receives would wait."""
    waiting = asyncio.ensure_future(receiving)
    await asyncio.wait({waiting}, timeout=30)
    assert waiting.done()
    with pytest.raises(TimeoutError):
        await waiting


async def got(near: GatewaySocket) -> dict[str, Any]:
    message = await near.receive(timeout=1.0)
    assert message.type is T.TEXT
    frame = json.loads(message.data)
    assert isinstance(frame, dict)
    return frame


async def test_messages_are_taken_out_and_counted() -> None:
    rig = Rig()
    far, near = await rig.greeted()
    far.says(
        event("MESSAGE_CREATE", {"id": "\ud800"}, 7),
        event("MESSAGE_UPDATE", None, 8),
        event("TYPING_START", {}, 9),
        event("GUILD_CREATE", {"id": "3"}, 10),
        event("RESUMED", None, 11),
    )
    frames = [await got(near) for _ in range(5)]
    assert rig.heard == [("MESSAGE_CREATE", {"id": "\ud800"}), ("MESSAGE_UPDATE", None)]
    assert [frame["s"] for frame in frames] == [7, 8, 9, 10, 11]
    assert [frame["d"] for frame in frames] == [None, None, None, {"id": "3"}, {}]
    names = [frame["t"] for frame in frames]
    assert names[3:] == ["GUILD_CREATE", "RESUMED"]
    assert not {"MESSAGE_CREATE", "MESSAGE_UPDATE", "TYPING_START"} & set(names)


async def test_odd_frames_move_nothing() -> None:
    rig = Rig()
    far, near = await rig.greeted()
    far.says(
        {"op": "x"},
        {},
        event("MESSAGE_CREATE", {}, "x"),
        event(5, {}, 6),
        event("GUILD_CREATE", [], 7),
        HELLO,
        {"op": 11},
    )
    frames = [await got(near) for _ in range(4)]
    assert [frame.get("s") for frame in frames] == [None, None, 7, None]
    assert all(frame["d"] is None for frame in frames[:3])
    assert (rig.beats, rig.heard) == (1, [])


async def test_what_broke_the_sdk_is_withheld() -> None:
    rig = Rig({WireEvent("GUILD_CREATE", "3")})
    far, near = await rig.greeted()
    far.says(event("GUILD_CREATE", {"id": "3"}), event("GUILD_CREATE", {"id": "4"}))
    assert (await got(near))["d"] is None
    assert rig.wire.passed_last is None
    assert (await got(near))["d"] == {"id": "4"}
    assert rig.wire.passed_last == WireEvent("GUILD_CREATE", "4")


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (41250, 41.25),
        (45000, 45.0),
        (1, 5.0),
        (0, 41.25),
        (-1, 41.25),
        (None, 41.25),
        ("x", 41.25),
        (3_600_000, 45.0),
        (10**400, 41.25),
    ],
)
async def test_the_heartbeat_is_one_that_keeps_us_alive_and_the_server_too(
    told: Any, seconds: float
) -> None:
    rig = Rig()
    far, near = await rig.connect()
    far.says({"op": 10, "d": {"heartbeat_interval": told}})
    assert (await got(near))["d"]["heartbeat_interval"] == seconds * 1000


@pytest.mark.parametrize("hello", [{"op": 10}, {"op": 10, "d": None}, {"op": 10, "d": []}])
async def test_a_greeting_that_says_nothing(hello: Any) -> None:
    rig = Rig()
    far, near = await rig.connect()
    far.says(hello)
    assert (await got(near))["d"]["heartbeat_interval"] == 41250


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("wss://us-east1-b.gateway.discord.gg", True),
        ("wss://gateway-us-east1-b.discord.gg", True),
        ("wss://gateway.discord.gg", True),
        ("ws://gateway-us-east1-b.discord.gg", False),
        ("wss://discord.gg.evil.example", False),
        ("wss://evil.example", False),
        ("wss://[::1", False),
        ("", False),
        (None, False),
        (5, False),
    ],
)
async def test_the_token_goes_to_no_strange_place(told: Any, kept: bool) -> None:
    rig = Rig()
    far, near = await rig.greeted()
    far.says(event("READY", {"resume_gateway_url": told, "shard": [2, 4]}))
    ready = await got(near)
    expected = told if kept else "wss://gateway.discord.gg/"
    assert ready["d"]["resume_gateway_url"].rstrip("/") == expected.rstrip("/")
    assert rig.begun == [2]


async def test_an_unreachable_place_to_resume_at_is_not_tried_twice() -> None:
    rig = Rig()
    far, near = await rig.greeted()
    far.ends()
    await near.receive()
    await rig.clock.advance(0.1)
    rig.wire.ended(3600.0, "")  # it had lived
    rig.refuse = 1
    await rig.connect(RESUME)
    assert [url.partition("/?")[0] for url in rig.dialled] == [
        "wss://gateway.discord.gg",
        "wss://us-east1-b.gateway.discord.gg",
        "wss://gateway.discord.gg",
    ]
    assert all("compress=zlib-stream" in url and "v=10" in url for url in rig.dialled)


async def test_a_gateway_that_can_not_be_dialled_is_found_again_within_seconds() -> None:
    """After an hour as after a minute: the SDK's own pauses grow to a quarter of an hour."""
    rig = Rig()
    await rig.greeted()
    rig.wire.ended(3600.0, "")
    rig.refuse = 1_000
    began, times = rig.clock.monotonic(), list[float]()
    connecting = asyncio.ensure_future(rig.wire.connect(HOME))
    while not connecting.done():
        seen = len(rig.dialled)
        await rig.clock.advance(0.25)
        times += [rig.clock.monotonic()] * (len(rig.dialled) - seen)
    assert times[-1] - began > 1_500
    assert max(b - a for a, b in pairwise(times)) <= 3.0
    assert min(b - a for a, b in pairwise(times[4:])) >= 1.25, "and it is not hammered"


async def test_a_place_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "DIAL_SECONDS", 0.02)

    async def never(url: str) -> Any:
        await asyncio.sleep(3600)

    rig = Rig()
    hanging = Wire(never, rig, rig.clock, shortest_heartbeat_seconds=5.0, withheld=set())
    with pytest.raises(TimeoutError):
        await hanging.connect(HOME)


async def test_connections_that_end_at_once_are_paced_and_then_given_up() -> None:
    rig = Rig()
    times: list[float] = []
    for _ in range(wires.FRUITLESS_LIMIT):
        far, near = await rig.connect()
        times.append(rig.clock.monotonic())
        far.ends()
        assert (await near.receive()).type is T.CLOSED
        await near.close()
    pauses = [round(b - a) for a, b in pairwise(times)]
    assert pauses[0] <= 1, "the first one is tried again at once"
    assert pauses[-1] >= 30
    assert pauses == sorted(pauses)
    with pytest.raises(PlatformUnavailable, match="at once"):
        await rig.wire.connect(HOME)


async def test_connections_that_lived_are_not_paced() -> None:
    rig = Rig()
    for _ in range(3 * wires.FRUITLESS_LIMIT):
        far, near = await rig.connect()
        await rig.clock.advance(wires.STEADY_SECONDS)
        far.ends()
        await near.receive()


async def test_silence_after_a_heartbeat_is_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_socket, "ANSWER_SECONDS", 0.05)
    rig = Rig()
    far, near = await rig.greeted()
    waiting = asyncio.ensure_future(near.receive(timeout=60.0))
    await asyncio.sleep(0.1)  # without a heartbeat, silence means nothing
    assert not waiting.done()
    await near.send_str('{"op":1,"d":5}')
    far.says({"op": 11})
    assert json.loads((await waiting).data)["op"] == 11
    waiting = asyncio.ensure_future(near.receive(timeout=60.0))
    await near.send_str('{"op":1,"d":5}')
    await asyncio.sleep(0.02)
    await near.send_str('{"op":1,"d":5}')  # asking again gives no respite
    await gives_up(waiting)


async def test_a_beat_between_two_receives_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_socket, "ANSWER_SECONDS", 0.02)
    _, near = await Rig().greeted()
    await near.send_str('{"op":1,"d":5}')
    await gives_up(near.receive(timeout=60.0))


async def test_a_server_that_does_not_greet_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_socket, "HELLO_SECONDS", 0.02)
    _, near = await Rig().connect()
    await gives_up(near.receive(timeout=60.0))


async def test_a_dead_socket_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_socket, "CLOSE_SECONDS", 0.02)
    far, near = await Rig().greeted()
    far.hangs_at_close = True
    await asyncio.wait_for(near.close(code=4000), 20.0)


# --- what can not be understood ------------------------------------------------------------------


def packed(*frames: Any) -> list[bytes]:
    context = zlib.compressobj()
    return [
        context.compress(json.dumps(frame).encode()) + context.flush(zlib.Z_SYNC_FLUSH)
        for frame in frames
    ]


async def test_packed_frames_in_any_pieces() -> None:
    rig = Rig()
    far, near = await rig.connect()
    first, second = packed(HELLO, event("GUILD_CREATE", {"id": "3", "name": "x" * 5000}))
    far.says_bytes(first, second[:10], second[10:50], second[50:])
    assert (await got(near))["op"] == 10
    assert (await got(near))["d"]["name"] == "x" * 5000


@pytest.mark.parametrize(
    "frame",
    ["nonsense", "[]", "null", "5", "[" * 100_000, b"garbage\x00\x00\xff\xff", b"\x00\x00\xff\xff"],
    ids=lambda frame: str(frame[:10]),
)
async def test_garbage_ends_the_connection(frame: str | bytes) -> None:
    rig = Rig()
    far, near = await rig.greeted()
    if isinstance(frame, bytes):
        far.says_bytes(frame)
    else:
        far.says(frame)
    await gives_up(near.receive(timeout=60.0))


async def test_no_frame_is_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 1000)
    (bomb,) = packed(event("GUILD_CREATE", {"id": "3", "name": "x" * 100_000}))
    assert len(bomb) < 1000
    for pieces in ([bomb], [b"x" * 600, b"x" * 600]):
        far, near = await Rig().greeted()
        far.says_bytes(*pieces)
        await gives_up(near.receive(timeout=60.0))
    far, near = await Rig().greeted()
    far.says("x" * 1001)
    await gives_up(near.receive(timeout=60.0))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["READY", "RESUMED", "GUILD_CREATE", "MESSAGE_CREATE", "MESSAGE_UPDATE", "X"]
)


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "op": st.integers(-1, 12) | JSON,
            "t": NAMES | JSON,
            "s": st.integers() | JSON,
            "d": JSON,
        },
    )
)
def test_no_frame_breaks_it(frame: dict[str, Any]) -> None:
    async def scenario() -> None:
        rig = Rig()
        far, near = await rig.greeted()
        far.says(frame, {"op": 11})
        passed = await got(near)
        if passed["op"] == 0:
            assert passed.get("s") is None or isinstance(passed["s"], int)

    asyncio.run(scenario())
