"""Root at work in a home that belongs to another user, whose daemon has to open all of it later."""

from __future__ import annotations

import asyncio
import io
import os
import pwd
import shlex
import time
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.pairings import PairingRequest, digest_of
from gateway.cli import exits
from gateway.cli.main import main
from gateway.config.environment import Home
from gateway.ownership import left_to_owner
from storage.sqlite import open_store
from tests.unit.gateway.test_exchange_files import export, talk_in

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")

OWNER = 54_321
"""Nobody's, as that of a service that is stopped."""
CODE = "ABCDEFGH"


def give(home: Path, owner: int) -> None:
    for folder, _, files in os.walk(home):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, owner, owner, follow_symlinks=False)


def roots(home: Path) -> list[str]:
    """What the owner's daemon could not open."""
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.lstat().st_uid == 0)


@pytest.fixture(params=["plain", "private"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Once in a folder that only root enters, behind a link: as systemd keeps it."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    real = (private if request.param == "private" else tmp_path) / "posthouse"
    real.mkdir(mode=0o700)
    named = real
    if request.param == "private":
        named = tmp_path / "posthouse"
        named.symlink_to(real)
    monkeypatch.setenv("POSTHOUSE_HOME", str(named))
    asyncio.run(_stored(real))
    give(real, OWNER)
    return real


async def _stored(home: Path) -> None:
    clock = SystemClock()
    store = await open_store(home / "state.db", clock=clock, ids=RandomIds())
    now, digest = clock.now(), digest_of(b"salt", CODE)
    await store.ask_pairing(
        PairingRequest("telegram", "42", "Kim", b"salt", digest, now, now + 3600)
    )
    await store.close()


@pytest.mark.parametrize(
    "command",
    [
        "pair list",
        f"pair approve {CODE}",
        "pair revoke telegram 42",
        "jobs list",
        "sessions list",
        "sessions search word",
        "usage",
        "backup",
        "backup {elsewhere}",
        "backup {elsewhere}/one.db",
        "forget telegram:42 --yes",
        "doctor --offline",
        "config check",
        "plugins list",
        "init --yes --offline --telegram-id 42",
    ],
)
def test_nothing_of_roots_is_left(home: Path, tmp_path: Path, command: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    main(shlex.split(command.format(elsewhere=elsewhere)))
    assert roots(home) == []


def test_an_import_with_its_files_leaves_nothing_of_roots(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    portable, _ = asyncio.run(talk_in(Home(other, "")))
    path = tmp_path / "export.jsonl"
    path.write_text(asyncio.run(export(Home(other, ""), portable)))
    assert main(["sessions", "import", str(path)]) == 0
    assert list((home / "attachments").rglob("*"))
    assert roots(home) == []


def test_a_restore_leaves_nothing_of_roots(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert main(["backup", str(elsewhere)]) == 0
    assert main(["restore", str(elsewhere), "--yes"]) == 0
    assert roots(home) == []


@pytest.mark.parametrize("command", ["run", "chat", "plugins check example"])
def test_what_runs_code_of_the_home_is_refused(
    home: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(home.rglob("*"))
    assert main(command.split()) == exits.BAD_CONFIG
    said = capsys.readouterr().err
    assert f"belongs to user {OWNER}" in said
    assert f"setpriv --reuid={OWNER} --regid={OWNER} --clear-groups posthouse {command}" in said
    assert sorted(home.rglob("*")) == before


def test_plugins_are_not_asked_to_forget_as_root(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("plugins: {enabled: [example]}\n")
    assert main(["forget", "telegram:42", "--yes"]) == exits.BAD_CONFIG
    assert "setpriv" in capsys.readouterr().err


def test_a_user_with_a_name_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = pwd.getpwnam("nobody")
    give(home, nobody.pw_uid)
    assert main(["run"]) == exits.BAD_CONFIG
    said = capsys.readouterr().err
    assert "belongs to nobody" in said
    assert "runuser -u nobody -- posthouse run" in said


def test_what_root_has_put_there_stays_roots(home: Path) -> None:
    """A plugin that the service must not be able to change."""
    plugin = home / "plugins" / "mine.py"
    plugin.parent.mkdir()
    plugin.touch()
    time.sleep(0.05)  # longer than the clock of files takes to come on
    assert main(["pair", "list"]) == 0
    assert roots(home) == ["plugins", "plugins/mine.py"]


def test_a_second_name_for_a_file_of_roots_gives_it_to_nobody(tmp_path: Path) -> None:
    """What else it is called may be /etc/shadow."""
    home, precious = tmp_path / "home", tmp_path / "precious"
    home.mkdir()
    os.chown(home, OWNER, OWNER)
    with left_to_owner(home):
        precious.touch()
        (home / "linked").hardlink_to(precious)
        (home / "pointing").symlink_to(precious)
        (home / "made").touch()
    assert precious.stat().st_uid == 0
    assert (home / "made").stat().st_uid == OWNER


def test_an_own_home_is_nobodys_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path / "new"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["run"]) == 0
