"""MCP servers as they are: real ones over stdio and HTTP, and nasty ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from agent.clock import SystemClock
from agent.media.pictures import PictureMaker
from agent.messages import ToolCall, text_of
from agent.ports import ToolContext
from agent.tools.mcp.connecting import connect
from agent.tools.mcp.http import MAX_LINES_A_SECOND, LightEvents, TooMuch
from agent.tools.mcp.nouns import (
    Answer,
    Connection,
    DataPiece,
    HttpWay,
    Refused,
    ServerFailed,
    ServerHopeless,
    ServerSettings,
    StdioWay,
    TextPiece,
)
from agent.tools.mcp.process import LAUNCHER
from agent.tools.mcp.results import Teller
from agent.tools.registry import ToolRegistry
from gateway.mcp.servers import McpServers
from gateway.windows.remembered import RememberedFacts
from storage.memory_attachments import MemoryAttachments

ROOT = Path(__file__).parents[2]


def program(script: str, *arguments: str, **env: str) -> ServerSettings:
    command = (sys.executable, "-m", f"tests.fakes.{script}", *arguments)
    return ServerSettings("demo", StdioWay(command, ROOT, {"PATH": os.environ["PATH"], **env}))


def text(answer: Answer) -> str:
    return " ".join(p.text for p in answer.pieces if isinstance(p, TextPiece))


def runs(pid: int) -> bool:
    """Dead ones that nobody has buried do not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def gone(pid: int, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while runs(pid):
        assert time.monotonic() < until, f"{pid} still runs"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def http_server(
    port: int = 0,
) -> AsyncIterator[tuple[ServerSettings, asyncio.subprocess.Process]]:
    """A real server over HTTP, on loopback."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.mcp_server", "http", str(port)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield ServerSettings("demo", HttpWay(f"http://127.0.0.1:{port}/mcp")), process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture(params=["stdio", "http"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ServerSettings]:
    if request.param == "stdio":
        yield program("mcp_server", DEMO_TOKEN="of the demo")
        return
    async with http_server() as (settings, _):
        yield settings


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_real_server(server: ServerSettings, legacy: bool) -> None:
    async with connect(server, legacy=legacy) as connection:
        found = await connection.listing()
        assert found.left_out == ()
        offers = {offer.tool: offer for offer in found.offers}
        assert offers["add"].schema.name == "mcp__demo__add"
        assert offers["add"].read_only
        assert not offers["write"].read_only
        assert set(offers["add"].schema.parameters["properties"]) == {"a", "b"}

        assert text(await connection.call("add", {"a": 2, "b": 3}, 30)) == "5"
        (picture,) = (await connection.call("picture", {}, 30)).pieces
        assert isinstance(picture, DataPiece)
        assert picture.data.startswith(b"\x89PNG")
        broken = await connection.call("broken", {}, 30)
        assert broken.is_error
        huge = text(await connection.call("huge", {}, 20))
        assert huge == "x" * 400_000 + "\n[300,000 more characters are left out]"

        # What nobody waits for any more is called off on the other side as well.
        with pytest.raises(TimeoutError):
            await connection.call("slow", {"seconds": 60}, 1.0)
        call = asyncio.ensure_future(connection.call("slow", {"seconds": 60}, 60))
        while "2 slow calls" not in text(await connection.call("told", {}, 20)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        # Over HTTP the older protocol leaves it running (a server of the package's own).
        if not (legacy and isinstance(server.way, HttpWay)):
            for _ in range(500):
                if (said := text(await connection.call("told", {}, 20))).count("'slow'") == 2:
                    break
                await asyncio.sleep(0.02)
            assert said.count("'slow'") == 2, said

        assert not connection.changed.is_set()
        await connection.call("grows", {}, 30)
        async with asyncio.timeout(20):
            await connection.changed.wait()
        assert "more" in {offer.tool for offer in (await connection.listing()).offers}


async def test_a_program_gets_its_environment_and_its_folder_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the daemon")
    way = StdioWay(
        (sys.executable, "-m", "tests.fakes.mcp_server"),
        tmp_path,
        {"PATH": os.environ["PATH"], "DEMO_TOKEN": "of the demo", "PYTHONPATH": str(ROOT)},
    )
    async with connect(ServerSettings("demo", way)) as connection:
        said = text(await connection.call("told", {}, 30))
    assert said.startswith(f"of the demo False {tmp_path}")


async def test_one_that_dies_in_a_call_is_lost_and_it_is_said() -> None:
    async with connect(program("mcp_nasty", "dies")) as connection:
        with pytest.raises(ServerFailed, match="the connection to it broke"):
            await connection.call("go", {}, 30)
        async with asyncio.timeout(20):
            await connection.lost.wait()
        assert connection.reason == "it ended with exit code 7: it hurts"


async def test_one_that_ends_in_a_call_over_http_is_lost() -> None:
    reached: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def stay() -> None:
        async with connect(settings) as connection:
            reached.set_result(connection)
            await connection.lost.wait()
            raise ServerFailed(connection.reason)

    async with http_server() as (settings, process):
        staying = asyncio.ensure_future(stay())
        connection = await reached
        call = asyncio.ensure_future(connection.call("slow", {"seconds": 60}, 60))
        await asyncio.sleep(0.2)
        process.kill()
        async with asyncio.timeout(30):
            with pytest.raises(ServerFailed, match="the connection to it broke"):
                await call
            with pytest.raises(ServerFailed, match="the connection to it broke"):
                await connection.call("add", {"a": 1, "b": 2}, 30)
            with pytest.raises(ServerFailed):
                await staying


async def test_servers_that_die_are_back_and_their_tools_never_leave(tmp_path: Path) -> None:
    tools = ToolRegistry([])
    clock = SystemClock()
    async with http_server() as (settings, process):
        assert isinstance(settings.way, HttpWay)
        port = int(settings.way.url.split(":")[2].split("/")[0])
        near = replace(program("mcp_server"), name="near")
        teller = Teller(MemoryAttachments(clock), PictureMaker())
        facts = RememberedFacts(tmp_path / "mcp.json")
        servers = McpServers([near, replace(settings, name="far")], tools, teller, facts, clock)

        async def shows(*words: str) -> None:
            async with asyncio.timeout(15):
                while not all(w in servers.summary() for w in words):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        async def run(name: str) -> str:
            call: ToolCall = {
                "id": "c",
                "type": "function",
                "function": {"name": name, "arguments": "{}"},
            }
            context = ToolContext("c", "test:1", True, "t")
            return text_of((await tools.run(call, context)).message["content"])

        await servers.start()
        await shows("near: running", "far: running")
        known = tools.schemas
        assert len(known) == 18
        assert "the connection to it broke" in await run("mcp__near__dies")
        process.kill()
        assert "no answer of the server far" in await run("mcp__far__told")
        await shows("far: retrying")
        assert tools.schemas == known
        async with http_server(port):
            await shows("near: running", "far: running")
            assert tools.schemas == known
            assert (await run("mcp__near__told")).startswith("None False")
            assert (await run("mcp__far__told")).startswith("None False")
            await servers.close()
    assert set(facts.read()) == {"near", "far"}


async def test_a_program_dies_with_whoever_is_killed() -> None:
    parent = (
        "import os, subprocess, sys, time\n"
        f"child = [sys.executable, '-I', '-S', {str(LAUNCHER)!r}, str(os.getpid()),\n"
        "  sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "print(subprocess.Popen(child, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    async with asyncio.timeout(30):
        while "launcher" in command_line(child):  # noqa: ASYNC110 - until it is the other program
            await asyncio.sleep(0.01)
    process.kill()
    await process.wait()
    await gone(child)


def answers(kind: str) -> web.Response:
    """What a server elsewhere may answer instead of the protocol."""
    head = b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": "'
    match kind:
        case "big":
            return web.Response(body=head + b"x" * 9_000_000, content_type="application/json")
        case "bomb":
            packed = gzip.compress(head + b"x" * 50_000_000)
            heads = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            return web.Response(body=packed, headers=heads)
        case "denied":
            return web.Response(status=401, text="who are you?")
        case "page":
            return web.Response(text="<html>", content_type="text/html")
        case "elsewhere":
            return web.Response(status=307, headers={"Location": "http://192.0.2.1/mcp"})
        case "event":
            body = b"data: " + b"x" * 9_000_000 + b"\n\n"
            return web.Response(body=body, content_type="text/event-stream")
        case _:
            return web.Response(text="{]", content_type="application/json")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("big", "more than 8,000,000 bytes"),
        ("bomb", "a compressed answer"),
        ("denied", "it answers with HTTP 401"),
        ("page", "text/html"),
        ("elsewhere", "192.0.2.1"),
        ("event", ""),
        ("nonsense", ""),
    ],
)
async def test_what_is_no_server_elsewhere_is_said_and_bounded(kind: str, why: str) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return answers(kind)

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    way = HttpWay(f"http://127.0.0.1:{port}/mcp", {"Authorization": "Bearer t"})
    try:
        async with asyncio.timeout(30):
            with pytest.raises(ServerFailed) as failed:
                async with connect(ServerSettings("far", way)):
                    pass
    finally:
        await runner.cleanup()
    assert why in str(failed.value), str(failed.value)
    assert set(seen) == {"Bearer t"}


async def test_a_stream_of_events_is_read_line_by_line_and_not_faster_than_others_can_bear() -> (
    None
):
    class Stream(httpx2.AsyncByteStream):
        def __init__(self, *pieces: bytes) -> None:
            self.pieces = pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self.pieces:
                yield piece

    async def read(*pieces: bytes) -> bytes:
        return b"".join([piece async for piece in LightEvents(Stream(*pieces))])

    assert await read(b"event: a\nda", b"ta: {}\n", b"\nrest") == b"event: a\ndata: {}\n\nrest"
    parts = [{"type": "text", "text": "x"}] * 5_000
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": parts}}).encode()
    light = await read(b"data: " + answer + b"\n\n")
    assert len(json.loads(light.removeprefix(b"data:"))["result"]["content"]) == 201
    with pytest.raises(TooMuch):
        await read(*[b"data: " + b"x" * 3_000_000] * 3)
    turns = 0
    flood = asyncio.ensure_future(read(b": hey\n" * (MAX_LINES_A_SECOND * 2)))
    while not flood.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 20
    assert len(await flood) == 6 * MAX_LINES_A_SECOND * 2


async def test_what_goes_wrong_in_the_block_is_not_the_servers_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(program("mcp_nasty", "fine")):
            _ = 1 / 0


NASTY = {
    "garbage": "fine",
    "twice": "fine",
    "asks": "error error error error",
    "parts": '[x://a/b]\ninside [link: more x://more] {"n": [1, 2]}',
    "bad-picture": "[a part of type image/png that can not be read]",
}


@pytest.mark.parametrize("mode", NASTY)
async def test_a_nasty_server_harms_nobody(mode: str) -> None:
    async with connect(program("mcp_nasty", mode)) as connection:
        await connection.listing()
        assert text(await connection.call("go", {}, 30)) == NASTY[mode]
        assert text(await connection.call("go", {}, 30)) == NASTY[mode]
        assert not connection.lost.is_set()


async def test_one_that_says_too_much_in_one_line_is_left() -> None:
    async with connect(program("mcp_nasty", "long-line")) as connection:
        with pytest.raises(ServerFailed):
            await connection.call("go", {}, 10)
        assert connection.reason == "it wrote a line of more than 8,000,000 bytes"


async def test_an_answer_of_very_many_parts_holds_nobody_up() -> None:
    async with connect(program("mcp_nasty", "many-parts")) as connection:
        answer = await connection.call("go", {}, 30)
        assert len(answer.pieces) == 201
        assert text(answer).endswith("fine [99,800 more parts are left out]")


async def test_an_answer_that_is_none() -> None:
    async with connect(program("mcp_nasty", "no-result")) as connection:
        with pytest.raises(ServerFailed, match="not the protocol"):
            await connection.call("go", {}, 30)


async def test_others_run_while_a_server_floods() -> None:
    async with connect(program("mcp_nasty", "flood")) as connection:
        call = asyncio.ensure_future(connection.call("go", {}, 10))
        turns = 0
        while not call.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert text(call.result()) == "fine"
        assert connection.changed.is_set()
        assert turns > 200  # it was held back: three thousand words take seconds


async def test_a_list_without_an_end_is_read_to_ours() -> None:
    async with connect(program("mcp_nasty", "endless-list")) as connection:
        found = await connection.listing()
    assert len(found.offers) == 50
    assert found.left_out == ("its list does not end: the rest is not asked for",)


async def test_a_schema_that_no_provider_takes_leaves_its_tool_out() -> None:
    async with connect(program("mcp_nasty", "odd-list")) as connection:
        found = await connection.listing()
    assert [offer.tool for offer in found.offers] == ["évil name\n", "good"]
    assert len(found.left_out) == 1
    assert found.left_out[0].startswith("'bad': its schema does not hold")


async def test_one_that_ends_at_once_says_why() -> None:
    with pytest.raises(ServerFailed, match="exit code 3: no token"):
        async with connect(program("mcp_nasty", "exits")):
            pass


async def test_one_that_does_not_bear_the_newer_beginning_is_reached_by_the_older() -> None:
    with pytest.raises(ServerFailed, match="exit code 9"):
        async with connect(program("mcp_nasty", "touchy")):
            pass
    async with connect(program("mcp_nasty", "touchy"), legacy=True) as connection:
        assert text(await connection.call("go", {}, 30)) == "fine"


async def test_a_stop_does_not_wait_for_one_that_says_nothing() -> None:
    reaching = asyncio.ensure_future(connect(program("mcp_nasty", "mute")).__aenter__())
    await asyncio.sleep(0.3)
    reaching.cancel()
    done, _ = await asyncio.wait({reaching}, timeout=30)
    assert done


async def test_nothing_of_it_stays_not_even_what_left_its_group(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with connect(program("mcp_nasty", "stays", str(note))) as connection:
        await connection.call("go", {}, 30)
    for pid in note.read_text().split():
        await gone(int(pid))


async def test_what_can_not_be_started_is_for_the_operator(tmp_path: Path) -> None:
    way = StdioWay(("no-such-program",), tmp_path, {"PATH": os.environ["PATH"]})
    with pytest.raises(ServerHopeless, match="there is no program 'no-such-program'"):
        async with connect(ServerSettings("demo", way)):
            pass
    way = StdioWay((sys.executable,), tmp_path / "gone", {"PATH": os.environ["PATH"]})
    with pytest.raises(ServerHopeless, match="is no folder"):
        async with connect(ServerSettings("demo", way)):
            pass


async def test_an_unknown_tool_is_refused_in_the_servers_words() -> None:
    async with connect(program("mcp_server")) as connection:
        try:
            said = text(await connection.call("nope", {}, 30))
        except Refused as exc:
            said = str(exc)
        assert "nope" in said


async def test_its_words_are_no_information_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with connect(program("mcp_server")) as connection:
        await connection.call("broken", {}, 30)
    assert "words on standard error" not in caplog.text
    assert [r for r in caplog.records if r.name.startswith(("mcp", "client"))] == []
