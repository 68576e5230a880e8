"""A daemon that runs, a config.yaml that is half edited, and somebody who has to look after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.harness import (
    REPO,
    TELEGRAM_USER,
    TelegramChat,
    World,
    answered,
    environment,
    eventually,
    run_command,
)
from tests.acceptance.test_pairing import code_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_all_that_can_do_without_the_file_works(world: World) -> None:
    path = world.configure(telegram={"pairing": True, "allow_from": []})
    good = path.read_text()
    daemon = await world.run("telegram")
    chat = TelegramChat(world)
    chat.say("let me in")
    code = await code_for(chat, daemon)
    path.write_text(good + "telegram:\n  allow_frm: [\n")

    async def said(*words: str, exit_code: int = 0) -> str:
        done = await run_command(world.home, *words)
        assert done.returncode == exit_code, done.stderr
        if exit_code == 0:
            (line,) = done.stderr.splitlines()
            assert "config.yaml is broken (" in line
        return done.stdout

    assert "ready" in await said("status")
    assert "ASKS SINCE" in await said("pair", "list")
    assert "let in: telegram" in await said("pair", "approve", code)
    chat.say("may I?")
    await answered(chat, "reply to: may I?", daemon)
    assert "telegram" in await said("sessions", "list")
    assert "written and checked" in await said("backup")
    assert "ID" in await said("jobs")
    assert "taken back" in await said("pair", "revoke", "telegram", str(TELEGRAM_USER))
    await said("config", "check", exit_code=78)
    code_at_end, _ = await daemon.terminate()
    assert code_at_end == 0
    # Stopped, and it can not start: the home alone is enough.
    assert "not running" in await said("status", exit_code=1)
    assert "nobody was let in" in await said("pair", "list")
    assert "telegram" in await said("sessions", "list")


def console(world: World) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", "chat"],
        cwd=REPO,
        env=environment(world.home, {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_chat_at_the_console_hears_of_the_end(world: World) -> None:
    world.configure()
    daemon = await world.run("telegram")
    chat = console(world)
    try:
        assert chat.stdin is not None
        chat.stdin.write("hello\n")
        chat.stdin.flush()
        await eventually(
            lambda: bool(world.anthropic.main_requests), 20.0, "the question", alive=daemon
        )
        code, _ = await daemon.terminate()
        out, err = chat.communicate(timeout=20)
    finally:
        chat.kill()
    assert (code, chat.returncode) == (0, 1)
    assert "reply to: hello" in out
    assert "The gateway went away." in err
    assert "Traceback" not in daemon.log_text()
