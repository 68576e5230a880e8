"""Owns rendering off the loop: what takes long is planned on a thread of its own."""

from __future__ import annotations

import asyncio
from typing import Final

from agent.daemon_threads import DaemonThreads
from agent.mail import OutboxDraft, PartDraft
from gateway.platforms.contract import Platform

AT_ONCE_CHARS: Final = 4_000
"""Up to here the thread costs more than it saves: a millisecond or two of the loop."""
_THREADS: Final = DaemonThreads(1, name="rendering")
"""One is enough: they would only take turns at the interpreter."""


async def rendered(platform: Platform, draft: OutboxDraft) -> list[PartDraft]:
    """`Platform.render`, without holding up the loop."""
    if len(draft.text) <= AT_ONCE_CHARS:
        return platform.render(draft)
    return await asyncio.wrap_future(_THREADS.submit(lambda: platform.render(draft)))
