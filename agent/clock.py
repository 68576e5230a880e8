"""Owns the real clock and the real source of ids; everything else takes them as ports."""

from __future__ import annotations

import asyncio
import time
import uuid


class SystemClock:
    """The machine's clocks (`agent.ports.Clock`)."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that nobody else makes (`agent.ports.IdSource`)."""

    def new(self, prefix: str) -> str:
        return f"{prefix}_{uuid.uuid4().hex[:20]}"
