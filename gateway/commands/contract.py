"""Owns what a command is: what it is called with, what it works on, what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from agent.mail import InboxRecord
from agent.ports import Archive, SessionStore
from agent.sessions import LoadedSession, SessionPrefix
from gateway.compactors import CompactorCache


class Status(Protocol):
    """What the daemon knows about itself, for ``/status``."""

    def window_tokens(self) -> int | None:
        """The model's window, or None while nobody has told."""
        ...

    def platforms(self) -> Mapping[str, tuple[str, str]]:
        """Name → state and reason."""
        ...

    def remarks(self) -> list[str]:
        """Lines that an operator should see (a stand-in engine, a small window)."""
        ...


@dataclass(frozen=True, slots=True)
class CommandHost:
    """What commands work on."""

    sessions: SessionStore
    archive: Archive
    compactors: CompactorCache
    prefix_for: Callable[[str], SessionPrefix]
    status: Status
    waiting: Callable[[str], int]
    """Messages that wait in a conversation's lane, by session key."""
    busy: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Call:
    """One command as somebody gave it."""

    record: InboxRecord
    argument: str
    admin: bool
    shared: bool
    """Several people talk in this conversation."""
    over: asyncio.Future[None] | None = None
    """For /stop: done when what was running has ended; None: nothing was running."""

    @property
    def key(self) -> str:
        """The session key."""
        return self.record.session_key


Place = Literal["at once", "in order"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: ``in order`` waits for its turn in the lane, ``at once`` does not."""

    name: str
    help: str
    run: Callable[[CommandHost, Call], Awaitable[str]]
    place: Place = "at once"
    admin_if_shared: bool = False
    usage: str = ""


async def tip(host: CommandHost, call: Call) -> LoadedSession | None:
    """The conversation that this place leads to, or None if there is none yet."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return None
    return await host.sessions.load(conversation.tip_session_id)


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
