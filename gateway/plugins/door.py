"""Owns the way in from a plugin's platform: from its loop to ours, messages checked on the way."""

from __future__ import annotations

import asyncio

from agent.errors import StoreError
from agent.plugin_contract import ChatMessage, NotTaken
from agent.ports import Clock
from gateway.platforms.contract import InboundMessage, Intake, PlatformState

MAX_ID_CHARS = 200


class Door:
    """`agent.plugin_contract.Door`: used on the plugin's loop, leads to ours."""

    def __init__(
        self, platform: str, intake: Intake, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._platform = platform
        self._intake = intake
        self._loop = loop
        self._clock = clock
        self.state: tuple[PlatformState, str] | None = None
        """What it last said; None: nothing yet."""
        self.changed = asyncio.Event()
        """Of our loop."""

    def working(self) -> None:
        self._say(PlatformState.RUNNING, "")

    def troubled(self, reason: str) -> None:
        self._say(PlatformState.DEGRADED, str(reason)[:200])

    def _say(self, state: PlatformState, reason: str) -> None:
        self.state = (state, reason)
        self._loop.call_soon_threadsafe(self.changed.set)

    async def receive(self, message: ChatMessage) -> bool:
        inbound = inbound_of(message, self._platform, self._clock.now())
        handed_in = asyncio.run_coroutine_threadsafe(self._intake.receive(inbound), self._loop)
        try:
            return await asyncio.wrap_future(handed_in)
        except StoreError:
            raise NotTaken("the store can not be reached") from None


def inbound_of(message: ChatMessage, platform: str, now: float) -> InboundMessage:
    """A message as the gateway knows them (pure).

    Raises:
        ValueError: it is none.
    """
    ids = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "sender_id": message.sender_id,
    }
    for name, value in ids.items():
        if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID_CHARS:
            raise ValueError(f"{name} must be text of 1 to {MAX_ID_CHARS} characters")
    if not isinstance(message.text, str):
        raise ValueError("text must be text")
    thread = message.thread_id
    if thread is not None and (not isinstance(thread, str) or len(thread) > MAX_ID_CHARS):
        raise ValueError(f"thread_id must be text of at most {MAX_ID_CHARS} characters")
    sent_at = message.sent_at
    return InboundMessage(
        platform=platform,
        bot_id=platform,
        chat_id=message.chat_id,
        chat_kind="direct" if message.direct else "group",
        message_id=message.message_id,
        sender_id=message.sender_id,
        sender_name=str(message.sender_name)[:MAX_ID_CHARS],
        chat_name=str(message.chat_name)[:MAX_ID_CHARS] or None,
        text=message.text,
        sent_at=float(sent_at) if isinstance(sent_at, int | float) else now,
        thread_id=thread or None,
        sender_is_bot=message.from_bot is True,
        addressed=message.direct or message.addressed is True,
    )
