"""Owns the tests of putting a backup back, killed at each of its moves, and of the two commands."""

# ruff: noqa: ASYNC230 - files of this test only

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.errors import HomeInUse, PosthouseError, StoreUnavailable
from gateway.backups import moving_in
from gateway.backups.choosing import choose
from gateway.backups.shelf import MANIFEST, folder_of, kept, within
from gateway.cli.main import main
from gateway.config.environment import Home
from gateway.forgetting.desk import ForgettingDesk
from gateway.home_lock import claimed
from gateway.wiring.forgetting import leavings_of
from gateway.wiring.kept_files import kept_files
from storage.sqlite import open_store
from tests.contract.store_suite import OWNER, said, talk
from tests.fakes.store_invariants import check_invariants
from tests.unit.gateway.backup_rig import NOW, TOOLS, filled, made, new_home, put_back, words_in


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


async def test_back_as_it_was(home: Home, tmp_path: Path) -> None:
    name = await filled(home)
    await made(home, str(tmp_path / "b"))
    other = await filled(home, "herring")
    (home.path / "config.yaml").write_text("timezone: Asia/Tokyo\n")
    done = await put_back(home, tmp_path / "b")
    assert words_in(home.database) == ["swordfish"]
    assert os.listdir(home.attachments) == [name]
    assert (home.path / "workspace/me/note.md").read_text() == "swordfish"
    with closing(sqlite3.connect(home.path / "hermes/vault.db")) as db:
        assert db.execute("SELECT x FROM t").fetchall() == [("swordfish",)]
    # Settings are those of today; nothing is deleted.
    assert "Tokyo" in (home.path / "config.yaml").read_text()
    assert set(done.kept) == {"config.yaml", "plugins"}
    assert words_in(done.aside / "state.db") == ["swordfish", "herring"]
    assert sorted(os.listdir(done.aside / "attachments")) == sorted([name, other])
    # And the whole of it can be taken back.
    await put_back(home, done.aside, NOW + 1)
    assert words_in(home.database) == ["swordfish", "herring"]
    assert other in os.listdir(home.attachments)
    assert {b.kind for b in kept(home)} == {"replaced"}


async def test_a_home_that_is_lost_comes_back_whole(home: Home, tmp_path: Path) -> None:
    await filled(home)
    await made(home, str(tmp_path / "b"))
    shutil.rmtree(home.path)
    await put_back(home, tmp_path / "b")
    assert words_in(home.database) == ["swordfish"]
    assert "Berlin" in (home.path / "config.yaml").read_text()
    assert (home.path / "plugins/mine/plugin.py").exists()
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    await talk(store, said("on it goes"))
    await store.close()


async def test_the_log_of_the_old_database_never_meets_the_new_one(
    home: Home, tmp_path: Path
) -> None:
    await filled(home)
    await made(home, str(tmp_path / "b"))
    # As after a kill: what was said last is in the log only.
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE messages SET content = 'only in the log' WHERE role = 'assistant'")
        shutil.copytree(home.path, tmp_path / "killed")
    killed = Home(tmp_path / "killed", "a test")
    assert (killed.path / "state.db-wal").stat().st_size
    done = await put_back(killed, tmp_path / "b")
    assert words_in(killed.database) == ["swordfish"]
    assert words_in(done.aside / "state.db") == ["only in the log"]


async def test_the_newest_whole_one_is_taken(home: Home, tmp_path: Path) -> None:
    await filled(home)
    folder = tmp_path / "all"
    folder.mkdir()
    good = await made(home, str(folder), NOW)
    damaged = await made(home, str(folder), NOW + 86_400)
    other = await made(home, str(folder), NOW + 2 * 86_400)
    with open(damaged.backup.path / "state.db", "r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    (other.backup.path / MANIFEST).write_text("{")
    chosen = await asyncio.to_thread(choose, folder, TOOLS)
    assert chosen.folder == good.backup.path
    assert [damaged.backup.path.name in line for line in chosen.passed_over] == [True]
    with pytest.raises(StoreUnavailable, match="damaged"):
        choose(damaged.backup.path, TOOLS)


async def test_another_database_in_a_backup_is_noticed(home: Home, tmp_path: Path) -> None:
    await filled(home)
    await made(home, str(tmp_path / "b"))
    await filled(home, "herring")
    await made(home, str(tmp_path / "x.db"))
    os.replace(tmp_path / "x.db", tmp_path / "b/state.db")
    with pytest.raises(PosthouseError, match="not the one"):
        choose(tmp_path / "b", TOOLS)
    assert choose(tmp_path / "b/state.db", TOOLS).folder is None


@pytest.mark.parametrize("content", [b"", b"garbage " * 1000])
async def test_what_is_no_backup_changes_nothing(
    home: Home, tmp_path: Path, content: bytes
) -> None:
    await filled(home)
    (tmp_path / "x.db").write_bytes(content)
    (tmp_path / "empty").mkdir()
    for source in ("x.db", "empty", "none"):
        with pytest.raises(PosthouseError):
            choose(tmp_path / source, TOOLS)
    assert words_in(home.database) == ["swordfish"]


class Killed(BaseException):
    """The process ends here."""


def killed_at(n: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The n-th rename of what moves in does not happen any more."""
    count = 0
    rename = os.rename

    def counted(source: str | Path, target: str | Path) -> None:
        nonlocal count
        count += 1
        if count == n:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(moving_in.os, "rename", counted)
    return lambda: count


@pytest.mark.parametrize("n", range(1, 12))
async def test_a_restore_that_is_killed_at_each_of_its_moves(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    await filled(home)
    await made(home, str(tmp_path / "b"))
    await filled(home, "herring")
    with monkeypatch.context() as patch:
        count = killed_at(n, patch)
        try:
            await put_back(home, tmp_path / "b")
        except Killed:
            pass
        else:
            assert count() < n
    planned = moving_in.is_pending(home.path)
    with claimed(home.path, home.lock):  # as the daemon does, or the next restore
        pass
    assert words_in(home.database) == (
        ["swordfish"] if planned or n > 9 else ["swordfish", "herring"]
    )
    assert not (home.path / moving_in.STAGING).exists()
    assert (home.path / "workspace/me/note.md").exists()
    if planned:
        (aside,) = home.path.glob("replaced-*")
        assert words_in(aside / "state.db") == ["swordfish", "herring"]


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def here(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("POSTHOUSE_HOME", str(home.path))
    return home


def cli(*arguments: str) -> int:
    return main(arguments)


def test_the_commands(here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("backup", str(tmp_path / "b")) == 1
    assert "nothing is stored yet" in capsys.readouterr().err
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b"), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["path"], facts["counts"]["messages"]) == (str(tmp_path / "b"), 2)
    assert [b.kind for b in kept(here)] == ["elsewhere"]
    assert cli("backup", str(tmp_path / "x.db")) == 0
    assert "not in it" in capsys.readouterr().out
    assert cli("backup") == 0
    assert "written and checked" in capsys.readouterr().out
    assert [b.path.parent for b in within(folder_of(here))] == [folder_of(here)]
    asyncio.run(filled(here, "herring"))
    assert cli("restore", str(tmp_path / "b")) == 1
    assert "--yes" in capsys.readouterr().err
    assert words_in(here.database) == ["swordfish", "herring"]
    assert cli("restore", "--yes") == 0
    assert "put back: state.db" in capsys.readouterr().out
    assert words_in(here.database) == ["swordfish"]
    assert cli("restore", str(here.database), "--yes") == 1
    assert "part of the home itself" in capsys.readouterr().err


def test_a_restore_under_a_daemon(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b")) == 0
    with claimed(here.path, here.lock):
        assert cli("restore", str(tmp_path / "b"), "--yes") == 73
        assert cli("backup", str(tmp_path / "c")) == 0
    said = capsys.readouterr().err
    assert "systemctl stop posthouse" in said
    assert "Nothing was changed" in said
    with pytest.raises(HomeInUse), claimed(here.path, here.lock), claimed(here.path, here.lock):
        pass


def test_a_backup_of_the_future(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "x.db")) == 0
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        db.execute("PRAGMA user_version = 999")
    assert cli("restore", str(tmp_path / "x.db"), "--yes") == 78
    assert "newer" in capsys.readouterr().err
    assert words_in(here.database) == ["swordfish"]


def test_a_file_that_is_no_database_needs_a_person(
    here: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """78: the service manager does not start it again for ever."""
    here.path.mkdir(exist_ok=True)
    here.database.write_bytes(b"garbage " * 1000)
    assert cli("sessions", "list") == 78
    assert "posthouse restore" in capsys.readouterr().err


def test_a_restore_that_was_cut_off_is_finished_by_running_it_again(
    here: Home,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b")) == 0
    asyncio.run(filled(here, "herring"))
    with monkeypatch.context() as patch:
        killed_at(4, patch)
        with pytest.raises(Killed):
            cli("restore", str(tmp_path / "b"), "--yes")
    assert cli("backup", str(tmp_path / "c")) == 1
    assert "cut off" in capsys.readouterr().err
    assert cli("restore", str(tmp_path / "b"), "--yes") == 0
    assert "is finished" in capsys.readouterr().out
    assert words_in(here.database) == ["swordfish"]
    assert len(list(here.path.glob("replaced-*"))) == 1


@pytest.mark.parametrize("version", ["0001_first", "0002_people_and_places", "0003_memory"])
async def test_a_backup_of_an_older_version(home: Home, tmp_path: Path, version: str) -> None:
    """It comes back as it is; the next start brings it up to date."""
    golden = Path(__file__).parents[2] / "golden" / f"{version}.db.gz"
    (tmp_path / "old.db").write_bytes(gzip.decompress(golden.read_bytes()))
    before = words_in(tmp_path / "old.db")
    await put_back(home, tmp_path / "old.db")
    assert words_in(home.database) == before
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    assert await store.owed() == []
    await talk(store, said("on it goes"))
    await store.close()
    check_invariants(home.database)


def test_a_home_behind_a_link(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As systemd has it for users that it makes up: /var/lib/posthouse leads elsewhere."""
    asyncio.run(filled(home))
    (tmp_path / "link").symlink_to(home.path)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "link"))
    monkeypatch.delenv("POSTHOUSE_HOME", raising=False)
    assert cli("backup") == 0
    assert [backup.kind for backup in kept(home)] == ["kept"]
    asyncio.run(filled(home, "herring"))
    assert cli("restore", "--yes") == 0
    assert words_in(home.database) == ["swordfish"]
    assert cli("restore", str(tmp_path / "link/attachments"), "--yes") == 1
    assert "part of the home itself" in capsys.readouterr().err
    (aside,) = (tmp_path / "link").glob("replaced-*")
    assert cli("restore", str(aside), "--yes") == 0
    assert words_in(home.database) == ["swordfish", "herring"]


# --- whoever was forgotten since ------------------------------------------------------------------


async def forgotten_in(home: Home, owner: str, *, finished: bool = True) -> None:
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    await store.begin_forgetting(owner)
    await store.erase(owner)
    if finished:
        await store.finish_forgetting(owner)
    await store.close()


async def erased_at_the_next_start(home: Home) -> list[str]:
    store = await open_store(home.database, clock=SystemClock(), ids=RandomIds())
    desk = ForgettingDesk(
        store, leavings_of(home, store, kept_files(home, store)), SystemClock(), lambda: UTC
    )
    wishes = [request.owner for request in await store.forgetting()]
    await desk.resume()
    assert await desk.idle(20)
    assert await store.forgetting() == []
    await store.close()
    return wishes


@pytest.mark.parametrize("finished", [True, False])
def test_whoever_was_forgotten_since_is_forgotten_again(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], finished: bool
) -> None:
    """They came back without a word of it."""
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b")) == 0
    asyncio.run(forgotten_in(here, OWNER, finished=finished))
    assert cli("restore", str(tmp_path / "b"), "--yes") == 0
    said = capsys.readouterr().out
    assert f"Forgotten since it was made, and in it: {OWNER}" in said
    assert "The next start forgets them again" in said
    assert words_in(here.database) == ["swordfish"]
    assert asyncio.run(erased_at_the_next_start(here)) == [OWNER]
    assert "swordfish" not in words_in(here.database)
    check_invariants(here.database)
    # A backup of now knows it, and so does the store that was put back.
    assert cli("backup", str(tmp_path / "c")) == 0
    assert cli("restore", str(tmp_path / "c"), "--yes") == 0
    assert "Forgotten" not in capsys.readouterr().out
    assert cli("restore", str(tmp_path / "b"), "--yes") == 0
    assert "Forgotten since" in capsys.readouterr().out


def test_they_come_back_if_that_is_what_is_wanted(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b.db")) == 0
    asyncio.run(forgotten_in(here, OWNER))
    assert cli("restore", str(tmp_path / "b.db"), "--yes", "--with-forgotten") == 0
    assert f"  posthouse forget {OWNER}" in capsys.readouterr().out
    assert asyncio.run(erased_at_the_next_start(here)) == []
    assert words_in(here.database) == ["swordfish"]


def test_whom_a_backup_does_not_hold_is_not_named(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b")) == 0
    asyncio.run(forgotten_in(here, "telegram:404"))
    assert cli("restore", str(tmp_path / "b"), "--yes") == 0
    assert "Forgotten" not in capsys.readouterr().out


def test_where_nobody_can_tell_it_is_said(
    here: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(filled(here))
    assert cli("backup", str(tmp_path / "b")) == 0
    here.database.write_bytes(b"garbage " * 1000)
    assert cli("restore", str(tmp_path / "b"), "--yes") == 0
    assert "can not be told" in capsys.readouterr().out
    assert words_in(here.database) == ["swordfish"]
