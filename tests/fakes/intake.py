"""An intake that only remembers, and fails when told to: what platforms are tested against."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent.errors import StoreUnavailable
from agent.mail import Cursor
from gateway.platforms.contract import InboundMessage, PlatformState


class RecordingIntake:
    """`gateway.platforms.contract.Intake`. Doubles are kept apart."""

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []
        self.doubles: list[InboundMessage] = []
        self.quarantined: list[tuple[str, str, str]] = []
        self.edits: list[InboundMessage] = []
        self.moves: list[tuple[str, str]] = []
        self.stored: dict[str, str] = {}
        """Channel id → newest stored message id, as `cursors` gives it back."""
        self.events: list[str] = []
        self.failures = 0
        """So many calls fail before the store is there again."""
        self.refuse: Callable[[InboundMessage], Exception | None] = lambda _message: None
        self.admitted: Callable[[InboundMessage], bool | None] = lambda _message: True
        self.takes: Callable[[InboundMessage], bool] = lambda _message: True
        self.strangers: list[InboundMessage] = []
        """Who spoke without being let in."""
        self.asked: list[InboundMessage] = []
        """Whom `admits` was asked about."""
        self.gate: asyncio.Event | None = None
        """While set and not open, `receive` waits in front of its commit."""
        self._news = asyncio.Event()

    def admits(self, message: InboundMessage) -> bool | None:
        self.asked.append(message)
        return self.admitted(message)

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> bool:
        if self.gate is not None:
            self.events.append(f"waiting {message.text}")
            self._changed()
            await self.gate.wait()
        await asyncio.sleep(0)  # a commit never comes in the same step
        self._fail()
        error = self.refuse(message)
        if error is not None:
            raise error
        if not self.takes(message) or self.admitted(message) is False:
            self.strangers.append(message)
            self._changed()
            return False
        known = {(m.chat_id, m.message_id) for m in self.messages}
        double = (message.chat_id, message.message_id) in known
        (self.doubles if double else self.messages).append(message)
        if cursor is not None:
            self.stored[cursor.channel_id] = cursor.message_id
        self.events.append(f"stored {message.text}")
        self._changed()
        return True

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        self._fail()
        self.quarantined.append((update_id, raw, reason))
        self._changed()

    async def edited(self, message: InboundMessage) -> None:
        self._fail()
        self.edits.append(message)
        self._changed()

    async def moved(self, platform: str, bot_id: str, old_chat_id: str, new_chat_id: str) -> None:
        self._fail()
        self.moves.append((old_chat_id, new_chat_id))
        self._changed()

    async def moved_chats(self, platform: str, bot_id: str) -> dict[str, str]:
        self._fail()
        return dict(self.moves)

    async def lately(self, platform: str, bot_id: str) -> list[InboundMessage]:
        self._fail()
        return list(self.messages)

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        self._fail()
        return dict(self.stored)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def until(self, condition: Callable[[], Any], timeout: float = 30.0) -> None:
        """Wait until something that happened here makes it true."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def wait_messages(self, count: int, timeout: float = 30.0) -> list[InboundMessage]:
        await self.until(lambda: len(self.messages) >= count, timeout)
        return self.messages

    def _fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            self.events.append("store down")
            self._changed()
            raise StoreUnavailable("the test says no")

    def _changed(self) -> None:
        self._news.set()


class Reports:
    """What a platform reported; can be waited for."""

    def __init__(self) -> None:
        self.all: list[tuple[PlatformState, str]] = []
        self._news = asyncio.Event()

    def __call__(self, state: PlatformState, reason: str) -> None:
        self.all.append((state, reason))
        self._news.set()

    @property
    def states(self) -> list[PlatformState]:
        return [state for state, _ in self.all]

    async def wait_count(self, count: int, timeout: float = 30.0) -> None:
        """Until so many were made."""
        async with asyncio.timeout(timeout):
            while len(self.all) < count:
                self._news.clear()
                await self._news.wait()

    async def wait(self, state: PlatformState, timeout: float = 30.0) -> str:
        """Until this is the newest state; its reason."""
        async with asyncio.timeout(timeout):
            while not self.all or self.all[-1][0] is not state:
                self._news.clear()
                await self._news.wait()
        return self.all[-1][1]
