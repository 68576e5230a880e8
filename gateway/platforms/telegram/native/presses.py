"""Owns telling the apps that a button was seen: they wait for it, nothing here waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from agent.ports import Clock
from gateway.platforms.contract import SendError
from gateway.platforms.telegram.failures import BadButtons, BadMarkup, ChatMoved, NoSuchMessage
from gateway.platforms.telegram.out.calls import MessageCalls
from gateway.tasks import TaskOwner

log = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""Whoever presses more is not told: the app stops waiting by itself."""
PATIENCE_SECONDS: Final = 10.0
"""Later, Telegram takes no answer any more."""
_CLOSE_SECONDS: Final = 1.0


class Presses:
    """The presses of one bot's buttons that are still to be answered."""

    def __init__(self, calls: Callable[[], MessageCalls], clock: Clock) -> None:
        self._calls = calls
        self._tasks = TaskOwner(clock)

    def answer(self, query_id: str, text: str) -> None:
        """Let the app stop waiting; returns at once. With a text it shows that for a moment."""
        if len(self._tasks) >= AT_ONCE:
            log.warning("too many presses at once; one is not answered")
            return
        self._tasks.spawn(self._answer(query_id, text), name="press answered")

    async def close(self) -> None:
        """What is under way gets no more time."""
        await self._tasks.cancel(_CLOSE_SECONDS)

    async def _answer(self, query_id: str, text: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._calls().answer_press(query_id, text)
        except (
            SendError, ChatMoved, BadMarkup, BadButtons, NoSuchMessage, TimeoutError,
        ) as exc:  # fmt: skip
            log.debug("a press was not answered", extra={"error": str(exc)})
