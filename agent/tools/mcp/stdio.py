"""Owns the way of messages to and from a server's process, in the form of the `mcp` package.

The package has one of its own. Ours bounds what a server may write, keeps its errors out of our
standard error, and ends all that it has started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from agent.tools.mcp.nouns import StdioWay
from agent.tools.mcp.process import MAX_LINE_BYTES, ServerProcess, started
from agent.tools.mcp.trouble import Trouble
from agent.tools.mcp.weight import lightened

MAX_MESSAGES_A_SECOND = 1_000
"""Beyond that it has to wait: others need the loop as well."""
MAX_STRAY_LINES = 1_000
"""Lines that are no message, in one connection. Programs greet on their standard output."""
WAITING_TO_GO = 64

log = logging.getLogger(__name__)

Inbound = MemoryObjectReceiveStream[SessionMessage | Exception]
Outbound = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_transport(
    name: str, way: StdioWay, trouble: Trouble
) -> AsyncIterator[tuple[Inbound, Outbound]]:
    """An `mcp.client.Transport` over a process of our own; ``trouble`` is told of its end."""
    async with started(name, way) as process:
        to_session, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbound, from_session = anyio.create_memory_object_stream[SessionMessage](WAITING_TO_GO)
        async with inbound, outbound, anyio.create_task_group() as group:
            group.start_soon(_read, name, process, to_session, trouble)
            group.start_soon(_write, process, from_session)
            try:
                yield inbound, outbound
            finally:
                group.cancel_scope.cancel()


async def _read(
    name: str,
    process: ServerProcess,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    trouble: Trouble,
) -> None:
    reason = ""
    loop = asyncio.get_running_loop()
    second, messages, stray = loop.time(), 0, 0
    async with to_session:
        try:
            while line := await process.output.readuntil(b"\n"):
                message = _message(line)
                if message is None:
                    stray += bool(line.strip())
                    if stray > MAX_STRAY_LINES:
                        reason = "what it writes to its standard output is not the protocol"
                        break
                else:
                    await to_session.send(message)
                messages += 1
                if messages > MAX_MESSAGES_A_SECOND:
                    await asyncio.sleep(max(0.0, second + 1 - loop.time()))
                if loop.time() - second >= 1:
                    second, messages = loop.time(), 0
                await asyncio.sleep(0)  # a full pipe is read without waiting: others go in between
        except asyncio.IncompleteReadError:
            await asyncio.sleep(0.1)  # its last words come beside this, and its exit code
            reason = process.last_words() or "it has closed its output"
        except asyncio.LimitOverrunError:
            reason = f"it wrote a line of more than {MAX_LINE_BYTES:,} bytes"
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is over
        except OSError as exc:
            reason = f"its output can not be read: {exc}"
        trouble.note(reason)


def _message(line: bytes) -> SessionMessage | None:
    light = lightened(line)
    if light is None:
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(light, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write(
    process: ServerProcess, from_session: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    async with from_session:
        async for item in from_session:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.input.write(line.encode("utf-8", "replace") + b"\n")
                await process.input.drain()
            except (OSError, RuntimeError):
                return  # its end shows in what it writes
