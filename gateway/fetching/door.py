"""Owns the way to the web: how long a page may take, and how many are on their way at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent.llm.background import in_daemon_thread
from agent.tools.web import WebPage, WebRefusal
from gateway.fetching.named import NamedHosts
from gateway.fetching.names import LookUp, Names

if TYPE_CHECKING:
    from gateway.fetching.following import Follower

DEADLINE_SECONDS = 30.0
"""From the question to the last byte, wherever it moves to."""
MAX_AT_ONCE = 8
"""Of all conversations; others wait for their turn."""


class WebDoor:
    """Public pages, and those of named hosts (`agent.tools.web.Web`).

    What it takes (aiohttp) is imported in a thread, with the first page.
    """

    def __init__(
        self,
        named: NamedHosts,
        *,
        look_up: LookUp | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._named = named
        self._look_up = look_up or Names()
        self._deadline_seconds = deadline_seconds
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def get(self, url: str) -> WebPage:
        made = await in_daemon_thread(_follower, "fetch-import")
        async with self._slots:
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    return await made(self._named, self._look_up).get(url)
            except TimeoutError as exc:
                raise WebRefusal(
                    f"the page was not there within {self._deadline_seconds:g} s; try again later"
                ) from exc


def _follower() -> type[Follower]:
    from gateway.fetching.following import Follower  # noqa: PLC0415 - see above

    return Follower
