"""The daemon as a process with MCP servers: one that works, one that does not, and their ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gateway import approval_text as words
from tests.acceptance.harness import (
    TELEGRAM_USER,
    Daemon,
    TelegramChat,
    World,
    answered,
    eventually,
    run_command,
)
from tests.fakes.anthropic_server import Answer, tool_use

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]


def configure(world: World, pids: Path, **more: Any) -> None:
    demo = {
        "command": [sys.executable, "-m", "tests.fakes.mcp_server"],
        "cwd": str(ROOT),
        "env": {
            "DEMO_TOKEN": "token-in-the-file",
            "DEMO_PID_FILE": str(pids),
            "DEMO_SLOW_FILE": str(pids.with_name("slow")),
        },
    }
    torn = {
        "command": "sh",
        "args": ["-c", "echo the token is $DEMO_TOKEN >&2; exit 3"],
        "env": {"DEMO_TOKEN": "token-in-the-file"},
    }
    world.configure(agent={"tools": {"mcp": {"demo": demo, "torn": torn, **more}}})


def last_pid(pids: Path) -> int:
    return int(pids.read_text().split()[-1])


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def servers(daemon: Daemon) -> str:
    status = daemon.status()
    return str(status["details"].get("MCP servers", "")) if status else ""


async def running(daemon: Daemon) -> None:
    await eventually(
        lambda: "demo: running (9 tools)" in servers(daemon), 20.0, "the server", alive=daemon
    )


async def test_tools_of_servers_from_start_to_end(world: World, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    configure(world, pids)
    daemon = await world.run("telegram")
    await running(daemon)
    # Neither in what is shown nor in the log.
    assert "torn: retrying (it ended with exit code 3: the token is [secret])" in servers(daemon)
    assert "token-in-the-file" not in daemon.log_text()

    # One that only reads is not asked about; one that writes is.
    chat = TelegramChat(world)
    world.anthropic.script(
        Answer([tool_use("mcp__demo__add", {"a": 40, "b": 2})]),
        Answer([tool_use("mcp__demo__write", {"text": "a line"})]),
        "it is written",
    )
    chat.say("add, then write")
    [question] = await eventually(
        lambda: [m for m in world.telegram.visible(TELEGRAM_USER) if "May I" in m.text],
        20.0,
        "a question",
        alive=daemon,
        seen=chat.shown,
    )
    assert "use a tool of the server demo" in question.text
    assert '"text": "a line"' in question.text
    world.telegram.press(
        question.message_id, words.APPROVE, chat_id=TELEGRAM_USER, user_id=TELEGRAM_USER
    )
    await eventually(
        lambda: "it is written" in chat.shown(), 20.0, "the answer", alive=daemon, seen=chat.shown
    )
    results = [row["content"] for row in world.database().originals("tool")]
    assert results[0] == "42"
    assert results[1].startswith("wrote a line\n[approved by the user")

    # A kill: the server does not outlive it. The next start has the same prefix at once.
    first = last_pid(pids)
    await daemon.kill()
    await eventually(lambda: not runs(first), 5.0, "the end of the server")
    again = await world.run("telegram")
    chat.say("still there?")
    await answered(chat, "reply to: still there?", again)
    await running(again)
    chat.say("and now?")
    await answered(chat, "reply to: and now?", again)
    assert [line for line in again.log_lines() if line.get("message") == "refrozen"] == []
    second = last_pid(pids)
    assert second != first
    assert runs(second)
    code, seconds = await again.terminate()
    assert code == 0
    assert seconds < 20
    assert not runs(second)


async def test_a_stop_reaches_the_server_and_a_new_list_the_next_message(
    world: World, tmp_path: Path
) -> None:
    configure(world, tmp_path / "pids")
    daemon = await world.run("telegram")
    await running(daemon)
    chat = TelegramChat(world)
    world.anthropic.script(Answer([tool_use("mcp__demo__slow", {"seconds": 60})]))
    chat.say("take your time")
    await eventually(
        lambda: len(world.anthropic.requests) == 1, 20.0, "the first request", alive=daemon
    )
    await eventually(
        lambda: world.database().rows("SELECT 1 FROM messages WHERE role='assistant'"),
        20.0,
        "the call",
        alive=daemon,
    )
    # Stored, then called.
    await eventually((tmp_path / "slow").exists, 20.0, "the call at the server", alive=daemon)
    chat.say("/stop")
    await eventually(
        lambda: any("topped" in text for text in chat.shown()), 5.0, "the stop", seen=chat.shown
    )
    world.anthropic.script(
        Answer([tool_use("mcp__demo__told", {})]),
        Answer([tool_use("mcp__demo__grows", {})]),
        "it has grown",
    )
    chat.say("what was stopped?")
    await eventually(
        lambda: "it has grown" in chat.shown(), 20.0, "the answer", alive=daemon, seen=chat.shown
    )
    results = [str(row["content"]) for row in world.database().originals("tool")]
    assert results[-2].endswith("['slow']")
    await eventually(
        lambda: "demo: running (10 tools)" in servers(daemon), 10.0, "the list", alive=daemon
    )
    chat.say("and now?")
    await answered(chat, "reply to: and now?", daemon)
    chat.say("and then?")
    await answered(chat, "reply to: and then?", daemon)
    refrozen = [line for line in daemon.log_lines() if line.get("message") == "refrozen"]
    assert [line["changed"] for line in refrozen] == ["tools"]
    code, _ = await daemon.terminate()
    assert code == 0


async def test_a_check_says_what_is_missing_and_starts_nothing(
    world: World, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    far = {"url": "https://mcp.example.org/mcp", "headers": {"Authorization": "${NOT_THERE}"}}
    configure(world, pids, far=far, gone={"command": "no-such-program"})
    done = await run_command(world.home, "config", "check")
    assert done.returncode == 0
    assert "agent.tools.mcp.far is left out: there is no NOT_THERE" in done.stdout
    assert "agent.tools.mcp.gone: there is no program 'no-such-program'" in done.stdout
    shown = await run_command(world.home, "config", "show")
    assert "token-in-the-file" not in shown.stdout
    assert not pids.exists()
