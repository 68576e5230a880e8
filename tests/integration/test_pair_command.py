"""`posthouse pair`: without a daemon on the store, with one through it; and what goes wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent.clock import RandomIds, SystemClock
from agent.pairings import PairingRequest, digest_of
from gateway.cli.main import main
from gateway.control_server import ControlServer
from gateway.home_lock import claimed
from storage.sqlite import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.door import Door, letting_in
from tests.fakes.platform import inbound

CODE = "ABCDEFGH"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    return tmp_path


async def ask(home: Path, code: str = CODE, user: str = "222", name: str = "Eve") -> None:
    """A stranger has written."""
    clock = SystemClock()
    store = await open_store(home / "state.db", clock=clock, ids=RandomIds())
    now = clock.now()
    salt = user.encode()
    request = PairingRequest("telegram", user, name, salt, digest_of(salt, code), now, now + 3600)
    assert await store.ask_pairing(request)
    await store.close()


def pair(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["pair", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, _ = pair(capsys, "list", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_without_a_daemon(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.yaml").write_text("telegram: {pairing: true}\n")
    asyncio.run(ask(home, name='Eve\x1b[31m\n"admin"'))
    code, out, _ = pair(capsys, "list")
    assert code == 0
    assert "222" in out
    assert "\x1b" not in out
    assert "nobody was let in by a code" in out
    code, out, _ = pair(capsys, "approve", "abcd efgh")
    assert (code, out.partition("(")[0]) == (0, "let in: telegram user 222 ")
    assert listed(capsys)["requests"] == []
    assert [p["user_id"] for p in listed(capsys)["paired"]] == ["222"]
    assert pair(capsys, "revoke", "telegram", " 222 ")[:2] == (0, "taken back: telegram user 222\n")
    code, _, err = pair(capsys, "revoke", "telegram", "222")
    assert code == 1
    assert "was not let in by a code" in err
    assert listed(capsys) == {"requests": [], "paired": [], "locked_until": None}


def test_where_pairing_is_off_it_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "state.db").touch()
    assert "pairing is off: set telegram.pairing or" in pair(capsys, "list")[1]
    asyncio.run(ask(home))
    _, out, _ = pair(capsys, "approve", CODE)
    assert "but telegram.pairing is off" in out
    assert "telegram.pairing is off, so its codes let nobody in" in pair(capsys, "list")[1]


def test_wrong_codes_and_the_lock(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(ask(home))
    for n in range(5):
        code, out, err = pair(capsys, "approve", "WRONGONE")
        assert (code, out) == (1, "")
        assert "no request has this code" in err
        assert ("none is taken until" in err) == (n == 4)
    code, _, err = pair(capsys, "approve", CODE)
    assert code == 1
    assert err.startswith("posthouse: too many wrong codes: none is taken until")
    assert "none is taken until" in pair(capsys, "list")[1]
    assert [r["user_id"] for r in listed(capsys)["requests"]] == ["222"]


@pytest.mark.parametrize("argument", ["\udcff\udc00", "", "x" * 10_000, "🎉", "--", "' OR 1=1"])
def test_any_text_may_be_typed_for_a_code(
    home: Path, capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    asyncio.run(ask(home))
    assert main(["pair", "approve", "--", argument]) == 1
    assert "no request has this code" in capsys.readouterr().err


@pytest.mark.parametrize("user", ["@eve", "0222", "\u0662", "", "2 2"])
def test_only_ids_are_revoked(home: Path, capsys: pytest.CaptureFixture[str], user: str) -> None:
    code, _, err = pair(capsys, "revoke", "telegram", user)
    assert code == 1
    assert "is no numeric id" in err


def test_nothing_is_made_where_nothing_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = pair(capsys, "list")
    assert code == 0
    assert "nothing is stored yet" in said
    for arguments in (["approve", CODE], ["revoke", "telegram", "222"]):
        code, _, err = pair(capsys, *arguments)
        assert code == 1
        assert "nothing is stored yet" in err
    assert list(home.iterdir()) == []


def test_beside_a_daemon_that_does_not_answer_yet(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(ask(home))
    with claimed(home, home / "posthouse.lock"):
        (lock,) = [path for path in home.iterdir() if path.suffix == ".lock"]
        assert lock.name == "posthouse.lock"
        code, _, err = pair(capsys, "approve", CODE)
    assert code == 73
    assert "another posthouse" in err


async def test_through_the_daemon_it_counts_at_once(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "gateway.intake.pairing_office")
    door = Door(clock, {"telegram": letting_in("111", pairing=True)})
    stranger = {"platform": "telegram", "sender_id": "222", "chat_id": "222"}
    server = ControlServer(home / "control.sock", {"pair": door.office.serve})
    await server.start()
    try:
        await door.intake.receive(inbound("hello", **stranger))
        code, out, _ = await asyncio.to_thread(pair, capsys, "approve", door.codes[0])
        assert (code, "let in: telegram user 222" in out) == (0, True)
        await door.intake.receive(inbound("again", message_id="2", **stranger))
        assert door.texts == ["again"]
        code, _, err = await asyncio.to_thread(pair, capsys, "approve", door.codes[0])
        assert (code, "no request has this code" in err) == (1, True)
        await asyncio.to_thread(pair, capsys, "revoke", "telegram", "222")
        await door.intake.receive(inbound("gone", message_id="3", **stranger))
        assert door.texts == ["again"]
        assert not (home / "state.db").exists()
        logged = [vars(r) for r in caplog.records if r.name == "gateway.intake.pairing_office"]
        assert [line.get("outcome") for line in logged] == ["approved", "wrong", None]
        assert [line.get("user_id") for line in logged] == ["222", None, "222"]
        assert door.codes[0] not in caplog.text
    finally:
        await server.close()


async def test_a_daemon_of_another_version(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ControlServer(home / "control.sock", {})
    await server.start()
    try:
        code, _, err = await asyncio.to_thread(pair, capsys, "list")
        assert (code, "unknown operation" in err) == (1, True)
    finally:
        await server.close()
