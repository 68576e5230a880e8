"""The daemon of a home is found wherever it listens, and nobody is taken for it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.config.environment import Home
from gateway.control import ask, send_line
from gateway.control_server import ControlServer
from gateway.home_lock import claimed
from gateway.running_daemon import RunningDaemon


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", "POSTHOUSE_HOME")
    made.path.mkdir(mode=0o700)
    return made


@asynccontextmanager
async def listening(path: Path, name: str) -> AsyncIterator[None]:
    async def status(request: dict[str, Any], reader: Any, writer: asyncio.StreamWriter) -> None:
        await send_line(writer, {"name": name})

    server = ControlServer(path, {"status": status})
    await server.start()
    try:
        yield
        # Behind those who have left without a word, so that they are let go of by now.
        assert await asyncio.to_thread(ask, path, {"op": "status"}) == {"name": name}
    finally:
        await server.close()


async def who(home: Home, configured: str | None = None) -> str | None:
    daemon = RunningDaemon(home, {}, configured)
    answer = await asyncio.to_thread(daemon.ask, {"op": "status"})
    return None if answer is None else str(answer["name"])


async def test_it_is_found_where_only_its_own_configuration_says(home: Home) -> None:
    """Started with `--config F`; whoever asks has another file, or none."""
    socket = home.path.parent / "elsewhere.sock"
    with claimed(home.path, home.lock, socket=socket):
        assert await who(home) is None, "it has not begun to listen"
        async with listening(socket, "ours"):
            assert await who(home) == "ours"
            assert await who(home, "/nowhere/at.all") == "ours"
            found = RunningDaemon(home, {}, None)
            assert await asyncio.to_thread(found.socket) == socket


async def test_another_one_at_the_noted_socket_is_not_taken_for_it(home: Home) -> None:
    """It was killed; since then somebody else listens there, for another home."""
    socket = home.path.parent / "elsewhere.sock"
    home.lock.write_text(f"{os.getppid()}\n{socket}\n")
    async with listening(socket, "another's"):
        assert await who(home) is None
        async with listening(home.path / "control.sock", "ours"):
            assert await who(home) == "ours"


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are made by root")
async def test_another_users_process_is_not_believed(home: Home) -> None:
    """A file of somebody else names this process: the lock is theirs, the listener is not."""
    socket = home.path.parent / "elsewhere.sock"
    home.lock.write_text(f"{os.getpid()}\n{socket}\n")
    shutil.chown(home.lock, 12345, 12345)
    async with listening(socket, "another's"):
        assert await who(home) is None


def test_who_holds_the_home_and_is_silent_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(home.path))
    with claimed(home.path, home.lock):
        assert main(["status"]) == 1
        said = capsys.readouterr().out
        assert f"process {os.getpid()} holds this home and does not answer" in said
        assert "posthouse run" not in said
        assert main(["top"]) == 1
        assert "holds this home" in capsys.readouterr().err
    assert main(["status"]) == 1
    assert "start it with `posthouse run`" in capsys.readouterr().out
