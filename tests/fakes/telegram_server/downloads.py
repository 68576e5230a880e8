"""The file server: which paths are open, and the ways in which bytes can come badly."""

from __future__ import annotations

import asyncio
import contextlib
import gzip

from aiohttp import web

from tests.fakes.telegram_server.faults import Fault
from tests.fakes.telegram_server.state import State, StoredFile


def open_file(state: State, path: str) -> StoredFile | None:
    """The file at a path that getFile has given within the hour."""
    now = state.clock()
    for stored in state.files.values():
        if stored.path == path and now < stored.open_until:
            return stored
    return None


async def badly(request: web.Request, fault: Fault, data: bytes) -> web.StreamResponse:
    """Answer with a file's bytes, but

    - drip: one byte per ``seconds`` (default 0.05),
    - short: fewer than announced, then the connection ends,
    - endless: without any announcement and without end,
    - packed: small on the way, huge when unpacked, though nobody asked for it,
    - moved: another address is named instead.
    """
    answer = web.StreamResponse()
    if fault.kind == "moved":
        return web.Response(status=302, headers={"Location": str(request.url.with_path("/else"))})
    if fault.kind == "packed":
        body = gzip.compress(bytes(5_000_000), compresslevel=1)  # this holds the event loop up
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})
    if fault.kind == "endless":
        answer.enable_chunked_encoding()
    else:
        answer.content_length = len(data)
    await answer.prepare(request)
    with contextlib.suppress(ConnectionError):
        if fault.kind == "drip":
            for index in range(len(data)):
                await answer.write(data[index : index + 1])
                await asyncio.sleep(fault.seconds or 0.05)
        elif fault.kind == "short":
            await answer.write(data[: len(data) // 2])
            if request.transport is not None:
                await asyncio.sleep(0.01)
                request.transport.abort()
        else:
            while request.transport is not None and not request.transport.is_closing():
                await answer.write(bytes(65_536))
    return answer
