"""Owns the nouns of the mailbox: what came in, what is owed, and in which parts it goes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

InboxState = Literal["new", "claimed", "answered", "quarantined"]
SendState = Literal["planned", "sending", "sent", "unknown", "failed"]
"""planned → sending → sent | failed | unknown. *unknown*: it may have arrived."""
OutboxKind = Literal["reply", "command", "notice"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where an answer goes."""

    platform: str
    bot_id: str
    chat_id: str
    thread_id: str | None = None
    reply_to_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class InboxRecord:
    """A message to be stored before the platform may forget it."""

    address: Address
    message_id: str
    kind: str
    """``message`` or ``command``."""
    session_key: str
    owner: str
    text: str
    received_at: float
    sent_at: float
    """By the platform's clock; Unix seconds, as all times here."""
    update_id: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    """What the turn needs beside the text: the sender's name, the quoted message, …"""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where a channel has been read; moves in the transaction that stores the message."""

    platform: str
    bot_id: str
    channel_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """The row of an accepted message. Not fresh: it was there before, nothing was stored."""

    inbox_id: int
    fresh: bool
    record: InboxRecord
    """The message where its chat is today, which may have moved."""


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A stored inbound message."""

    id: int
    record: InboxRecord
    state: InboxState


NOT_AWAITED = "it is over"
"""Why a question was given up that nobody waits for an answer to any more."""


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press under an answer: whoever presses says ``command``, through the same gate.

    Where a platform has no buttons the answer's text has to be enough.
    """

    label: str
    command: str
    """As a person would type it, at most 64 bytes of UTF-8: ``/approve 3f9a``."""


@dataclass(frozen=True, slots=True)
class OutboxDraft:
    """An answer that is owed from the moment its transaction commits."""

    address: Address
    text: str
    kind: OutboxKind = "reply"
    buttons: tuple[Button, ...] = ()
    files: tuple[str, ...] = ()
    """Kept files that go out with it (`agent.attachments.StoredFile.name`)."""
    files_owner: str | None = None
    """For whom they were kept: no other's go out, and they are called what they are to this one."""
    interaction: str | None = None
    """The platform's key to answer a command of its native menu, for its 15 minutes."""
    edits_message_id: str | None = None
    """The message that shows a preview of it: the answer takes its place."""
    decides: bool = False
    """It says what came of a button: those of that message are of no use any more."""
    aside: bool = False
    """It only concerns whoever pressed: shown to nobody else where the platform can do that."""
    asks: bool = False
    """Part of this process waits for an answer to it: not sent any more once nobody does."""


@dataclass(frozen=True, slots=True)
class PartDraft:
    """One platform message of an answer, planned: sent with exactly these contents."""

    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """A planned part."""

    id: int
    outbox_id: int
    n: int
    """From 0."""
    state: SendState
    payload: dict[str, Any]
    platform_message_id: str | None = None
    attempts: int = 0
    """Tries so far; while it is sent, this one included."""
    follows_message_id: str | None = None
    """What the part before it became; not stored, delivery fills it in."""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """An owed answer with its parts (none yet: not planned)."""

    id: int
    conversation_id: str | None
    draft: OutboxDraft
    state: SendState
    created_at: float
    parts: tuple[OutboxPart, ...] = ()
    error: str | None = None
