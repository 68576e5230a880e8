"""What goes wrong at the control socket is answered in words, and ends nothing but that request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreUnavailable
from gateway.cli import exits
from gateway.cli.main import main
from gateway.control import (
    MAX_LINE_BYTES,
    Handler,
    RequestFailed,
    ask,
    connect,
    read_line,
    send_line,
)
from gateway.control_server import ENDING, ControlServer
from gateway.crashes.catching import caught
from gateway.crashes.shelf import CrashShelf, kept


@asynccontextmanager
async def listening(folder: Path, **handlers: Handler) -> AsyncIterator[ControlServer]:
    async def well(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, {"ready": True})

    server = ControlServer(
        folder / "c.sock", {"well": well, **handlers}, crashes=folder / "crashes"
    )
    await server.start()
    try:
        yield server
        assert await asked(server, "well") == {"ready": True}, "the socket lives on"
    finally:
        await server.close()


async def asked(server: ControlServer, op: str) -> Mapping[str, Any] | None:
    return await asyncio.to_thread(ask, server.path, {"op": op})


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "error",
    [KeyError("somebody's words"), ValueError("a bug"), ConnectionRefusedError("not the client")],
)
async def test_a_handler_that_crashes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def broken(request: dict[str, Any], reader: Any, writer: Any) -> None:
        raise error

    shelf = CrashShelf(tmp_path, str, lambda: 0.0)
    with caught(shelf, process=False):
        async with listening(tmp_path, broken=broken) as server:
            with pytest.raises(RequestFailed) as told:
                await asked(server, "broken")
    said = str(told.value)
    assert f"fault inside the gateway ({type(error).__name__})" in said
    assert str(tmp_path / "crashes") in said
    assert "log" in said
    assert "words" not in said
    assert len(tracebacks(caplog)) == 1
    assert [crash.path.parent for crash in kept(tmp_path)] == [tmp_path / "crashes"]


async def test_an_answer_that_can_not_be_written_down(tmp_path: Path) -> None:
    async def odd(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await send_line(writer, {"path": tmp_path})

    async with listening(tmp_path, odd=odd) as server:
        with pytest.raises(RequestFailed, match="TypeError"):
            await asked(server, "odd")


async def test_what_was_foreseen_is_said_and_is_no_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(request: dict[str, Any], reader: Any, writer: Any) -> None:
        raise StoreUnavailable("the disk is full")

    async with listening(tmp_path, full=full) as server:
        with pytest.raises(RequestFailed, match=r"^the disk is full$"):
            await asked(server, "full")
    assert tracebacks(caplog) == []


@pytest.mark.parametrize("rubbish", [b'{"op": "we', b"not json\n", b"[1]\n", b"\xff\n"])
async def test_half_a_request_and_rubbish(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rubbish: bytes
) -> None:
    async with listening(tmp_path) as server:
        reader, writer = await connect(server.path)
        writer.write(rubbish)
        writer.write_eof()
        answer = await read_line(reader)
        assert answer is not None
        assert answer["error"].startswith("this is no request")
        assert await read_line(reader) is None
        writer.close()
    assert tracebacks(caplog) == []


async def test_a_request_of_which_the_rest_never_comes(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "c.sock", {}, request_seconds=0.01)
    await server.start()
    try:
        reader, writer = await connect(server.path)
        writer.write(b'{"op": "we')
        answer = await read_line(reader)
        assert answer is not None
        assert "no request" in answer["error"]
        writer.close()
    finally:
        await server.close()


async def test_a_huge_request_hears_that_it_is_too_long(tmp_path: Path) -> None:
    """Also who writes all of it before reading anything, as `ask` does."""
    async with listening(tmp_path) as server:
        with pytest.raises(RequestFailed, match="too long"):
            await asyncio.to_thread(ask, server.path, {"op": "x" * (3 * MAX_LINE_BYTES)})


async def test_a_client_that_leaves_in_the_middle_of_its_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, left, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(request: dict[str, Any], reader: Any, writer: Any) -> None:
        begun.set()
        await left.wait()
        try:
            for _ in range(100):
                await send_line(writer, {"text": "x" * 100_000})
        finally:
            over.set()

    async with listening(tmp_path, slow=slow) as server:
        _, writer = await connect(server.path)
        await send_line(writer, {"op": "slow"})
        await begun.wait()
        writer.transport.abort()
        left.set()
        await over.wait()
    assert tracebacks(caplog) == []


async def test_one_slow_request_holds_up_no_other(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(request: dict[str, Any], reader: Any, writer: Any) -> None:
        await go_on.wait()
        await send_line(writer, {"at": "last"})

    async with listening(tmp_path, slow=slow) as server:
        slowly = asyncio.create_task(asked(server, "slow"))
        assert await asked(server, "well") == {"ready": True}
        go_on.set()
        assert await slowly == {"at": "last"}


async def test_who_still_waits_at_the_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def endless(request: dict[str, Any], reader: Any, writer: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with listening(tmp_path, endless=endless) as server:
        waiting = asyncio.create_task(asked(server, "endless"))
        await begun.wait()
        assert await asked(server, "well") == {"ready": True}
        await server.close()
        with pytest.raises(RequestFailed, match=ENDING[:30]):
            await waiting
        assert asyncio.all_tasks() == {asyncio.current_task(), waiting} - {waiting}
        await server.start()
    assert tracebacks(caplog) == []


async def test_who_reads_nothing_is_let_go_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.control_server.LAST_WORDS_SECONDS", 0.05)
    begun = asyncio.Event()

    async def long(request: dict[str, Any], reader: Any, writer: Any) -> None:
        begun.set()
        await send_line(writer, {"text": "x" * 2_000_000})

    async with listening(tmp_path, long=long) as server:
        _, writer = await connect(server.path)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await send_line(writer, {"op": "long"})
        await begun.wait()
        await server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        writer.transport.abort()
        assert left == set()
        await server.start()


async def test_status_and_chat_say_what_they_were_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(request: dict[str, Any], reader: Any, writer: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setenv("POSTHOUSE_HOME", str(tmp_path))
    server = ControlServer(tmp_path / "control.sock", {"status": broken})
    await server.start()
    try:
        assert await asyncio.to_thread(main, ["status"]) == exits.FAILED
        assert "fault inside the gateway (KeyError)" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["chat"]) == exits.FAILED
        assert "fault inside the gateway (KeyError)" in capsys.readouterr().err
    finally:
        await server.close()
