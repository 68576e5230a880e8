"""Owns asking the memory provider what a summary has to keep: in time, and without any risk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from agent.context_engine import sanitize_memory_context
from agent.messages import Message, public
from agent.ports import Clock
from agent.sessions import LoadedSession

log = logging.getLogger(__name__)

MemoryText = Callable[[list[Message]], Awaitable[str]]
"""Gets the messages that are about to be compressed."""
TIMEOUT_SECONDS = 10.0


async def memory_text(
    source: MemoryText | None,
    loaded: LoadedSession,
    clock: Clock,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> str:
    """What the memory wants to be kept; "" if there is none, it fails, or it takes too long."""
    if source is None:
        return ""
    messages = [public(row.message) for row in loaded.rows]
    asking = asyncio.ensure_future(_asked(source, messages))
    deadline = asyncio.ensure_future(clock.sleep(timeout_seconds))
    try:
        await asyncio.wait({asking, deadline}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            log.warning("memory gave no text in time", extra={"timeout_seconds": timeout_seconds})
            return ""
        return asking.result()
    finally:
        asking.cancel()
        deadline.cancel()


async def _asked(source: MemoryText, messages: list[Message]) -> str:
    try:
        return sanitize_memory_context(await source(messages))
    except Exception:  # the border to somebody else's code: a summary can do without it
        log.exception("memory gave no text")
        return ""
