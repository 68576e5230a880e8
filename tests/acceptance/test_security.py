"""A busy run leaves nothing for other users of the machine, and no secret anywhere."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import (
    REPO,
    TELEGRAM_USER,
    Daemon,
    TelegramChat,
    World,
    answered,
    environment,
    eventually,
    run_command,
)
from tests.fakes.anthropic_server import Fault

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

OPEN = 0o077


def everything(folder: Path) -> Iterator[Path]:
    yield folder
    for path in folder.rglob("*"):
        if not path.is_symlink():
            yield path


def forms(secret: str) -> list[bytes]:
    """In which it might lie somewhere."""
    behind_the_id = secret.partition(":")[2] or secret
    coded = base64.b64encode(secret.encode()).decode()
    return [form.encode() for form in (secret, behind_the_id, coded[:-4])]


async def test_after_a_busy_run(world: World) -> None:
    """Whatever the umask of whoever started it: files and folders are the user's alone."""
    world.configure(
        agent={"tools": {"files": True, "shell": True}},
        logging={"level": "DEBUG"},
        model={"context_length": None},  # asked for, and remembered in a file
    )
    world.home.chmod(0o700)
    (world.home / "config.yaml").chmod(0o600)
    secrets = world.secrets_for("telegram")
    before = os.umask(0)
    try:
        daemon = world.daemon(secrets=secrets).start()
    finally:
        os.umask(before)
    await daemon.ready("telegram")
    chat = TelegramChat(world)
    chat.say("hello")
    await answered(chat, "hello", daemon)
    where = {"chat_id": TELEGRAM_USER, "user_id": TELEGRAM_USER}
    world.telegram.document(b"some words\n" * 20, "notes.txt", caption="read it", **where)
    await turns(world, daemon, "done", 2)
    # An answer that quotes the provider's refusal, with the key in it.
    world.anthropic.script(Fault("401", message=f"bad {secrets}"))
    chat.say("and now?")
    await turns(world, daemon, "failed", 1)
    status = await run_command(world.home, "status", "--json")
    top = await run_command(world.home, "top", "--json")
    shown = await run_command(world.home, "config", "show", secrets=secrets)
    text = await run_command(world.home, "sessions", "list")
    address = json.loads(status.stdout)["details"]["http"]
    pages = [await asyncio.to_thread(fetch, f"{address}/{page}") for page in ("metrics", "readyz")]
    command_line, limits = (of_process(daemon.process.pid, name) for name in ("cmdline", "limits"))
    while_running = {path: path.lstat().st_mode for path in everything(world.home)}
    await daemon.terminate()
    for path, mode in {
        **while_running,
        **{path: path.lstat().st_mode for path in everything(world.home)},
    }.items():
        assert not stat.S_IMODE(mode) & OPEN, (path, oct(mode))
    assert len(while_running) > 6
    assert re.search(r"Max core file size +0 +0 ", limits)
    said = [status.stdout, top.stdout, shown.stdout, text.stdout, *pages, daemon.log_text()]
    said += chat.shown()
    for secret in secrets.values():
        for form in forms(secret):
            assert form.decode() not in command_line
            assert not any(form.decode() in each for each in said)
            for path in everything(world.home):
                assert not path.is_file() or form not in path.read_bytes(), path


async def turns(world: World, daemon: Daemon, state: str, count: int) -> None:
    await eventually(
        lambda: world.database().states("turns").get(state) == count,
        40.0,
        f"{count} turns {state}",
        alive=daemon,
    )


def of_process(pid: int, name: str) -> str:
    return (Path("/proc") / str(pid) / name).read_text(encoding="utf-8")


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("reader", ["reads nothing", "has gone", "was never there"])
async def test_nobody_reads_the_log(world: World, reader: str) -> None:
    """Whoever is to answer people does not wait for whoever should read the log."""
    world.configure(logging={"level": "DEBUG", "format": "plain"})
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    if reader == "has gone":
        os.close(reading)
    environ = environment(world.home, world.secrets_for("telegram"))
    close = "2>&-" if reader == "was never there" else ""
    process = subprocess.Popen(  # noqa: ASYNC220 - as the harness does
        ["/bin/sh", "-c", f'exec "{sys.executable}" -m gateway run {close}'],
        cwd=REPO,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writing,
    )
    os.close(writing)
    try:
        chat = TelegramChat(world)
        for number in range(5):
            chat.say(f"hello {number}")
            await eventually(
                lambda n=number: any(f"hello {n}" in text for text in chat.shown()),
                40.0,
                "an answer",
            )
        status = await run_command(world.home, "status", "--json")
        assert json.loads(status.stdout)["ready"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
        if reader != "has gone":
            os.close(reading)
