"""Owns a home on a disk that can only be read: what is on it is shown, and copied elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.config.environment import Home
from storage.upkeep import examine
from tests.fakes.disks import small_disk
from tests.unit.gateway.backup_rig import filled, new_home, words_in

ROOT = Path(__file__).parents[2]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 12) as disk:
        yield disk


def posthouse(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    temporary = home.parent.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    env = {**os.environ, "POSTHOUSE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env={**env, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert os.listdir(temporary) == [], "a copy was left behind"
    return done


def turned_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


async def home_on(disk: Path, *, log: str) -> Path:
    """``log``: "none", "left" (a crash left it) or "alone" (and the other file is gone)."""
    home: Home = new_home(disk)
    await filled(home)
    if log != "none":
        killed = disk / "killed"
        with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute("UPDATE messages SET content = 'only in the log' WHERE role = 'assistant'")
            shutil.copytree(home.path, killed)
        shutil.rmtree(home.path)
        killed.rename(home.path)
        assert (home.path / "state.db-wal").stat().st_size
    if log == "alone":
        (home.path / "state.db-shm").unlink()
    return home.path


@pytest.mark.parametrize("log", ["none", "left", "alone"])
async def test_what_is_there_can_be_read_and_rescued(disk: Path, tmp_path: Path, log: str) -> None:
    home = await home_on(disk, log=log)
    turned_read_only(disk)
    word = "swordfish" if log == "none" else "only in the log"
    listed = posthouse(home, "sessions", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    session = json.loads(listed.stdout)[0]["id"]
    for arguments in (
        ("sessions", "show", session),
        ("sessions", "search", word),
        ("sessions", "export", session, "--output", str(tmp_path / "one.jsonl")),
        ("lineage", session),
        ("usage",),
    ):
        done = posthouse(home, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    assert word in (tmp_path / "one.jsonl").read_text()
    for target in ("backup", "one.db"):
        done = posthouse(home, "backup", str(tmp_path / target))
        assert done.returncode == 0, done.stderr
    for database in (tmp_path / "backup/state.db", tmp_path / "one.db"):
        assert words_in(database) == [word]
        assert examine(database, thorough=True).sound
    assert len(os.listdir(tmp_path / "backup/attachments")) == 1


async def test_the_log_of_a_linked_database_is_not_missed(disk: Path, tmp_path: Path) -> None:
    """It was looked for beside the link, and the copy had nothing of it."""
    home = await home_on(disk, log="alone")
    (disk / "linked").mkdir()
    for file in home.glob("state.db*"):
        file.rename(disk / "linked" / file.name)
    (home / "state.db").symlink_to(disk / "linked" / "state.db")
    turned_read_only(disk)
    done = posthouse(home, "backup", str(tmp_path / "one.db"))
    assert done.returncode == 0, done.stderr
    assert words_in(tmp_path / "one.db") == ["only in the log"]


async def test_a_backup_on_a_medium_that_is_read_only_is_put_back(
    disk: Path, tmp_path: Path
) -> None:
    """Also one that somebody made by copying the files."""
    raw = await home_on(disk, log="alone")
    turned_read_only(disk)
    there = new_home(tmp_path)
    done = posthouse(there.path, "restore", str(raw / "state.db"), "--yes")
    assert done.returncode == 0, done.stderr
    assert words_in(there.database) == ["only in the log"]


@pytest.mark.parametrize("arguments", [("backup",), ("run",), ("sessions", "import", "x.jsonl")])
async def test_what_has_to_write_says_that_it_is_read_only(
    disk: Path, arguments: tuple[str, ...]
) -> None:
    home = await home_on(disk, log="none")
    turned_read_only(disk)
    (home.parent.parent / "x.jsonl").write_text("{}\n")
    done = posthouse(home, *(str(home.parent.parent / a) if "." in a else a for a in arguments))
    assert done.returncode != 0
    assert "read-only" in done.stderr.lower()
