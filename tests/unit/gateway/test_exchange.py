"""A file on its way through the control socket: what the client hears when it does not arrive."""

from __future__ import annotations

import asyncio
import filecmp
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ImportRefused
from agent.exchange.records import TakenIn
from gateway.control import Handler
from gateway.control_server import ControlServer
from gateway.exchange import CHUNK_BYTES, ImportDesk, send_file

TAKEN = TakenIn("c_1", "s_1", 1, 2)


@asynccontextmanager
async def _listening(handler: Handler) -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path may not be long
        server = ControlServer(Path(folder) / "s", {"import": handler})
        await server.start()
        try:
            yield server.path
        finally:
            for _ in range(5):  # the server hears of a client that is gone already
                await asyncio.sleep(0)
            await server.close()


async def test_a_file_arrives_whole_and_nothing_of_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x\n" * CHUNK_BYTES)
    aside = tmp_path / "aside"
    aside.mkdir()
    got: list[tuple[bool, str | None]] = []

    async def take_in(arrived: Path, owner: str | None) -> Sequence[TakenIn]:
        got.append((filecmp.cmp(arrived, path, shallow=False), owner))
        return [TAKEN]

    async with _listening(ImportDesk(aside, take_in).serve) as socket:
        with path.open("rb") as file:
            assert await send_file(socket, file, "telegram:7") == [TAKEN]
    assert got == [(True, "telegram:7")]
    assert list(aside.iterdir()) == []


async def test_a_daemon_that_goes_away_is_no_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8 * CHUNK_BYTES)

    async def gone(
        request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.abort()

    async with _listening(gone) as socket:
        with path.open("rb") as file, pytest.raises(ImportRefused, match="gateway went away"):
            await send_file(socket, file, None)


async def test_why_a_file_was_not_taken_is_heard_by_who_still_sends_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 16 * CHUNK_BYTES)

    async def broken(
        request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        raise KeyError("a bug")

    async with _listening(broken) as socket:
        with path.open("rb") as file, pytest.raises(ImportRefused, match="fault inside"):
            await send_file(socket, file, None)


async def test_a_folder_that_takes_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 16 * CHUNK_BYTES)

    async def never(arrived: Path, owner: str | None) -> Sequence[TakenIn]:
        raise AssertionError("it was taken in")

    async with _listening(ImportDesk(tmp_path / "missing", never).serve) as socket:
        with path.open("rb") as file, pytest.raises(ImportRefused, match="can not be kept: No"):
            await send_file(socket, file, None)


@pytest.mark.parametrize("linked", [False, True])
async def test_half_a_database_is_not_sent(tmp_path: Path, linked: bool) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"SQLite format 3\x00")
    path.with_name("state.db-wal").write_bytes(b"more")
    if linked:
        path = tmp_path / "link.db"
        path.symlink_to(tmp_path / "state.db")

    async def never(
        request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        raise AssertionError("it was sent")

    async with _listening(never) as socket:
        with path.open("rb") as file, pytest.raises(ImportRefused, match="not in the database yet"):
            await send_file(socket, file, None)


def test_what_a_killed_daemon_had_set_aside_goes(tmp_path: Path) -> None:
    async def take_in(arrived: Path, owner: str | None) -> Sequence[TakenIn]:
        return []

    for name in (".import-x1.part", "import-mine.jsonl"):
        (tmp_path / name).touch()
    ImportDesk(tmp_path, take_in).tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["import-mine.jsonl"]
