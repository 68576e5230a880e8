"""Owns disks that are full, read-only, or both by and by: nothing half, clear words, on it goes."""

# ruff: noqa: ASYNC221 - nothing else runs on the loop meanwhile

from __future__ import annotations

import asyncio
import gzip
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.clock import RandomIds, SystemClock
from agent.errors import PosthouseError, StoreUnavailable
from gateway.backups.shelf import folder_of, within
from gateway.config.environment import Home
from gateway.wiring.kept_files import kept_files
from storage.sqlite import open_store
from storage.store import SqlStore
from storage.upkeep import check_file
from tests.contract.inbox_suite import inbound
from tests.contract.store_suite import OWNER, begin, said, split_of, talk
from tests.fakes.disks import fail, failing_disk, fill, small_disk
from tests.fakes.store_invariants import check_invariants
from tests.unit.gateway.backup_rig import TOOLS, filled, made, put_back, words_in

ROOT = Path(__file__).parents[2]
LARGE = "x" * 200_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 12) as disk:
        yield disk


async def opened(path: Path) -> SqlStore:
    return await open_store(path, clock=SystemClock(), ids=RandomIds())


def everything(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return [
            *db.execute("SELECT id, session_id, active, content FROM messages ORDER BY id"),
            *db.execute("SELECT id, state FROM inbox ORDER BY id"),
            *db.execute("SELECT id, ended_at FROM sessions ORDER BY serial"),
        ]


async def append(store: SqlStore) -> None:
    ticket = await begin(store, "more")
    await store.append(ticket, ticket.session_id, tuple(said(f"{n}{LARGE}") for n in range(40)))


async def split(store: SqlStore) -> None:
    (info, *_) = await store.list_sessions()
    loaded = await store.load(info.id)
    await store.split(split_of(loaded, *(said(f"{n}{LARGE}") for n in range(20))))


async def accept(store: SqlStore) -> None:
    for n in range(40):
        await store.accept(inbound(n, text=LARGE))


Write = Callable[[SqlStore], Awaitable[None]]


@pytest.mark.parametrize("write", [append, split, accept])
async def test_a_full_disk_takes_nothing_half_and_then_everything(disk: Path, write: Write) -> None:
    path = disk / "state.db"
    store = await opened(path)
    await talk(store, *(said(f"word {n}") for n in range(20)))
    filler = fill(disk, but=100_000)
    with pytest.raises(StoreUnavailable):
        await write(store)
    trouble = store.trouble()
    assert trouble is not None
    assert "full" in trouble or "I/O" in trouble
    after = everything(path)
    assert len([row for row in after if row[-1] and "word" in str(row[-1])]) == 20
    check_invariants(path)
    filler.unlink()
    await talk(store, said("room again"), text="u2")
    assert store.trouble() is None
    await store.close()
    check_invariants(path)
    assert check_file(path, thorough=True) == []


async def test_a_migration_without_room_has_not_begun(disk: Path) -> None:
    path = disk / "state.db"
    path.write_bytes(gzip.decompress((ROOT / "tests/golden/0001_first.db.gz").read_bytes()))
    before = path.read_bytes()
    filler = fill(disk)
    with pytest.raises(StoreUnavailable):
        await opened(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert path.read_bytes()[96:] == before[96:]
    filler.unlink()
    store = await opened(path)
    await talk(store, said("room again"))
    await store.close()
    check_invariants(path)


async def test_a_file_without_room_is_not_kept(disk: Path) -> None:
    home = Home(disk, "a test")
    store = await opened(home.database)
    files = kept_files(home, store)
    filler = fill(disk, but=50_000)
    with pytest.raises(StoreUnavailable, match="can not be kept"):
        await files.keep(bytes(400_000), owner=OWNER, file_name="a", media_type="text/plain")
    assert os.listdir(home.attachments) == []
    filler.unlink()
    kept = await files.keep(bytes(400_000), owner=OWNER, file_name="a", media_type="text/plain")
    assert await files.read(kept.name) == bytes(400_000)
    await store.close()


async def test_no_room_to_write_the_file_anew(
    disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = disk / "state.db"
    store = await opened(path)
    await talk(store, *(said(f"{n}{LARGE}") for n in range(10)))
    await store.shorten_log()
    filler = fill(disk, but=1_000_000)
    assert not await store.rewrite_file()
    assert "are needed" in caplog.text
    # And if somebody else takes the room meanwhile:
    monkeypatch.setattr("storage.rewriting.lacking_room", lambda connection: None)
    caplog.clear()
    assert not await store.rewrite_file()
    assert "not written anew" in caplog.text
    filler.unlink()
    await talk(store, said("on it goes"), text="u2")
    assert await store.rewrite_file()
    await store.close()
    check_invariants(path)


@pytest.mark.parametrize("noticed_before", [True, False])
async def test_a_backup_without_room_leaves_nothing(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, noticed_before: bool
) -> None:
    (tmp_path / "home").mkdir()
    home = Home(tmp_path / "home", "a test")
    await filled(home)
    if not noticed_before:
        monkeypatch.setattr("gateway.backups.making._refuse_without_room", lambda *_, **__: None)
    filler = fill(disk, but=100_000)
    for target in ("b", "x.db"):
        with pytest.raises(PosthouseError, match="MB free" if noticed_before else "full|space"):
            await made(home, str(disk / target))
    assert os.listdir(disk) == ["filler"]
    filler.unlink()
    monkeypatch.setattr("gateway.backups.making.SPARE_BYTES", 0)
    await made(home, str(disk / "b"))
    assert [backup.path for backup in within(disk)] == [disk / "b"]


@pytest.mark.parametrize("noticed_before", [True, False])
async def test_a_restore_without_room_changes_nothing(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, noticed_before: bool
) -> None:
    home = Home(disk / "home", "a test")
    home.path.mkdir()
    await filled(home)
    await made(home, str(tmp_path / "b"))
    await filled(home, "herring")
    names = sorted(os.listdir(home.path))
    if not noticed_before:
        monkeypatch.setattr("gateway.backups.restoring._refuse_without_room", lambda *_: None)
    filler = fill(disk, but=100_000)
    with pytest.raises(PosthouseError):
        await put_back(home, tmp_path / "b")
    assert sorted({*os.listdir(home.path)} - {"posthouse.lock"}) == names
    assert words_in(home.database) == ["swordfish", "herring"]
    filler.unlink()
    monkeypatch.setattr("gateway.backups.restoring.SPARE_BYTES", 0)
    await put_back(home, tmp_path / "b")
    assert words_in(home.database) == ["swordfish"]


async def test_a_disk_that_turns_read_only(tmp_path: Path) -> None:
    with failing_disk(tmp_path / "disk") as disk:
        path = disk / "state.db"
        store = await opened(path)
        loaded = await talk(store, said("x"))
        fail(disk)
        with pytest.raises(StoreUnavailable):
            await begin(store, "more")
        assert store.trouble() is not None
        assert await store.load(loaded.session.id) == loaded  # what is there can be read
        await store.close()
        left = tmp_path / "left"
        left.mkdir()
        for name in os.listdir(disk):
            if name.startswith("state.db"):
                (left / name).write_bytes((disk / name).read_bytes())
    store = await opened(left / "state.db")
    assert await store.load(loaded.session.id) == loaded
    await store.close()
    check_invariants(left / "state.db")


def posthouse(home: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "POSTHOUSE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        **{
            "cwd": ROOT,
            "env": env,
            "capture_output": True,
            "text": True,
            "timeout": 60,
            "check": False,
            **options,
        },  # type: ignore[call-overload]
    )


@pytest.fixture
def larger(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "larger", 64) as larger:
        yield larger


async def test_a_home_that_can_only_be_read(larger: Path) -> None:
    home = Home(larger / "home", "a test")
    home.path.mkdir()
    await filled(home)
    await made(home, str(folder_of(home)))
    subprocess.run(["mount", "-o", "remount,ro", str(larger)], check=True)
    for arguments in (("run",), ("restore", "--yes"), ("backup",)):
        done = await asyncio.to_thread(posthouse, home.path, *arguments)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert str(home.path) in done.stderr
        assert "ead-only" in done.stderr, done.stderr
    listed = await asyncio.to_thread(posthouse, home.path, "sessions", "list")
    assert "Traceback" not in listed.stderr


async def test_a_log_without_room_stops_nobody(tmp_path: Path, disk: Path) -> None:
    fill(disk)
    with (disk / "filler").open("a") as log:
        done = await asyncio.to_thread(
            posthouse,
            tmp_path / "home",
            "chat",
            input="hello\n",
            capture_output=False,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert done.returncode == 0
    assert "offline model" in done.stdout


async def test_the_nightly_one_names_what_is_free(disk: Path) -> None:
    from agent.llm.background import in_daemon_thread
    from gateway.backups.nightly import Nightly

    home = Home(disk / "home", "a test")
    home.path.mkdir()
    await filled(home)
    filler = fill(disk, but=100_000)
    night = Nightly(home, TOOLS, SystemClock(), in_daemon_thread)
    with pytest.raises(PosthouseError, match="less than twice"):
        await night.run()
    filler.unlink()
    assert within(folder_of(home)) == []
