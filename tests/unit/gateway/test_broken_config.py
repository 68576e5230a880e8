"""A config.yaml that is half edited: what each command does all the same, daemon or none."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.clock import RandomIds, SystemClock
from agent.exchange.records import TakenIn
from agent.pairings import PairingRequest, digest_of
from gateway.cli import exits
from gateway.cli.main import build_parser, main
from gateway.control import Handler, send_line
from gateway.control_server import ControlServer
from gateway.exchange import ImportDesk
from gateway.intake.pairing_office import PairingOffice
from gateway.jobs.desk import JobDesk
from gateway.jobs.office import JobOffice
from storage.sqlite import open_store
from storage.store import SqlStore

CODE = "ABCDEFGH"
BROKEN = "telegram:\n  pairing: true\n  allow_frm: [1]\ngateway:\n  control_socket: {socket}\n"
"""Line 3, a key that nobody knows."""
HALF = "telegram:\n  pairing: true\n  allow_from: [1\ngateway:\n  control_socket: {socket}\n"
"""Line 3, a bracket that is open: no YAML any more."""
FAILED = exits.FAILED
BAD = exits.BAD_CONFIG


@dataclass(frozen=True)
class Does:
    """Exit codes; ``told``: one line says that the file is broken."""

    beside: int | None
    """While a daemon runs; None: not tried here."""
    alone: int
    told: bool = True


TABLE = {
    # What goes on, through the daemon or on the home alone.
    "status": Does(0, FAILED),
    "top --json": Does(0, FAILED),
    "pair list": Does(0, 0),
    "pair approve {code}": Does(0, 0),
    "pair revoke telegram 42": Does(0, 0),
    "jobs": Does(0, 0),
    "jobs list": Does(0, 0),
    "jobs runs 1234": Does(FAILED, FAILED),
    "jobs pause 1234": Does(FAILED, FAILED),
    "jobs resume 1234": Does(FAILED, FAILED),
    "jobs cancel 1234": Does(FAILED, FAILED),
    "usage": Does(0, 0),
    "sessions list": Does(0, 0),
    "sessions show s_none": Does(FAILED, FAILED),
    "sessions search word": Does(0, 0),
    "sessions export s_none": Does(FAILED, FAILED),
    "sessions import {export}": Does(0, FAILED),
    "lineage s_none": Does(FAILED, FAILED),
    "backup": Does(0, 0),
    "restore {home}/none --yes": Does(FAILED, FAILED),
    "plugins list": Does(0, BAD),
    "forget telegram:42 --yes": Does(0, BAD),
    # What is about the file itself, or can not be done without it.
    "run": Does(None, BAD),
    "chat": Does(None, BAD),
    "plugins check example": Does(BAD, BAD),
    "config check": Does(BAD, BAD),
    "config show": Does(BAD, BAD),
    "config reload": Does(BAD, BAD),
    "init --yes --offline": Does(BAD, BAD),
    # What finds it among other things, or asks nothing of the home.
    "doctor --offline": Does(FAILED, FAILED, told=False),
    "config schema": Does(0, 0, told=False),
    "completion bash": Does(0, 0, told=False),
    "simulate daily": Does(0, 0, told=False),
    "simulate --from s_none": Does(FAILED, FAILED, told=False),
    "demo": Does(None, 0, told=False),
    "service install --dry-run": Does(None, 0, told=False),
    "service uninstall --dry-run": Does(None, 0, told=False),
    "service logs": Does(None, 0, told=False),
}
UNTRIED = {"demo", "service install --dry-run", "service uninstall --dry-run", "service logs"}
"""Of the system, or with a home of their own: they do not read this one's file."""


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command line that there is, down to its action."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups or (path and not groups[0].required):
        yield " ".join(path)
    for group in groups:
        for name, below in group.choices.items():
            yield from commands(below, (*path, name))


def test_every_command_is_in_the_table() -> None:
    lines = [line.split("{")[0] for line in TABLE]
    for command in filter(None, commands(build_parser())):
        assert any(f"{line} ".startswith(f"{command} ") for line in lines), command


@pytest.fixture(params=[BROKEN, HALF], ids=["unknown key", "no YAML"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its file is broken, and somebody asks to be let in."""
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text(request.param.format(socket=tmp_path / "own.sock"))
    (tmp_path / "export.jsonl").touch()
    now = SystemClock().now()
    digest = digest_of(b"salt", CODE)

    async def ask_in() -> None:
        async with stored(tmp_path) as store:
            await store.ask_pairing(
                PairingRequest("telegram", "42", "Kim", b"salt", digest, now, now + 3600)
            )

    asyncio.run(ask_in())
    return tmp_path


@asynccontextmanager
async def stored(home: Path) -> AsyncIterator[SqlStore]:
    store = await open_store(home / "state.db", clock=SystemClock(), ids=RandomIds())
    try:
        yield store
    finally:
        await store.close()


def says(answer: dict[str, Any]) -> Handler:
    async def handler(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, answer)

    return handler


@asynccontextmanager
async def daemon(home: Path) -> AsyncIterator[None]:
    """As one that was started before the file was broken."""
    status = {"home": str(home), "version": "1", "ready": True, "platforms": {}, "details": {}}
    handlers = {
        "status": says(status),
        "top": says({**status, "rows": []}),
        "plugins": says({"plugins": []}),
        "reload": says({"errors": [f"{home}/config.yaml:3:3: unknown key"]}),
        "forget": says({"held": {}, "erased": {}}),
    }
    async with stored(home) as store:
        desk = JobDesk(store, SystemClock(), zone=lambda: "UTC")
        handlers["jobs"] = JobOffice(desk, store).serve
        handlers["pair"] = PairingOffice(store, SystemClock(), pairing_on=lambda: ()).serve

        async def take_in(path: Path, owner: str | None) -> list[TakenIn]:
            return []

        handlers["import"] = ImportDesk(home, take_in).serve
        server = ControlServer(home / "own.sock", handlers)
        await server.start()
        try:
            yield
        finally:
            await server.close()


def given(command: str, home: Path) -> list[str]:
    export = home / "export.jsonl"
    return shlex.split(command.format(home=home, code=CODE, export=export))


def as_said(does: Does, code: int, wanted: int, said: tuple[str, str]) -> None:
    out, err = said
    assert code == wanted, said
    if code == BAD:
        assert re.search(r"config\.yaml:[34]:\d+: ", err + out), "the position"
        return
    told = [line for line in err.splitlines() if "config.yaml is broken (" in line]
    assert len(told) == does.told, said
    for line in told:
        assert re.search(r"config\.yaml:[34]:\d+: .*; `posthouse config check` shows it", line)


TRIED = {command: does for command, does in TABLE.items() if command not in UNTRIED}


@pytest.mark.parametrize("command", TRIED)
def test_without_a_daemon(home: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(given(command, home))
    as_said(TRIED[command], code, TRIED[command].alone, capsys.readouterr())


@pytest.mark.parametrize("command", [c for c, does in TRIED.items() if does.beside is not None])
async def test_beside_a_daemon(
    home: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with daemon(home):
        code = await asyncio.to_thread(main, given(command, home))
    wanted = TRIED[command].beside
    assert wanted is not None
    as_said(TRIED[command], code, wanted, capsys.readouterr())


def test_somebody_is_let_in_and_out_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "approve", CODE]) == 0
    assert main(["pair", "list", "--json"]) == 0
    out = capsys.readouterr().out
    assert "pairing is off" not in out, "whether it is can not be known"
    assert [p["user_id"] for p in json.loads(out.splitlines()[-1])["paired"]] == ["42"]
    assert main(["pair", "revoke", "telegram", "42"]) == 0


def test_a_file_that_is_named_and_not_there_is_a_slip(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pair", "list", "--config", str(home / "nope.yaml")]) == BAD
    assert "there is no such file (--config)" in capsys.readouterr().err
