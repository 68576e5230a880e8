"""Owns the contract between the gateway and a platform: what comes in, what goes out, how it fails.

PlatformError
├── PlatformConfigError     supervisor: state failed-config, not retried (bad token, missing intent)
├── PlatformUnavailable     supervisor: state retrying, with back-off (network, server errors)
└── SendError               delivery
    ├── SendUnavailable     certainly not delivered; try again later
    ├── SendFlood           certainly not delivered; this chat is silent for retry_after_seconds
    ├── SendRefused         will never be delivered (blocked, kicked, chat gone): give up
    └── SendUnknown         may have been delivered
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from agent.mail import Address, Cursor, OutboxPart, PartDraft, Receipt

ChatKind = Literal["direct", "group"]


class PlatformState(StrEnum):
    """How a platform is."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    RETRYING = "retrying"
    FAILED_CONFIG = "failed-config"


class PlatformError(Exception):
    """Base of what a platform raises."""


class PlatformConfigError(PlatformError):
    """Only the operator can heal this; the text says how."""


class PlatformUnavailable(PlatformError):
    """The platform can not be reached now."""


class SendError(PlatformError):
    """Base of the ways in which a send fails."""


class SendUnavailable(SendError):
    """Not delivered; later it may work."""


class SendFlood(SendError):
    """Not delivered: too much was sent to this chat."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"flood control: retry after {retry_after_seconds:g} s")
        self.retry_after_seconds = retry_after_seconds


class SendRefused(SendError):
    """Never to be delivered."""


class SendUnknown(SendError):
    """The connection broke after the request was sent."""


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message as every platform says it. Ids are strings; names are only ever shown."""

    platform: str
    bot_id: str
    chat_id: str
    chat_kind: ChatKind
    message_id: str
    sender_id: str
    sender_name: str
    text: str
    sent_at: float
    """Unix seconds by the platform's clock."""
    thread_id: str | None = None
    parent_chat_id: str | None = None
    """Of a thread: the channel that it belongs to (allow-lists name channels)."""
    update_id: str | None = None
    sender_role_ids: frozenset[str] = frozenset()
    sender_is_bot: bool = False
    addressed: bool = True
    """To the bot: a direct chat, a mention, a reply to it, or a command."""
    quoted_text: str | None = None
    """Of the message that this one replies to, if it is not the bot's own newest one."""
    extra: dict[str, Any] = field(default_factory=dict)


class Intake(Protocol):
    """Where a platform hands in what it received."""

    async def receive(self, message: InboundMessage, cursor: Cursor | None = None) -> None:
        """Gate, store, hand on. When this returns, the platform may forget the update.

        Returns as well for what is refused or of no interest (the cursor has moved then, too).

        Raises:
            StoreUnavailable: not stored; the platform must keep the update and try again.
        """
        ...

    async def quarantine(
        self, platform: str, bot_id: str, update_id: str, raw: str, reason: str
    ) -> None:
        """Keep an update that could not be converted; same guarantee."""
        ...

    async def cursors(self, platform: str, bot_id: str) -> dict[str, str]:
        """Channel id → newest stored message id."""
        ...


Report = Callable[[PlatformState, str], None]


class Platform(Protocol):
    """One bot on one platform. Made once, ``run`` again after each failure."""

    @property
    def name(self) -> str:
        """``telegram``, ``discord``, ``console``."""
        ...

    @property
    def bot_id(self) -> str | None:
        """Known once the platform has been running."""
        ...

    @property
    def dedupes_sends(self) -> bool:
        """A part sent again (``repeat=True``) is shown once.

        If not, a part whose outcome is unknown is sent again once, marked as a possible repeat.
        """
        ...

    async def run(self, intake: Intake, report: Report) -> None:
        """Connect and receive until cancelled.

        Reports RUNNING once messages really arrive (a successful poll, a ready gateway), DEGRADED
        while it heals itself.

        Raises:
            PlatformConfigError: the token or the bot's rights are wrong.
            PlatformUnavailable: anything that another ``run`` may heal.
        """
        ...

    def render(self, text: str) -> list[PartDraft]:
        """Plan the platform messages of an answer (pure): never empty, each within the limits.

        For a blank text: one part that says that there is nothing to say.
        """
        ...

    async def send(self, address: Address, part: OutboxPart, *, repeat: bool = False) -> str:
        """Send one planned part and give back the platform's message id.

        ``repeat``: the outcome of an earlier try is unknown. Where the platform dedupes sends, the
        earlier message is found and its id given back. Where it does not, the text is marked as a
        possible repeat. If the platform refuses the markup, the part goes out as plain text.

        Raises:
            SendError: the matching class.
        """
        ...

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written; failures are swallowed and logged."""
        ...

    async def close(self) -> None:
        """Let go of connections. May be called twice; sends may come until then."""
        ...


__all__ = [
    "Address",
    "ChatKind",
    "Cursor",
    "InboundMessage",
    "Intake",
    "OutboxPart",
    "PartDraft",
    "Platform",
    "PlatformConfigError",
    "PlatformError",
    "PlatformState",
    "PlatformUnavailable",
    "Receipt",
    "Report",
    "SendError",
    "SendFlood",
    "SendRefused",
    "SendUnavailable",
    "SendUnknown",
]
