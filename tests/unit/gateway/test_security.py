"""Who else is on this machine, and what a page in the operator's browser can do: nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.llm.offline import OfflineModel
from gateway.cli import exchange
from gateway.cli.main import main
from gateway.control import send_line
from gateway.control_server import ControlServer
from gateway.logs import Redactor, setting_up
from gateway.platforms.console.streams import StandardStreams
from gateway.platforms.contract import Intake, PlatformUnavailable, Report
from gateway.sdnotify import ServiceManager
from gateway.terminal_text import harmless
from tests.fakes.clock import FakeClock
from tests.fakes.platform import FakePlatform
from tests.unit.gateway.rig import Rig
from tests.unit.gateway.test_daemon import daemon
from tests.unit.gateway.test_http import Scene, ask, raw

NOBODY = 65_534
EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b1m\rb\x00\x7f\tc\nd\u200de"

ASK = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(20)
    sock.connect(sys.argv[1])
    try:
        sock.sendall(b'{{"op": "status"}}\\n')
        print(len(sock.recv(1000)))
    except (BrokenPipeError, ConnectionResetError):
        print(0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_told_nothing_even_where_the_folder_is_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`gateway.control_socket` may name any folder, and rights of a file can be changed."""

    async def status(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, {"ready": True})

    folder = Path("/tmp") / f"posthouse-test-{os.getpid()}"  # where nobody comes through as well
    folder.mkdir(mode=0o755)
    server = ControlServer(folder / "c.sock", {"status": status})
    await server.start()
    try:
        server.path.chmod(0o777)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-S", "-c", ASK.format(nobody=NOBODY), str(server.path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "0\n", done.stderr
        assert "another user" in caplog.text
        with socket.socket(socket.AF_UNIX) as ours:
            ours.settimeout(20)
            await asyncio.to_thread(ours.connect, str(server.path))
            await asyncio.to_thread(ours.sendall, b'{"op": "status"}\n')
            assert await asyncio.to_thread(ours.recv, 1000) == b'{"ready": true}\n'
    finally:
        await server.close()
        folder.rmdir()


# --- a terminal ---------------------------------------------------------------------------------


def test_harmless_text_steers_nothing_and_is_the_same_json() -> None:
    shown = harmless(EVIL)
    assert not any(c in shown for c in "\x1b\x07\x9b\r\x00\x7f")
    assert "\tc\nd\u200de" in shown
    raw_json = json.dumps({"name": EVIL}, ensure_ascii=False)
    assert json.loads(harmless(raw_json)) == {"name": EVIL}
    assert harmless("of\r\nWindows") == "of\nWindows"


async def test_an_answer_in_a_chat_steers_no_terminal() -> None:
    """A model quotes pages and files that others have written."""
    to_terminal, to_pipe = io.BytesIO(), io.BytesIO()
    await StandardStreams(io.BytesIO(), to_terminal, to_terminal=True).show(EVIL)
    await StandardStreams(io.BytesIO(), to_pipe).show(EVIL)
    assert b"\x1b" not in to_terminal.getvalue()
    assert to_pipe.getvalue() == f"{EVIL}\n".encode()  # a script gets what was said


@pytest.mark.parametrize("terminal", [True, False])
def test_an_export_steers_no_terminal_and_is_whole_in_a_file(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    class Out(io.TextIOWrapper):
        def isatty(self) -> bool:
            return terminal

    raw_bytes = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Out(raw_bytes))
    exchange._print([EVIL])
    written = raw_bytes.getvalue()
    assert (b"\x1b" in written) != terminal
    assert terminal or written == EVIL.encode()


def test_an_error_steers_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text('telegram: {"a\\e[2Jb": 1}\n')
    assert main(["config", "check"]) == 78
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "telegram" in said.out + said.err


# --- a page in a browser ------------------------------------------------------------------------


async def test_a_page_of_another_origin_may_read_nothing() -> None:
    async with Scene().open() as port:
        for path in ("/healthz", "/readyz", "/metrics", "/none"):
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
            reply = await raw(port, request + "Connection: close\r\n\r\n")
            assert not any(name.startswith("access-control-") for name in reply.headers)
            assert reply.headers["x-content-type-options"] == "nosniff"
        for method in ("OPTIONS", "POST", "PUT", "DELETE", "TRACE"):
            assert (await ask(port, "/metrics", method=method)).status == 405


@pytest.mark.parametrize(
    "head",
    [
        "X-Long: " + "x" * 100_000,
        "\r\n".join(f"X-{n}: {'y' * 1000}" for n in range(200)),
        "Cookie: " + "z" * 20_000,
    ],
)
async def test_heads_are_bounded(head: str) -> None:
    async with Scene().open() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        async with asyncio.timeout(20):
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""
        assert not answer.startswith(b"HTTP/1.1 200")
        writer.close()
        assert (await ask(port)).status == 200


async def test_a_body_is_never_waited_for() -> None:
    """Whoever announces a large one and sends nothing gets the answer at once."""
    async with Scene().open() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        )
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


# --- other ways out -----------------------------------------------------------------------------


async def test_a_reason_with_a_token_in_it_leaves_without(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform of a plugin tells why it is away in the words of its library."""
    token = "123456789:AAF-secret_token-of-the-bot-0123456"
    monkeypatch.setattr(setting_up, "_in_force", Redactor([token]))
    rig = Rig(clock)

    class Away(FakePlatform):
        async def run(self, intake: Intake, report: Report) -> None:
            raise PlatformUnavailable(
                f"https://chat.example/bot{token}/updates: refused\nMAINPID=1"
            )

    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    platforms = [Away(name="away")]
    made = daemon(rig, tmp_path, platforms, OfflineModel(window_tokens=10_000), manager=manager)
    serving = asyncio.create_task(made.serve())
    await rig.settle()
    status = json.dumps(made.status())
    made.stop()
    while not serving.done():
        await clock.advance(0.5)
        await rig.settle()
    assert "bot[secret]/updates" in status
    assert token not in status
    heard.setblocking(False)
    said = heard.recv(10_000).decode()
    heard.close()
    assert "bot[secret]/updates: refused MAINPID=1" in said
    assert [line.partition("=")[0] for line in said.splitlines()] == ["READY", "STATUS"]
    scene = Scene(ready=False, reasons=(f"away: {token}",), trouble=f"full {token}")
    async with scene.open() as port:
        assert token not in (await ask(port, "/readyz")).body
        assert token not in (await ask(port, "/healthz")).body
