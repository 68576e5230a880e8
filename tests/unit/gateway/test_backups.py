"""Owns the tests of backups: what is in one, where it may go, what fails in the middle."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import PosthouseError
from agent.tools.clearing import delete
from gateway.backups.destination import destination
from gateway.backups.making import make, tidy
from gateway.backups.shelf import MANIFEST, folder_of, kept, manifest_of, note_elsewhere, within
from gateway.backups.trees import copy_tree
from gateway.cli.main import main
from gateway.config.environment import Home
from tests.unit.gateway.backup_rig import NOW, TOOLS, filled, made, new_home, put_back, words_in


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


async def test_what_is_in_a_backup(home: Home, tmp_path: Path) -> None:
    name = await filled(home)
    result = await made(home, str(tmp_path / "b"))
    folder = tmp_path / "b"
    assert sorted(os.listdir(folder)) == sorted(
        [MANIFEST, "attachments", "config.yaml", "hermes", "plugins", "state.db", "workspace"]
    )
    assert words_in(folder / "state.db") == ["swordfish"]
    assert (folder / "attachments" / name).read_bytes() == b"bytes of swordfish"
    assert (folder / "workspace/me/note.md").read_text() == "swordfish"
    facts = manifest_of(folder)
    assert facts is not None
    assert (facts["counts"]["messages"], facts["attachments"]) == (2, 1)
    assert facts["database_sha256"] == result.sha256
    for path in folder.rglob("*"):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
            assert path.is_dir() or b"sk-secret" not in path.read_bytes()


async def test_files_are_linked_where_that_is_possible(home: Home, tmp_path: Path) -> None:
    name = await filled(home)
    await made(home, str(tmp_path / "b"))
    assert (home.attachments / name).samefile(tmp_path / "b" / "attachments" / name)


async def test_a_file_that_is_gone_is_counted(home: Home, tmp_path: Path) -> None:
    name = await filled(home)
    (home.attachments / name).unlink()
    result = await made(home, str(tmp_path / "b"))
    assert (result.attachments, result.missing_attachments) == (0, 1)


async def test_where_it_goes(home: Home, tmp_path: Path) -> None:
    await filled(home)
    (tmp_path / "there").mkdir()
    first = await made(home, str(tmp_path / "there"))
    second = await made(home, str(tmp_path / "there"))
    assert first.backup.path.parent == second.backup.path.parent == tmp_path / "there"
    assert [b.path for b in within(tmp_path / "there")] != []
    assert len(within(tmp_path / "there")) == 2
    alone = await made(home, str(tmp_path / "x.db"))
    assert alone.alone
    again = await made(home, str(tmp_path / "x.db"))  # yesterday's is replaced
    assert again.backup.path == tmp_path / "x.db"
    for made_again in (alone, again):
        note_elsewhere(home, made_again.backup)
    assert [b for b in kept(home) if b.path.suffix] == [replace(again.backup, kind="elsewhere")]
    assert stat.S_IMODE((tmp_path / "x.db").stat().st_mode) == 0o600
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("home/state.db", "inside the home"),
        ("home/attachments", "inside the home"),
        ("home", "inside the home"),
        ("home/hermes/x.db", "inside the home"),
        ("nowhere/b", "is not there"),
        ("a file", "no folder"),
        ("a file.db", "no database"),
        ("a pipe.db", "no file"),
        ("link/x", "inside the home"),
        ("x" * 300, "can be no place"),
        ("~nobody_of_this_name/b", "can be no place"),
    ],
)
def test_where_none_may_go(home: Home, tmp_path: Path, named: str, words: str) -> None:
    for name in ("a file", "a file.db"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link").symlink_to(home.path)
    os.mkfifo(tmp_path / "a pipe.db")
    where = named if named.startswith("~") else f"{tmp_path}/{named}"
    with pytest.raises(PosthouseError, match=words):
        destination(home, where, "d")
    assert (tmp_path / "a file.db").read_text() == "mine"


async def test_none_goes_into_another(home: Home, tmp_path: Path) -> None:
    """A name that is used every week: who restores from it would get that of the first."""
    await filled(home)
    await made(home, str(tmp_path / "monday"))
    with pytest.raises(PosthouseError, match="is a backup already"):
        await made(home, str(tmp_path / "monday"))


async def test_two_that_are_made_in_the_same_second_are_two(home: Home, tmp_path: Path) -> None:
    await filled(home)
    where = destination(home, str(tmp_path), "d")  # both look before either is there
    both = [await asyncio.to_thread(make, home, where, TOOLS, NOW) for _ in range(2)]
    assert [made.backup.path for made in both] == [tmp_path / "d", tmp_path / "d-2"]
    assert len(within(tmp_path)) == 2


async def test_one_that_is_tidied_away_as_it_begins_begins_again(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(home)
    real, times = Path.mkdir, 0

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        nonlocal times
        real(self, mode, parents, exist_ok)
        if self.name.startswith(".posthouse-") and times < 2:
            times += 1
            tidy(self.parent)  # another process, before the folder is held

    monkeypatch.setattr(Path, "mkdir", mkdir)
    done = await made(home, str(tmp_path / "b"))
    assert times == 2
    assert done.backup.path == tmp_path / "b"


async def test_a_database_of_others_or_in_use_is_not_replaced(home: Home, tmp_path: Path) -> None:
    await filled(home)
    bookmarks, other = tmp_path / "places.sqlite", tmp_path / "elsewhere"
    with closing(sqlite3.connect(bookmarks)) as db, db:
        db.execute("CREATE TABLE bookmarks (x)")
    other.mkdir()
    await filled(new_home(other))
    in_use = other / "home/state.db"
    with closing(sqlite3.connect(in_use)) as db:
        db.execute("SELECT count(*) FROM messages").fetchone()
        for path in (bookmarks, in_use):
            before = path.read_bytes()
            with pytest.raises(PosthouseError, match="no old copy of ours"):
                await made(home, str(path))
            assert path.read_bytes() == before


async def test_what_fails_in_the_middle_leaves_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(home)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.backups.making.copy_tree", full)
    before = set(os.listdir(tmp_path))
    with pytest.raises(PosthouseError, match="No space left"):
        await made(home, str(tmp_path / "b"))
    assert set(os.listdir(tmp_path)) == before


async def test_what_a_kill_left_is_tidied_and_what_is_being_made_is_not(
    home: Home, tmp_path: Path
) -> None:
    await filled(home)
    left = tmp_path / ".posthouse-0123.part"
    left.mkdir()
    (left / "state.db").write_text("half")
    mine = tmp_path / ".something.part"
    mine.mkdir()
    alive = tmp_path / ".posthouse-4567.part"
    alive.mkdir()
    holder = os.open(alive, os.O_RDONLY)
    import fcntl

    fcntl.flock(holder, fcntl.LOCK_EX)
    tidy(tmp_path)
    os.close(holder)
    assert (left.exists(), mine.exists(), alive.exists()) == (False, True, True)
    assert within(tmp_path) == []


# --- files of others ------------------------------------------------------------------------------


def test_databases_of_others_are_copied_by_sqlite(tmp_path: Path) -> None:
    source = tmp_path / "hermes"
    source.mkdir()
    with closing(sqlite3.connect(source / "vault", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES ('only in the log')")
        (source / "text.db").write_text("no database")
        (source / "empty.db").touch()
        (source / "run.sh").write_text("#!/bin/sh")
        (source / "run.sh").chmod(0o755)
        (source / "link").symlink_to("../elsewhere")
        os.mkfifo(source / "pipe")
        taken = copy_tree(source, tmp_path / "copy")
        db.execute("INSERT INTO t VALUES ('later')")  # its locks are as they were
    assert taken.left_out == []
    copy = tmp_path / "copy"
    assert sorted(os.listdir(copy)) == ["empty.db", "link", "run.sh", "text.db", "vault"]
    with closing(sqlite3.connect(copy / "vault")) as db:
        assert db.execute("SELECT x FROM t").fetchall() == [("only in the log",)]
    assert os.readlink(copy / "link") == "../elsewhere"
    assert stat.S_IMODE((copy / "run.sh").stat().st_mode) == 0o700


@pytest.mark.parametrize("size", [0, 1, 2, 100, 511, 512, 5000])
def test_what_is_no_database_is_copied_byte_by_byte(tmp_path: Path, size: int) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "flag").write_bytes(b"1" * size)
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy" / "flag").read_bytes() == b"1" * size


def test_a_broken_database_of_others_is_taken_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "hermes"
    source.mkdir()
    with closing(sqlite3.connect(source / "vault.db")) as db, db:
        db.execute("CREATE TABLE t (x)")
    whole = (source / "vault.db").read_bytes()
    (source / "vault.db").write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    copy_tree(source, tmp_path / "copy")
    assert (tmp_path / "copy/vault.db").read_bytes()[100:] == b"\xff" * (len(whole) - 100)


async def test_what_plugins_keep_elsewhere_in_the_home(home: Home, tmp_path: Path) -> None:
    await filled(home)
    (home.path / "vault").mkdir()
    (home.path / "vault/notes.txt").write_text("kept")
    also = [home.path / "vault", home.database, tmp_path / "elsewhere", home.path]
    where = destination(home, str(tmp_path / "b"), "d")
    result = await asyncio.to_thread(make, home, where, TOOLS, NOW, also=also)
    assert (tmp_path / "b/vault/notes.txt").read_text() == "kept"
    assert "vault" in result.beside
    assert result.left_out == (str(tmp_path / "elsewhere"),)
    (home.path / "vault/notes.txt").write_text("changed")
    await put_back(home, tmp_path / "b")
    assert (home.path / "vault/notes.txt").read_text() == "kept"


async def test_nobody_is_in_them_for_sure_of_whom_nothing_was_held(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await filled(home)
    await made(home, str(folder_of(home)))
    monkeypatch.setenv("POSTHOUSE_HOME", str(home.path))
    assert await asyncio.to_thread(main, ["forget", "telegram:999", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "erased: nothing\nwhat was held before may be in these backups" in said
    assert "still hold it" not in said


@pytest.mark.parametrize(("depth", "name"), [(1500, "a"), (30, "n" * 200)])
def test_what_lies_too_deep_is_left_out_and_said(tmp_path: Path, depth: int, name: str) -> None:
    """A command in a workspace can make such folders; the rest must be saved all the same."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    at = os.open(source, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    try:
        taken = copy_tree(source, tmp_path / "copy")
    finally:
        delete(source)  # pytest could not
    assert (tmp_path / "copy" / "file").read_text() == "x"
    assert taken.files == 1
    [said] = taken.left_out
    assert len(said) < 300
    assert said.startswith(f"source/{name}"[:100])


def test_a_folder_that_is_closed_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source" / "shut").mkdir(parents=True)
    (tmp_path / "source" / "file").write_text("x")

    def scandir(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(errno.EACCES, "also where the tests run as root", str(path))
        return os_scandir(path)

    os_scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    taken = copy_tree(tmp_path / "source", tmp_path / "copy")
    assert (taken.files, taken.left_out) == (1, ["source/shut"])
