"""MCP servers under their keepers: states, pauses, calls, lists that change, what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.approvals import Proposal, Ruling
from agent.llm.wire import ERROR_PREFIX
from agent.media.pictures import PictureMaker
from agent.messages import ToolCall, text_of
from agent.ports import ToolContext
from agent.tools.mcp.nouns import (
    Answer,
    ApproveRule,
    DataPiece,
    HttpWay,
    Listing,
    Refused,
    ServerFailed,
    ServerHopeless,
    ServerSettings,
    StdioWay,
    TextPiece,
)
from agent.tools.mcp.offers import listing
from agent.tools.mcp.results import MAX_PICTURES, Teller
from agent.tools.mcp.tool import MAX_ASKED_CHARS, McpTool, must_ask
from agent.tools.registry import ToolRegistry
from gateway.mcp.keeper import (
    GATHER_SECONDS,
    LONGEST_PAUSE_SECONDS,
    RELIST_PAUSE_SECONDS,
    SLOW_CALLS,
    STARTING_SECONDS,
    WAIT_SECONDS,
)
from gateway.mcp.servers import McpServers
from gateway.windows.remembered import RememberedFacts
from storage.memory_attachments import MemoryAttachments
from tests.fakes.clock import FakeClock
from tests.fakes.files import png


def offered(*names: str, server: str = "docs", **hints: bool) -> Listing:
    tools = [
        {"name": n, "inputSchema": {"type": "object"}, "annotations": hints, "description": n}
        for n in names
    ]
    return listing(server, tools)


@dataclass
class FakeServer:
    """A server, and the way to it (an `agent.tools.mcp.nouns.Connector`)."""

    offers: Listing = field(default_factory=lambda: offered("read", readOnlyHint=True))
    down: Exception | None = None
    """Why it can not be reached."""
    hold: asyncio.Event | None = None
    """It is reached once this is set."""
    results: list[Answer | Exception] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    begun: list[bool] = field(default_factory=list)
    """Each try; whether it was the older way."""
    open: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "it ended with exit code 1"
    listed: int = 0

    @asynccontextmanager
    async def __call__(
        self, server: ServerSettings, *, legacy: bool = False
    ) -> AsyncIterator[FakeServer]:
        self.begun.append(legacy)
        if self.hold is not None:
            await self.hold.wait()
        if self.down is not None:
            raise self.down
        self.lost.clear()
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    async def listing(self) -> Listing:
        self.listed += 1
        return self.offers

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Answer:
        self.calls.append((tool, arguments))
        result = self.results.pop(0) if self.results else Answer([TextPiece("done")])
        if isinstance(result, Exception):
            raise result
        return result


@dataclass
class Scene:
    folder: Path
    server: FakeServer = field(default_factory=FakeServer)
    clock: FakeClock = field(default_factory=FakeClock)
    tools: ToolRegistry = field(default_factory=lambda: ToolRegistry([]))
    files: MemoryAttachments = field(default_factory=lambda: MemoryAttachments(FakeClock()))
    servers: McpServers = field(init=False)

    def build(self, **options: Any) -> McpServers:
        options.setdefault("approve", "writes")
        settings = ServerSettings("docs", options.pop("way", HttpWay("https://x/")), **options)
        self.servers = McpServers(
            [settings],
            self.tools,
            Teller(self.files, PictureMaker()),
            RememberedFacts(self.folder / "mcp.json"),
            self.clock,
            connector=self.server,
        )
        return self.servers

    async def start(self, **options: Any) -> McpServers:
        await self.build(**options).start()
        await self.until(lambda: "starting" not in self.servers.summary())
        return self.servers

    async def until(self, true: Any) -> None:
        """Files are written in threads."""
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - of several kinds of things
                await asyncio.sleep(0.001)

    @property
    def names(self) -> list[str]:
        return [schema.name for schema in self.tools.schemas]

    async def run(self, name: str, arguments: str = "{}", **context: Any) -> str:
        call: ToolCall = {
            "id": "c1",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        told = ToolContext("c", "test:1", True, "t", place="test:1", **context)
        return text_of((await self.tools.run(call, told)).message["content"])


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    if hasattr(scene, "servers"):
        closing = asyncio.ensure_future(scene.servers.close())
        await scene.until(lambda: scene.server.open == 0)
        await closing


async def test_its_tools_are_there_once_it_runs(scene: Scene) -> None:
    await scene.start()
    assert scene.servers.summary() == "docs: running (1 tool)"
    assert scene.servers.troubles() == []
    assert scene.names == ["mcp__docs__read"]
    assert await scene.run("mcp__docs__read", '{"a": 1}') == "done"
    assert scene.server.calls == [("read", {"a": 1})]


async def test_after_a_restart_the_last_known_list_stands_before_the_server_does(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.start()
    known = scene.tools.schemas
    later = Scene(tmp_path)
    later.server.hold = asyncio.Event()
    later.build()
    assert later.tools.schemas == known
    # Not what another program at this name has offered.
    elsewhere = Scene(tmp_path)
    elsewhere.build(way=StdioWay(("other",), tmp_path))
    assert elsewhere.names == []


async def test_a_call_waits_for_one_that_is_starting_and_not_for_one_that_is_gone(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.start()
    later = Scene(tmp_path)
    later.server.hold = asyncio.Event()
    await later.build().start()
    waiting = asyncio.ensure_future(later.run("mcp__docs__read"))
    await later.until(lambda: later.clock.next_wake_seconds is not None)
    await later.clock.advance(WAIT_SECONDS / 2)
    assert not waiting.done()
    later.server.hold.set()
    assert await waiting == "done"

    later.server.down = ServerFailed("gone")
    later.server.lost.set()
    await later.until(lambda: "retrying" in later.servers.summary())
    said = await later.run("mcp__docs__read")
    assert said.startswith(
        f"{ERROR_PREFIX} the server docs of this tool is not there right now (retrying)"
    )
    assert later.names == ["mcp__docs__read"]  # the prefix stays
    await later.servers.close()


async def test_a_call_to_one_that_starts_for_ever_ends(scene: Scene, tmp_path: Path) -> None:
    await scene.start()
    later = Scene(tmp_path)
    later.server.hold = asyncio.Event()
    await later.build().start()
    waiting = asyncio.ensure_future(later.run("mcp__docs__read"))
    await later.until(lambda: later.clock.next_wake_seconds is not None)
    await later.clock.advance(WAIT_SECONDS + 1)
    assert "not there right now (starting), so nothing was done" in await waiting
    await later.servers.close()


async def test_a_lost_server_is_reached_again_with_longer_and_longer_pauses(scene: Scene) -> None:
    scene.server.down = ServerFailed("no route")
    await scene.build().start()
    await scene.until(lambda: "retrying" in scene.servers.summary())
    assert scene.servers.summary() == "docs: retrying (no route)"
    assert scene.servers.troubles() == ["MCP server docs is not there: no route"]
    pauses = []
    for tries in range(2, 12):
        await scene.until(lambda: scene.clock.next_wake_seconds is not None)
        pauses.append(scene.clock.next_wake_seconds or 0.0)
        await scene.clock.advance(pauses[-1])
        await scene.until(lambda tries=tries: len(scene.server.begun) == tries)
    assert pauses[0] < 2
    assert pauses == sorted(pauses) or max(pauses) > 100
    assert max(pauses) <= LONGEST_PAUSE_SECONDS * 1.25
    # Every other time by the older way to begin.
    assert scene.server.begun[:4] == [False, True, False, True]
    scene.server.down = None
    await scene.clock.advance(LONGEST_PAUSE_SECONDS * 2)
    await scene.until(lambda: "running" in scene.servers.summary())
    assert scene.servers.troubles() == []


async def test_what_only_the_operator_can_mend_is_not_tried_again(scene: Scene) -> None:
    scene.server.down = ServerHopeless("there is no program 'x'")
    await scene.start()
    assert scene.servers.summary() == "docs: failed (there is no program 'x')"
    await scene.clock.advance(LONGEST_PAUSE_SECONDS * 3)
    assert scene.server.begun == [False]


async def test_a_bug_in_reaching_it_is_logged_and_tried_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.server.down = ZeroDivisionError()
    await scene.start()
    assert scene.servers.summary() == "docs: retrying (ZeroDivisionError, see the log)"
    assert "mcp server crashed" in caplog.text


async def test_calls_that_fail_are_told_and_three_without_an_answer_end_it(scene: Scene) -> None:
    await scene.start()
    scene.server.results = [Refused("not today"), ServerFailed("the connection to it broke")]
    assert (
        await scene.run("mcp__docs__read") == f"{ERROR_PREFIX} the server docs refuses: not today"
    )
    assert "What it has done is not known" in await scene.run("mcp__docs__read")
    scene.server.results = [TimeoutError() for _ in range(SLOW_CALLS)]
    for _ in range(SLOW_CALLS):
        assert "did not answer within 60 s" in await scene.run("mcp__docs__read")
    await scene.until(lambda: "retrying" in scene.servers.summary())
    assert scene.servers.summary() == "docs: retrying (3 calls without an answer)"
    assert scene.server.open == 0
    await scene.clock.advance(3)
    await scene.until(lambda: "running" in scene.servers.summary())


async def test_a_changed_list_is_taken_now_and_then(scene: Scene) -> None:
    await scene.start()
    scene.server.offers = offered("read", "more")
    for _ in range(5):
        scene.server.changed.set()
        await scene.clock.advance(GATHER_SECONDS / 10)
    await scene.clock.advance(GATHER_SECONDS)
    await scene.until(lambda: scene.names == ["mcp__docs__more", "mcp__docs__read"])
    assert scene.server.listed == 2
    scene.server.offers = offered("read")
    scene.server.changed.set()
    await scene.clock.advance(RELIST_PAUSE_SECONDS / 2)
    assert len(scene.names) == 2
    await scene.until(lambda: scene.clock.next_wake_seconds is not None)
    await scene.clock.advance(RELIST_PAUSE_SECONDS)
    await scene.clock.advance(GATHER_SECONDS)
    await scene.until(lambda: scene.names == ["mcp__docs__read"])


async def test_names_that_are_taken_and_names_that_do_not_exist_are_told(scene: Scene) -> None:
    taken = offered("read").offers[0]
    settings = ServerSettings("other", HttpWay("https://y/"))
    teller = Teller(scene.files, PictureMaker())
    scene.build(only=frozenset({"read", "gone"}), approve=frozenset({"nope"}))
    scene.tools.replace("before", [McpTool(settings, taken, None, teller)])  # type: ignore[arg-type]
    scene.server.offers = offered("hidden")
    other = Scene(scene.folder, server=scene.server)
    other.tools = ToolRegistry([McpTool(settings, taken, None, teller)])  # type: ignore[arg-type]
    other.server.offers = offered("read", "hidden")
    await other.start(only=frozenset({"read", "gone"}), approve=frozenset({"nope"}))
    assert other.servers.troubles() == [
        "MCP server docs: left out 'mcp__docs__read': another tool has its name; 'gone': named "
        "under tools, but the server has no such tool; 'nope': named under approve, but the server "
        "has no such tool"
    ]
    assert other.servers.summary() == "docs: running (0 tools)"
    await other.servers.close()


async def test_a_close_ends_it_at_once(scene: Scene) -> None:
    await scene.start()
    await scene.servers.close()
    assert scene.server.open == 0


def test_the_limits_go_together() -> None:
    assert WAIT_SECONDS < STARTING_SECONDS


# --- approvals and results ------------------------------------------------------------------------


class Person:
    def __init__(self, allowed: bool) -> None:
        self.ruling = Ruling(allowed, "approved by the user" if allowed else "denied by the user")
        self.asked: list[Proposal] = []

    async def ask(self, proposal: Proposal) -> Ruling:
        self.asked.append(proposal)
        return self.ruling


@pytest.mark.parametrize(
    ("rule", "read", "write"),
    [
        ("always", True, True),
        ("never", False, False),
        ("writes", False, True),
        (frozenset({"read"}), True, False),
    ],
)
def test_who_is_asked(rule: ApproveRule | frozenset[str], read: bool, write: bool) -> None:
    settings = ServerSettings("docs", HttpWay("https://x/"), approve=rule)
    assert must_ask(settings, offered("read", readOnlyHint=True).offers[0]) is read
    assert must_ask(settings, offered("write").offers[0]) is write


async def test_a_tool_that_writes_is_run_with_a_persons_word_only(scene: Scene) -> None:
    scene.server.offers = offered("write")
    await scene.start()
    assert "nobody can be asked here" in await scene.run("mcp__docs__write")
    no, yes = Person(False), Person(True)
    assert "denied by the user" in await scene.run("mcp__docs__write", approver=no)
    assert scene.server.calls == []
    said = await scene.run("mcp__docs__write", '{"text": "hé"}', approver=yes)
    assert said == "done\n[approved by the user]"
    (asked,) = yes.asked
    assert asked.deed == "use a tool of the server docs"
    assert asked.shown == (
        ("The tool", "write"),
        ("With", '{\n "text": "hé"\n}'),
        ("What its server says of it", "it may destroy things; it reaches out to others"),
    )
    long = f'{{"text": "{"x" * MAX_ASKED_CHARS}"}}'
    assert "nobody could read them" in await scene.run("mcp__docs__write", long, approver=yes)


async def test_pictures_and_files_become_attachments(scene: Scene) -> None:
    pieces = [
        TextPiece("look:"),
        *[DataPiece(png(n + 1), "image/png") for n in range(MAX_PICTURES + 1)],
        DataPiece(b"hello", "image/png"),
        DataPiece(b"\x00\x01", "application/x-thing", "a.bin"),
    ]
    teller = Teller(scene.files, PictureMaker())
    result = await teller.tell(Answer(pieces, is_error=True), "test:1")
    assert result.is_error
    assert len(result.pictures) == MAX_PICTURES
    lines = result.text.splitlines()
    assert lines[0] == "look:"
    assert lines[1].startswith("[a picture: attachment ")
    assert lines[5].startswith("[a file (image/png")
    assert lines[6].startswith("[a picture that can not be shown")
    assert lines[7].startswith("[a file (application/x-thing, 2 bytes): attachment ")
    name = lines[7].rsplit(" ", 1)[1].rstrip("]")
    assert await scene.files.read(name) == b"\x00\x01"
    found = await scene.files.find(name)
    assert found is not None
    assert (found.owner, found.file_name) == ("test:1", "a.bin")


async def test_a_tool_error_of_the_server_is_an_error_for_the_model(scene: Scene) -> None:
    await scene.start()
    scene.server.results = [Answer([TextPiece("no such file")], is_error=True)]
    assert await scene.run("mcp__docs__read") == f"{ERROR_PREFIX} no such file"
