"""The folder of files: what a crash, a full disk, a planted link or a rotten disk may do to it."""

# ruff: noqa: ASYNC240 - the folder is what is tested; nothing else runs meanwhile

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from agent.attachments import StoredFile
from agent.errors import StoreUnavailable
from agent.llm.background import in_daemon_thread
from storage import faultpoint
from storage.attachments import SWEEP_AFTER_SECONDS, FolderAttachments, name_of
from storage.sqlite import open_store
from storage.store import SqlStore
from tests.contract.attachment_suite import OWNER, PNG, keep
from tests.fakes.clock import FakeClock, SequentialIds

T = TypeVar("T")
NAME = name_of(PNG, "image/png")


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock, ids: SequentialIds) -> AsyncIterator[SqlStore]:
    store = await open_store(tmp_path / "state.db", clock=clock, ids=ids)
    yield store
    await store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def files(folder: Path, store: SqlStore, clock: FakeClock) -> FolderAttachments:
    return FolderAttachments(folder, store, clock, in_daemon_thread)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


async def test_folder_and_files_are_their_owners_alone(
    files: FolderAttachments, folder: Path
) -> None:
    old = os.umask(0)
    try:
        kept = await keep(files)
    finally:
        os.umask(old)
    assert (mode(folder), mode(folder / kept.name)) == (0o700, 0o600)
    assert names(folder) == {kept.name}
    folder.chmod(0o755)
    await keep(files, b"another")
    assert mode(folder) == 0o700


async def test_nothing_is_made_before_the_first_file(
    files: FolderAttachments, folder: Path
) -> None:
    assert await files.find(NAME) is None
    assert await files.sweep() == 0
    assert not folder.exists()


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_is_full_in_the_middle(
    files: FolderAttachments, folder: Path, store: SqlStore
) -> None:
    await keep(files)
    data = os.urandom(3_000_000)
    with files_of_at_most(1_000_000), pytest.raises(StoreUnavailable, match="can not be kept"):
        await keep(files, data)
    assert names(folder) == {NAME}
    assert await store.known_files([name_of(data, "image/png")]) == set()
    kept = await keep(files, data)
    assert await files.read(kept.name) == data


async def test_a_folder_that_can_not_be_made(
    store: SqlStore, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "in the way").write_text("a file")
    for folder in (
        tmp_path / "in the way",
        tmp_path / "in the way" / "files",
        tmp_path / "a" / "b",
    ):
        files = FolderAttachments(folder, store, clock, in_daemon_thread)
        with pytest.raises(StoreUnavailable, match="can not be kept"):
            await keep(files)
        assert await files.find(NAME) is None
        assert await files.sweep() == 0


async def test_a_folder_that_was_taken_away(files: FolderAttachments, folder: Path) -> None:
    await keep(files)
    (folder / NAME).unlink()
    folder.rmdir()
    with pytest.raises(LookupError):
        await files.read(NAME)
    await keep(files)
    assert await files.read(NAME) == PNG


@pytest.mark.parametrize("data", [b"", PNG[:-1], PNG + b"x", PNG[:-1] + b"x"])
async def test_a_rotten_file_is_gone_until_it_is_sent_again(
    files: FolderAttachments, folder: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(files)
    (folder / NAME).write_bytes(data)
    with pytest.raises(LookupError):
        await files.read(NAME)
    assert "a kept file is gone or damaged" in caplog.text
    await keep(files)
    assert await files.read(NAME) == PNG


async def test_a_link_is_not_followed(
    files: FolderAttachments, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(PNG)
    await keep(files)
    (folder / NAME).unlink()
    (folder / NAME).symlink_to(elsewhere)
    with pytest.raises(LookupError):
        await files.read(NAME)
    elsewhere.write_bytes(b"mine")
    await keep(files)
    assert elsewhere.read_bytes() == b"mine"
    assert await files.read(NAME) == PNG
    assert not (folder / NAME).is_symlink()


async def test_a_folder_in_the_way(files: FolderAttachments, folder: Path) -> None:
    (folder / NAME / "inside").mkdir(parents=True)
    with pytest.raises(StoreUnavailable):
        await keep(files)
    assert names(folder) == {NAME}
    assert await files.find(NAME) is None


@pytest.mark.parametrize("thing", ["pipe", "socket", "folder"])
async def test_what_is_no_file_is_neither_read_nor_waited_for(
    files: FolderAttachments, folder: Path, thing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(files)
    (folder / NAME).unlink()
    match thing:
        case "pipe":
            os.mkfifo(folder / NAME)
        case "socket":
            monkeypatch.chdir(folder)  # the path of a socket is short
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(NAME)
        case _:
            (folder / NAME).mkdir()
    with pytest.raises(LookupError):
        await asyncio.wait_for(files.read(NAME), 20)


async def test_a_file_that_nobody_entered_is_no_file(
    files: FolderAttachments, folder: Path
) -> None:
    folder.mkdir()
    (folder / NAME).write_bytes(PNG)
    with pytest.raises(LookupError):
        await files.read(NAME)
    await keep(files)
    assert await files.read(NAME) == PNG


async def test_no_row_without_the_store(
    files: FolderAttachments, folder: Path, store: SqlStore
) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await keep(files)
    assert names(folder) == {NAME}  # nobody knows it, so it goes with a sweep


async def test_a_kept_file_is_not_written_again(files: FolderAttachments, folder: Path) -> None:
    await keep(files)
    before = (folder / NAME).stat().st_ino
    await keep(files, owner="discord:9")
    assert (folder / NAME).stat().st_ino == before


# --- the sweep ----------------------------------------------------------------------------------


async def test_what_a_crash_left_goes_after_a_day(
    files: FolderAttachments, folder: Path, clock: FakeClock, store: SqlStore
) -> None:
    await keep(files)
    unknown, unfinished = "0" * 32 + ".pdf", f".{'a' * 32}.part"
    stranger, nested = "notes.txt", "1" * 32
    for name in (unknown, unfinished, stranger):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (clock.now(), clock.now()))
    (folder / nested).mkdir()
    everything = {NAME, unknown, unfinished, stranger, nested}
    await clock.advance(SWEEP_AFTER_SECONDS)
    assert await files.sweep() == 0
    assert names(folder) == everything
    await clock.advance(1)
    assert await files.sweep() == 2
    assert names(folder) == {NAME, stranger, nested}
    assert await files.read(NAME) == PNG
    assert await files.sweep() == 0


async def test_a_clock_that_was_ahead_sweeps_later(
    files: FolderAttachments, folder: Path, clock: FakeClock
) -> None:
    folder.mkdir()
    (folder / NAME).write_bytes(PNG)
    os.utime(folder / NAME, (clock.now() + 9e8, clock.now() + 9e8))
    assert await files.sweep() == 0
    assert names(folder) == {NAME}


async def test_a_file_that_is_found_useful_again_is_not_swept(
    folder: Path, store: SqlStore, clock: FakeClock
) -> None:
    """It was old and nobody's when the sweep looked; when the sweep comes to it, it is in use."""
    folder.mkdir()
    (folder / NAME).write_bytes(PNG)
    os.utime(folder / NAME, (0, 0))

    class Rows:
        """The store; somebody keeps a file just behind the sweep's question."""

        async def enter_file(self, file: StoredFile) -> StoredFile:
            return await store.enter_file(file)

        async def file_row(self, name: str, owner: str | None = None) -> StoredFile | None:
            return await store.file_row(name, owner)

        async def known_files(self, names: object) -> set[str]:
            await keep(FolderAttachments(folder, store, clock, in_daemon_thread))
            return set()

    sweeping = FolderAttachments(folder, Rows(), clock, in_daemon_thread)
    assert await sweeping.sweep() == 0
    assert await sweeping.read(NAME) == PNG


async def test_many_files_are_swept_in_pieces(files: FolderAttachments, folder: Path) -> None:
    folder.mkdir()
    for n in range(1_050):
        path = folder / f"{n:032x}"
        path.touch()
        os.utime(path, (0, 0))
    await keep(files)
    os.utime(folder / NAME, (0, 0))
    assert await files.sweep() == 1_050
    assert names(folder) == {NAME}


# --- beside the loop ----------------------------------------------------------------------------


async def test_files_are_written_and_read_in_a_thread_of_their_own(
    folder: Path, store: SqlStore, clock: FakeClock
) -> None:
    at_work: list[bool] = []

    async def noted(work: Callable[[], T], name: str) -> T:
        def run() -> T:
            at_work.append(threading.current_thread() is threading.main_thread())
            return work()

        return await in_daemon_thread(run, name)

    files = FolderAttachments(folder, store, clock, noted)
    await keep(files)
    await files.read(NAME)
    await files.sweep()
    assert len(at_work) >= 3
    assert not any(at_work)


async def test_who_gives_up_waiting_leaves_it_whole(files: FolderAttachments, folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hook(point: str) -> None:
        if point == "attachments.written":
            begun.set()
            assert go_on.wait(20)

    faultpoint.install(hook)
    try:
        keeping = asyncio.ensure_future(keep(files))
        await in_daemon_thread(lambda: begun.wait(20), "test")
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
        go_on.set()
        await keep(files, b"behind it")
    finally:
        faultpoint.install(None)
    assert names(folder) == {NAME, name_of(b"behind it", "image/png")}
    assert await files.find(NAME) is None
    assert (await keep(files, owner=OWNER)).name == NAME
