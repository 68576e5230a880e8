"""Owns the public contract of chat platforms that plugins bring along. Standard library only.

A plugin registers a factory: ``ctx.register_platform("irc", "IRC", factory)``. It is called once
with the plugin's settings, on a thread, and makes a `ChatAdapter`. All of the adapter's methods run
on one event loop that belongs to its plugin, never on the gateway's: it may use any library, and if
it blocks it blocks itself.

The gateway does the rest: who may talk (nobody, until ``plugins.entries.<plugin>.allow_from`` says
so), what was said once and handed in twice, order, commands, splitting of long answers, tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AdapterError(Exception):
    """Base of what adapters raise on purpose. Anything else is logged with its trace."""


class WrongSettings(AdapterError):
    """Only the operator can heal this; the text says how. It is not tried again."""


class NotSent(AdapterError):
    """Certainly not delivered; it is tried again later."""


class NeverSendable(AdapterError):
    """Will never be delivered: blocked, gone, refused."""


class NotTaken(Exception):
    """Raised by `Door.receive`: the message is not stored. Hand it in again later."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message that somebody sent. Ids are text of at most 200 characters."""

    message_id: str
    """Unique in its chat: a message handed in again is taken once."""
    chat_id: str
    sender_id: str
    text: str
    direct: bool
    """A chat with the bot alone; else a group."""
    sender_name: str = ""
    """Only ever shown."""
    chat_name: str = ""
    """Of a group; only ever shown."""
    thread_id: str | None = None
    sent_at: float | None = None
    """Unix seconds by the platform's clock; None: now."""
    addressed: bool = True
    """In a group: is it meant for the bot (a mention, a reply to it)?"""
    from_bot: bool = False


class Door(Protocol):
    """Where an adapter hands in what it receives. To be used on the adapter's loop."""

    def working(self) -> None:
        """Messages really arrive now. Once per `ChatAdapter.run` is enough."""
        ...

    def troubled(self, reason: str) -> None:
        """Messages do not arrive now, and the adapter heals that by itself."""
        ...

    async def receive(self, message: ChatMessage) -> bool:
        """When this returns, the message is stored, and the platform may forget it.

        False: its sender may not talk here, or it is of no interest.

        Raises:
            NotTaken: it is not stored.
            ValueError: it is no message (no id, no text …).
        """
        ...


class ChatAdapter(Protocol):
    """One bot on one platform."""

    max_chars: int
    """Of one message, in UTF-16 units; 200 at least."""

    async def run(self, door: Door) -> None:
        """Connect and receive until cancelled. Called again, after a pause, whenever it ends.

        Raises:
            WrongSettings: as above.
        """
        ...

    async def send(self, chat_id: str, text: str, thread_id: str | None) -> str:
        """Send one message (Markdown, within `max_chars`); gives the platform's id of it, or "".

        Raises:
            NotSent: as above.
            NeverSendable: as above. Anything else: nobody knows whether it was delivered; it is
                sent once more, marked as a possible repeat.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; the process ends."""
        ...
